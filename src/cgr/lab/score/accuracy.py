"""Accuracy, Grade and token savings, as the paper defines them. Everything is a mean over seeds unless it says otherwise.

Units: `correct` counts questions, `accuracy` is a fraction, savings are thinking tokens. Questions without a gold answer
count in savings and nowhere else; where there is none with one, what needs gold is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgr.lab.decide.columns import Bools, Columns, Floats, Ints
from cgr.lab.decide.replay import Decided
from cgr.lab.score import bootstrap as intervals
from cgr.lab.score.bootstrap import Interval

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the seeds are apart: standard deviation (of a sample, so it takes two), smallest, largest."""

    sd: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A rule against the baseline on the same traces; empty where nothing can be graded."""

    diff_mean: float | None = None
    diff_points: float | None = None
    diff_relative: float | None = None
    equal: int | None = None
    better: int | None = None
    worse: int | None = None
    ci95: Interval | None = None
    ci95_seeds: Interval | None = None


@dataclass(frozen=True, slots=True)
class Savings:
    """Thinking tokens not spent, over all traces: against the natural length (capped at the budget) and the budget."""

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


def by_seed(columns: Columns, values: NDArray[Any]) -> Floats:
    """The sum over each seed."""
    return np.bincount(columns.seed, weights=values, minlength=len(columns.seeds)).astype(np.float64, copy=False)


def by_question(columns: Columns, values: NDArray[Any]) -> Floats:
    """The sum over each question."""
    return np.bincount(columns.question, weights=values, minlength=len(columns.questions)).astype(np.float64, copy=False)


def graded_questions(columns: Columns) -> Bools:
    return by_question(columns, columns.graded) > 0


def correct_by_seed(columns: Columns, right: Bools) -> Floats:
    return by_seed(columns, right & columns.graded)


def accuracy_by_seed(columns: Columns, right: Bools) -> Floats:
    """Of the seeds that have graded traces."""
    graded = by_seed(columns, columns.graded)
    return correct_by_seed(columns, right)[graded > 0] / graded[graded > 0]


def correct_mean(columns: Columns, right: Bools) -> float | None:
    return float(correct_by_seed(columns, right).mean()) if columns.graded.any() else None


def accuracy(columns: Columns, right: Bools) -> float | None:
    return float(right[columns.graded].mean()) if columns.graded.any() else None


def spread(values: Floats) -> Spread:
    if not len(values):
        return Spread()
    sd = float(values.std(ddof=1)) if len(values) > 1 else None
    return Spread(sd, float(values.min()), float(values.max()))


def accuracy_interval(columns: Columns, right: Bools) -> Interval | None:
    """Over questions: how much the accuracy would vary with other questions like these."""
    here = graded_questions(columns)
    return intervals.of_ratio(
        by_question(columns, right & columns.graded)[here], by_question(columns, columns.graded)[here]
    )


def compare(columns: Columns, right: Bools) -> Comparison:
    """These answers against those of the baseline."""
    if not columns.graded.any():
        return Comparison()
    change = (right.astype(np.int64) - columns.final_right) * columns.graded
    seeds = by_seed(columns, change)
    questions = by_question(columns, change)[graded_questions(columns)] / len(columns.seeds)
    before, points = columns.final_right[columns.graded].sum(), 100 * change.sum() / columns.graded.sum()
    return Comparison(
        diff_mean=float(seeds.mean()),
        diff_points=float(points),
        diff_relative=float(change.sum() / before) if before else None,
        equal=int((seeds == 0).sum()),
        better=int((seeds > 0).sum()),
        worse=int((seeds < 0).sum()),
        ci95=intervals.of_sum(questions),
        ci95_seeds=intervals.of_mean(seeds),
    )


def answered_at(columns: Columns, decided: Decided, threshold: float) -> Ints:
    """The smallest budget at which somebody who abstains below the threshold answers; NEVER where there is none.

    A sure probe answers at its own position; a sure final answer at any budget past the end of the thinking. The answer at
    the budget itself, sure or not, is not among them: see `sure_at_end`.
    """
    early = ~decided.sure & sure_at_end(decided, threshold)
    return np.where(decided.sure, decided.at, np.where(early, columns.natural + 1, NEVER))


def sure_at_end(decided: Decided, threshold: float) -> Bools:
    return decided.closed & ~decided.gave_up & (decided.certainty >= threshold)


def cumulative(columns: Columns, when: Ints, flags: Bools, steps: Ints) -> Floats:
    """How many graded traces with this flag were answered by each step; a mean over seeds."""
    counted = flags & columns.graded
    first = np.searchsorted(steps, when[counted])
    return np.cumsum(np.bincount(first, minlength=len(steps) + 1))[: len(steps)] / len(columns.seeds)


def grade(columns: Columns, right: Bools, penalty: float, answered: Bools | None = None) -> float | None:
    """Right answers less the penalty for each wrong one; whoever did not answer gets nothing and loses nothing."""
    if not columns.graded.any():
        return None
    counted = columns.graded if answered is None else columns.graded & answered
    gain = np.where(right, 1.0, -penalty) * counted
    return float(gain.sum() / len(columns.seeds))


def grade_over_budget(columns: Columns, decided: Decided, threshold: float, penalty: float, steps: Ints) -> Floats:
    """Grade at each step t: the first sure probe at or before t; else, had the thinking ended before t, the final answer if
    sure; else nothing. The same as a rerun with budget t."""
    when = answered_at(columns, decided, threshold)
    good, bad = (cumulative(columns, when, flags, steps) for flags in (decided.right, ~decided.right))
    return good - penalty * bad


def saved(columns: Columns, decided: Decided) -> Ints:
    """Thinking tokens that each trace was spared."""
    return columns.natural - decided.at


def savings(columns: Columns, decided: Decided) -> Savings:
    spared, spent = saved(columns, decided), int(decided.probe_tokens.sum())
    total, natural = int(spared.sum()), int(columns.natural.sum())
    unspent, budget = int((columns.budget - decided.at).sum()), int(columns.budget.sum())
    questions = (by_question(columns, values) for values in (spared, columns.natural))
    return Savings(
        total=total,
        per_seed=total / len(columns.seeds),
        per_question=total / len(columns),
        probe_tokens=spent,
        suffix_tokens=int(decided.suffix_tokens.sum()),
        net_total=total - spent,
        share=total / natural if natural else 0.0,
        net_share=(total - spent) / natural if natural else 0.0,
        against_budget_total=unspent,
        against_budget_share=unspent / budget if budget else 0.0,
        ci95_share=intervals.of_ratio(*questions),
    )
