"""The content of compare.json. Shares and accuracies are fractions, differences in accuracy are percentage points.

Without gold answers, `accuracy` in the names of fields is `agreement` in the file: see `cgr.lab.compare.wording`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from cgr.lab.compare.wording import renamed
from cgr.lab.decide.columns import FINAL, GOLD
from cgr.lab.score.adaptive import FalseSureRow, Gain
from cgr.lab.score.agreement import AGREEMENT
from cgr.lab.score.paired import Score
from cgr.lab.store.recorded import RunInfo
from cgr.lab.types import Interval
from cgr.records import Record

SCHEMA = 1
SAVING, AREA, ACCURACY = "saving", "area", "accuracy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Score):
    """The score of a rule at one `value` of its parameter, on some questions. Net tokens include those that probes decoded.
    `grade` has an entry for each penalty; it is 1 if all answers are right. `prefilled_net_share`: the net share, minus the
    tokens that probes prefilled. `unsolved`, `late`, `probes`: what is missing of the saving of the oracle."""

    value: float | None
    net_tokens: float
    prefilled_net_share: float
    unsolved: float
    late: float
    probes: float
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
class AcrossSplits(Record):
    """A rule over several splits of the questions, its value chosen anew in each: the mean, the worst and the best of the
    net share and of the difference in accuracy on the questions shown. `equal`, `worse`: in how many splits that was the
    verdict."""

    splits: int
    equal: int
    worse: int
    net_share: float
    net_share_worst: float
    net_share_best: float
    diff_points: float
    diff_points_worst: float
    diff_points_best: float


@dataclass(frozen=True, slots=True)
class Entry(Record):
    """One rule.

    `sweep`: all values, on all questions. `held_out`: all values, on the questions that values were not chosen on. `shown`:
    the value chosen for equal accuracy, on the same. `verdict`: whether its accuracy is equal there, and `tuning_verdict`:
    where it was chosen. `tuned`: it was equal where it was chosen; `equal`: it is where it is shown. `needed_questions`:
    the number of shown questions that would settle a verdict that cannot be told. `oracle_share`: its net saving as a share
    of the oracle's. `adaptive`: it beside a fixed budget of the same cost. `frontier`: the values on the frontier over all
    questions.
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
    verdict: str
    tuning_verdict: str
    needed_questions: int | None
    oracle_share: float | None
    adaptive: Gain
    splits: AcrossSplits | None

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
    """The number of questions that values were chosen on, and that are shown. `apart`: no question is in both.
    `shared_texts`: the number of different texts that questions in both parts have; None if the texts are not known."""

    tuning: int
    shown: int
    apart: bool
    shared_texts: int | None = None


@dataclass(frozen=True, slots=True)
class Compared(Record):
    """All rules on one run. `baseline` is the full budget on the shown questions, `whole_baseline` on all questions.
    `oracle`: the share of the thinking that the oracle saves on the shown questions. Head room and false sureness are of
    the whole run, and `verdict` says what they mean, if they mean that stopping early is not for this run. `reference`:
    what answers are compared with, `gold` answers or the `final` answers of their traces. With the latter, accuracy is
    agreement, and the oracle's saving is the head room."""

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
    oracle: float
    headroom: float | None
    false_sure: FalseSureRow
    verdict: str | None
    splits: int
    reference: str = GOLD
    schema: int = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """The content of compare.json."""
        data = asdict(self)
        return data if self.reference == GOLD else dict(renamed(data, ACCURACY, AGREEMENT))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The comparison that `to_dict` wrote."""
        by_agreement = isinstance(data, dict) and data.get("reference") == FINAL
        return super(Compared, cls).from_dict(renamed(data, AGREEMENT, ACCURACY) if by_agreement else data)

    def entry(self, rule: str) -> Entry:
        """The entry of this rule."""
        return next(entry for entry in self.entries if entry.rule == rule)
