"""Fit the parameters of a rule to the questions of a run, for use on other questions.

For every rule with a main parameter, the value with the largest net saving at equal accuracy is chosen, or, for a rule with
`allowed_loss`, among those that lose no more points than that. A rule that learns weights (`Rule.learn`) has them learned
first. A rule with `candidates` is chosen by its Grade.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cgr.errors import NotRecorded, UsageError
from cgr.lab.decide.arrays import Decisions, at_end
from cgr.lab.decide.columns import FINAL, Columns, counted_probes
from cgr.lab.decide.run import Run
from cgr.lab.fit import regression
from cgr.lab.score import accuracy as scores
from cgr.lab.score import bounds
from cgr.lab.score.accuracy import split_questions
from cgr.lab.score.paired import Paired, by_question, graded_names, most_saving, most_saving_within
from cgr.lab.types import Bools, Interval
from cgr.rules import DeepConf, Rule
from cgr.rules.calibrated import GradedTrace

FOLDS = 5
R = TypeVar("R", bound=Rule)


@dataclass(frozen=True, slots=True)
class FitScore:
    """A rule on the questions it is fitted to: accuracy, its difference to the full budget in points with the 95% interval
    (`low`, `high`), the shares of tokens saved, and the number of traces given up. `bound`: of the difference, with a width
    also where nothing changed; the verdict follows from it. `settles`: counts the questions that would settle the
    verdict."""

    accuracy: float
    diff_points: float
    low: float
    high: float
    gross: float
    net: float
    gave_up: int
    bound: Interval
    settles: Callable[[], int | None] = field(compare=False, repr=False)

    @property
    def verdict(self) -> str:
        """Whether accuracy is equal, worse, or cannot be told."""
        return bounds.verdict(self.bound)

    @property
    def equal(self) -> bool:
        """Equal accuracy: the lower bound of the difference is above the margin."""
        return self.verdict == bounds.EQUAL

    @property
    def needed_questions(self) -> int | None:
        """The number of questions that would settle the verdict at the rates seen; None: more than 100,000."""
        return self.settles()


@dataclass(frozen=True, slots=True)
class Fit(Generic[R]):
    """A rule with its parameters chosen, and its score. Weights are cross-fitted in the score."""

    rule: R
    score: FitScore


def open_run(folder: Path, probe_set: str | None = None, *, share: float = 1.0) -> Run:
    """The run to fit to. `share`: only this share of its questions, the same that `cgr compare --tune-on` chooses on. A run
    without any gold answer is fitted to by agreement with the final answers of its traces."""
    if not 0 < share <= 1:
        raise UsageError(f"A share of {share:g} of the questions is none.", "Use more than 0 and at most 1.")
    run = Run.open(folder, probe_set)
    if run.main is None or run.main not in run.filled:
        raise NotRecorded(f"The run in {folder} has no probes yet.", f"Make them with `cgr probe {folder}`.")
    run = run if run.has_golds else run.by_agreement()
    return run if share == 1 else run.only(split_questions(run.rule_columns(), share, run.questions)[0])


def score(columns: Columns, decided: Decisions) -> FitScore:
    """The score of these decisions."""
    compared, saved = scores.compare(columns, decided.right), scores.savings(columns, decided)
    accuracy, graded = scores.accuracy(columns, decided.right), int(columns.graded.sum())
    if accuracy is None or compared.ci95 is None or compared.diff_points is None:
        raise UsageError(
            "A rule cannot be fitted on fewer than two questions.", "If some have a known answer, only those count."
        )
    low, high = (100 * end * len(columns.seeds) / graded for end in compared.ci95)
    totals, only_losses = by_question(columns, (at_end(columns), decided)), columns.reference == FINAL
    pair = Paired.of(totals, names=graded_names(columns), only_losses=only_losses)
    saving = (saved.share, saved.net_share, int(decided.gave_up.sum()))
    bound = float(pair.lows[1]), float(pair.highs[1])
    return FitScore(accuracy, compared.diff_points, low, high, *saving, bound, partial(pair.questions_needed, 1))


def fit(rule: Rule, run: Run, *, penalty: float = 1.0) -> Fit[Any]:
    """This rule with parameters fitted to this run. `penalty`: the cost of a wrong answer in Grade."""
    if candidates := tuple(rule.candidates(run.rule_columns().limit)):
        if run.reference == FINAL:
            raise UsageError(
                f"The rule {rule.name!r} is fitted by its Grade, which needs known answers.",
                "Fit it to a run whose questions have them, or fit a rule that stops with an answer.",
            )
        return best_grade(candidates, run, penalty)
    return _learned_and_chosen(rule, run) if rule.learns else equal_accuracy(rule, run.decide, run.rule_columns())


def learn(rule: R, run: Run) -> R:
    """This rule with weights learned from this run; a rule without weights stays as it is."""
    return rule.learn([one for _, one in _graded(run)], run.rule_columns().limit, regression)


def equal_accuracy(rule: R, decide: Callable[[R], Decisions], columns: Columns) -> Fit[R]:
    """The rule with the main parameter that saves most at equal accuracy, or within its allowed loss. If no value is shown
    to be equal: among those with the highest lower bound of the difference."""
    tried = [Fit(one, score(columns, decide(one))) for one in _variants(rule)]
    scores = [(one.score.bound[0], one.score.net, one.score.diff_points) for one in tried]
    lows, net, points = (np.array(values) for values in zip(*scores, strict=True))
    if rule.allowed_loss is not None:
        return tried[most_saving_within(rule.allowed_loss, points, net)]
    return tried[most_saving(lows, net)[0]]


def _variants(rule: R) -> list[R]:
    """The rule with each value of its main parameter, the most cautious last."""
    if rule.main is None or not rule.grid:
        raise UsageError(f"The rule {rule.name!r} has no parameter to fit.", "`cgr rules --json` lists parameters.")
    kind = type(getattr(rule, rule.main))
    return [replace(rule, **{rule.main: kind(value)}) for value in rule.grid]


def best_grade(candidates: Sequence[R], run: Run, penalty: float) -> Fit[R]:
    """The candidate with the best Grade; among equals, the one with the fewest tokens."""
    columns = run.rule_columns()

    def rank(one: R) -> tuple[float, int]:
        decided = run.decide(one)
        grade = scores.grade(columns, decided.right, penalty, ~decided.gave_up)
        return grade or 0.0, -int((decided.at + decided.probe_tokens).sum())

    best = max(candidates, key=rank)
    return Fit(best, score(columns, run.decide(best)))


def _learned_and_chosen(rule: R, run: Run) -> Fit[R]:
    """Weights from all traces; the main parameter from decisions by weights that were learned from other questions."""
    columns, main = run.rule_columns(), str(rule.main)
    decide, learned = cross_fitted(rule, run, np.ones(len(columns.questions), dtype=np.bool_))
    best = equal_accuracy(rule, decide, columns)
    return replace(best, rule=replace(learned, **{main: getattr(best.rule, main)}))


def cross_fitted(rule: R, run: Run, questions: Bools) -> tuple[Callable[[R], Decisions], R]:
    """What this rule decides on every trace, at any value of its main parameter, and the rule with its weights.

    Weights are learned from these questions (a flag for each), and never used on a question that they were learned from: on
    these questions, each fold is decided by weights from the other folds.
    """
    columns, main = run.rule_columns(), str(rule.main)
    examples = [(int(columns.question[row]), one) for row, one in _graded(run)]
    fold = np.where(questions, (np.cumsum(questions) - 1) % min(FOLDS, max(int(questions.sum()), 1)), -1)

    def learned(kept: Bools) -> R:
        return rule.learn([one for question, one in examples if kept[question]], columns.limit, regression)

    everything = learned(questions)
    weights = {int(one): everything if one < 0 else learned(questions & (fold != one)) for one in np.unique(fold)}
    rows = {one: fold[columns.question] == one for one in weights}

    def decide(one: R) -> Decisions:
        value = {main: getattr(one, main)}
        parts = [(rows[number], run.decide(replace(made, **value))) for number, made in weights.items()]
        return chosen_rows(parts)

    return decide, everything


def warm_floor(run: Run, rule: DeepConf) -> float:
    """The floor for `deepconf`: see `DeepConf.warm_floor`. It needs no golds."""
    return rule.within(run.info.budget).warm_floor(run.arrays())


def calibrated_threshold(run: Run, rule: Rule, epsilon: float = 0.05, questions: Sequence[str] = ()) -> float:
    """The least cautious value of a rule's main parameter that conformal risk control allows, from the cautious end on.

    The risk of a question is the share of its traces that are right at the full budget and wrong with the rule. The unit is
    the question: traces of one question are not exchangeable with those of another. A value is allowed while
    (n R + 1) / (n + 1) <= epsilon. `questions`: those to calibrate on; by default, all.
    """
    columns, variants = run.rule_columns(), _variants(rule)
    kept = [number for number, name in enumerate(columns.questions) if not questions or name in questions]
    allowed = variants[-1]
    for one in reversed(variants):
        lost = columns.final_right & ~run.decide(one).right
        risks = [lost[columns.question == number].mean() for number in kept]
        if (sum(risks) + 1) / (len(risks) + 1) > epsilon:
            break
        allowed = one
    return float(getattr(allowed, str(rule.main)))


def chosen_rows(parts: Sequence[tuple[Bools, Decisions]]) -> Decisions:
    """For each trace, the decision of the part that has a flag for it. Each trace has exactly one."""
    (_, first), *others = parts
    flags = [rows for rows, _ in others]

    def chosen(name: str) -> NDArray[Any]:
        values = [getattr(one, name) for _, one in others]
        return np.select(flags, values, getattr(first, name)) if others else np.asarray(getattr(first, name))

    return Decisions(**{name: chosen(name) for name in Decisions.__dataclass_fields__})


def _graded(run: Run) -> Iterator[tuple[int, GradedTrace]]:
    """The traces with a known answer, each with its row."""
    columns = run.rule_columns()
    for row, trace in enumerate(run.traces()):
        if columns.graded[row]:
            final_right, tokens = bool(columns.final_right[row]), int(columns.natural[row])
            yield row, GradedTrace(counted_probes(trace), columns.right[row].tolist(), final_right, tokens)
