"""The configuration of a run and of its probe sets. It is compared before anything is added to a run."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from cgr.certainty import DEFAULT as AGGREGATE
from cgr.certainty import check as check_aggregate
from cgr.engines.base import ModelInfo
from cgr.errors import UnknownName, UsageError
from cgr.probing import INTEGER_TOKENS, MAX_TOKENS, PREFIX, READS, CloseThink, ProbeSpec, Reads
from cgr.records import AnswerFormat, Record
from cgr.rules.base import check_at_least_one
from cgr.settings import INSTRUCTION, Settings

DEFAULT = "default"  # the probe set that reports read unless another is named
IMPORTED = "imported"
NATURAL = "fixed-budget"  # the rule of a run whose thinking was not forced to continue
Where = Literal["interval", "wait", "paragraph", "start", "anywhere"]
WHERE = ("interval", "wait", "paragraph", "start")


class OtherConfiguration(UsageError):
    """A run or a probe set was made with another configuration."""


@dataclass(frozen=True, slots=True)
class Asking(Record):
    """The options of a probe.

    `max_answer_tokens` None: by the format of the question, 4 for integers and 32 for others. `reads`: only the answer,
    also the text after it, or only the entropy of the next token.
    """

    prefix: str = PREFIX
    close_think: CloseThink = "never"
    max_answer_tokens: int | None = None
    aggregate: str = AGGREGATE
    reads: Reads = "answer"

    def spec(self, format: AnswerFormat) -> ProbeSpec:
        """These options for questions of one format."""
        by_format = INTEGER_TOKENS if format == "integer" else MAX_TOKENS
        return ProbeSpec(self.prefix, self.max_answer_tokens or by_format, self.aggregate, self.close_think, self.reads)

    @classmethod
    def of(cls, settings: Settings, info: ModelInfo) -> Asking:
        """The options that these settings have on this model."""
        limit = settings.max_answer_tokens or info.max_answer_tokens
        return cls(settings.prefix, settings.close_think, limit, settings.aggregate)


@dataclass(frozen=True, slots=True)
class RunConfig(Record):
    """What produced the traces of a run.

    `interval`: the default interval of its probes. `probe`: whether it was probed while it was generated. `written_tokens`:
    the most tokens that the model may write after a natural end. `rule`: `fixed-budget`, or the rule that forced the
    thinking to continue to the budget.
    """

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

    def prompt(self, question: str) -> str:
        """The text of the prompt for a question."""
        return Settings(instruction=self.instruction).prompt(question)


@dataclass(frozen=True, slots=True)
class ProbeSet(Record):
    """What produced a probe set: the positions of its probes, their options, and the model that was probed.

    `where`: every `interval` tokens; before each "Wait" or "Alternatively"; after each paragraph; at the start, before any
    thinking; or anywhere, for imported probes.
    """

    where: Where = "interval"
    interval: int = 0
    asking: Asking = Asking()
    model: str = IMPORTED
    fingerprint: str = ""

    @property
    def nickname(self) -> str:
        """A short name: the positions, and what is read if that is not the answer."""
        place = f"every-{self.interval}" if self.where == "interval" else self.where
        return place if self.asking.reads == "answer" else f"{place}-{self.asking.reads}"

    def new_name(self, taken: Collection[str]) -> str:
        """`default` for the first set of a run if it holds answers at an interval; otherwise the nickname, with a number if
        that is taken."""
        if not taken and self.where in ("interval", "anywhere") and self.asking.reads == "answer":
            return DEFAULT
        names = itertools.chain([self.nickname], (f"{self.nickname}-{number}" for number in itertools.count(2)))
        return next(name for name in names if name not in taken)


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """How a run should be probed. None means: as the run's configuration states."""

    where: Where = "interval"
    interval: int | None = None
    prefix: str | None = None
    close_think: CloseThink | None = None
    max_answer_tokens: int | None = None
    aggregate: str | None = None
    name: str | None = None
    reads: Reads = "answer"

    def __post_init__(self) -> None:
        if self.where not in WHERE:
            raise UnknownName.among("place to probe", self.where, WHERE)
        if self.reads not in READS:
            raise UnknownName.among("way of reading a probe", self.reads, READS)
        for what, value in (("interval", self.interval), ("longest answer", self.max_answer_tokens)):
            if value is not None:
                check_at_least_one(what, value)
        if self.aggregate is not None:
            check_aggregate(self.aggregate)

    @classmethod
    def matching(cls, probe_set: ProbeSet) -> ProbeRequest:
        """The request that makes this probe set."""
        asking = probe_set.asking
        options = (asking.prefix, asking.close_think, asking.max_answer_tokens, asking.aggregate)
        return cls(probe_set.where, probe_set.interval or None, *options, reads=asking.reads)

    def asking(self, default: Asking) -> Asking:
        """The options of these probes; what the request leaves open is taken from `default`."""
        return Asking(
            default.prefix if self.prefix is None else self.prefix,
            self.close_think or default.close_think,
            self.max_answer_tokens or default.max_answer_tokens,
            self.aggregate or default.aggregate,
            self.reads,
        )

    def probe_set(self, config: RunConfig, info: ModelInfo) -> ProbeSet:
        """The probe set that this request makes in a run, probed with this model."""
        asking = self.asking(config.asking)
        asking.spec("integer")  # raises if the prefix cannot be closed
        interval = (self.interval or config.interval) if self.where == "interval" else 0
        return ProbeSet(self.where, interval, asking, info.name, info.fingerprint)


