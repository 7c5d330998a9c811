"""Every number of a report, from the columns of a run. What each means is settled in docs/metrics.md."""

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
from cgr.lab.report import notes as words
from cgr.lab.report.result import (
    Baseline,
    BudgetRow,
    GradeRow,
    Report,
    SavingsRow,
    SelectiveRow,
    Size,
    SpreadRow,
    ThresholdRow,
    TradeOffRow,
    Written,
)
from cgr.lab.score import accuracy as scores
from cgr.lab.score.calibration import selective
from cgr.lab.types import Bools, Floats
from cgr.rules.base import THRESHOLD, check_threshold

THRESHOLDS = (0.96, 0.97, 0.98, 0.99)
PENALTIES = (0.0, 0.25, 0.5, 1.0)
TRADE_OFF = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999, 0.9999, 1.0)


def report(
    columns: Columns,
    thresholds: Sequence[float] = THRESHOLDS,
    penalties: Sequence[float] = PENALTIES,
    *,
    rule: str = "cgr",
    decide: Decide | None = None,
) -> Report:
    """The whole report of one run. `decide`: what the rule comes to at a threshold; by default, `cgr` on these columns."""
    levels, costs = check_thresholds(thresholds), check_penalties(penalties)
    decide = decide or decisions.deciding(columns, rule)
    made = {threshold: decide(threshold) for threshold in levels}
    sweep = _sweep(columns)
    return Report(
        run=columns.info,
        rule=rule,
        shown=THRESHOLD if THRESHOLD in levels else levels[-1],
        size=_size(columns),
        steps=tuple(columns.steps.tolist()),
        baseline=_baseline(columns),
        written=_written(columns),
        thresholds=tuple(_threshold(columns, one, decided) for one, decided in made.items()),
        grade=tuple(_grade(columns, one, decided, cost) for one, decided in made.items() for cost in costs),
        savings=tuple(_savings(columns, one, decided) for one, decided in made.items()),
        spread=_spread(columns, made),
        budget_sweep=sweep,
        trade_off=_trade_off(columns, levels, decide),
        selective=_selective(columns, made),
        notes=words.notes(columns, made, [row.budget for row in sweep]),
    )


def check_thresholds(thresholds: Sequence[float]) -> tuple[float, ...]:
    """In rising order, each once."""
    for threshold in thresholds:
        check_threshold(threshold)
    if not thresholds:
        raise UsageError("A report needs a threshold.", "Give one or more: --thresholds 0.96,0.99.")
    return tuple(sorted(set(thresholds)))


def check_penalties(penalties: Sequence[float]) -> tuple[float, ...]:
    for penalty in penalties:
        if not 0 <= penalty < float("inf"):
            raise UsageError(
                f"A penalty of {penalty:g} is not one.", "A wrong answer costs 0 or more: --penalties 0,0.5,1."
            )
    return tuple(sorted(set(penalties)))


def _size(columns: Columns) -> Size:
    return Size(
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


def _written(columns: Columns) -> Written | None:
    here = columns.wrote & columns.graded
    if not here.any():
        return None
    return Written(int(here.sum()), float(columns.written_right[here].mean()), float(columns.final_right[here].mean()))


def _threshold(columns: Columns, threshold: float, decided: Decisions) -> ThresholdRow:
    return ThresholdRow(
        threshold=threshold,
        correct_mean=scores.correct_mean(columns, decided.right),
        accuracy=scores.accuracy(columns, decided.right),
        **asdict(scores.compare(columns, decided.right)),
        fired=decided.fired,
    )


def _grade(columns: Columns, threshold: float, decided: Decisions, penalty: float) -> GradeRow:
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
    """The first place of the largest value, values apart by no more than rounding being equal."""
    return int(np.argmax(values >= values.max() - 1e-9))


def _savings(columns: Columns, threshold: float, decided: Decisions) -> SavingsRow:
    return SavingsRow(threshold=threshold, **asdict(scores.savings(columns, decided)))


def _spread(columns: Columns, made: dict[float, Decisions]) -> tuple[SpreadRow, ...]:
    """The baseline first, then each threshold."""
    answers: dict[float | None, Bools] = {None: columns.final_right}
    answers |= {threshold: decided.right for threshold, decided in made.items()}
    rows = []
    for threshold, right in answers.items():
        rows.append(SpreadRow(threshold, **asdict(scores.spread(scores.accuracy_by_seed(columns, right)))))
    return tuple(rows)


def _sweep(columns: Columns) -> tuple[BudgetRow, ...]:
    """Every interval up to the budget; those where a probe is missing are left out."""
    rows = []
    for budget in (*columns.steps.tolist(), columns.limit):
        try:
            decided = arrays.at_budget(columns, budget)
        except NotRecorded:
            continue
        used = np.minimum(columns.natural, budget)
        over = columns.ended & ((columns.natural < budget) | (budget >= columns.limit))
        rows.append(
            BudgetRow(
                budget=budget,
                correct_mean=scores.correct_mean(columns, decided.right),
                accuracy=scores.accuracy(columns, decided.right),
                sd=scores.spread(scores.accuracy_by_seed(columns, decided.right)).sd,
                thinking_tokens_mean=float(used.mean()),
                ended_by_themselves=float(over.mean()),
            )
        )
    return tuple(rows)


def _trade_off(columns: Columns, thresholds: Sequence[float], decide: Decide) -> tuple[TradeOffRow, ...]:
    """Many thresholds, those that the recording can decide."""
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


def effective(certainty: Floats, closed: Bools) -> Floats:
    """An answer that did not close is none, and is trusted least of all."""
    return np.where(closed, certainty, 0.0)


def _selective(columns: Columns, made: dict[float, Decisions]) -> tuple[SelectiveRow, ...]:
    graded = columns.graded
    asked = columns.present & graded[:, None] & ~columns.bound
    finals = effective(columns.final_certainty, columns.final_closed)
    rows = [
        SelectiveRow("final answers", None, selective(finals[graded], columns.final_right[graded])),
        SelectiveRow("probes", None, selective(effective(columns.certainty, columns.closed)[asked], columns.right[asked])),
    ]
    for threshold, decided in made.items():
        found = selective(effective(decided.certainty, decided.closed)[graded], decided.right[graded])
        rows.append(SelectiveRow("answers", threshold, found))
    return tuple(rows)
