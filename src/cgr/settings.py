"""Every option of a run, its default, and its value on a given model. Defaults are defined here and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypedDict

from cgr import calibration as promises
from cgr.calibration import Calibration
from cgr.certainty import DEFAULT as AGGREGATE
from cgr.certainty import NAMES as AGGREGATES
from cgr.certainty import OPTIONS
from cgr.engines.base import Capabilities, ModelInfo, Sampling
from cgr.errors import DoesNotFit, UnknownName, UsageError
from cgr.probing import MAX_TOKENS, PREFIX, CloseThink, ProbeSpec, option_letters
from cgr.prompts import Examples, conversation, examples_of, instructed
from cgr.reason import Abstention, AtEnd
from cgr.records import Conversation, Message, Question, check_text, check_types, messages_of, option
from cgr.rules import Rule, make_rule
from cgr.rules.base import INTERVAL, THRESHOLD, check_at_least_one, check_threshold, rule_class

BUDGET = 32_000
INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."
PROBES_PER_BUDGET = BUDGET // INTERVAL
PROMPT_ROOM = 512  # tokens left for the question in a context that is too small for the paper's budget


class SolveOptions(TypedDict, total=False):
    """The fields of `Settings` as keywords, so that editors and type checkers know them."""

    rule: str
    threshold: float | None
    interval: int | None
    budget: int | None
    max_answer_tokens: int | None
    aggregate: str | None
    temperature: float
    top_p: float
    seed: int
    at_budget: AtEnd
    at_end_of_thinking: AtEnd
    prefix: str
    close_think: CloseThink
    overlap: bool | None
    full: bool
    instruction: str
    system: str
    examples: Examples
    parameters: Mapping[str, Any]
    calibration: Calibration | str | Path | None


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may choose. None: the paper's value if it fits the model and the rule, else one that does.
    `parameters`: of the rule, by name, beside threshold and interval. `calibration`: a promise, or its file; it fixes the
    rule and how it is used, and what was set otherwise is refused."""

    rule: str = option("cgr", "The stopping rule: a name (see `cgr rules`) or a file written by `cgr fit`.")
    threshold: float | None = option(None, "Certainty from which to stop.  [default: 0.99, or the rule's own]")
    interval: int | None = option(None, "Thinking tokens between two probes.  [default: the model's own, or 1000]")
    budget: int | None = option(None, "Maximum number of thinking tokens.  [default: 32000, or what fits the model]")
    max_answer_tokens: int | None = option(None, "Maximum tokens of a probed answer.  [default: 32, or the model's own]")
    aggregate: str | None = option(
        None, f"How token probabilities become one certainty: {', '.join(AGGREGATES)}.  [default: {AGGREGATE}]"
    )
    temperature: float = option(0.6, "Sampling temperature; 0 is greedy.")
    top_p: float = option(1.0, "Nucleus sampling: keep this probability mass.")
    seed: int = option(0, "Random seed of the thinking.")
    at_budget: AtEnd = option("answer", "What to do if the budget is spent and the model is not certain.")
    at_end_of_thinking: AtEnd = option("answer", "What to do if the model ends its thinking and is not certain.")
    prefix: str = option(PREFIX, f"Text that a probe appends to ask for the answer.  [default: '{PREFIX}']")
    close_think: CloseThink = option(
        "never", "Whether to write the end tag before the prefix; auto: only before the final answer."
    )
    overlap: bool | None = option(None, "Continue thinking while a probe is running.  [default: only on servers]")
    full: bool = option(False, "Decode every answer to its end, even if its first tokens are not certain.")
    instruction: str = option(INSTRUCTION, f"Text after each question.  [default: '{INSTRUCTION}']")
    system: str = option("", "A system message before each question.")
    examples: Examples = option(
        (), "Worked examples before each question: .toml, .json or .jsonl; may be repeated.", "FILE", each="example"
    )
    parameters: Mapping[str, Any] = field(default_factory=dict)
    calibration: Calibration | str | Path | None = option(
        None, "A file of `cgr calibrate`: its rule and threshold, for its model, prompt and interval.", "FILE"
    )

    def __post_init__(self) -> None:
        check_types(self)
        if not isinstance(self.parameters, Mapping):
            raise UsageError(f"parameters must be a mapping, not {self.parameters!r:.60}.", "Use {'name': value}.")
        object.__setattr__(self, "examples", examples_of(self.examples))
        if self.calibration is not None:
            self._calibrate()
        if self.threshold is not None:
            check_threshold(self.threshold)
        for what, value in (("interval", self.interval), ("budget", self.budget)):
            if value is not None:
                check_at_least_one(what, value)
        if not 0 <= self.temperature < math.inf:
            raise UsageError(f"A temperature of {self.temperature:g} is not possible.", "Use 0 or more; 0 is greedy.")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"A top-p of {self.top_p:g} is not possible.", "Use more than 0 and at most 1.")
        make_rule(self.rule, **self.parameters)
        self.abstention()
        self.spec()

    @classmethod
    def of(cls, **options: Any) -> Settings:
        """Settings from keywords; an unknown one is refused by name."""
        names = {one.name for one in fields(cls)}
        for name in options:
            if name not in names:
                raise UnknownName.among("option", name, names)
        return cls(**options)

    def _calibrate(self) -> None:
        """Take what the calibration fixes."""
        promise = self.promise
        object.__setattr__(self, "calibration", promise)
        usual: dict[str, Any] = {one.name: {} if one.name == "parameters" else one.default for one in fields(self)}
        given = {name: getattr(self, name) for name in usual if getattr(self, name) != usual[name]}
        for name, value in promise.settings(given).items():
            object.__setattr__(self, name, value)

    @property
    def promise(self) -> Calibration:
        """The calibration, read from its file if needed; an error if there is none."""
        given = self.calibration
        if isinstance(given, Calibration):
            return given
        if not isinstance(given, str | Path):
            raise UsageError(f"calibration must be a file, not {given!r:.60}.", "Make one with `cgr calibrate`.")
        return promises.read(given)

    def check_prober(self, info: ModelInfo | None) -> None:
        """Raise an error if there is a calibration and it was made with probes of another model."""
        if self.calibration is not None:
            self.promise.check_prober(info)

    def resolve(self, info: ModelInfo) -> Resolved:
        """These settings on this model, with a value for everything that was None."""
        if self.calibration is not None:
            self.promise.check_model(info)
        budget = self.budget or info.budget or min(BUDGET, max(info.context - PROMPT_ROOM, 1))
        interval = self.interval or info.interval or default_interval(budget)
        limit = self.max_answer_tokens or info.max_answer_tokens or MAX_TOKENS
        if budget > info.context:
            raise DoesNotFit(
                f"A budget of {budget} does not fit into {info.name}'s context of {info.context} tokens.",
                "Lower --budget, or use a model with more context.",
            )
        rule = self._rule(interval).within(budget)
        threshold = getattr(rule, "threshold", THRESHOLD) if self.threshold is None else self.threshold
        settings = replace(self, budget=budget, interval=interval, max_answer_tokens=limit, threshold=float(threshold))
        settings = replace(settings, aggregate=AGGREGATE if self.aggregate is None else self.aggregate)
        return Resolved(settings, rule, budget, interval, float(threshold))

    def abstention(self) -> Abstention:
        sure = THRESHOLD if self.threshold is None else self.threshold
        return Abstention(self.at_budget, self.at_end_of_thinking, sure)

    def spec(self, question: str | None = None) -> ProbeSpec:
        """How to probe; with the aggregate `options`, the options are those that the question lists."""
        limit = MAX_TOKENS if self.max_answer_tokens is None else self.max_answer_tokens
        options = option_letters(question) if question is not None and self.aggregate == OPTIONS else ()
        if question is not None and self.aggregate == OPTIONS and not options:
            raise UsageError(
                "The question lists no options, so there is no certainty over them.",
                "Write each on its own line, as in 'A) ...', or use another --aggregate.",
            )
        return ProbeSpec(
            self.prefix, limit, AGGREGATE if self.aggregate is None else self.aggregate, self.close_think, options=options
        )

    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_p, self.seed)

    def prompt(self, question: Conversation) -> Conversation:
        """The question, or the last message of a conversation, followed by the instruction; before it the system message
        and the worked examples, unless the conversation has a system message of its own."""
        last = (messages_of(question) or (Message("user", ""),))[-1]
        check_text(last.content, "question")
        if not last.content.strip():
            raise UsageError("The question is empty.", 'Ask something: cgr solve "Start with x=864. ..."')
        if last.role != "user":
            raise UsageError(f"The last message is from the {last.role}.", "End the conversation with a user's message.")
        if isinstance(question, str) and not (self.system or self.examples):
            return instructed(question, self.instruction)
        examples = examples_of(self.examples)
        return conversation(question, system=self.system, examples=examples, instruction=self.instruction)

    def turns(self, question: Conversation) -> tuple[Message, ...]:
        """The messages of the prompt without the instruction."""
        return conversation(question, system=self.system, examples=examples_of(self.examples))

    def _rule(self, interval: int) -> Rule:
        """The rule with those settings that are parameters of it; without a threshold the rule uses its own."""
        wanted = {"threshold": self.threshold, "interval": interval}
        has = rule_class(self.rule).parameters()
        given = {name: value for name, value in wanted.items() if name in has}
        return make_rule(self.rule, **given | dict(self.parameters))


