"""GGUF files on llama.cpp servers inside this process, on loopback, behind a random key.

To the rest of cgr they are completions servers whose dialect is known and whose thinking comes in chunks of 32 tokens. They
end with the process, however that ends. Nobody without the key can use their ports, and they write no logs.

A large file has one server. A small one has a server for each core that the sessions can use, since a core computes the
tokens of a small model faster one sequence at a time than many in a batch, and threads that share the work of one token
spend more time on waiting for each other than on the work.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cgr.engines.base import FILTERS, Capabilities, Engine, ModelInfo
from cgr.engines.completions.client import CompletionClient, Pool, ServedModel
from cgr.engines.completions.dialect import Dialect
from cgr.engines.completions.engine import CHUNK, CompletionsEngine, Connected, own_slots
from cgr.engines.completions.http import Server
from cgr.engines.completions.policy import RetryPolicy
from cgr.engines.completions.thinking import ThinkingFormat
from cgr.engines.llama.header import GgufHead, read_head
from cgr.engines.open import EMBEDDED, SHIPPED, ModelOptions, find_model
from cgr.engines.text.chat import EndTag, ThinkTags, find_tags, need_tags, opens_thinking
from cgr.errors import EngineError, NotAModel, UsageError

if TYPE_CHECKING:
    import xllamacpp

NAME = "llama.cpp"
CAPABILITIES = Capabilities(
    "top-k", True, True, True, thinking_logprobs=True, answer_logprobs=True, alternatives=True, sampling=FILTERS
)
OPTIONS: frozenset[str] = frozenset()
SAMPLED_BYTES = 2**23  # of a file's beginning, middle and end, for its fingerprint
EXACT_BYTES = 2**28  # up to this size a file runs with a 32-bit cache
SMALL_BYTES = 2**27  # up to this size a file has several servers, each with its own copy of the weights
MAX_SERVERS = 8  # of one file: one event loop cannot send requests fast enough for more
TURNS = 2  # chunks and probes at once on a server with a 32-bit cache: one is computed while another is on its way
# The server is in this process: it is there, or it is gone for good. A long prompt may take any time.
MAX_SLOTS = 256  # llama.cpp has no more sequences
_used_in: dict[str, int] = {}
POLICY = RetryPolicy(tries=4, pause=0.05, first=None, stall=None)


def open_engine(name: str, options: ModelOptions) -> Engine:
    """The engine for a GGUF file, a hub id or the embedded model."""
    return LlamaEngine(find_model(options.model), options)


class LlamaEngine(CompletionsEngine):
    """A GGUF file, which `connect` loads in a thread."""

    head: GgufHead
    tags: ThinkTags

    def __init__(self, path: Path, options: ModelOptions = ModelOptions()) -> None:
        super().__init__((), options)
        self.policy = POLICY
        self.path = path
        self._key = secrets.token_urlsafe(32)
        self._servers: list[xllamacpp.Server] = []

    @property
    def address(self) -> str:
        """Where the first server listens."""
        return str(self._servers[0].listening_address) if self._servers else ""

    async def _connect(self) -> Connected:
        info = await asyncio.to_thread(self._load)
        slots = self.options.sessions * self._width
        dialect = Dialect("llama.cpp", NAME, info.context, slots, "llama.cpp", logprobs=1000, prefix_cache=True)
        served = ServedModel(self.address, info.name, info.context, NAME, self._properties())
        return Connected(
            tuple(str(server.listening_address) for server in self._servers),
            self._key,
            served,
            dialect,
            self.tags,
            await self._form(dialect, served),
            info,
            replace(CAPABILITIES, overlap=self._width > 1),
            own_slots(self.options.sessions, len(self._servers), self._width),
            turns=max(TURNS, self._width) if self._exact else 0,
        )

    @property
    def _width(self) -> int:
        """Slots of a session: a second one if probes are to overlap with thinking."""
        return 2 if self.options.overlap else 1

    @property
    def _exact(self) -> bool:
        return not self.head.quantised and self.path.stat().st_size < EXACT_BYTES

    def _load(self) -> ModelInfo:
        """Start the servers."""
        head, options = read_head(self.path), self.options
        self.head, self.tags = (
            head,
            need_tags(options.tags or find_tags(head.chat_template, head.control_ids), str(self.path)),
        )
        context = min(options.session_context, head.context) or head.context
        count, threads = servers_and_threads(self.path, options)
        places = own_slots(options.sessions, count, self._width)
        slots = [sum(len(place.slots) for place in places if place.server == number) for number in range(count)]
        if max(slots) > MAX_SLOTS:
            raise UsageError(
                f"llama.cpp cannot think about {options.sessions} questions at once here.",
                f"Use --sessions {count * MAX_SLOTS // self._width}.",
            )
        self._servers = [start_server(self.path, self._key, some, context, threads, exact=self._exact) for some in slots]
        return self._info(options.model or EMBEDDED, context, threads)

    def _properties(self) -> dict[str, str]:
        """What llama-server reports at /props."""
        head = self.head
        bos = head.tokens[head.begin_id] if head.begin_id is not None else ""
        eos = head.tokens[head.end_id] if head.end_id is not None else ""
        return {"chat_template": head.chat_template, "bos_token": bos, "eos_token": eos}

    async def _form(self, dialect: Dialect, served: ServedModel) -> ThinkingFormat:
        control = self.head.control_ids
        server = Server(self.address, self._key, POLICY)
        try:
            close_ids = await CompletionClient(dialect, served, Pool([server], POLICY)).encode(self.tags.close)
        finally:
            await server.close()
        ends = frozenset(control.values()) - {control.get(self.tags.open, -1)}
        return ThinkingFormat(EndTag(self.tags.close, close_ids), ends, frozenset(), dialect.context, CHUNK)

    def _info(self, name: str, context: int, threads: int) -> ModelInfo:
        head = self.head
        return ModelInfo(
            name=name,
            engine=NAME,
            context=context,
            open_tag=self.tags.open,
            close_tag=self.tags.close,
            interval=head.interval,
            budget=head.budget,
            max_answer_tokens=head.max_answer_tokens,
            fingerprint=fingerprint(self.path),
            model_context=head.context,
            sessions=self.options.sessions,
            threads=threads,
            template_opens=opens_thinking(head.chat_template, self.tags),
            chunk=CHUNK,
            shipped=any(self.path.samefile(find_model(one)) for one in SHIPPED),
        )


def fingerprint(path: Path) -> str:
    """Identifies these weights: a hash of the size and of three samples, which are all of a small file."""
    size = path.stat().st_size
    digest = hashlib.blake2b(str(size).encode(), digest_size=8)
    with path.open("rb") as file:
        for start in sorted({0, max(size // 2 - SAMPLED_BYTES // 2, 0), max(size - SAMPLED_BYTES, 0)}):
            file.seek(start)
            digest.update(file.read(SAMPLED_BYTES))
    return digest.hexdigest()


def _refuse_forked() -> None:
    """llama.cpp keeps threads for the whole process, which a child process does not have."""
    if _used_in.setdefault("process", os.getpid()) != os.getpid():
        raise EngineError(
            "llama.cpp was used before the process was forked, so it cannot be used here.",
            "Start child processes with the method 'spawn', or load a model only in the children.",
        )


def _after_fork() -> None:
    """When a forked child ends, llama.cpp's destructors would wait for threads that exist only in the parent: skip them."""
    if _used_in:
        import ctypes

        libc = ctypes.CDLL(None)
        with suppress(AttributeError):  # only glibc has on_exit; its functions run last in, first out
            libc.on_exit(libc._exit, None)


