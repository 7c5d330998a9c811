"""The records of report.json, and the notes that explain missing numbers. Field names are keys of the file; None is a
number that the run cannot give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.output.table import plural
from cgr.lab.score import accuracy as scores
from cgr.lab.score.calibration import Selective
from cgr.lab.store.config import IMPORTED, in_words
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


@dataclass(frozen=True, slots=True)
class ThresholdRow(Record):
    """The rule at one threshold, always answering. `fired`: traces that it stopped."""

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


@dataclass(frozen=True, slots=True)
class SavingsRow(Record):
    """Thinking tokens saved over all traces. `share` is of the baseline's thinking; net subtracts the probe tokens."""

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
    """Spread of accuracy over seeds. `threshold` None is the baseline; `sd` needs two seeds."""

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
    """Accuracy and mean tokens per trace at one threshold."""

    threshold: float
    accuracy: float | None
    thinking_tokens_mean: float
    probe_tokens_mean: float


@dataclass(frozen=True, slots=True)
class SelectiveRow(Record):
    """How well certainty separates right from wrong: among final answers, all probes, or the rule's answers."""

    among: str
    threshold: float | None
    selective: Selective


@dataclass(frozen=True, slots=True)
class Report(Record):
    """All numbers of a run. `shown` is the threshold of the figures that show only one."""

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
    schema: int = SCHEMA

    @property
    def questions(self) -> int:
        """Questions with a gold answer: the denominator of accuracy."""
        return self.size.graded_questions

    def at(self, threshold: float) -> ThresholdRow:
        """The accuracy row of a threshold."""
        return next(row for row in self.thresholds if row.threshold == threshold)

    def saved(self, threshold: float) -> SavingsRow:
        """The savings row of a threshold."""
        return next(row for row in self.savings if row.threshold == threshold)


def labels(reports: Sequence[Report]) -> tuple[str, ...]:
    """A name for each of several runs: its model, or the run's name where two runs have the same model."""
    models = [report.run.model for report in reports]
    return tuple(
        report.run.model if models.count(report.run.model) == 1 and report.run.model != IMPORTED else report.run.name
        for report in reports
    )


def notes(columns: Columns, decisions: Mapping[float, Decisions], budgets: Sequence[int]) -> tuple[str, ...]:
    """Sentences that a reader needs before the numbers. `decisions`: by threshold; `budgets`: those of the budget sweep."""
    found = (*_trace_notes(columns), *_probe_notes(columns, budgets), *_firing_note(columns, decisions))
    return *found, *_accuracy_note(columns, decisions), *_written_note(columns)


def _trace_notes(columns: Columns) -> list[str]:
    found = _gold_note(columns)
    if missing := len(columns.questions) * len(columns.seeds) - len(columns):
        found.append(
            f"{plural(missing, 'trace')} of {len(columns) + missing} {'is' if missing == 1 else 'are'} missing. Accuracy "
            "is over the traces that exist; counts of correct answers are lower because of the missing ones."
        )
    if len(columns.seeds) == 1:
        found.append("There is one seed, so there is no spread over seeds and no interval over seeds.")
    budgets = np.unique(columns.budget)
    if len(budgets) > 1:
        found.append(
            f"The traces have different budgets, from {budgets[0]:,} to {budgets[-1]:,} tokens. Each trace is compared "
            "with its own budget; figures over the budget extend to the largest."
        )
    return found


def _gold_note(columns: Columns) -> list[str]:
    questions, graded = len(columns.questions), int(scores.graded_questions(columns).sum())
    if not graded:
        return ["No question has a known answer, so accuracy, Grade and calibration are not reported; only tokens are."]
    if without := questions - graded:
        have = "has" if without == 1 else "have"
        return [f"{without} of {questions} questions {have} no known answer: their traces count only in tokens."]
    return []


def _probe_notes(columns: Columns, budgets: Sequence[int]) -> list[str]:
    if not columns.present.any():
        return [
            "No probe was recorded (all traces are shorter than one interval, or no `cgr probe` was run): no rule can fire."
        ]
    found = []
    if skipped := len(columns.steps) + 1 - len(budgets):
        found.append(
            f"The traces were not all probed at the same positions: {skipped} of {len(columns.steps) + 1} budgets of the "
            "sweep are left out, and a threshold is applied to the probes that were recorded."
        )
    between = columns.present & (columns.at % max(columns.info.interval, 1) != 0)
    if extra := int(between.sum()):
        lie = "lies" if extra == 1 else "lie"
        found.append(f"{plural(extra, 'probe')} {lie} between the steps of {columns.info.interval:,} tokens.")
    if bounds := int(columns.bound.sum()):
        found.append(
            f"{plural(bounds, 'probe')} stopped decoding early, so only an upper bound of the certainty is known: "
            "thresholds that the bound cannot decide are left out of the trade-off."
        )
    return found


def _firing_note(columns: Columns, decisions: Mapping[float, Decisions]) -> list[str]:
    silent = [f"{threshold:g}" for threshold, decided in decisions.items() if not decided.fired]
    if not silent or not columns.present.any():
        return []
    if len(silent) == len(decisions):
        return ["The rule never fired: no probe reached any of these thresholds, and every number equals the baseline's."]
    return [f"At {in_words(silent)} the rule never fired: the numbers equal the baseline's."]


def _accuracy_note(columns: Columns, decisions: Mapping[float, Decisions]) -> list[str]:
    accuracy = scores.accuracy(columns, columns.final_right)
    if accuracy == 0:
        return ["The baseline has no right answer, so relative differences cannot be computed."]
    if accuracy != 1:
        return []
    if all(scores.accuracy(columns, decided.right) == 1 for decided in decisions.values()):
        return ["Every answer is right, with the rule and without it: only tokens can differ."]
    return ["Every answer of the baseline is right: a rule can only lose accuracy here."]


def _written_note(columns: Columns) -> list[str]:
    here = columns.wrote & columns.graded
    if not here.any():
        return []
    own, decoded = (100 * float(flags[here].mean()) for flags in (columns.written_right, columns.final_right))
    return [
        f"In {plural(int(here.sum()), 'trace')} the model also wrote an answer of its own after its thinking: {own:.1f}% "
        f"of these are right. Of the answers decoded after the prefix, which are the ones scored, {decoded:.1f}% are right."
    ]
