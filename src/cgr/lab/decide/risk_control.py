"""Thresholds that are taken from a run: by conformal risk control, and the floor of `deepconf` from warm-up traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cgr.lab.decide.run import Run
from cgr.rules import DeepConf, Rule


def warm_floor(run: Run, rule: DeepConf) -> float:
    """The floor for `deepconf`: a percentile of the lowest group confidence of warm-up traces, which are the first trace of
    each question. It needs no golds."""
    return rule.within(run.info.budget).warm_floor(run.arrays())


def calibrated_threshold(run: Run, rule: Rule, epsilon: float = 0.05, questions: Sequence[str] = ()) -> float:
    """The least cautious value of a rule's main parameter that conformal risk control allows, from the cautious end on.

    The risk of a question is the share of its traces that are right at the full budget and wrong with the rule. The unit is
    the question: traces of one question are not exchangeable with those of another. A value is allowed while
    (n R + 1) / (n + 1) <= epsilon. `questions`: those to calibrate on; by default, all.
    """
    grid, main, columns = type(rule).grid, type(rule).main, run.rule_columns()
    assert main is not None
    kept = [number for number, name in enumerate(columns.questions) if not questions or name in questions]
    allowed = grid[-1]
    for value in reversed(grid):
        decided = run.decide(replace(rule, **{main: type(rule.parameters()[main])(value)}))
        lost = columns.final_right & ~decided.right
        risks = [lost[columns.question == number].mean() for number in kept]
        if (sum(risks) + 1) / (len(risks) + 1) > epsilon:
            break
        allowed = value
    return allowed