def default_interval(budget: int) -> int:
    """The interval between probes under this budget: the paper's, or as many probes in a smaller budget."""
    return max(1, min(INTERVAL, budget // PROBES_PER_BUDGET))


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings without None, and the rule that they make."""

    settings: Settings
    rule: Rule
    budget: int
    interval: int
    threshold: float

    def sampling(self) -> Sampling:
        """How to sample for this rule: one that inspects the thinking needs its log-probabilities."""
        return replace(self.settings.sampling(), logprobs=bool(self.rule.inspect_every))


def default_aggregate(questions: Iterable[Question], capabilities: Capabilities) -> str:
    """The aggregate of a new run if none was chosen: over the options if there are choice questions and the engine returns
    the alternatives to a token."""
    return OPTIONS if capabilities.alternatives and has_options(questions) else AGGREGATE


def has_options(questions: Iterable[Question]) -> bool:
    """Whether some of these are choice questions whose text lists the options."""
    return any(one.format == "choice" and option_letters(one.text) for one in questions)


def options_note(questions: Iterable[Question], aggregate: str | None, capabilities: Capabilities) -> tuple[str, ...]:
    """A note, if certainty over the options is wanted (None: the default) but cannot be had on this engine."""
    if aggregate not in (None, OPTIONS) or capabilities.alternatives or not has_options(questions):
        return ()
    return (
        "This engine does not return the alternatives to a token, so the certainty of choice questions is not normalised "
        f"over their options: it is the aggregate {AGGREGATE!r}.",
    )
