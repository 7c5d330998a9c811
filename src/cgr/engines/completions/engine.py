"""An engine on completions servers: vLLM, SGLang, llama-server, anything with completions, token ids and log-probabilities.

What the server can do is found out on `connect`, and shown as `dialect`; what a user should know is in `notes`.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from cgr.engines.base import (
    FILTERS,
    Capabilities,
    Engine,
    ModelInfo,
    Places,
    Prompt,
    Sampling,
    check_fits,
    check_sampling,
    prompt_ids,
)
from cgr.engines.completions.client import CompletionClient, Pool, Replica, ServedModel
from cgr.engines.completions.dialect import Dialect
from cgr.engines.completions.http import Server
from cgr.engines.completions.policy import RetryPolicy
from cgr.engines.completions.session import CompletionsSession
from cgr.engines.completions.thinking import ThinkingFormat
from cgr.engines.open import ModelOptions
from cgr.engines.text.chat import ThinkTags
from cgr.engines.text.model_files import LocalTokenizer
from cgr.errors import EngineError, UsageError
from cgr.records import Conversation

NAME = "completions"
OPTIONS = frozenset({"tokenizer", "dialect", "chunk"})
START_VARIABLE = "CGR_CONNECT_TIMEOUT"  # seconds for each of the first requests to a server
CHUNK = 32  # tokens of a request in chunked mode
POLL_SECONDS = 0.01
SPARE_CONNECTIONS = 4  # beside those of sessions, for tokenization


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session runs: the number of its server (None: the least loaded), and the slots of that server that it uses
    (none: the server chooses)."""

    server: int | None = None
    slots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Connected:
    """What is known once the servers were reached. `places`: one for each session that can be open at once. `turns`: chunks
    of thinking and probes that each server computes at once; 0: any number."""

    addresses: tuple[str, ...]
    key: str | None
    served: ServedModel
    dialect: Dialect
    tags: ThinkTags
    form: ThinkingFormat
    info: ModelInfo
    capabilities: Capabilities
    places: tuple[Place, ...]
    local: LocalTokenizer | None = None
    notes: tuple[str, ...] = ()
    turns: int = 0


@dataclass(frozen=True, slots=True)
class _LoopState:
    """What belongs to one event loop: connections, cached tokenizations, and the places for sessions."""

    client: CompletionClient
    places: Places[Place]


def open_engine(name: str, options: ModelOptions) -> Engine:
    """The engine for the servers that the options name."""
    return CompletionsEngine(options.addresses, options)


class CompletionsEngine:
    """A model on one or more servers with the same model."""

    prober: Engine | None = None

    def __init__(self, addresses: Sequence[str], options: ModelOptions = ModelOptions()) -> None:
        self.options, self.addresses = options, tuple(map(server_root, addresses))
        self.policy = options.patience or _policy()
        self._connected: Connected | None = None
        self._connecting = threading.Lock()  # not asyncio's: the engine may be used from several event loops
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState] = WeakKeyDictionary()

    async def connect(self) -> None:
        # polls, because asyncio has no lock for several event loops, and a thread that waits could not be cancelled
        while not self._connecting.acquire(blocking=False):  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        try:
            if self._connected is None:
                self._connected = await self._connect()
        finally:
            self._connecting.release()

    async def _connect(self) -> Connected:
        from cgr.engines.completions.startup import connect  # not needed where the dialect is known

        return await connect(self.addresses, self.options, self.policy)

    @property
    def connected(self) -> Connected:
        """What is known since `connect`."""
        if self._connected is None:
            raise EngineError("This engine is not connected.", "Await engine.connect() first.")
        return self._connected

    @property
    def info(self) -> ModelInfo:
        return self.connected.info

    @property
    def capabilities(self) -> Capabilities:
        return self.connected.capabilities

    @property
    def notes(self) -> tuple[str, ...]:
        return self.connected.notes

    @property
    def dialect(self) -> Dialect:
        """What the server can do."""
        return self.connected.dialect

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._state().client.encode(text)

    async def decode(self, ids: Sequence[int]) -> str:
        return await self._state().client.decode(ids)

    async def prompt(self, conversation: Conversation) -> tuple[int, ...]:
        return await self._state().client.prompt(conversation, self.connected.tags)

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int, overlap: bool = False, wait: float | None = None
    ) -> CompletionsSession:
        check_sampling(sampling, self)
        ids = await prompt_ids(prompt, self)
        check_fits(ids, room, self.info.context)
        state, form = self._state(), self.connected.form
        place = await state.places.take(wait)
        release = partial(state.places.give_back, place)
        used = place.slots if overlap or not form.chunk else place.slots[:1]  # beside a stream, probes need a second slot
        replica = Replica(state.client.pool, counted=True, named=self.options.session_header, first=place.server)
        return CompletionsSession(state.client, replica, form, ids, sampling, room, release, used)

    @property
    def pool(self) -> Pool:
        """The servers, with their state on this event loop."""
        return self._state().client.pool

    async def close(self) -> None:
        state = self._loops.pop(asyncio.get_running_loop(), None)
        if state:
            await state.client.pool.close()

    def _state(self) -> _LoopState:
        loop, known = asyncio.get_running_loop(), self.connected
        if loop not in self._loops:
            most = 2 * len(known.places) + SPARE_CONNECTIONS
            observe = self.options.observe
            servers = [Server(address, known.key, self.policy, most, observe) for address in known.addresses]
            for server in servers if known.turns else ():
                server.turn = asyncio.Semaphore(known.turns)
            client = CompletionClient(known.dialect, known.served, Pool(servers, self.policy), known.local)

            def load(place: Place) -> int:
                return 0 if place.server is None else servers[place.server].load

            self._loops[loop] = _LoopState(client, Places(known.places, load))
        return self._loops[loop]


