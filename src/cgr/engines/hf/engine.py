"""Any causal model with think tags, on torch: exact logits, many sessions in one batch, and probes that leave no trace.

Sampling is keyed by seed and position, so a session thinks the same whether it is alone or in a batch, probed or not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakKeyDictionary

from cgr.engines.base import (
    FILTERS,
    Answered,
    Capabilities,
    Conversation,
    Done,
    Engine,
    ModelInfo,
    Places,
    Prompt,
    Sampling,
    check_fits,
    check_sampling,
    is_ids,
)
from cgr.engines.text.chat import ThinkTags, find_tags, need_tags, opens_thinking, render
from cgr.engines.text.end_tag import EndTag
from cgr.errors import EngineError, MissingCapability, UsageError

if TYPE_CHECKING:
    from cgr.engines.hf.load import LoadedModel
    from cgr.engines.hf.scheduler import Scheduler
    from cgr.engines.hf.session import ModelFacts, TransformersSession

T = TypeVar("T")
NAME = "transformers"
LOADING = threading.Lock()  # transformers changes global state while it loads a model


@dataclass(frozen=True, slots=True)
class TransformersOptions:
    """How to run a model: sessions at once, context of each (default: the model's), threads, think tags, device and dtype
    (default: what suits the machine), and the name to show."""

    sessions: int = 1
    context: int | None = None
    threads: int | None = None
    tags: ThinkTags | None = None
    device: str | None = None
    dtype: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Connected:
    """What the engine has once the model is loaded."""

    model: LoadedModel
    tags: ThinkTags
    facts: ModelFacts
    info: ModelInfo
    capabilities: Capabilities
    scheduler: Scheduler


class TransformersEngine:
    """An engine for `name`: a hub id, a folder as `transformers` saves it, or a GGUF file.

    `sessions` sessions can be open at once on one event loop; the sessions of all event loops share one batch.
    """

    notes: tuple[str, ...] = ()
    prober: Engine | None = None

    def __init__(self, name: str, options: TransformersOptions = TransformersOptions()) -> None:
        self.name, self.options = name, options
        self._connected: Connected | None = None
        self._places: WeakKeyDictionary[asyncio.AbstractEventLoop, Places[int]] = WeakKeyDictionary()

    async def connect(self) -> None:
        """Load the model in a thread. Further calls do nothing; calls at the same time wait for the first one."""
        if self._connected is None:
            await asyncio.to_thread(self._load)

    def _load(self) -> None:
        with LOADING:
            if self._connected is None:
                self._connected = _connect(self.name, self.options)

    @property
    def connected(self) -> Connected:
        """The loaded model and what belongs to it; `EngineError` before `connect`."""
        if self._connected is None:
            raise EngineError(f"{self.name} is not loaded yet.", "Call `await engine.connect()` first.")
        return self._connected

    @property
    def info(self) -> ModelInfo:
        return self.connected.info

    @property
    def capabilities(self) -> Capabilities:
        return self.connected.capabilities

    async def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text tokenised on its own."""
        return self.connected.model.tokenizer.encode(text)

    async def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids."""
        return self.connected.model.tokenizer.decode(ids) if ids else ""

    async def prompt(self, conversation: Conversation) -> tuple[int, ...]:
        """The ids of a conversation, up to and including the opened think tag."""
        model = self.connected.model
        text = render(model.template, conversation, self.connected.tags, bos=model.bos, eos=model.eos)
        has_bos = bool(model.bos) and text.startswith(model.bos)
        return model.tokenizer.encode(text, special=not has_bos)

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int, overlap: bool = False, wait: float | None = None
    ) -> TransformersSession:
        """A session with room for this many tokens after the prompt; `Busy` if none is free within `wait` seconds."""
        from cgr.engines.hf.session import TransformersSession

        connected = self.connected
        ids = tuple(prompt) if is_ids(prompt) else await self.prompt(cast(Conversation, prompt))
        check_sampling(sampling, self)
        check_fits(ids, room, self.info.context)
        places = self._loop_places()
        place = await places.take(wait)
        return TransformersSession(connected.scheduler, connected.facts, ids, sampling, lambda: places.give_back(place))

    def _loop_places(self) -> Places[int]:
        loop = asyncio.get_running_loop()
        if loop not in self._places:
            self._places[loop] = Places(range(self.options.sessions))
        return self._places[loop]

    async def probe_many(
        self,
        prompt: Sequence[int],
        trace: Sequence[int],
        cuts: Sequence[int],
        suffix: Sequence[int],
        limit: int,
        done: Done,
        *,
        top: int = 0,
    ) -> list[Answered]:
        """Probe a trace at all cuts (ascending) at once: the same answers as cut by cut, for much less."""
        from cgr.engines.hf.jobs import TOP
        from cgr.engines.hf.kv_cache import KVCache
        from cgr.engines.hf.packed_probe import PackedProbe, PackedRequest

        model, facts = self.connected.model, self.connected.facts
        if model.window is not None:
            raise MissingCapability(
                f"{self.info.name} has sliding-window layers, whose probes cannot be packed.", "Probe cut by cut."
            )
        if not cuts:
            return []
        control = frozenset[int]() if top else facts.control
        request = PackedRequest([*prompt, *trace], len(prompt), cuts, suffix, limit, done, control, max(top, TOP))
        packed = PackedProbe(KVCache(model.model, limits=(1, 0)), model.tokenizer, request)
        return await self.run_exclusive(packed.run)

    async def run_exclusive(self, work: Callable[[], T]) -> T:
        """Run this on the decode thread between two passes and return its result."""
        from cgr.engines.hf.jobs import ExclusiveJob
        from cgr.engines.hf.session import run_job

        result: T = await run_job(self.connected.scheduler, ExclusiveJob(work))
        return result

    async def close(self) -> None:
        """Free the memory of sessions; the model stays loaded and can be used again."""
        if self._connected is not None:
            await self.run_exclusive(self._connected.scheduler.clear_cache)


def _connect(name: str, options: TransformersOptions) -> Connected:
    """Load the model and find out what it can do. Takes long."""
    from cgr.engines.hf.load import load

    model = load(name, options.device, options.dtype)  # checks that torch is installed, before the imports that need it
    from cgr.engines.hf.kv_cache import KVCache
    from cgr.engines.hf.scheduler import Scheduler
    from cgr.engines.hf.session import ModelFacts

    tags = need_tags(options.tags or find_tags(model.template, model.added), name)
    end_tag = EndTag(tags.close, model.tokenizer.encode(tags.close))
    control = frozenset({*model.added.values(), *model.end_ids}) - {model.added.get(tags.open, -1)}
    context = min(options.context or model.context, model.context)
    info = ModelInfo(
        name=options.name or name,
        engine=NAME,
        context=context,
        open_tag=tags.open,
        close_tag=tags.close,
        fingerprint=model.fingerprint,
        model_context=model.context,
        sessions=options.sessions,
        threads=_set_threads(options.threads),
        template_opens=opens_thinking(model.template, tags),
        **model.defaults,
    )
    capabilities = Capabilities(
        "full", True, True, True, verify=True, thinking_logprobs=True, packed=model.window is None, sampling=FILTERS
    )
    scheduler = Scheduler(KVCache(model.model, limits=(options.sessions, context), window=model.window))
    facts = ModelFacts(model.tokenizer, end_tag, model.end_ids, control, context)
    return Connected(model, tags, facts, info, capabilities, scheduler)


def _set_threads(threads: int | None) -> int:
    """Set the number of torch's threads, if one is given; returns the number that it uses."""
    import torch

    if threads is not None:
        if threads < 1:
            raise UsageError(f"{threads} threads cannot compute anything.", "Use --threads 1 or more.")
        torch.set_num_threads(threads)
    return int(torch.get_num_threads())
