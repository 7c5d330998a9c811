"""Accuracy, Grade and token savings, as the paper defines them. All are means over seeds unless stated otherwise.

Units: `correct` counts questions, `accuracy` is a fraction, savings are thinking tokens. Questions without a gold answer
count in savings only. If no question has one, everything that needs it is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgr.errors import UsageError
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.score import bootstrap
from cgr.lab.score.bounds import student_t
from cgr.lab.types import Bools, Floats, Interval, Ints

NEVER = np.iinfo(np.int64).max
PENALTIES = (0.0, 0.25, 0.5, 1.0)
MAX_PENALTY = 1e6  # larger ones overflow in sums
LEAST = 2  # questions on each side of a split; there is no interval for one


def check_penalties(penalties: Sequence[float]) -> tuple[float, ...]:
    """The penalties in rising order, each once; `UsageError` if one is below 0 or too large."""
    for penalty in penalties:
        if not 0 <= penalty <= MAX_PENALTY:
            raise UsageError(f"A penalty of {penalty:g} is not valid.", "A wrong answer costs 0 or more, such as 0.5.")
    return tuple(sorted(set(penalties)))


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread over seeds: sample standard deviation (None for one seed), smallest and largest value."""

    sd: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A rule against the baseline on the same traces; all None if nothing can be graded."""

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
    """Thinking tokens saved over all traces, against the natural length (capped at the budget) and against the budget.
    `disagreement`: the share of traces whose answer differs from the one at their end; it needs no known answers."""

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
    disagreement: float


def by_seed(columns: Columns, values: NDArray[Any]) -> Floats:
    """The sum of these values for each seed."""
    return np.bincount(columns.seed, weights=values, minlength=len(columns.seeds)).astype(np.float64, copy=False)


def by_question(columns: Columns, values: NDArray[Any]) -> Floats:
    """The sum of these values for each question."""
    return np.bincount(columns.question, weights=values, minlength=len(columns.questions)).astype(np.float64, copy=False)


def graded_questions(columns: Columns) -> Bools:
    """Whether each question has a gold answer."""
    return by_question(columns, columns.graded) > 0


def split_questions(columns: Columns, share: float, names: Sequence[str] = (), seed: int = 0) -> tuple[Bools, Bools]:
    """The graded questions to choose parameters on, and those to show: two flags for each question.

    The split is made by a hash of all `names` (by default, the questions of the columns), graded or not, so that two
    commands on the same run split alike. Both parts are all graded questions if the share is 0 or leaves fewer than two on
    a side. `seed`: another split for each; 0 is the one of `cgr fit --share`.
    """
    everything, salt = names or columns.questions, seed.to_bytes(8, "big")
    ranked = sorted(everything, key=lambda name: blake2b(name.encode(), salt=salt).digest())
    chosen, graded = set(ranked[: round(share * len(ranked))]), graded_questions(columns)
    tuning = np.array([name in chosen for name in columns.questions], dtype=np.bool_)
    parts = tuning & graded, ~tuning & graded
    return parts if min(part.sum() for part in parts) >= LEAST else (graded, graded)


def correct_by_seed(columns: Columns, right: Bools) -> Floats:
    """The number of right answers for each seed."""
    return by_seed(columns, right & columns.graded)


def accuracy_by_seed(columns: Columns, right: Bools) -> Floats:
    """The accuracy of each seed that has graded traces."""
    graded = by_seed(columns, columns.graded)
    return correct_by_seed(columns, right)[graded > 0] / graded[graded > 0]


def correct_mean(columns: Columns, right: Bools) -> float | None:
    """The number of right answers, as a mean over seeds."""
    return float(correct_by_seed(columns, right).mean()) if columns.graded.any() else None


def accuracy(columns: Columns, right: Bools) -> float | None:
    """The share of right answers among graded traces."""
    return float(right[columns.graded].mean()) if columns.graded.any() else None


def in_points(columns: Columns, questions: float) -> float:
    """A number of questions, which is a mean over seeds, in percentage points. The denominator of all points is the number
    of graded traces, as in `accuracy`; if no trace is missing, that is the same as the number of questions."""
    return 100 * questions * len(columns.seeds) / int(columns.graded.sum())


def spread(values: Floats) -> Spread:
    """The spread of one value for each seed."""
    if not len(values):
        return Spread()
    sd = float(values.std(ddof=1)) if len(values) > 1 else None
    return Spread(sd, float(values.min()), float(values.max()))


def accuracy_interval(columns: Columns, right: Bools) -> Interval | None:
    """The 95% interval of the accuracy, over questions."""
    here, flags = graded_questions(columns), (right & columns.graded, columns.graded)
    return bootstrap.of_ratio(*(by_question(columns, one)[here] for one in flags))


def compare(columns: Columns, right: Bools) -> Comparison:
    """These answers against those of the baseline."""
    if not columns.graded.any():
        return Comparison()
    change = (right.astype(np.int64) - columns.final_right) * columns.graded
    seeds = by_seed(columns, change)
    questions = by_question(columns, change)[graded_questions(columns)] / len(columns.seeds)
    before = columns.final_right[columns.graded].sum()
    return Comparison(
        diff_mean=float(seeds.mean()),
        diff_points=in_points(columns, float(seeds.mean())),
        diff_relative=float(change.sum() / before) if before else None,
        equal=int((seeds == 0).sum()),
        better=int((seeds > 0).sum()),
        worse=int((seeds < 0).sum()),
        ci95=bootstrap.of_sum(questions),
        ci95_seeds=seeds_interval(seeds),
    )


def seeds_interval(values: Floats) -> Interval | None:
    """The 95% interval of the mean over seeds by Student's t: there are too few seeds for a bootstrap. None for one
    seed."""
    if len(values) < 2:
        return None
    half = student_t(len(values) - 1) * float(values.std(ddof=1)) / len(values) ** 0.5
    return float(values.mean()) - half, float(values.mean()) + half


def sure_at_end(decided: Decisions, threshold: float) -> Bools:
    """Whether the answer of each trace closed with a certainty of at least the threshold."""
    return decided.closed & ~decided.gave_up & (decided.certainty >= threshold)


def cumulative(columns: Columns, when: Ints, flags: Bools, steps: Ints) -> Floats:
    """The number of graded traces with this flag that were answered by each step, as a mean over seeds."""
    counted = flags & columns.graded
    first = np.searchsorted(steps, when[counted])
    return np.cumsum(np.bincount(first, minlength=len(steps)))[: len(steps)] / len(columns.seeds)


def grade(columns: Columns, right: Bools, penalty: float, answered: Bools | None = None) -> float | None:
    """Grade: right answers minus the penalty for each wrong one. `answered`: the traces that count; others give 0."""
    if not columns.graded.any():
        return None
    counted = columns.graded if answered is None else columns.graded & answered
    gain = np.where(right, 1.0, -penalty) * counted
    return float(gain.sum() / len(columns.seeds))


def grade_over_budget(columns: Columns, decided: Decisions, threshold: float, penalty: float, steps: Ints) -> Floats:
    """Grade at each step t, as a rerun with budget t would give it: the first certain probe at or before t; else, if
    thinking ended before t, the final answer if it is certain; else no answer."""
    at_end = np.where(sure_at_end(decided, threshold), columns.natural + 1, NEVER)
    when = np.where(decided.sure, decided.at, at_end)  # the smallest budget that gives an answer
    good, bad = (cumulative(columns, when, flags, steps) for flags in (decided.right, ~decided.right))
    return good - penalty * bad


def saved(columns: Columns, decided: Decisions) -> Ints:
    """The thinking tokens saved in each trace."""
    return columns.natural - decided.at


def savings(columns: Columns, decided: Decisions) -> Savings:
    """The savings of these decisions."""
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
        ci95_share=bootstrap.of_ratio(*questions),
        disagreement=float((~decided.agrees).mean()),
    )