def own_slots(sessions: int, servers: int, width: int) -> tuple[Place, ...]:
    """A place for each session, the servers in turn. `width`: slots that each session has for itself.

    The slots that think come first: llama.cpp computes tokens in one batch only for slots whose numbers follow each other.
    """
    each = [len(range(server, sessions, servers)) for server in range(servers)]
    return tuple(
        Place(number % servers, tuple(number // servers + each[number % servers] * part for part in range(width)))
        for number in range(sessions)
    )


def server_capabilities(dialect: Dialect, chunk: int | None) -> Capabilities:
    """What can be done on a server. Penalties of vLLM count the tokens of one request, so they are not for chunks."""
    penalties = {"presence_penalty", "frequency_penalty"}
    llama = dialect.server.startswith("llama.cpp")
    openai = {"stop"} if chunk else {"stop", *penalties}
    extras = {"top_k", "min_p", "repetition_penalty"} if dialect.extras else set()
    return Capabilities(
        "top-k",
        dialect.exact,
        bool(dialect.prefix_cache),
        dialect.logit_bias,
        overlap=True,
        thinking_logprobs=True,
        overlaps=chunk is None,
        alternatives=dialect.logprobs > 1 and dialect.token_ids != "none",
        answer_logprobs=True,
        sampling=FILTERS if llama and dialect.extras else frozenset(openai | extras),
    )


def _policy() -> RetryPolicy:
    """The usual policy, with the limit for the first requests that the environment names."""
    given = os.environ.get(START_VARIABLE)
    if not given:
        return RetryPolicy()
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"{START_VARIABLE} is not a number of seconds: {given!r}.", f"Set it like {START_VARIABLE}=60.")
    return RetryPolicy(start=seconds)


def server_root(address: str) -> str:
    """The root of a server's address, which people write with or without `/v1`."""
    root = address.strip().rstrip("/").removesuffix("/v1")
    if not root.startswith(("http://", "https://")) or not _is_address(root):
        raise UsageError(
            f"{address!r} is not the address of a server.", "Write it like --base-url http://localhost:8000/v1."
        )
    return root


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").encode("idna")
        return bool(host) and (parts.port is None or parts.port > 0) and text.isprintable() and " " not in text
    except ValueError:  # also UnicodeError, for a host that no name can be
        return False


def check_key(key: str | None) -> None:
    """Raise `UsageError` if this cannot be an API key: it is sent in a header, which is ASCII."""
    if key is not None and not (key.isascii() and key.isprintable()):
        raise UsageError("The API key has a character that is not printable ASCII.", "Check --api-key and CGR_API_KEY.")
