"""What an engine is: it opens sessions, and a session can think, be probed (which leaves it as it was), append, close.

Engines know nothing of rules, prefixes or certainty: a probe is suffix ids, a maximum, and a callable that says when the
decoded tokens are enough.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from cgr.records import Probe, Token

Done = Callable[[Sequence[Token]], bool]
OnText = Callable[[str], None]
TOP_MEAN = 20


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do. `needs` of a rule are checked against it before anything is computed."""

    logprobs: Literal["full", "top-k", "none"] = "none"
    token_ids: bool = False
    prefix_cache: bool = False
    ban: bool = False
    verify: bool = False
    overlap: bool = False
    thinking_logprobs: bool = False
    overlaps: bool = False  # unless told otherwise
    packed: bool = False  # has `probe_many`: all cuts of a trace in one pass

    def gives(self, need: str) -> bool:
        value = getattr(self, need, False)
        return value not in (False, "none")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a model says of itself. `interval`, `budget` and `max_answer_tokens` are its own wishes, where it has any;
    `fingerprint` tells its weights from others of the same name, where the engine sees them."""

    name: str
    engine: str
    context: int
    open_tag: str
    close_tag: str
    interval: int | None = None
    budget: int | None = None
    max_answer_tokens: int | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How thinking is sampled. Nothing else filters: no top-k, no min-p, no penalties. `logprobs`: each token's raw
    log-probability is wanted too, and the mean of the 20 highest there. `limit`: no more tokens than these will be asked
    for, where that is known."""

    temperature: float = 0.6
    top_p: float = 1.0
    seed: int = 0
    logprobs: bool = False
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of thinking: its token ids, whether the model then wanted to end, and whether by end of turn; where they
    were asked for, the tokens' log-probabilities, and at each the mean of the `TOP_MEAN` highest raw ones (`tops`)."""

    ids: tuple[int, ...]
    ended: bool = False
    eos: bool = False
    logprobs: tuple[float, ...] = ()
    tops: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """What a probe decoded and what it cost; from a recording, the probe itself. `ended`: the model then ended its turn
    (or its thinking) instead of going on; that token is not among the others. `entropy`: of the first token decoded, in
    bits over the whole vocabulary, from an engine that has it."""

    tokens: tuple[Token, ...] = ()
    ended: bool = False
    prefilled: int = 0
    cached: int = 0
    seconds: float = 0.0
    recorded: Probe | None = None
    entropy: float | None = None


class Session(Protocol):
    """One question under one seed. `wasted` counts tokens that were thought and then not used."""

    wasted: int

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch: ...

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        """Think ahead while a probe is in flight; what is not used later is wasted, never seen."""

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        """Decode greedily after the suffix and forget it. `guess`: tokens that may well be the answer; an engine that
        verifies checks them in one pass, with the same result. `rewind`: probe as if the last `rewind` tokens did not
        exist. `top`: how many alternatives are wanted of each token, where the engine cannot give them all."""

    async def append(self, ids: Sequence[int]) -> None: ...

    async def write(self, limit: int) -> str:
        """What the model writes by itself once its thinking has ended; nothing if it ended its turn in there."""

    async def close(self) -> None: ...


class Engine(Protocol):
    """A model that can be asked."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text tokenised on its own; special tokens in it are read as such."""

    async def decode(self, ids: Sequence[int]) -> str: ...

    async def prompt(self, question: str) -> tuple[int, ...]:
        """The question's ids, up to and including the opened think tag."""

    async def open(self, question: str | Sequence[int], sampling: Sampling, *, room: int, overlap: bool = False) -> Session:
        """A session on this question, or on the ids of a whole prompt, with room for so many tokens after it."""

    async def close(self) -> None: ...


def keyed_seed(seed: int, key: int | str) -> int:
    """A seed for the chunk that starts at this position, or for this question: chunks that shared one seed would share one
    stream of chance, and questions of one seed would all be lucky at the same tokens."""
    digest = hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") & 0x7FFFFFFF