os.register_at_fork(after_in_child=_after_fork)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_sessions(path: Path) -> int:
    """Sessions of a file if no number is given: one for each server that it can have. A large model has one, because there
    may not be the memory for more."""
    return min(cores(), MAX_SERVERS) if path.stat().st_size < SMALL_BYTES else 1


def servers_and_threads(path: Path, options: ModelOptions) -> tuple[int, int]:
    """The number of servers for a file, and the threads of each. `options.threads` is the number of threads together.

    By default each server gets half of its share of the cores, and at least one: llama.cpp's threads spin, and become very
    slow when two of them share a core.
    """
    several = path.stat().st_size < SMALL_BYTES and _only_cpu()
    servers = min(options.sessions, options.threads or cores(), MAX_SERVERS) if several else 1
    return servers, max(1, options.threads // servers if options.threads else cores() // servers // 2)


def _only_cpu() -> bool:
    import xllamacpp

    return all(one["name"] == "CPU" for one in xllamacpp.get_device_info())


def start_server(path: Path, key: str, slots: int, context: int, threads: int, *, exact: bool = True) -> xllamacpp.Server:
    """A llama.cpp server in this process.

    `exact`: keys and values in 32 bits, so that a certainty does not depend on the way in which it was computed. Quantised
    weights are never exact, and with 16 bits a token after 2,000 others costs a third less. Flash attention is off on CPUs:
    there it reads a prompt faster, but decodes more slowly, by 1.6 times after 2,000 tokens.
    """
    import xllamacpp

    _refuse_forked()
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.api_keys = [key]
    params.port = 0
    params.verbosity = -1
    params.ui = params.endpoint_slots = params.warmup = False
    params.cors_origins = ""
    params.n_parallel = slots
    params.n_ctx = slots * context
    params.cache_ram_mib = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    if exact:
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    if exact or _only_cpu():
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise NotAModel(f"llama.cpp cannot load {path}: {error}.", "Is the file complete, and its kind known?") from error
