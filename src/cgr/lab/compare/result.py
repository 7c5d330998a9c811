"""The content of compare.json. Shares and accuracies are fractions, differences in accuracy are percentage points."""

from __future__ import annotations

from dataclasses import dataclass

from cgr.lab.score.paired import Score
from cgr.lab.store.recorded import RunInfo
from cgr.lab.types import Interval
from cgr.records import Record

SCHEMA = 1
SAVING, AREA, ACCURACY = "saving", "area", "accuracy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Score):
    """The score of a rule at one `value` of its parameter, on some questions. Net tokens include those that probes decoded.
    `grade` has an entry for each penalty; it is 1 if all answers are right."""

    value: float | None
    net_tokens: float
    grade: tuple[float, ...]
    ci95_grade: tuple[Interval, ...]
    gave_up: float


@dataclass(frozen=True, slots=True)
class Figure(Record):
    """The figure of a rule by one measure, at the value chosen for it. None: the rule does not count by this measure."""

    measure: str
    value: float | None
    figure: float | None
    ci95: Interval | None


@dataclass(frozen=True, slots=True)
class Entry(Record):
    """One rule.

    `sweep`: all values, on all questions. `held_out`: all values, on the questions that values were not chosen on. `shown`:
    the value chosen for equal accuracy, on the same. `tuned`: there was such a value; `equal`: its accuracy is equal on the
    shown questions too. `frontier`: the values on the frontier over all questions.
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
        """The figure by this measure."""
        return next(figure for figure in self.figures if figure.measure == measure)


@dataclass(frozen=True, slots=True)
class Winner(Record):
    """The best rule by one measure, `first`; None if no rule counts. `second`: the next best, and the difference to it.
    `tied`: the rules that do not differ from the first: the paired interval of the difference holds 0."""

    measure: str
    first: str | None
    figure: float | None = None
    second: str | None = None
    difference: float | None = None
    ci95_difference: Interval | None = None
    tied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Undecided(Record):
    """A rule that these recordings cannot decide at these `values`; at none, if there are no values."""

    rule: str
    why: str
    hint: str
    values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Split(Record):
    """The number of questions that values were chosen on, and that are shown. `apart`: no question is in both."""

    tuning: int
    shown: int
    apart: bool


@dataclass(frozen=True, slots=True)
class Compared(Record):
    """All rules on one run. `baseline` is the full budget on the shown questions, `whole_baseline` on all questions."""

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
    missing: tuple[Undecided, ...]
    notes: tuple[str, ...]
    margin: float
    draws: int
    schema: int = SCHEMA

    def entry(self, rule: str) -> Entry:
        """The entry of this rule."""
        return next(entry for entry in self.entries if entry.rule == rule)
