"""Computes every number of a report from the columns of a run. docs/metrics.md defines each number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from cgr.errors import NotRecorded, UsageError
from cgr.lab.decide import arrays
from cgr.lab.decide import replay as decisions
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import Decide
from cgr.lab.report.result import (
    Baseline,
    BudgetRow,
    GradeRow,
    Report,
    RunSize,
    SavingsRow,
    SelectiveRow,
    SpreadRow,
    ThresholdRow,
    TradeOffRow,
    WrittenAnswers,
    notes,
)
from cgr.lab.score import accuracy as scores
from cgr.lab.score.accuracy import PENALTIES, check_penalties
from cgr.lab.score.calibration import effective, selective
from cgr.lab.types import Bools, Floats
from cgr.rules.base import THRESHOLD, check_threshold

THRESHOLDS = (0.96, 0.97, 0.98, 0.99)
TRADE_OFF = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999, 0.9999, 1.0)


def report(
    columns: Columns,
    thresholds: Sequence[float] = THRESHOLDS,
    penalties: Sequence[float] = PENALTIES,
    *,
    rule: str = "cgr",
    decide: Decide | None = None,
) -> Report:
    """The report of one run. `decide` maps a threshold to the rule's decisions; by default, `rule` on these columns."""
    levels, costs = check_thresholds(thresholds), check_penalties(penalties)
    decide = decide or decisions.deciding(columns, rule)
    decided = {threshold: decide(threshold) for threshold in levels}
    sweep = _budget_sweep(columns)
    return Report(
        run=columns.info,
        rule=rule,
        shown=THRESHOLD if THRESHOLD in levels else levels[-1],
        size=_size(columns),
        steps=tuple(columns.steps.tolist()),
        baseline=_baseline(columns),
        written=_written(columns),
        thresholds=tuple(_threshold_row(columns, *pair) for pair in decided.items()),
        grade=tuple(_grade_row(columns, *pair, cost) for pair in decided.items() for cost in costs),
        savings=tuple(SavingsRow(one, **asdict(scores.savings(columns, made))) for one, made in decided.items()),
        spread=_spread(columns, decided),
        budget_sweep=sweep,
        trade_off=_trade_off(columns, levels, decide),
        selective=_selective(columns, decided),
        notes=notes(columns, decided, [row.budget for row in sweep]),
    )


def check_thresholds(thresholds: Sequence[float]) -> tuple[float, ...]:
    """The thresholds sorted, each once; an error if there is none or one is not a certainty."""
    for threshold in thresholds:
        check_threshold(threshold)
    if not thresholds:
        raise UsageError("A report needs a threshold.", "Give one or more: --thresholds 0.96,0.99.")
    return tuple(sorted(set(thresholds)))


def _size(columns: Columns) -> RunSize:
    return RunSize(
        questions=len(columns.questions),
        graded_questions=int(scores.graded_questions(columns).sum()),
        seeds=len(columns.seeds),
        traces=len(columns),
        graded_traces=int(columns.graded.sum()),
        probes=int(columns.present.sum()),
        ended_by_themselves=int(columns.ended.sum()),
        thinking_tokens=int(columns.natural.sum()),
    )


def _baseline(columns: Columns) -> Baseline:
    right = columns.final_right
    return Baseline(
        correct_mean=scores.correct_mean(columns, right),
        accuracy=scores.accuracy(columns, right),
        ci95_accuracy=scores.accuracy_interval(columns, right),
        invalid_mean=scores.correct_mean(columns, ~columns.final_valid),
        thinking_tokens_mean=float(columns.natural.mean()),
    )


def _written(columns: Columns) -> WrittenAnswers | None:
    here = columns.wrote & columns.graded
    if not here.any():
        return None
    own, decoded = (float(flags[here].mean()) for flags in (columns.written_right, columns.final_right))
    return WrittenAnswers(int(here.sum()), own, decoded)


def _threshold_row(columns: Columns, threshold: float, decided: Decisions) -> ThresholdRow:
    return ThresholdRow(
        threshold=threshold,
        correct_mean=scores.correct_mean(columns, decided.right),
        accuracy=scores.accuracy(columns, decided.right),
        **asdict(scores.compare(columns, decided.right)),
        fired=decided.fired,
    )


