"""An engine on other people's servers: vLLM, SGLang, llama-server, anything with completions, token ids and log-probs.

What the server can do is found out when the engine is made, and shown as `dialect`; what a user should know is in `notes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from cgr.engines.base import Capabilities, ModelInfo, Sampling
from cgr.engines.completions.asker import Asker
from cgr.engines.completions.chunk_session import CHUNK
from cgr.engines.completions.client import Speech
from cgr.engines.completions.connection import Link, Patience
from cgr.engines.completions.detect import SAMPLE, Served, detect, sample, served, tokenizing
from cgr.engines.completions.dialect import LLAMA, Dialect
from cgr.engines.completions.pool import Home, Pool
from cgr.engines.completions.session import RemoteSession
from cgr.engines.completions.tokenizer import Words, find_tags_by_asking, said_of_exactness
from cgr.engines.text.chat import ThinkTags, need_tags
from cgr.engines.text.end_tag import EndTag
from cgr.engines.text.tokenizer import LocalTokenizer
from cgr.errors import DoesNotFit, MissingCapability, ModelNotFound, UsageError

NAME = "completions"
SPARE = 4  # connections beside those of sessions, for words


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """How to use servers. `model` None: the only one they have. `chunk`: think in requests of so many tokens; None: one
    stream. `dialect`: what a person says of the server, as in `stream=no`."""

    model: str | None = None
    api_key: str | None = None
    tokenizer: str | None = None
    tags: ThinkTags | None = None
    sessions: int = 1
    context: int | None = None
    chunk: int | None = None
    dialect: tuple[str, ...] = ()
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True)
class _Here:
    """What belongs to one event loop: connections, words, and places for sessions."""

    pool: Pool
    words: Words
    places: asyncio.Semaphore


class RemoteEngine:
    def __init__(self, addresses: Sequence[str], options: RemoteOptions = RemoteOptions()) -> None:
        self.options, self.addresses = options, tuple(map(bare, addresses))
        self._local = LocalTokenizer(options.tokenizer) if options.tokenizer else None
        self._notes: list[str] = []
        self._here: WeakKeyDictionary[asyncio.AbstractEventLoop, _Here] = WeakKeyDictionary()
        asker, self._served = self._first_reachable()
        try:
            self._find_out(asker)
        finally:
            asker.close()

    def _find_out(self, asker: Asker) -> None:
        about, options = self._served, self.options
        start = tokenizing(asker, about.model, about.kind, self._local is not None)
        words = Words(start, about, self._local, asker.post)
        text = sample(words.encode_now(SAMPLE), about.context)
        self.dialect: Dialect = detect(asker, about, start, text, options.dialect)
        self._check()
        self.tags = need_tags(options.tags or find_tags_by_asking(words), about.model)
        self._close_ids = words.encode_now(self.tags.close)
        self._eos = words.eos_now()
        self.chunk = self._mode()
        self._sessions = self._places()
        self._notes += said_of_exactness(asker, about.model, self.dialect, words)
        context = min(options.context or self.dialect.context, self.dialect.context)
        self.info = ModelInfo(about.model, NAME, context, self.tags.open, self.tags.close)
        self.capabilities = Capabilities(
            "top-k",
            self.dialect.exact,
            bool(self.dialect.prefix_cache),
            self.dialect.logit_bias,
            overlap=True,
            thinking_logprobs=True,
            overlaps=self.chunk is None,
        )

    @property
    def places(self) -> int:
        """Sessions that there is room for at once."""
        return self._sessions

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    def _first_reachable(self) -> tuple[Asker, Served]:
        """The first server that answers, and what it says; the others must be there with the same model, or wait."""
        found: tuple[Asker, Served] | None = None
        away: list[ModelNotFound] = []
        for address in self.addresses:
            asker = Asker(address, self.options.api_key, self.options.patience)
            try:
                about = served(asker, self.options.model)
            except ModelNotFound as error:
                away.append(error)
                asker.close()
                continue
            if found is None:
                found = asker, about
                continue
            asker.close()
            _check_same(found[1], about)
        if found is None:
            raise away[0]
        self._notes += [f"{error.message} It is set aside, and tried again later." for error in away]
        return found

    def _check(self) -> None:
        """What is needed and not there is an error now, not in the middle of a run."""
        if not self.dialect.logprobs:
            raise MissingCapability(
                f"{self._served.kind} at {self._served.address} gives no log-probabilities, and no certainty without them.",
                "Use a server that takes `logprobs` on /v1/completions (vLLM, llama-server).",
            )
        if not self.dialect.raw_logprobs:
            raise MissingCapability(
                "The server's log-probabilities are taken after sampling was prepared, not raw.",
                "Start vLLM without --logprobs-mode, or with --logprobs-mode raw_logprobs.",
            )
        if not self.dialect.context:
            raise MissingCapability("The server does not say how long its context is.", "Say it: --dialect context=32768.")
        if not self.dialect.seed:
            self._notes.append("The server does not keep to seeds: the same seed will not give the same thinking.")

    def _mode(self) -> int | None:
        if self.options.chunk is not None and self.options.chunk < 1:
            raise UsageError("A chunk has at least one token.", "Use --chunk 32, or leave it out.")
        if self.options.chunk:
            return self.options.chunk
        if not self.dialect.stream:
            self._notes.append("The server does not stream: thinking comes in chunks, and probes wait between them.")
            return CHUNK
        if self.dialect.slots == 1:
            self._notes.append(
                "The server has one slot: thinking comes in chunks, and probes between them (see --parallel)."
            )
            return CHUNK
        return None

    def _places(self) -> int:
        """Sessions at once: a stream and a probe beside it take two slots of a server that has slots."""
        if not self.dialect.slots:
            return self.options.sessions
        each = self.dialect.slots if self.chunk else self.dialect.slots // 2
        return min(self.options.sessions, each * len(self.addresses))

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._now().words.encode(text)

    async def decode(self, ids: Sequence[int]) -> str:
        return await self._now().words.decode(ids)

    async def prompt(self, question: str) -> tuple[int, ...]:
        return await self._now().words.prompt(question, self.tags)

    async def open(
        self, question: str | Sequence[int], sampling: Sampling, *, room: int, overlap: bool = False
    ) -> RemoteSession:
        prompt = await self.prompt(question) if isinstance(question, str) else tuple(question)
        context = self.info.context
        if len(prompt) + room > context:
            raise DoesNotFit(
                f"The question takes {len(prompt)} tokens and {room} more are asked for, but the context has {context}.",
                f"Lower the budget by at least {len(prompt) + room - context}.",
            )
        here = self._now()
        await here.places.acquire()
        home = Home(here.pool, settled=True)
        return RemoteSession(self._speech(here.words), home, prompt, sampling, room, here.places.release)

    def _speech(self, words: Words) -> Speech:
        return Speech(
            self.dialect,
            self._served.model,
            words,
            EndTag(self.tags.close, self._close_ids),
            frozenset(self._close_ids if len(self._close_ids) == 1 else ()) | self._eos,
            self._eos,
            self.info.context,
            self.chunk,
        )

    async def close(self) -> None:
        """Close this loop's connections."""
        here = self._here.pop(asyncio.get_running_loop(), None)
        if here:
            await here.pool.close()

    def _now(self) -> _Here:
        loop = asyncio.get_running_loop()
        if loop not in self._here:
            most = 2 * self._sessions + SPARE
            patience = self.options.patience
            links = [Link(address, self.options.api_key, patience, most) for address in self.addresses]
            pool = Pool(links, patience)
            words = Words(self.dialect, self._served, self._local, None, pool.post)
            self._here[loop] = _Here(pool, words, asyncio.Semaphore(self._sessions))
        return self._here[loop]


def bare(address: str) -> str:
    """A server's root: with or without the `/v1` that people write."""
    root = address.strip().rstrip("/").removesuffix("/v1")
    if not root.startswith(("http://", "https://")):
        raise UsageError(f"{address!r} is no address of a server.", "Write it as in --base-url http://localhost:8000/v1.")
    return root


def _check_same(first: Served, other: Served) -> None:
    if (first.model, first.context) != (other.model, other.context) and LLAMA not in (first.kind, other.kind):
        raise UsageError(
            f"{other.address} has {other.model} with a context of {other.context}, and {first.address} has {first.model} "
            f"with {first.context}.",
            "Servers that share the work must have the same model.",
        )
