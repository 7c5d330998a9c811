"""Computes every number of a report from the columns of a run, and the notes on missing ones; see docs/metrics.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TypeVar

import numpy as np

from cgr.errors import NotRecorded, UsageError
from cgr.lab.decide import arrays
from cgr.lab.decide import replay as decisions
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.output import plural
from cgr.lab.report import result
from cgr.lab.score import accuracy as scores
from cgr.lab.score.accuracy import PENALTIES, check_penalties
from cgr.lab.score.adaptive import AdaptiveRow, prospects
from cgr.lab.score.calibration import effective, selective
from cgr.lab.store.config import in_words
from cgr.lab.store.recorded import is_shadow
from cgr.lab.types import Floats
from cgr.rules.base import THRESHOLD, check_threshold

Row = TypeVar("Row", result.ThresholdRow, result.SavingsRow, AdaptiveRow)
THRESHOLDS = (0.96, 0.97, 0.98, 0.99)
NO_GOLDS = """No question has a known answer: accuracy, Grade, calibration and the fixed budget of the same cost are \
missing. Savings, changed answers, certainty, head room and false sureness need none; rules are compared by agreement."""
TRADE_OFF = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999, 0.9999, 1.0)


def report(
    columns: Columns,
    thresholds: Sequence[float] = THRESHOLDS,
    penalties: Sequence[float] = PENALTIES,
    *,
    rule: str = "cgr",
    decide: decisions.Decide | None = None,
    probe_sets: tuple[str, ...] = (),
    probes: Columns | None = None,
) -> result.Report:
    """The report of one run. `decide` maps a threshold to the rule's decisions; by default, `rule` on these columns.
    `probe_sets`: the names of those that the rule reads; `probes`: the first of them, if it is not that of the columns."""
    levels, costs = check_thresholds(thresholds), check_penalties(penalties)
    decide = decide or decisions.deciding(columns, rule)
    decided = {threshold: decide(threshold) for threshold in levels}
    sweep, written = _budget_sweep(columns), _written(columns)
    saved = {threshold: asdict(scores.savings(columns, made)) for threshold, made in decided.items()}
    return result.Report(
        run=columns.info,
        rule=rule,
        shown=THRESHOLD if THRESHOLD in levels else levels[-1],
        size=_size(columns, probes or columns),
        steps=tuple(columns.steps.tolist()),
        baseline=_baseline(columns),
        written=written,
        thresholds=tuple(_threshold_row(columns, *pair) for pair in decided.items()),
        grade=tuple(_grade_row(columns, *pair, cost) for pair in decided.items() for cost in costs),
        savings=tuple(result.SavingsRow(threshold=threshold, **values) for threshold, values in saved.items()),
        spread=_spread(columns, decided),
        budget_sweep=sweep,
        trade_off=_trade_off(columns, levels, decide),
        selective=_selective(columns, decided, probes or columns),
        notes=notes(columns, decided, len(sweep), written),
        probe_sets=probe_sets,
        **vars(prospects(columns, decided)),
    )


def check_thresholds(thresholds: Sequence[float]) -> tuple[float, ...]:
    """The thresholds sorted, each once; an error if there is none or one is not a certainty."""
    for threshold in thresholds:
        check_threshold(threshold)
    if not thresholds:
        raise UsageError("A report needs a threshold.", "Give one or more: --thresholds 0.96,0.99.")
    return tuple(sorted(set(thresholds)))


def at(rows: Iterable[Row], threshold: float) -> Row:
    """The row of this threshold."""
    return next(row for row in rows if row.threshold == threshold)


def _size(columns: Columns, probes: Columns) -> result.RunSize:
    return result.RunSize(
        questions=len(columns.questions),
        graded_questions=int(scores.graded_questions(columns).sum()),
        seeds=len(columns.seeds),
        traces=len(columns),
        graded_traces=int(columns.graded.sum()),
        probes=int(probes.present.sum()),
        ended_by_themselves=int(columns.ended.sum()),
        thinking_tokens=int(columns.natural.sum()),
    )


def _baseline(columns: Columns) -> result.Baseline:
    right = columns.final_right
    return result.Baseline(
        correct_mean=scores.correct_mean(columns, right),
        accuracy=scores.accuracy(columns, right),
        ci95_accuracy=scores.accuracy_interval(columns, right),
        invalid_mean=scores.correct_mean(columns, ~columns.final_valid),
        thinking_tokens_mean=float(columns.natural.mean()),
    )


def _written(columns: Columns) -> result.WrittenAnswers | None:
    here = columns.wrote & columns.graded
    if not here.any():
        return None
    own, decoded = (float(flags[here].mean()) for flags in (columns.written_right, columns.final_right))
    return result.WrittenAnswers(int(here.sum()), own, decoded)


def _threshold_row(columns: Columns, threshold: float, decided: Decisions) -> result.ThresholdRow:
    return result.ThresholdRow(
        threshold=threshold,
        correct_mean=scores.correct_mean(columns, decided.right),
        accuracy=scores.accuracy(columns, decided.right),
        **asdict(scores.compare(columns, decided.right)),
        fired=decided.fired,
    )


def _grade_row(columns: Columns, threshold: float, decided: Decisions, penalty: float) -> result.GradeRow:
    baseline = scores.grade(columns, columns.final_right, penalty)
    answered = decided.sure | scores.sure_at_end(decided, threshold)
    steps = columns.steps if baseline is not None else columns.steps[:0]
    curve = scores.grade_over_budget(columns, decided, threshold, penalty, steps)
    final = float(curve[-1]) if len(curve) else None
    diff = None if final is None or baseline is None else final - baseline
    return result.GradeRow(
        threshold=threshold,
        penalty=penalty,
        final=final,
        baseline=baseline,
        diff=diff,
        diff_points=None if diff is None else scores.in_points(columns, diff),
        max=float(np.max(curve)) if len(curve) else None,
        step=int(steps[earliest_best(curve)]) if len(curve) else None,
        at_budget=scores.grade(columns, decided.right, penalty, answered),
        answering=scores.grade(columns, decided.right, penalty),
        over_budget=tuple(curve.tolist()),
    )


def earliest_best(values: Floats) -> int:
    """The index of the first maximum; values that differ only by rounding are equal."""
    return int(np.argmax(values >= values.max() - 1e-9))


def _spread(columns: Columns, decided: dict[float, Decisions]) -> tuple[result.SpreadRow, ...]:
    """The baseline first, then each threshold."""
    rows = []
    for threshold, right in ((None, columns.final_right), *((one, made.right) for one, made in decided.items())):
        spread = scores.spread(scores.accuracy_by_seed(columns, right))
        rows.append(result.SpreadRow(threshold=threshold, **asdict(spread)))
    return tuple(rows)


def _budget_sweep(columns: Columns) -> tuple[result.BudgetRow, ...]:
    """The baseline at every step and at the budget; budgets at which a probe is missing are left out."""
    rows = []
    for budget in (*columns.steps.tolist(), columns.limit):
        with suppress(NotRecorded):
            rows.append(_budget_row(columns, budget, arrays.at_budget(columns, budget)))
    return tuple(rows)


def _budget_row(columns: Columns, budget: int, decided: Decisions) -> result.BudgetRow:
    ended = columns.ended & ((columns.natural < budget) | (budget >= columns.limit))
    return result.BudgetRow(
        budget=budget,
        correct_mean=scores.correct_mean(columns, decided.right),
        accuracy=scores.accuracy(columns, decided.right),
        sd=scores.spread(scores.accuracy_by_seed(columns, decided.right)).sd,
        thinking_tokens_mean=float(np.minimum(columns.natural, budget).mean()),
        ended_by_themselves=float(ended.mean()),
    )


def _trade_off(columns: Columns, thresholds: Sequence[float], decide: decisions.Decide) -> tuple[result.TradeOffRow, ...]:
    """A row for each threshold that the recording can decide."""
    rows = []
    for threshold in sorted({*TRADE_OFF, *thresholds}):
        with suppress(NotRecorded):
            decided = decide(threshold)
            means = float(decided.at.mean()), float(decided.probe_tokens.mean())
            rows.append(result.TradeOffRow(threshold, scores.accuracy(columns, decided.right), *means))
    return tuple(rows)


def _selective(columns: Columns, decided: dict[float, Decisions], probes: Columns) -> tuple[result.SelectiveRow, ...]:
    graded = columns.graded
    probed = probes.present & graded[:, None] & ~probes.bound
    finals = effective(columns.final_certainty, columns.final_closed)
    levels = effective(probes.certainty, probes.closed)
    rows = [
        result.SelectiveRow("final answers", None, selective(finals[graded], columns.final_right[graded])),
        result.SelectiveRow("probes", None, selective(levels[probed], probes.right[probed])),
    ]
    for threshold, made in decided.items():
        found = selective(effective(made.certainty, made.closed)[graded], made.right[graded])
        rows.append(result.SelectiveRow("answers", threshold, found))
    return tuple(rows)


def notes(
    columns: Columns, decided: Mapping[float, Decisions], budgets: int, written: result.WrittenAnswers | None
) -> tuple[str, ...]:
    """Sentences that a reader needs before the numbers. `decided`: by threshold; `budgets`: how many are in the sweep."""
    found = (*_trace_notes(columns), *_probe_notes(columns, budgets), *_firing_note(columns, decided))
    return *found, *_accuracy_note(columns, decided), *written_note(written)


def _trace_notes(columns: Columns) -> list[str]:
    found = _gold_note(columns)
    missing = len(columns.questions) * len(columns.seeds) - len(columns)
    if missing and not is_shadow(columns.info.source):
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
        return [NO_GOLDS]
    if without := questions - graded:
        have = "has" if without == 1 else "have"
        return [f"{without} of {questions} questions {have} no known answer: their traces count only in tokens."]
    return []


def _probe_notes(columns: Columns, budgets: int) -> list[str]:
    if not columns.present.any():
        return [
            "No probe was recorded (all traces are shorter than one interval, or no `cgr probe` was run): no rule can fire."
        ]
    found = []
    if skipped := len(columns.steps) + 1 - budgets:
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


def written_note(written: result.WrittenAnswers | None) -> list[str]:
    """What the model wrote after its thinking, if it wrote something."""
    if written is None:
        return []
    own, decoded = 100 * written.accuracy, 100 * written.decoded_accuracy
    return [
        f"In {plural(written.count, 'trace')} the model also wrote an answer of its own after its thinking: {own:.1f}% of "
        f"these are right. Of the answers decoded after the prefix, which are the ones scored, {decoded:.1f}% are right."
    ]
