"""The protocol of an engine: it opens sessions; a session can think, be probed, have tokens appended, write, and close.

Engines know nothing of rules, prefixes or certainty: a probe is suffix ids, a maximum, and a function that says when enough
tokens are decoded. A probe never changes what the session thinks next.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, Literal, Protocol, TypeGuard, TypeVar, cast

from cgr.errors import Busy, DoesNotFit, MissingCapability
from cgr.records import Conversation, Probe, Token

T = TypeVar("T")
Ids = Sequence[int]
Done = Callable[[Sequence[Token]], bool]
OnText = Callable[[str], None]
WrittenStop = Literal["eos", "limit", "stop"]
TOP_MEAN = 20
FILTERS = frozenset({"top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "stop"})


Prompt = Conversation | Sequence[int]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do. The `needs` of a rule are checked against it before anything is computed. `sampling`: the
    fields of `Sampling` that the engine supports beyond temperature, top-p and seed."""

    logprobs: Literal["full", "top-k", "none"] = "none"
    token_ids: bool = False
    prefix_cache: bool = False
    ban: bool = False
    verify: bool = False
    overlap: bool = False
    thinking_logprobs: bool = False
    overlaps: bool = False  # overlaps probes with thinking unless told otherwise
    answer_logprobs: bool = False  # gives the log-probabilities of the written answer
    packed: bool = False  # has `probe_many`: all cuts of a trace in one pass
    alternatives: bool = False  # returns the likeliest alternatives to a decoded token, with their ids
    sampling: frozenset[str] = frozenset()

    def gives(self, need: str) -> bool:
        """Whether the engine has what a rule names in its `needs`."""
        return getattr(self, need, False) not in (False, "none")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known about a loaded model.

    `context` is the length of one session's context. `interval`, `budget` and `max_answer_tokens` are the model's own
    defaults, if its files name any. `fingerprint` identifies the weights, if the engine can read them. `model_context` is
    the context that the model was trained for, `sessions` how many sessions can be open at once, `template_opens` whether
    the chat template opens the think tag itself; None means unknown. `chunk`: thinking is sampled in chunks of this many
    tokens, each from a seed of its own; None: it is not. `shipped`: a model of this package, which knows the
    problems of `cgr.model.problems` and nothing else.
    """

    name: str
    engine: str
    context: int
    open_tag: str
    close_tag: str
    interval: int | None = None
    budget: int | None = None
    max_answer_tokens: int | None = None
    fingerprint: str = ""
    model_context: int | None = None
    sessions: int | None = None
    threads: int | None = None
    template_opens: bool | None = None
    shipped: bool = False
    chunk: int | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How thinking and the written answer are sampled. The defaults of `top_k`, `min_p` and the penalties switch them off.

    `stop`: strings that end the written answer; they have no effect while the model thinks. `logprobs`: also return each
    thinking token's raw log-probability and the mean of the 20 highest at that position. `limit`: the most thinking tokens
    that will be requested, if known. `answer_top`: return the log-probabilities of the written answer, with this many
    alternatives for each token (at least 1); None: do not.
    """

    temperature: float = 0.6
    top_p: float = 1.0
    seed: int = 0
    logprobs: bool = False
    limit: int | None = None
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    answer_top: int | None = None

    def filters(self) -> frozenset[str]:
        """The names of the filters, penalties and stop strings that are switched on."""
        return frozenset(f.name for f in fields(self) if f.name in FILTERS and getattr(self, f.name) != f.default)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of thinking: its token ids, whether the model then wanted to end, and whether it ended its turn (`eos`). On
    request also the tokens' log-probabilities and, for each, the mean of the `TOP_MEAN` highest raw ones (`tops`)."""

    ids: tuple[int, ...]
    ended: bool = False
    eos: bool = False
    logprobs: tuple[float, ...] = ()
    tops: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """What a probe decoded and what it cost; from a recording, the probe itself. `ended`: the model then ended its turn
    or its thinking; that token is not among `tokens`. `entropy`: of the first decoded token, in bits, if the engine knows
    it."""

    tokens: tuple[Token, ...] = ()
    ended: bool = False
    prefilled: int = 0
    cached: int = 0
    seconds: float = 0.0
    recorded: Probe | None = None
    entropy: float | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A piece of the answer that the model writes after its thinking; the last piece says why the text ended. `logprobs`:
    its tokens, on request. At a stop string they may go beyond the text."""

    text: str
    tokens: int = 0
    stop: WrittenStop | None = None
    logprobs: tuple[Token, ...] = ()


class Reader(Protocol):
    """A second model that follows the thinking of a session and is probed in its place."""

    @property
    def engine(self) -> Engine: ...

    def probe(
        self, ids: Sequence[int], suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, top: int = 0
    ) -> Coroutine[Any, Any, Answered]:
        """Probe after this thinking, given in the tokens of the model that thought; the suffix is in the reader's own."""


