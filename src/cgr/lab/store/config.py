"""The configuration of a run and of its probe sets, compared before anything is added; and which sets a rule needs."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from cgr.certainty import DEFAULT as AGGREGATE
from cgr.certainty import check as check_aggregate
from cgr.engines.base import ModelInfo, Sampling
from cgr.errors import UnknownName, UsageError
from cgr.probing import INTEGER_TOKENS, MAX_TOKENS, PREFIX, READS, CloseThink, ProbeSpec, Reads, option_letters
from cgr.prompts import Example
from cgr.records import AnswerFormat, Conversation, Record
from cgr.rules import WAIT
from cgr.rules.base import check_at_least_one
from cgr.settings import INSTRUCTION, Settings, default_interval

DEFAULT = "default"  # the probe set that reports read unless another is named
ALL = "all"  # every rule
IMPORTED = "imported"
NATURAL = "fixed-budget"  # the rule of a run whose thinking was not forced to continue
Where = Literal["interval", "wait", "paragraph", "start", "anywhere"]
WHERE = ("interval", "wait", "paragraph", "start")


class OtherConfiguration(UsageError):
    """A run or a probe set was made with another configuration."""


@dataclass(frozen=True, slots=True)
class Asking(Record):
    """The options of a probe. An import may not know `prefix` and `close_think`: they are None then.

    `max_answer_tokens` None: by the format of the question, 4 for integers and 32 for others. `reads`: only the answer,
    also the text after it, or only the entropy of the next token.
    """

    prefix: str | None = PREFIX
    close_think: CloseThink | None = "never"
    max_answer_tokens: int | None = None
    aggregate: str = AGGREGATE
    reads: Reads = "answer"

    def known(self) -> Asking:
        """These options with the defaults in place of what is unknown."""
        usual = Asking()
        prefix = usual.prefix if self.prefix is None else self.prefix
        return replace(self, prefix=prefix, close_think=self.close_think or usual.close_think)

    def spec(self, format: AnswerFormat, question: str = "") -> ProbeSpec:
        """These options for a question of this format. The letters of a choice question are those that its text lists;
        without any, certainty over the options is the minimum."""
        limit = self.max_answer_tokens or (INTEGER_TOKENS if format == "integer" else MAX_TOKENS)
        prefix = PREFIX if self.prefix is None else self.prefix
        letters = option_letters(question) if format == "choice" else ()
        return ProbeSpec(prefix, limit, self.aggregate, self.close_think or "never", self.reads, letters)

    @classmethod
    def of(cls, settings: Settings, info: ModelInfo) -> Asking:
        """The options that these settings have on this model."""
        limit = settings.max_answer_tokens or info.max_answer_tokens
        return cls(settings.prefix, settings.close_think, limit, settings.aggregate or AGGREGATE)


@dataclass(frozen=True, slots=True)
class RunConfig(Record):
    """What produced the traces of a run. Of an imported run much may be unknown: None.

    `interval`: the default interval of its probes; 0 if unknown. `probe`: whether it was probed while it was generated.
    `written_tokens`: the most tokens that the model may write after a natural end. `rule`: `fixed-budget`, or the rule that
    forced the thinking to continue, with its text and how often at most. `system`, `examples`: before each question.
    `shard`: the part of a larger run that this is, such as `3/16`.
    """

    model: str = IMPORTED
    engine: str = IMPORTED
    budget: int = 0
    interval: int = 0
    source: str = ""
    fingerprint: str = ""
    temperature: float | None = 0.6
    top_p: float | None = 1.0
    instruction: str | None = INSTRUCTION
    asking: Asking = Asking()
    written_tokens: int | None = 0
    logprobs: bool = False
    probe: bool = False
    rule: str = NATURAL
    system: str = ""
    examples: tuple[Example, ...] = ()
    forced_text: str = WAIT
    forced_at_most: int | None = None
    shard: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The fields. Without a shard there is no such field, so that older versions can read the run."""
        found = asdict(self)
        return found if self.shard else {name: value for name, value in found.items() if name != "shard"}

    def prompt(self, question: str) -> Conversation:
        """The prompt for a question; with the default instruction if that of the run is unknown."""
        instruction = INSTRUCTION if self.instruction is None else self.instruction
        return Settings(instruction=instruction, system=self.system, examples=self.examples).prompt(question)

    def sampling(self, seed: int) -> Sampling:
        """How the thinking is sampled under this seed."""
        usual = Sampling()
        temperature = usual.temperature if self.temperature is None else self.temperature
        return Sampling(temperature, self.top_p or usual.top_p, seed, self.logprobs, self.budget)

    @property
    def probe_interval(self) -> int:
        """The interval of new probes, if none is given. Older imports without probes state their budget as interval."""
        unknown = not self.interval or (self.engine == IMPORTED and self.interval >= self.budget)
        return default_interval(self.budget) if unknown else self.interval


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

    def new_name(self, taken: Collection[str]) -> str:
        """`default` for the first set of a run if it holds answers at an interval; otherwise its positions and, if that is
        not the answer, what is read; with a number if that name is taken."""
        if not taken and self.where in ("interval", "anywhere") and self.asking.reads == "answer":
            return DEFAULT
        place = f"every-{self.interval}" if self.interval else self.where
        short = place if self.asking.reads == "answer" else f"{place}-{self.asking.reads}"
        names = itertools.chain([short], (f"{short}-{number}" for number in itertools.count(2)))
        return next(name for name in names if name not in taken)


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """How a run should be probed. None means: as the run's configuration states.

    `anywhere`: recorded probes at irregular positions serve too, because the rule that asks reads what was probed.
    """

    where: Where = "interval"
    interval: int | None = None
    prefix: str | None = None
    close_think: CloseThink | None = None
    max_answer_tokens: int | None = None
    aggregate: str | None = None
    name: str | None = None
    reads: Reads = "answer"
    anywhere: bool = False

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
        where: Where = "interval" if probe_set.where == "anywhere" else probe_set.where
        return cls(where, probe_set.interval or None, **probe_set.asking.to_dict())

    def asking(self, default: Asking) -> Asking:
        """The options of these probes; what the request leaves open is taken from `default`."""
        chosen = {one.name: getattr(self, one.name) for one in fields(Asking)}
        return replace(default, **{name: value for name, value in chosen.items() if value is not None})

    def probe_set(self, config: RunConfig, info: ModelInfo) -> ProbeSet:
        """The probe set that this request makes in a run, probed with this model."""
        asking = self.asking(config.asking).known()
        asking.spec("integer")  # raises if the prefix cannot be closed
        interval = (self.interval or config.probe_interval) if self.where == "interval" else 0
        return ProbeSet(self.where, interval, asking, info.name, info.fingerprint)


