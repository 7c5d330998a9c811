"""The nouns of compare.json. Shares and accuracies are fractions, differences in accuracy are percentage points."""

from __future__ import annotations

from dataclasses import dataclass

from cgr.lab.store.recorded import RunInfo
from cgr.lab.types import Interval
from cgr.records import Record

SCHEMA = 1
SAVING, AREA, ACCURACY = "saving", "area", "accuracy"


def grade_measure(penalty: float) -> str:
    return f"grade p={penalty:g}"


@dataclass(frozen=True, slots=True)
class Point(Record):
    """A rule at one value of its parameter, on some questions.

    Tokens are means over traces; net ones count what probes decoded. `grade` has an entry for each penalty; all right is 1.
    """

    value: float | None
    accuracy: float
    ci95_accuracy: Interval
    diff_points: float
    ci95_diff_points: Interval
    thinking_tokens: float
    probe_tokens: float
    suffix_tokens: float
    net_tokens: float
    gross_share: float
    ci95_gross_share: Interval
    net_share: float
    ci95_net_share: Interval
    grade: tuple[float, ...]
    ci95_grade: tuple[Interval, ...]
    stopped: float
    gave_up: float


@dataclass(frozen=True, slots=True)
class Figure(Record):
    """What a rule comes to by one measure, with the value that was chosen for it; None: it does not come into it."""

    measure: str
    value: float | None
    figure: float | None
    ci95: Interval | None


@dataclass(frozen=True, slots=True)
class Entry(Record):
    """One rule.

    `sweep` is over all questions, `held_out` over those that had no part in choosing values; `shown` is of these, at the
    value chosen for equal accuracy. `tuned` says that there was such a value, `equal` that it holds on these too.
    `frontier` has the values that make the rule's best trade on all questions.
    """

    rule: str
    parameter: str | None
    sweep: tuple[Point, ...]
    held_out: tuple[Point, ...]
    shown: Point
    tuned: bool
    equal: bool
    figures: tuple[Figure, ...]
    frontier: tuple[float | None, ...]

    def by(self, measure: str) -> Figure:
        return next(figure for figure in self.figures if figure.measure == measure)


@dataclass(frozen=True, slots=True)
class Winner(Record):
    """The best rule by one measure. `tied`: the rules that it cannot be told from, the paired interval of the difference
    holding 0; `second` is the next best, with that difference. `first` None: no rule comes into it."""

    measure: str
    first: str | None
    figure: float | None = None
    second: str | None = None
    difference: float | None = None
    ci95_difference: Interval | None = None
    tied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing(Record):
    """A rule that these recordings cannot decide, or not at these `values` (all of them if none is named)."""

    rule: str
    why: str
    hint: str
    values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Split(Record):
    """Which questions chose parameters, and which are shown: the same where too few are there, or that was asked for."""

    tuning: int
    shown: int
    apart: bool


@dataclass(frozen=True, slots=True)
class Compared(Record):
    """Every rule on one run. `baseline` is the full budget on the shown questions, `whole_baseline` on all of them."""

    run: RunInfo
    questions: int
    seeds: int
    traces: int
    split: Split
    penalties: tuple[float, ...]
    baseline: Point
    whole_baseline: Point
    entries: tuple[Entry, ...]
    winners: tuple[Winner, ...]
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
    margin: float
    draws: int
    schema: int = SCHEMA

    def entry(self, rule: str) -> Entry:
        return next(entry for entry in self.entries if entry.rule == rule)
