"""Every option: its default, what it refuses, and what becomes of it on a model."""

from __future__ import annotations

from typing import Any

import pytest

from cgr.engines.base import ModelInfo
from cgr.errors import DoesNotFit, UnknownName, UsageError
from cgr.rules import BudgetForcing, Cgr, FixedBudget, make_rule
from cgr.settings import INSTRUCTION, Settings


def info(context: int, **own: Any) -> ModelInfo:
    return ModelInfo("some", "scripted", context, "<think>", "</think>", **own)


def test_the_defaults() -> None:
    settings = Settings()
    assert (settings.rule, settings.threshold, settings.temperature, settings.spec().aggregate) == ("cgr", None, 0.6, "min")
    assert (settings.at_budget, settings.at_end_of_thinking, settings.close_think) == ("answer", "answer", "never")
    assert settings.prefix == "Final Answer: \\boxed{"
    assert not settings.overlap
    assert not settings.full


FITS: list[tuple[str, dict[str, Any], ModelInfo, tuple[int, int, int]]] = [
    ("the paper's values", {}, info(131_072), (32_000, 1000, 32)),
    ("what fits a small context", {}, info(4096), (3584, 112, 32)),
    ("a tiny context", {}, info(100), (1, 1, 32)),
    ("the model's own wishes", {}, info(2048, interval=32, budget=1024, max_answer_tokens=4), (1024, 32, 4)),
    (
        "what the user says",
        {"budget": 64, "interval": 8, "max_answer_tokens": 6},
        info(2048, interval=32, budget=1024),
        (64, 8, 6),
    ),
    ("a smaller budget, a smaller interval", {"budget": 320}, info(131_072), (320, 10, 32)),
    ("an interval above the budget", {"budget": 10, "interval": 50}, info(131_072), (10, 50, 32)),
    ("a budget as large as the context", {"budget": 4096, "interval": 1}, info(4096), (4096, 1, 32)),
]


@pytest.mark.parametrize(("options", "model", "expected"), [row[1:] for row in FITS], ids=[row[0] for row in FITS])
def test_fitted(options: dict[str, Any], model: ModelInfo, expected: tuple[int, int, int]) -> None:
    resolved = Settings(**options).resolve(model)
    assert (resolved.budget, resolved.interval, resolved.settings.max_answer_tokens) == expected
    assert (resolved.settings.budget, resolved.settings.interval) == expected[:2]
    assert resolved.rule == Cgr(interval=resolved.interval)


def test_a_budget_that_does_not_fit() -> None:
    with pytest.raises(DoesNotFit, match="A budget of 4097 does not fit into some's context of 4096") as caught:
        Settings(budget=4097).resolve(info(4096))
    assert "--budget" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cgr", Cgr(threshold=0.8, interval=5)), ("fixed-budget", FixedBudget()), ("budget-forcing", BudgetForcing())],
)
def test_a_rule_is_given_what_it_knows(name: str, expected: object) -> None:
    assert Settings(rule=name, threshold=0.8, interval=5).resolve(info(4096)).rule == expected


def test_all_rules_can_be_made() -> None:
    for name in ("cgr", "cgr-forced", "fixed-budget", "budget-forcing", "no-thinking"):
        assert Settings(rule=name).resolve(info(4096)).rule.name == make_rule(name).name == name


REFUSED: list[tuple[dict[str, Any], type[UsageError], str]] = [
    ({"threshold": 1.5}, UsageError, "threshold of 1.5"),
    ({"threshold": -0.1}, UsageError, "threshold of -0.1"),
    ({"threshold": float("nan")}, UsageError, "threshold of nan"),
    ({"interval": 0}, UsageError, "interval cannot be 0"),
    ({"interval": -3}, UsageError, "interval cannot be -3"),
    ({"budget": 0}, UsageError, "budget cannot be 0"),
    ({"max_answer_tokens": 0}, UsageError, "at least one token"),
    ({"temperature": -1.0}, UsageError, "temperature of -1"),
    ({"temperature": float("nan")}, UsageError, "temperature of nan"),
    ({"temperature": float("inf")}, UsageError, "temperature of inf"),
    ({"top_p": 0.0}, UsageError, "top-p of 0"),
    ({"top_p": 1.1}, UsageError, "top-p of 1.1"),
    ({"top_p": float("nan")}, UsageError, "top-p of nan"),
    ({"rule": "crg"}, UnknownName, "no rule called 'crg'"),
    ({"aggregate": "maen"}, UnknownName, "no aggregate called 'maen'"),
    ({"at_budget": "giveup"}, UnknownName, "abstention policy"),
    ({"close_think": "maybe"}, UnknownName, "close-think policy"),
    ({"prefix": "The answer is"}, UsageError, "could never be closed"),
    ({"treshold": 0.9}, UnknownName, "no option called 'treshold'"),
]


@pytest.mark.parametrize(("options", "kind", "message"), REFUSED, ids=[str(row[0]) for row in REFUSED])
def test_refused(options: dict[str, Any], kind: type[UsageError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        Settings.of(**options)
    assert caught.value.hint


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_the_ends_of_the_threshold_are_thresholds(threshold: float) -> None:
    assert Settings(threshold=threshold).abstention().threshold == threshold


def test_the_prompt() -> None:
    assert Settings().prompt("  What? \n") == f"What?\n{INSTRUCTION}"
    assert Settings(instruction="").prompt("What?") == "What?"
    with pytest.raises(UsageError, match="question is empty"):
        Settings().prompt(" \n ")


def test_sampling_says_only_what_was_chosen() -> None:
    sampling = Settings(temperature=0.0, top_p=0.9, seed=7).sampling()
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.0, 0.9, 7)
