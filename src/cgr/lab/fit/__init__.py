"""Fit the parameters of a rule to the questions of a run, for use on other questions.

For every rule with a main parameter, the value with the largest net saving at equal accuracy is chosen. A rule that learns
weights (`Rule.learn`) has them learned first. A rule with `candidates` is chosen by its Grade.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from cgr.errors import NotRecorded, UsageError
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns, counted_probes
from cgr.lab.decide.run import Run
from cgr.lab.fit import regression
from cgr.lab.score import accuracy as scores
from cgr.lab.score.paired import MARGIN, split_questions
from cgr.lab.types import Ints
from cgr.rules import DeepConf, Rule
from cgr.rules.calibrated import GradedTrace

FOLDS = 5
R = TypeVar("R", bound=Rule)


@dataclass(frozen=True, slots=True)
class FitScore:
    """A rule on the questions it is fitted to: accuracy, its difference to the full budget in points with the 95% interval
    (`low`, `high`), the shares of tokens saved, and the number of traces given up."""

    accuracy: float
    diff_points: float
    low: float
    high: float
    gross: float
    net: float
    gave_up: int

    @property
    def equal(self) -> bool:
        """Equal accuracy: the interval of the difference is above the margin."""
        return self.low > MARGIN


@dataclass(frozen=True, slots=True)
class Fit(Generic[R]):
    """A rule with its parameters chosen, and its score. Weights are cross-fitted in the score."""

    rule: R
    score: FitScore


def open_run(folder: Path, probe_set: str | None = None, *, share: float = 1.0) -> Run:
    """The run to fit to. `share`: only this share of its questions, the same that `cgr compare --tune-on` chooses on."""
    if not 0 < share <= 1:
        raise UsageError(f"A share of {share:g} of the questions is none.", "Use more than 0 and at most 1.")
    run = Run.open(folder, probe_set)
    if run.main is None or run.main not in run.filled:
        raise NotRecorded(f"The run in {folder} has no probes yet.", f"Make them with `cgr probe {folder}`.")
    return run if share == 1 else run.only(split_questions(run.columns(), share, run.questions)[0])


def score(columns: Columns, decided: Decisions) -> FitScore:
    """The score of these decisions."""
    compared, saved = scores.compare(columns, decided.right), scores.savings(columns, decided)
    accuracy, graded = scores.accuracy(columns, decided.right), int(columns.graded.sum())
    if accuracy is None or compared.ci95 is None or compared.diff_points is None:
        raise UsageError("Nothing can be fitted without known answers.", "At least two questions must have one.")
    low, high = (100 * end * len(columns.seeds) / graded for end in compared.ci95)
    return FitScore(accuracy, compared.diff_points, low, high, saved.share, saved.net_share, int(decided.gave_up.sum()))


def fit(rule: Rule, run: Run, *, penalty: float = 1.0) -> Fit[Any]:
    """This rule with parameters fitted to this run. `penalty`: the cost of a wrong answer in Grade."""
    if candidates := tuple(rule.candidates(run.columns().limit)):
        return best_grade(candidates, run, penalty)
    return _learned_and_chosen(rule, run) if rule.learns else equal_accuracy(rule, run.decide, run.columns())


def learn(rule: R, run: Run) -> R:
    """This rule with weights learned from this run; a rule without weights stays as it is."""
    return rule.learn(tuple(_graded(run)), run.columns().limit, regression)


def equal_accuracy(rule: R, decide: Callable[[R], Decisions], columns: Columns) -> Fit[R]:
    """The rule with the main parameter that saves most at equal accuracy; if no value is equal, the most cautious one."""
    tried = [Fit(one, score(columns, decide(one))) for one in _variants(rule)]
    equal = [one for one in tried if one.score.equal]
    return max(equal, key=lambda one: one.score.net) if equal else tried[-1]


def _variants(rule: R) -> list[R]:
    """The rule with each value of its main parameter, the most cautious last."""
    if rule.main is None or not rule.grid:
        raise UsageError(f"The rule {rule.name!r} has no parameter to fit.", "`cgr rules --json` lists parameters.")
    kind = type(getattr(rule, rule.main))
    return [replace(rule, **{rule.main: kind(value)}) for value in rule.grid]


def best_grade(candidates: Sequence[R], run: Run, penalty: float) -> Fit[R]:
    """The candidate with the best Grade; among equals, the one with the fewest tokens."""
    columns = run.columns()

    def rank(one: R) -> tuple[float, int]:
        decided = run.decide(one)
        grade = scores.grade(columns, decided.right, penalty, ~decided.gave_up)
        return grade or 0.0, -int((decided.at + decided.probe_tokens).sum())

    best = max(candidates, key=rank)
    return Fit(best, score(columns, run.decide(best)))


def _learned_and_chosen(rule: R, run: Run) -> Fit[R]:
    """Weights from all traces; the main parameter from decisions by weights that were learned from other questions."""
    columns, main = run.columns(), str(rule.main)
    fold = np.arange(len(columns.questions)) % min(FOLDS, len(columns.questions))
    parts = [(run.only(fold == k), learn(rule, run.only(fold != k))) for k in np.unique(fold)]
    order = np.argsort(np.argsort(fold[columns.question], kind="stable"), kind="stable")

    def decide_held_out(one: R) -> Decisions:
        value = {main: getattr(one, main)}
        return joined([part.decide(replace(weights, **value)) for part, weights in parts], order)

    best = equal_accuracy(rule, decide_held_out, columns)
    return replace(best, rule=replace(learn(rule, run), **{main: getattr(best.rule, main)}))


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


def joined(parts: Sequence[Decisions], order: Ints) -> Decisions:
    """The decisions of several parts as one. `order`: the place of each trace in the joined parts."""
    names = Decisions.__dataclass_fields__
    return Decisions(**{name: np.concatenate([getattr(part, name) for part in parts])[order] for name in names})


def _graded(run: Run) -> Iterator[GradedTrace]:
    """The traces with a known answer."""
    columns = run.columns()
    for row, trace in enumerate(run.traces()):
        if columns.graded[row]:
            final_right, tokens = bool(columns.final_right[row]), int(columns.natural[row])
            yield GradedTrace(counted_probes(trace), columns.right[row].tolist(), final_right, tokens)
