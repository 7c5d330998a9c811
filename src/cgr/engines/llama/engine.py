"""GGUF files on a llama.cpp server of our own, inside this process, on loopback, behind a random key.

The server ends with the process, however that ends. Nobody without the key can use its port, and it writes no logs.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cgr.engines.base import Capabilities, ModelInfo, Sampling
from cgr.engines.completions.chunk_session import CompletionsSession
from cgr.engines.completions.wire import Wire
from cgr.engines.llama.header import read_head
from cgr.engines.text.chat import ThinkTags, find_tags, need_tags, opens_thinking, render
from cgr.engines.text.end_tag import EndTag
from cgr.errors import DoesNotFit, NotAModel, UsageError

if TYPE_CHECKING:
    import xllamacpp

NAME = "llama.cpp"
REMEMBERED = 256  # characters
MOST = 4096  # texts
SAMPLE = 2**23  # bytes
SMALL = 2**28  # bytes


@dataclass(frozen=True, slots=True)
class LlamaOptions:
    """How to run a file: sessions at once (each with a second slot if its probes are to overlap), context for each (the
    model's own if not said), threads, think tags, and the name to show."""

    sessions: int = 1
    overlap: bool = False
    context: int | None = None
    threads: int | None = None
    tags: ThinkTags | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class _Connection:
    """What belongs to one event loop: a client, and the slots that are free, in the groups that sessions take."""

    wire: Wire
    free: asyncio.Queue[tuple[int, ...]]


class LlamaEngine:
    def __init__(self, path: Path, options: LlamaOptions = LlamaOptions()) -> None:
        head = read_head(path)
        self.tags = need_tags(options.tags or find_tags(head.chat_template, head.control_ids), str(path))
        self.head, self.options = head, options
        self._key = secrets.token_urlsafe(32)
        self._slots = options.sessions * (2 if options.overlap else 1)
        self._context = min(options.context or head.context, head.context) or head.context
        self.threads = _threads(options.threads)
        exact = not head.quantised and path.stat().st_size < SMALL
        self._server = start_server(path, self._key, self._slots, self._context, self.threads, exact=exact)
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, _Connection] = WeakKeyDictionary()
        self._encoded: dict[str, tuple[int, ...]] = {}
        control = head.control_ids
        self._control = frozenset(control.values()) - {control.get(self.tags.open, -1)}
        self.capabilities = Capabilities("top-k", True, True, True, overlap=options.overlap, thinking_logprobs=True)
        self.info = ModelInfo(
            name=options.name or head.name,
            engine=NAME,
            context=self._context,
            open_tag=self.tags.open,
            close_tag=self.tags.close,
            interval=head.interval,
            budget=head.budget,
            max_answer_tokens=head.max_answer_tokens,
            fingerprint=fingerprint(path),
        )

    @property
    def model_context(self) -> int:
        """What the model was made for; a session has as much of it as it was opened with."""
        return self.head.context

    @property
    def template_opens(self) -> bool:
        return opens_thinking(self.head.chat_template, self.tags)

    async def encode(self, text: str) -> tuple[int, ...]:
        """Short texts are remembered: tags and prefixes come again and again, whole traces do not."""
        if text in self._encoded:
            return self._encoded[text]
        ids = await self._here().wire.tokenize(text)
        if len(text) <= REMEMBERED and len(self._encoded) < MOST:
            self._encoded[text] = ids
        return ids

    async def decode(self, ids: Sequence[int]) -> str:
        return await self._here().wire.detokenize(ids) if ids else ""

    async def prompt(self, question: str) -> tuple[int, ...]:
        """The question's ids, up to and including the opened think tag."""
        vocabulary = self.head.tokens
        bos = vocabulary[self.head.begin_id] if self.head.begin_id is not None else ""
        eos = vocabulary[self.head.end_id] if self.head.end_id is not None else ""
        text = render(self.head.chat_template, question, self.tags, bos=bos, eos=eos)
        doubled = bool(bos) and text.startswith(bos)
        return await self._here().wire.tokenize(text, add_special=not doubled)

    async def open(
        self, question: str | Sequence[int], sampling: Sampling, *, room: int, overlap: bool = False
    ) -> CompletionsSession:
        prompt = await self.prompt(question) if isinstance(question, str) else tuple(question)
        if len(prompt) + room > self._context:
            raise DoesNotFit(
                f"The question takes {len(prompt)} tokens and {room} more are asked for, but the context has "
                f"{self._context}.",
                f"Lower the budget by at least {len(prompt) + room - self._context}.",
            )
        here = self._here()
        tag = EndTag(self.tags.close, await self.encode(self.tags.close))
        slots = await here.free.get()
        release = partial(here.free.put_nowait, slots)
        used = slots if overlap else slots[:1]
        return CompletionsSession(here.wire, prompt, sampling, tag, self._control, used, release)

    async def close(self) -> None:
        """Close this loop's connections; the server goes when the engine does."""
        connection = self._connections.pop(asyncio.get_running_loop(), None)
        if connection:
            await connection.wire.close()

    def _here(self) -> _Connection:
        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            free: asyncio.Queue[tuple[int, ...]] = asyncio.Queue()
            each = self._slots // self.options.sessions
            for first in range(0, self._slots, each):
                free.put_nowait(tuple(range(first, first + each)))
            self._connections[loop] = _Connection(Wire(self._server.listening_address, self._key), free)
        return self._connections[loop]


def fingerprint(path: Path) -> str:
    """Tells these weights from others: the size, and three samples, which are all of a small file."""
    size = path.stat().st_size
    digest = hashlib.blake2b(str(size).encode(), digest_size=8)
    with path.open("rb") as file:
        for start in sorted({0, max(size // 2 - SAMPLE // 2, 0), max(size - SAMPLE, 0)}):
            file.seek(start)
            digest.update(file.read(SAMPLE))
    return digest.hexdigest()


def _threads(asked: int | None) -> int:
    """Half of the cores: llama.cpp's threads spin, and collapse when they have to share one."""
    if asked is not None and asked < 1:
        raise UsageError(f"{asked} threads cannot compute anything.", "Use --threads 1 or more.")
    return asked or max(1, (os.cpu_count() or 2) // 2)


def start_server(path: Path, key: str, slots: int, context: int, threads: int, *, exact: bool = True) -> xllamacpp.Server:
    """`exact`: keys and values in 32 bits, so that a certainty does not depend on how it was come by. Quantised weights are
    never exact, and with 16 bits a token after 2,000 others costs a third less. Flash attention helps no CPU with that: it
    reads a prompt faster, and thinks more slowly, by 1.6 times after 2,000 tokens."""
    import xllamacpp

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
    if exact or all(one["name"] == "CPU" for one in xllamacpp.get_device_info()):
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise NotAModel(f"llama.cpp cannot load {path}: {error}.", "Is the file whole, and its kind known?") from error