@dataclass(frozen=True, slots=True)
class Failure(Record):
    """A trace that could not be made or probed, and why. The next call tries it again."""

    question_id: str
    seed: int
    message: str
    hint: str = ""


def same_model(a: RunConfig | ProbeSet | ModelInfo, b: RunConfig | ProbeSet | ModelInfo) -> bool:
    """Whether both have the same weights; if either fingerprint is unknown, whether they have the same name."""
    if a.fingerprint and b.fingerprint:
        return a.fingerprint == b.fingerprint
    name_a, name_b = (one.name if isinstance(one, ModelInfo) else one.model for one in (a, b))
    return name_a == name_b


def differences(stored: RunConfig | ProbeSet, wanted: RunConfig | ProbeSet) -> list[str]:
    """A phrase for each difference between the stored configuration and this one."""
    there, here = ({**asdict(one), **one.asking.to_dict()} for one in (stored, wanted))
    names = [name for name in there if there[name] != here[name] and name not in ("model", "fingerprint", "asking")]
    if not same_model(stored, wanted):
        names = ["model", *names]
    return [_difference(name, there[name], here[name]) for name in names]


def _difference(name: str, there: object, here: object) -> str:
    if name == "examples":
        return "the worked examples are others"
    if there == here:  # a model with the same name
        return f"the weights of {here!r} have changed"
    return f"{name.replace('_', ' ')} is {there!r} there and {here!r} here"


def refuse_differences(what: str, stored: RunConfig | ProbeSet, wanted: RunConfig | ProbeSet, hint: str) -> None:
    """Raise `OtherConfiguration` if the stored configuration differs from this one."""
    found = differences(stored, wanted)
    if found:
        raise OtherConfiguration(f"{what} has another configuration: {in_words(found)}.", hint)


def in_words(parts: Sequence[str]) -> str:
    """`a`, `a and b`, or `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