class Session(Protocol):
    """One question under one seed. `wasted` counts tokens that were thought and not used."""

    wasted: int

    @property
    def reader(self) -> Reader | None:
        """The second model that is probed in place of this session, if there is one."""

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        """Think up to `tokens` more tokens. `ban_end` forbids the end tag; `on_text` is called with each piece of text."""

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        """Think ahead while a probe is running. What is not used later counts as wasted."""

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        """Decode greedily after the suffix and forget it. `guess`: tokens that may be the answer, which an engine that
        verifies checks in one pass, with the same result. `rewind`: probe as if the last `rewind` tokens did not exist.
        `top`: how many alternatives to return for each token, if the engine cannot return them all."""

    async def append(self, ids: Sequence[int]) -> None:
        """Continue the thinking with these tokens in place of its end."""

    def write(self, limit: int) -> AsyncIterator[Written]:
        """The answer that the model writes after its thinking, as it comes; nothing if it ended its turn while thinking."""

    async def close(self) -> None:
        """Cancel what is running and free the session's place."""


class Engine(Protocol):
    """A model that can be asked. `info`, `capabilities` and `notes` are valid once `connect` has returned."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that a user should read before the engine is used."""

    @property
    def prober(self) -> Engine | None:
        """The engine that is probed, if it is not this one."""

    async def connect(self) -> None:
        """Load the model or reach the server, and find out what it can do. Further calls do nothing."""

    async def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text tokenised on its own; special tokens in it are recognised."""

    async def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids."""

    async def prompt(self, conversation: Conversation) -> tuple[int, ...]:
        """The ids of a question or a conversation, up to and including the opened think tag."""

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int, overlap: bool = False, wait: float | None = None
    ) -> Session:
        """A session on a question, a conversation or the ids of a whole prompt, with room for this many tokens after it.
        `wait`: seconds to wait for a free session before `Busy` is raised; None waits without a limit."""

    async def close(self) -> None:
        """Close the connections of this event loop; the engine can be used again."""


class Places(Generic[T]):
    """Places for the sessions of one engine on one event loop. Waiting is in order, bounded, and can be cancelled.
    `load`: how much is in use beside a place; of the free places, the first with the least load is taken."""

    def __init__(self, places: Iterable[T], load: Callable[[T], int] = lambda place: 0) -> None:
        self._free, self._load = list(places), load
        self._count = len(self._free)
        self._queue = asyncio.Semaphore(self._count)

    async def take(self, wait: float | None = None) -> T:
        """A free place; `Busy` after `wait` seconds."""
        try:
            async with asyncio.timeout(wait if self._queue.locked() else None):
                await self._queue.acquire()
            place = min(self._free, key=self._load)
            self._free.remove(place)
            return place
        except TimeoutError as error:
            raise Busy(
                f"All {self._count} sessions are in use, and none became free within {wait:g} seconds.",
                "Try again later, or open the model with more sessions.",
            ) from error

    def give_back(self, place: T) -> None:
        """Make a place free again."""
        self._free.append(place)
        self._queue.release()


async def prompt_ids(prompt: Prompt, engine: Engine) -> tuple[int, ...]:
    """The ids of a prompt, whichever way it is given."""
    return tuple(prompt) if is_ids(prompt) else await engine.prompt(cast(Conversation, prompt))


def is_ids(prompt: Prompt) -> TypeGuard[Sequence[int]]:
    """Whether a prompt is given as token ids."""
    return not isinstance(prompt, str) and all(isinstance(item, int) for item in prompt)


def check_fits(prompt: Sequence[int], room: int, context: int) -> None:
    """Raise `DoesNotFit` if the prompt and `room` more tokens exceed the context."""
    if (excess := len(prompt) + room - context) > 0:
        raise DoesNotFit(
            f"The prompt has {len(prompt)} tokens and {room} more are requested, but the context has {context}.",
            f"Lower the budget by at least {excess}.",
        )


def check_sampling(sampling: Sampling, engine: Engine) -> None:
    """Raise `MissingCapability` if the sampling uses a filter that the engine does not have."""
    for name in sorted(sampling.filters() - engine.capabilities.sampling):
        raise MissingCapability(
            f"{engine.info.engine} does not support {name!r} in sampling.", "Leave it out, or use another engine."
        )
    if sampling.answer_top is not None and not engine.capabilities.answer_logprobs:
        raise MissingCapability(
            f"{engine.info.engine} gives no log-probabilities of a written answer.", "Leave logprobs out."
        )


async def written_text(pieces: AsyncIterator[Written]) -> str:
    """All of a written answer as one string."""
    return "".join([piece.text async for piece in pieces])


def keyed_seed(seed: int, key: int | str) -> int:
    """A seed for the chunk that starts at this position, or for this question. Chunks with the same seed would draw the
    same random numbers, and so would different questions under one seed."""
    digest = hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") & 0x7FFFFFFF
