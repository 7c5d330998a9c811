"""What the numbers of a run cannot say, said in words: beside each number that is missing stands why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.score import accuracy as scores


def notes(columns: Columns, made: Mapping[float, Decisions], budgets: Sequence[int]) -> tuple[str, ...]:
    """Everything that a reader should know before reading the numbers."""
    found = (
        *_golds(columns),
        *_completeness(columns),
        *_seeds(columns),
        *_budgets(columns),
        *_probes(columns, budgets),
        *_firing(columns, made),
        *_correctness(columns, made),
        *_written(columns),
    )
    return tuple(found)


def _golds(columns: Columns) -> list[str]:
    questions, graded = len(columns.questions), int(scores.graded_questions(columns).sum())
    if graded == questions:
        return []
    if not graded:
        return [
            "No question has a known answer, so nothing is said about accuracy, Grade or calibration; only tokens count."
        ]
    without = questions - graded
    have = "has" if without == 1 else "have"
    return [
        f"{without} of {questions} questions {have} no known answer: what was thought about them counts in tokens only."
    ]


def _completeness(columns: Columns) -> list[str]:
    missing = len(columns.questions) * len(columns.seeds) - len(columns)
    if not missing:
        return []
    return [
        f"{_count(missing, 'trace')} of {len(columns) + missing} {_be(missing)} missing: accuracy is over those that "
        "exist, and counts of correct answers fall short by what is missing."
    ]


def _seeds(columns: Columns) -> list[str]:
    if len(columns.seeds) > 1:
        return []
    return ["There is one seed, so there is no spread over seeds and no interval over seeds."]


def _budgets(columns: Columns) -> list[str]:
    budgets = np.unique(columns.budget)
    if len(budgets) == 1:
        return []
    return [
        f"The traces had different budgets, from {budgets[0]:,} to {budgets[-1]:,} tokens; each is held against its own, "
        "and figures over the budget go to the largest."
    ]


def _probes(columns: Columns, budgets: Sequence[int]) -> list[str]:
    if not columns.present.any():
        return [
            "No probe was recorded (no trace is as long as one interval, or `cgr probe` was not run): no rule can fire."
        ]
    found = []
    left_out = len(columns.steps) + 1 - len(budgets)
    if left_out:
        found.append(
            f"Traces were not all probed at the same places: {left_out} of {len(columns.steps) + 1} budgets of the sweep "
            "are left out, and a threshold is held against the probes that were recorded."
        )
    between = columns.present & (columns.at % max(columns.info.interval, 1) != 0)
    if between.any():
        found.append(
            f"Between the steps of {columns.info.interval:,} tokens there are {_count(int(between.sum()), 'probe')} more."
        )
    if short := int(columns.bound.sum()):
        found.append(
            f"{_count(short, 'probe')} {'was' if short == 1 else 'were'} cut short when recorded, and only an upper "
            "bound of the certainty is known: thresholds that this cannot decide are left out of the trade-off."
        )
    return found


def _firing(columns: Columns, made: Mapping[float, Decisions]) -> list[str]:
    silent = [f"{threshold:g}" for threshold, decided in made.items() if not decided.fired]
    if not silent or not columns.present.any():
        return []
    if len(silent) == len(made):
        return ["The rule never fired: at none of these thresholds was a probe sure enough, and all is as in the baseline."]
    return [f"At {_list(silent)} the rule never fired: all is as in the baseline there."]


def _correctness(columns: Columns, made: Mapping[float, Decisions]) -> list[str]:
    if not columns.graded.any():
        return []
    accuracy = scores.accuracy(columns, columns.final_right)
    if accuracy == 0:
        return ["The baseline answers nothing right, so a difference cannot be put as a share of it."]
    if accuracy == 1 and all(scores.accuracy(columns, decided.right) == 1 for decided in made.values()):
        return ["Every answer is right with the rule and without it: only tokens can differ, and certainty finds no error."]
    if accuracy == 1:
        return ["The baseline answers everything right: a rule can only lose accuracy here."]
    return []


def _written(columns: Columns) -> list[str]:
    here = columns.wrote & columns.graded
    if not here.any():
        return []
    own, decoded = (100 * float(flags[here].mean()) for flags in (columns.written_right, columns.final_right))
    return [
        f"In {_count(int(here.sum()), 'trace')} the model wrote its own answer after its thinking: {own:.1f}% of them "
        f"are right, and {decoded:.1f}% of those decoded after the prefix, which are the ones that count."
    ]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _list(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
