"""Any causal model with think tags, on torch: exact logits, many sessions in one batch, probes that leave no trace.

Sampling is keyed by seed and position, so that a session thinks the same alone, in company, probed or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cgr.engines.base import Answered, Capabilities, Done, ModelInfo, Sampling
from cgr.engines.text.chat import ThinkTags, find_tags, need_tags, opens_thinking, render
from cgr.engines.text.end_tag import EndTag
from cgr.errors import DoesNotFit, MissingCapability, UsageError

if TYPE_CHECKING:
    from cgr.engines.hf.scheduler import Batch
    from cgr.engines.hf.session import TransformersSession

NAME = "transformers"


@dataclass(frozen=True, slots=True)
class TransformersOptions:
    """How to run a model: sessions at once, context for each (the model's own if not said), threads, think tags, device
    and dtype (what suits the machine if not said), and the name to show."""

    sessions: int = 1
    context: int | None = None
    threads: int | None = None
    tags: ThinkTags | None = None
    device: str | None = None
    dtype: str | None = None
    name: str | None = None


class TransformersEngine:
    """`name`: a hub id, a folder as `transformers` saves it, or a GGUF file."""

    def __init__(self, name: str, options: TransformersOptions = TransformersOptions()) -> None:
        from cgr.engines.hf.load import load

        loaded = load(name, options.device, options.dtype)
        _set_threads(options.threads)
        self.loaded, self.options, self.words = loaded, options, loaded.words
        self.tags = need_tags(options.tags or find_tags(loaded.template, loaded.added), name)
        self.tag = EndTag(self.tags.close, self.words.encode(self.tags.close))
        self.control = frozenset({*loaded.added.values(), *loaded.ends}) - {loaded.added.get(self.tags.open, -1)}
        self.context = min(options.context or loaded.context, loaded.context)
        self._batch: Batch | None = None
        self.capabilities = Capabilities(
            "full", True, True, True, verify=True, thinking_logprobs=True, packed=loaded.window is None
        )
        self.info = ModelInfo(
            name=options.name or name,
            engine=NAME,
            context=self.context,
            open_tag=self.tags.open,
            close_tag=self.tags.close,
            fingerprint=loaded.fingerprint,
            **loaded.wishes,
        )

    @property
    def threads(self) -> int:
        import torch

        return int(torch.get_num_threads())

    @property
    def model_context(self) -> int:
        """What the model was made for; a session has as much of it as it was opened with."""
        return self.loaded.context

    @property
    def template_opens(self) -> bool:
        return opens_thinking(self.loaded.template, self.tags)

    async def encode(self, text: str) -> tuple[int, ...]:
        return self.words.encode(text)

    async def decode(self, ids: Sequence[int]) -> str:
        return self.words.decode(ids) if ids else ""

    async def prompt(self, question: str) -> tuple[int, ...]:
        loaded = self.loaded
        text = render(loaded.template, question, self.tags, bos=loaded.bos, eos=loaded.eos)
        doubled = bool(loaded.bos) and text.startswith(loaded.bos)
        return self.words.encode(text, special=not doubled)

    async def open(
        self, question: str | Sequence[int], sampling: Sampling, *, room: int, overlap: bool = False
    ) -> TransformersSession:
        from cgr.engines.hf.session import Habits, TransformersSession, take_row

        prompt = await self.prompt(question) if isinstance(question, str) else tuple(question)
        if len(prompt) + room > self.context:
            raise DoesNotFit(
                f"The question takes {len(prompt)} tokens and {room} more are asked for, but the context has "
                f"{self.context}.",
                f"Lower the budget by at least {len(prompt) + room - self.context}.",
            )
        batch = self.batch
        habits = Habits(self.words, self.tag, self.loaded.ends, self.control, self.context)
        return TransformersSession(batch, await take_row(batch), prompt, sampling, habits)

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
        """Ask at all cuts of a trace (ascending) in one pass: what probing it cut by cut would give, for much less."""
        from cgr.engines.hf.kv_cache import Rows
        from cgr.engines.hf.packed_probe import Packed, Packing
        from cgr.engines.hf.requests import TOP, Alone
        from cgr.engines.hf.session import ask

        if self.loaded.window is not None:
            raise MissingCapability(
                f"{self.info.name} has sliding-window layers, whose probes cannot be packed.", "Probe cut by cut."
            )
        if not cuts:
            return []
        control = frozenset[int]() if top else self.control
        asked = Packed([*prompt, *trace], len(prompt), cuts, suffix, limit, done, control, max(top, TOP))
        packing = Packing(Rows(self.loaded.model, most=(1, 0)), self.words, asked)
        alone = Alone(packing.answers)
        found: list[Answered] = await ask(self.batch, alone, alone.future)
        return found

    async def close(self) -> None:
        """Give back the memory of sessions; the model stays, and may be used again."""
        from cgr.engines.hf.requests import Alone
        from cgr.engines.hf.session import ask

        if self._batch is not None:
            alone = Alone(self._batch.forget)
            await ask(self._batch, alone, alone.future)

    @property
    def batch(self) -> Batch:
        from cgr.engines.hf.kv_cache import Rows
        from cgr.engines.hf.scheduler import Batch

        if self._batch is None:
            most = self.options.sessions, self.context
            rows = Rows(self.loaded.model, most=most, window=self.loaded.window)
            self._batch = Batch(rows, self.options.sessions)
        return self._batch


def _set_threads(threads: int | None) -> None:
    import torch

    if threads is None:
        return
    if threads < 1:
        raise UsageError(f"{threads} threads cannot compute anything.", "Use --threads 1 or more.")
    torch.set_num_threads(threads)
