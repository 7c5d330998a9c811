"""The nouns of report.json. Field names are the file's; None is a number that this run cannot give (see `notes`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cgr.lab.score.calibration import Selective
from cgr.lab.store.config import IMPORTED
from cgr.lab.store.recorded import RunInfo
from cgr.lab.types import Interval
from cgr.records import Record

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Size(Record):
    """What there is: of the run, and of it with a gold answer."""

    questions: int
    graded_questions: int
    seeds: int
    traces: int
    graded_traces: int
    probes: int
    ended_by_themselves: int
    thinking_tokens: int


@dataclass(frozen=True, slots=True)
class Baseline(Record):
    """Thinking until it ends or the budget is spent, then answering always. `invalid_mean`: answers that are none."""

    correct_mean: float | None
    accuracy: float | None
    ci95_accuracy: Interval | None
    invalid_mean: float | None
    thinking_tokens_mean: float


@dataclass(frozen=True, slots=True)
class Written(Record):
    """What the model wrote by itself after its thinking, beside what was decoded after the prefix on the same traces."""

    count: int
    accuracy: float
    decoded_accuracy: float


@dataclass(frozen=True, slots=True)
class ThresholdRow(Record):
    """The rule at one threshold, answering always. `fired`: traces that it stopped."""

    threshold: float
    correct_mean: float | None
    accuracy: float | None
    diff_mean: float | None
    diff_points: float | None
    diff_relative: float | None
    equal: int | None
    better: int | None
    worse: int | None
    ci95: Interval | None
    ci95_seeds: Interval | None
    fired: int


@dataclass(frozen=True, slots=True)
class GradeRow(Record):
    """Grade with abstention: at the last step below the budget (`final`), at its best, at the budget itself, and at each
    of `steps`. `answering`: at the budget, without abstention."""

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


@dataclass(frozen=True, slots=True)
class SavingsRow(Record):
    """Thinking tokens saved, over all traces. `share` is of what the baseline thought; net is less the probes' tokens."""

    threshold: float
    total: int
    per_seed: float
    per_question: float
    probe_tokens: int
    suffix_tokens: int
    net_total: int
    share: float
    net_share: float
    against_budget_total: int
    against_budget_share: float
    ci95_share: Interval | None


@dataclass(frozen=True, slots=True)
class SpreadRow(Record):
    """How far the seeds are apart in accuracy. `threshold` None is the baseline; `sd` needs two seeds."""

    threshold: float | None
    sd: float | None
    low: float | None
    high: float | None


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
    """What one threshold buys: accuracy against the tokens of a trace."""

    threshold: float
    accuracy: float | None
    thinking_tokens_mean: float
    probe_tokens_mean: float


@dataclass(frozen=True, slots=True)
class SelectiveRow(Record):
    """How well certainty tells right from wrong: among final answers, all probes, or what the rule answers."""

    among: str
    threshold: float | None
    selective: Selective


@dataclass(frozen=True, slots=True)
class Report(Record):
    """A run in numbers. `shown` is the threshold that single-threshold figures show."""

    run: RunInfo
    rule: str
    shown: float
    size: Size
    steps: tuple[int, ...]
    baseline: Baseline
    written: Written | None
    thresholds: tuple[ThresholdRow, ...]
    grade: tuple[GradeRow, ...]
    savings: tuple[SavingsRow, ...]
    spread: tuple[SpreadRow, ...]
    budget_sweep: tuple[BudgetRow, ...]
    trade_off: tuple[TradeOffRow, ...]
    selective: tuple[SelectiveRow, ...]
    notes: tuple[str, ...]
    schema: int = SCHEMA

    @property
    def questions(self) -> int:
        """What an accuracy is out of."""
        return self.size.graded_questions

    def at(self, threshold: float) -> ThresholdRow:
        return next(row for row in self.thresholds if row.threshold == threshold)

    def saved(self, threshold: float) -> SavingsRow:
        return next(row for row in self.savings if row.threshold == threshold)


def labels(reports: Sequence[Report]) -> tuple[str, ...]:
    """What to call each of several runs: its model, or its own name where models do not tell them apart."""
    models = [report.run.model for report in reports]
    return tuple(
        report.run.model if models.count(report.run.model) == 1 and report.run.model != IMPORTED else report.run.name
        for report in reports
    )