def _grade_row(columns: Columns, threshold: float, decided: Decisions, penalty: float) -> GradeRow:
    baseline = scores.grade(columns, columns.final_right, penalty)
    answered = decided.sure | scores.sure_at_end(decided, threshold)
    steps = columns.steps if baseline is not None else columns.steps[:0]
    curve = scores.grade_over_budget(columns, decided, threshold, penalty, steps)
    final = float(curve[-1]) if len(curve) else None
    diff = None if final is None or baseline is None else final - baseline
    questions = scores.graded_questions(columns).sum()
    return GradeRow(
        threshold=threshold,
        penalty=penalty,
        final=final,
        baseline=baseline,
        diff=diff,
        diff_points=None if diff is None else float(100 * diff / questions),
        max=float(np.max(curve)) if len(curve) else None,
        step=int(steps[earliest_best(curve)]) if len(curve) else None,
        at_budget=scores.grade(columns, decided.right, penalty, answered),
        answering=scores.grade(columns, decided.right, penalty),
        over_budget=tuple(curve.tolist()),
    )


def earliest_best(values: Floats) -> int:
    """The index of the first maximum; values that differ only by rounding are equal."""
    return int(np.argmax(values >= values.max() - 1e-9))


def _spread(columns: Columns, decided: dict[float, Decisions]) -> tuple[SpreadRow, ...]:
    """The baseline first, then each threshold."""
    answers: dict[float | None, Bools] = {None: columns.final_right}
    answers |= {threshold: made.right for threshold, made in decided.items()}
    return tuple(
        SpreadRow(threshold, **asdict(scores.spread(scores.accuracy_by_seed(columns, right))))
        for threshold, right in answers.items()
    )


def _budget_sweep(columns: Columns) -> tuple[BudgetRow, ...]:
    """The baseline at every step and at the budget; budgets at which a probe is missing are left out."""
    rows = []
    for budget in (*columns.steps.tolist(), columns.limit):
        try:
            rows.append(_budget_row(columns, budget, arrays.at_budget(columns, budget)))
        except NotRecorded:
            continue
    return tuple(rows)


def _budget_row(columns: Columns, budget: int, decided: Decisions) -> BudgetRow:
    ended = columns.ended & ((columns.natural < budget) | (budget >= columns.limit))
    return BudgetRow(
        budget=budget,
        correct_mean=scores.correct_mean(columns, decided.right),
        accuracy=scores.accuracy(columns, decided.right),
        sd=scores.spread(scores.accuracy_by_seed(columns, decided.right)).sd,
        thinking_tokens_mean=float(np.minimum(columns.natural, budget).mean()),
        ended_by_themselves=float(ended.mean()),
    )


def _trade_off(columns: Columns, thresholds: Sequence[float], decide: Decide) -> tuple[TradeOffRow, ...]:
    """A row for each threshold that the recording can decide."""
    rows = []
    for threshold in sorted({*TRADE_OFF, *thresholds}):
        try:
            decided = decide(threshold)
        except NotRecorded:
            continue
        rows.append(
            TradeOffRow(
                threshold=threshold,
                accuracy=scores.accuracy(columns, decided.right),
                thinking_tokens_mean=float(decided.at.mean()),
                probe_tokens_mean=float(decided.probe_tokens.mean()),
            )
        )
    return tuple(rows)


def _selective(columns: Columns, decided: dict[float, Decisions]) -> tuple[SelectiveRow, ...]:
    graded = columns.graded
    probed = columns.present & graded[:, None] & ~columns.bound
    finals = effective(columns.final_certainty, columns.final_closed)
    probes = effective(columns.certainty, columns.closed)
    rows = [
        SelectiveRow("final answers", None, selective(finals[graded], columns.final_right[graded])),
        SelectiveRow("probes", None, selective(probes[probed], columns.right[probed])),
    ]
    for threshold, made in decided.items():
        found = selective(effective(made.certainty, made.closed)[graded], made.right[graded])
        rows.append(SelectiveRow("answers", threshold, found))
    return tuple(rows)
