"""Any causal model with think tags, on torch: exact logits, many sessions in one batch, and probes that leave no trace.

Sampling is keyed by seed and position, so a session thinks the same whether it is alone or in a batch, probed or not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar
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
    prompt_ids,
)
from cgr.engines.open import ModelOptions
from cgr.engines.text.chat import EndTag, ThinkTags, find_tags, need_tags, opens_thinking, render
from cgr.errors import EngineError, MissingCapability, UsageError

if TYPE_CHECKING:
    from cgr.engines.hf.load import LoadedModel
    from cgr.engines.hf.scheduler import Scheduler
    from cgr.engines.hf.session import ModelFacts, TransformersSession

T = TypeVar("T")
NAME = "transformers"
OPTIONS = ("device", "dtype")
LOADING = threading.Lock()  # transformers changes global state while it loads a model


@dataclass(frozen=True, slots=True)
class ConnectedModel:
    """What the engine has once the model is loaded."""

    model: LoadedModel
    tags: ThinkTags
    facts: ModelFacts
    info: ModelInfo
    capabilities: Capabilities
    scheduler: Scheduler


def open_engine(name: str, options: ModelOptions) -> Engine:
    """The engine for a hub id, a folder as `transformers` saves it, or a GGUF file."""
    return TransformersEngine(name, options)


class TransformersEngine:
    """A model on torch in this process.

    `sessions` sessions can be open at once on one event loop; the sessions of all event loops share one batch.
    """

    notes: tuple[str, ...] = ()
    prober: Engine | None = None

    def __init__(self, name: str, options: ModelOptions = ModelOptions()) -> None:
        self.name, self.options = name, options
        self._connected: ConnectedModel | None = None
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
    def connected(self) -> ConnectedModel:
        """The loaded model and what belongs to it; `EngineError` before `connect`."""
        if self._connected is None:
            raise EngineError(f"{self.name} is not loaded yet.", "Await engine.connect() first.")
        return self._connected

    @property
    def info(self) -> ModelInfo:
        return self.connected.info

    @property
    def capabilities(self) -> Capabilities:
        return self.connected.capabilities

    async def encode(self, text: str) -> tuple[int, ...]:
        return self.connected.model.tokenizer.encode(text)

    async def decode(self, ids: Sequence[int]) -> str:
        return self.connected.model.tokenizer.decode(ids) if ids else ""

    async def prompt(self, conversation: Conversation) -> tuple[int, ...]:
        model, tokenizer = self.connected.model, self.connected.model.tokenizer
        text = render(model.template, conversation, self.connected.tags, bos=tokenizer.bos, eos=tokenizer.eos)
        has_bos = bool(tokenizer.bos) and text.startswith(tokenizer.bos)
        return tokenizer.encode(text, special=not has_bos)

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int, overlap: bool = False, wait: float | None = None
    ) -> TransformersSession:
        from cgr.engines.hf.session import TransformersSession

        ids = await prompt_ids(prompt, self)
        check_sampling(sampling, self)
        check_fits(ids, room, self.info.context)
        places = self._loop_places()
        release = partial(places.give_back, await places.take(wait))
        return TransformersSession(self.connected.scheduler, self.connected.facts, ids, sampling, release)

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
        from cgr.engines.hf.kv_cache import KVCache
        from cgr.engines.hf.packed_probe import PackedProbe

        model = self.connected.model
        if model.window is not None:
            raise MissingCapability(
                f"{self.info.name} has sliding-window layers, whose probes cannot be packed.", "Probe cut by cut."
            )
        if not cuts:
            return []
        query = self.connected.facts.query(suffix, limit, done, top)
        positions = [len(prompt) + cut for cut in cuts]
        packed = PackedProbe(KVCache(model.model, limits=(1, 0)), query, [*prompt, *trace], positions)
        return await self.run_exclusive(packed.run)

    async def run_exclusive(self, work: Callable[[], T]) -> T:
        """Run this on the decode thread between two passes and return its result."""
        from cgr.engines.hf.jobs import ExclusiveJob
        from cgr.engines.hf.session import run_job

        result: T = await run_job(self.connected.scheduler, ExclusiveJob(work))
        return result

    async def close(self) -> None:
        """Free the memory of sessions, unless some are open; the model stays loaded and can be used again."""
        if self._connected is not None and not self._connected.scheduler.clear_if_idle():
            await self.run_exclusive(self._connected.scheduler.clear_cache)


def _connect(name: str, options: ModelOptions) -> ConnectedModel:
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
        name=options.model or name,
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
    return ConnectedModel(model, tags, facts, info, capabilities, scheduler)


def _set_threads(threads: int | None) -> int:
    """Set the number of torch's threads, if one is given; returns the number that it uses."""
    import torch

    if threads is not None:
        if threads < 1:
            raise UsageError(f"{threads} threads cannot compute anything.", "Use --threads 1 or more.")
        torch.set_num_threads(threads)
    return int(torch.get_num_threads())
