"""The records of report.json. Field names are keys of the file; None is a number that the run cannot give."""

from __future__ import annotations

from dataclasses import dataclass

from cgr.certainty import DEFAULT as AGGREGATE
from cgr.lab.score.accuracy import Comparison, Savings, Spread
from cgr.lab.score.adaptive import AdaptiveRow, FalseSureRow
from cgr.lab.score.calibration import Selective
from cgr.lab.store.recorded import RunInfo
from cgr.lab.types import Interval
from cgr.records import Record

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class RunSize(Record):
    """Counts of what the run holds; `graded_*` have a gold answer."""

    questions: int
    graded_questions: int
    seeds: int
    traces: int
    graded_traces: int
    probes: int
    ended_by_themselves: int
    thinking_tokens: int

    @property
    def points_per_question(self) -> float:
        """Percentage points of one question, counted as a mean over seeds; 0 if nothing is graded."""
        return 100 * self.seeds / self.graded_traces if self.graded_traces else 0.0


@dataclass(frozen=True, slots=True)
class Baseline(Record):
    """Full thinking (to its natural end or the budget), always answering. `invalid_mean`: answers that cannot be read."""

    correct_mean: float | None
    accuracy: float | None
    ci95_accuracy: Interval | None
    invalid_mean: float | None
    thinking_tokens_mean: float


@dataclass(frozen=True, slots=True)
class WrittenAnswers(Record):
    """Accuracy of what the model wrote freely after its thinking, and of the answer decoded on the same traces."""

    count: int
    accuracy: float
    decoded_accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRow(Comparison, Record):
    """The rule at one threshold, always answering. `fired`: traces that it stopped."""

    threshold: float
    correct_mean: float | None
    accuracy: float | None
    fired: int


@dataclass(frozen=True, slots=True)
class GradeRow(Record):
    """Grade with abstention: at the last step below the budget (`final`), at the best step (`max`), at the budget, and at
    every step (`over_budget`). `answering`: at the budget, without abstention."""

    threshold: float
    penalty: float
    final: float | None
    baseline: float | None
    diff: float | None
    diff_points: float | None
    max: float | None
    step: int | None
    at_budget: float | None
    answering: float | None
    over_budget: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsRow(Savings, Record):
    """Thinking tokens saved over all traces. `share` is of the baseline's thinking; net subtracts the probe tokens."""

    threshold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadRow(Spread, Record):
    """Spread of accuracy over seeds. `threshold` None is the baseline; `sd` needs two seeds."""

    threshold: float | None


@dataclass(frozen=True, slots=True)
class BudgetRow(Record):
    """The baseline under one budget."""

    budget: int
    correct_mean: float | None
    accuracy: float | None
    sd: float | None
    thinking_tokens_mean: float
    ended_by_themselves: float


@dataclass(frozen=True, slots=True)
class TradeOffRow(Record):
    """Accuracy and mean tokens per trace at one threshold."""

    threshold: float
    accuracy: float | None
    thinking_tokens_mean: float
    probe_tokens_mean: float


@dataclass(frozen=True, slots=True)
class RawRow(Record):
    """The rule at one threshold if it reads the raw certainty, beside a certainty over the options."""

    threshold: float
    accuracy: float | None
    diff_points: float | None
    share: float
    net_share: float
    fired: int


@dataclass(frozen=True, slots=True)
class SelectiveRow(Record):
    """How well certainty separates right from wrong: among final answers, all probes, or the rule's answers."""

    among: str
    threshold: float | None
    selective: Selective


@dataclass(frozen=True, slots=True)
class Report(Record):
    """All numbers of a run. `shown` is the threshold of the figures that show only one. `probe_sets`: what the rule read;
    the baseline is always the run's own final answers. `adaptive`: the rule beside a fixed budget of the same cost.
    `verdict`: what head room and false sureness mean, if they mean that stopping early is not for this run. `aggregate`: of
    the certainty; if that is over the options of choice questions, `raw` has the same rule on the raw certainty."""

    run: RunInfo
    rule: str
    shown: float
    size: RunSize
    steps: tuple[int, ...]
    baseline: Baseline
    written: WrittenAnswers | None
    thresholds: tuple[ThresholdRow, ...]
    grade: tuple[GradeRow, ...]
    savings: tuple[SavingsRow, ...]
    spread: tuple[SpreadRow, ...]
    budget_sweep: tuple[BudgetRow, ...]
    trade_off: tuple[TradeOffRow, ...]
    selective: tuple[SelectiveRow, ...]
    notes: tuple[str, ...]
    probe_sets: tuple[str, ...] = ()
    adaptive: tuple[AdaptiveRow, ...] = ()
    headroom: float | None = None
    false_sure: tuple[FalseSureRow, ...] = ()
    verdict: str | None = None
    schema: int = SCHEMA
    aggregate: str = AGGREGATE
    raw: tuple[RawRow, ...] = ()
