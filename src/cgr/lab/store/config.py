"""What produced a run and its probes: the key of every row, compared before anything is added to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from cgr.certainty import DEFAULT as AGGREGATE
from cgr.engines.base import ModelInfo
from cgr.errors import UsageError
from cgr.probing import INTEGER_TOKENS, MAX_TOKENS, PREFIX, CloseThink, ProbeSpec, Reads
from cgr.records import AnswerFormat, Record
from cgr.settings import INSTRUCTION, Settings

IMPORTED = "imported"
NATURAL = "fixed-budget"  # the rule of a run that was not forced
Where = Literal["interval", "wait", "paragraph", "start", "anywhere"]
WHERE = ("interval", "wait", "paragraph", "start")


class OtherConfiguration(UsageError):
    """A run holds what another configuration produced."""


@dataclass(frozen=True, slots=True)
class Asking(Record):
    """How answers are asked for. `max_answer_tokens` None: by the question's format, 4 for integers and 32 for others.
    `reads`: the answer, the text beyond it too, or only the next token's entropy."""

    prefix: str = PREFIX
    close_think: CloseThink = "never"
    max_answer_tokens: int | None = None
    aggregate: str = AGGREGATE
    reads: Reads = "answer"

    def spec(self, format: AnswerFormat) -> ProbeSpec:
        by_format = INTEGER_TOKENS if format == "integer" else MAX_TOKENS
        return ProbeSpec(self.prefix, self.max_answer_tokens or by_format, self.aggregate, self.close_think, self.reads)

    @classmethod
    def of(cls, settings: Settings, info: ModelInfo) -> Asking:
        limit = settings.max_answer_tokens or info.max_answer_tokens
        return cls(settings.prefix, settings.close_think, limit, settings.aggregate)


@dataclass(frozen=True, slots=True)
class RunConfig(Record):
    """What produced the traces of a run. `interval` is the grid that it is probed on unless said otherwise; `probe` says
    whether that was done on the way. `written_tokens`: how much a model may write by itself after a natural end. `rule`:
    what the thinking was done under: to its natural end, or forced on to the budget."""

    model: str = IMPORTED
    engine: str = IMPORTED
    budget: int = 0
    interval: int = 0
    source: str = ""
    fingerprint: str = ""
    temperature: float = 0.6
    top_p: float = 1.0
    instruction: str = INSTRUCTION
    asking: Asking = Asking()
    written_tokens: int = 0
    logprobs: bool = False
    probe: bool = False
    rule: str = NATURAL


@dataclass(frozen=True, slots=True)
class ProbeSet(Record):
    """What produced a set of probes: where they were made (every `interval` tokens; before each "Wait" or "Alternatively";
    after each paragraph; at the start, before any thinking; anywhere, if imported), how they asked, and who answered."""

    where: Where = "interval"
    interval: int = 0
    asking: Asking = Asking()
    model: str = IMPORTED
    fingerprint: str = ""

    @property
    def nickname(self) -> str:
        """What it is, shortly: where it asks, and in which way if not the usual one."""
        place = f"every-{self.interval}" if self.where == "interval" else self.where
        return place if self.asking.reads == "answer" else f"{place}-{self.asking.reads}"


@dataclass(frozen=True, slots=True)
class Failure:
    """What could not be made: it is tried again by the next call."""

    question_id: str
    seed: int
    stage: str
    message: str
    hint: str = ""


def probing_stage(probe_set: str) -> str:
    """What the failures of a set of probes are filed under."""
    return f"probe {probe_set}"


def same_model(a: RunConfig | ProbeSet | ModelInfo, b: RunConfig | ProbeSet | ModelInfo) -> bool:
    """The same weights, whatever they are called; where they were not seen, the same name."""
    if a.fingerprint and b.fingerprint:
        return a.fingerprint == b.fingerprint
    return _name(a) == _name(b)


def _name(model: RunConfig | ProbeSet | ModelInfo) -> str:
    return model.name if isinstance(model, ModelInfo) else model.model


def differences(there: RunConfig | ProbeSet, here: RunConfig | ProbeSet) -> list[str]:
    """Each thing that is not the same, in words."""
    found = [] if same_model(there, here) else [_model_difference(there, here)]
    pairs = [*_values(there, here), *_values(there.asking, here.asking)]
    return found + [f"{name.replace('_', ' ')} is {a!r} there and {b!r} here" for name, a, b in pairs if a != b]


def _values(there: Record, here: Record) -> list[tuple[str, object, object]]:
    apart = {"model", "fingerprint", "asking"}
    names = [field.name for field in fields(there) if field.name not in apart]  # type: ignore[arg-type]
    return [(name, getattr(there, name), getattr(here, name)) for name in names]


def _model_difference(there: RunConfig | ProbeSet, here: RunConfig | ProbeSet) -> str:
    if there.model == here.model:
        return f"the weights of {here.model!r} have changed since"
    return f"model is {there.model!r} there and {here.model!r} here"


def refuse_differences(what: str, there: RunConfig | ProbeSet, here: RunConfig | ProbeSet, hint: str) -> None:
    found = differences(there, here)
    if found:
        raise OtherConfiguration(f"{what} was made otherwise: {in_words(found)}.", hint)


def in_words(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