@dataclass(frozen=True, slots=True)
class Failure:
    """A trace that could not be made or probed. The next call tries it again."""

    question_id: str
    seed: int
    stage: str
    message: str
    hint: str = ""


def probing_stage(probe_set: str) -> str:
    """The stage under which failures of a probe set are stored."""
    return f"probe {probe_set}"


def same_model(a: RunConfig | ProbeSet | ModelInfo, b: RunConfig | ProbeSet | ModelInfo) -> bool:
    """Whether both have the same weights; if either fingerprint is unknown, whether they have the same name."""
    if a.fingerprint and b.fingerprint:
        return a.fingerprint == b.fingerprint
    return _name(a) == _name(b)


def _name(model: RunConfig | ProbeSet | ModelInfo) -> str:
    return model.name if isinstance(model, ModelInfo) else model.model


def differences(stored: RunConfig | ProbeSet, wanted: RunConfig | ProbeSet) -> list[str]:
    """A phrase for each difference between the stored configuration and this one."""
    found = [] if same_model(stored, wanted) else [_model_difference(stored, wanted)]
    pairs = [*_values(stored, wanted), *_values(stored.asking, wanted.asking)]
    return found + [f"{name.replace('_', ' ')} is {a!r} there and {b!r} here" for name, a, b in pairs if a != b]


def _values(stored: Record, wanted: Record) -> list[tuple[str, object, object]]:
    separate = {"model", "fingerprint", "asking"}
    names = [field.name for field in fields(stored) if field.name not in separate]  # type: ignore[arg-type]
    return [(name, getattr(stored, name), getattr(wanted, name)) for name in names]


def _model_difference(stored: RunConfig | ProbeSet, wanted: RunConfig | ProbeSet) -> str:
    if stored.model == wanted.model:
        return f"the weights of {wanted.model!r} have changed"
    return f"model is {stored.model!r} there and {wanted.model!r} here"


def refuse_differences(what: str, stored: RunConfig | ProbeSet, wanted: RunConfig | ProbeSet, hint: str) -> None:
    """Raise `OtherConfiguration` if the stored configuration differs from this one."""
    found = differences(stored, wanted)
    if found:
        raise OtherConfiguration(f"{what} has another configuration: {in_words(found)}.", hint)


def in_words(parts: Sequence[str]) -> str:
    """`a`, `a and b`, or `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
