"""Any causal model with think tags, on torch: exact logits, many sessions in one batch, and probes that leave no trace.

Sampling is keyed by seed and position, so a session thinks the same whether it is alone or in a batch, probed or not.
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cgr.engines import base
from cgr.engines.base import Answered, Done, Ids, Places
from cgr.engines.open import ModelOptions
from cgr.engines.text.chat import render
from cgr.errors import EngineError, MissingCapability
from cgr.records import Conversation

if TYPE_CHECKING:
    from cgr.engines.hf.load import LoadedModel
    from cgr.engines.hf.session import TransformersSession

OPTIONS = ("device", "dtype")
LOADING = threading.Lock()  # transformers changes global state while it loads a model


def open_engine(name: str, options: ModelOptions) -> base.Engine:
    """The engine for a hub id, a folder as `transformers` saves it, or a GGUF file."""
    return TransformersEngine(name, options)


class TransformersEngine:
    """A model on torch in this process.

    `sessions` sessions can be open at once on one event loop; the sessions of all event loops share one batch.
    """

    notes: tuple[str, ...] = ()
    prober: base.Engine | None = None

    def __init__(self, name: str, options: ModelOptions = ModelOptions()) -> None:
        self.name, self.options = name, options
        self._loaded: LoadedModel | None = None
        self._places: WeakKeyDictionary[asyncio.AbstractEventLoop, Places[int]] = WeakKeyDictionary()

    async def connect(self) -> None:
        """Load the model in a thread. Further calls do nothing; calls at the same time wait for the first one."""
        if self._loaded is None:
            await asyncio.to_thread(self._load)

    def _load(self) -> None:
        from cgr.engines.hf.load import load

        with LOADING:
            self._loaded = self._loaded or load(self.name, self.options)

    @property
    def loaded(self) -> LoadedModel:
        """The loaded model and what belongs to it; `EngineError` before `connect`."""
        if self._loaded is None:
            raise EngineError(f"{self.name} is not loaded yet.", "Await engine.connect() first.")
        return self._loaded

    @property
    def info(self) -> base.ModelInfo:
        return self.loaded.info

    @property
    def capabilities(self) -> base.Capabilities:
        packed, filters = self.loaded.window is None, base.FILTERS
        offers = {"verify": True, "thinking_logprobs": True, "alternatives": True, "packed": packed}
        return base.Capabilities("full", True, True, True, **offers, sampling=filters)

    async def encode(self, text: str) -> tuple[int, ...]:
        return self.loaded.tokenizer.encode(text)

    async def decode(self, ids: Ids) -> str:
        return self.loaded.tokenizer.decode(ids) if ids else ""

    async def prompt(self, conversation: Conversation) -> tuple[int, ...]:
        tokenizer = self.loaded.tokenizer
        text = render(tokenizer.template, conversation, self.loaded.tags, bos=tokenizer.bos, eos=tokenizer.eos)
        has_bos = bool(tokenizer.bos) and text.startswith(tokenizer.bos)
        return tokenizer.encode(text, special=not has_bos)

    async def open(
        self, prompt: base.Prompt, sampling: base.Sampling, *, room: int, overlap: bool = False, wait: float | None = None
    ) -> TransformersSession:
        ids = await base.prompt_ids(prompt, self)
        base.check_sampling(sampling, self)
        base.check_fits(ids, room, self.info.context)
        from cgr.engines.hf.session import TransformersSession  # imports torch, which is there once a model is loaded

        places = self._places.setdefault(asyncio.get_running_loop(), Places(range(self.options.sessions)))
        release = partial(places.give_back, await places.take(wait))
        return TransformersSession(self.loaded, ids, sampling, release)

    async def probe_many(
        self, prompt: Ids, trace: Ids, cuts: Ids, suffix: Ids, limit: int, done: Done, *, top: int = 0
    ) -> list[Answered]:
        """Probe a trace at all cuts (ascending) at once: the same answers as cut by cut, for much less."""
        from cgr.engines.hf.jobs import ProbeQuery
        from cgr.engines.hf.packed_probe import PackedProbe

        if self.loaded.window is not None:
            raise MissingCapability(
                f"{self.info.name} has sliding-window layers, whose probes cannot be packed.", "Probe cut by cut."
            )
        if not cuts:
            return []
        query = ProbeQuery(self.loaded, suffix, limit, done, top)
        packed = PackedProbe(self.loaded.model, query, [*prompt, *trace], [len(prompt) + cut for cut in cuts])
        return await self.loaded.scheduler.run(packed.run)

    async def close(self) -> None:
        """Free the memory of sessions, unless some are open; the model stays loaded and can be used again."""
        if self._loaded is not None:
            await self._loaded.scheduler.clear()
