"""A promise on other data: what is refused, in exact words, the whole outcome, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr.calibration import Calibration, NotCalibrated
from cgr.lab.calibrate import calibrate
from cgr.lab.calibrate.check import BROKEN, HOLDS, NEW_RUN, OPEN, Checked, check, sentences
from cgr.lab.calibrate.walk import Goal
from cgr.lab.decide.run import Run
from cgr.lab.score.bounds import binomial_lower, binomial_p_value, binomial_upper
from cgr.lab.store.config import RunConfig
from cgr.prompts import Example
from cgr.rules import Cgr
from tests.lab.calibrate.promised import BUDGET, INTERVAL, run_of, trace, traces

RULE = Cgr(interval=INTERVAL)
CONFIG = RunConfig(model="m", budget=BUDGET, interval=INTERVAL, fingerprint="abc", instruction="Think.", system="Be brief.")


def a_run(questions: int = 20, lost: int = 0, config: RunConfig = CONFIG, **info: Any) -> Run:
    """This many questions, some of which get another answer."""
    found = run_of(traces(questions, wrong=[(n, 0.999) for n in range(lost)]))
    return replace(found, config=config, info=replace(found.info, prefix=config.asking.prefix, **info), folder=Path("new"))


PROMISE = calibrate(a_run(60), RULE, Goal(0.05))


# The outcome


def test_the_whole_outcome() -> None:
    expected = Checked(
        run="made-up",
        questions=20,
        loss=0.05,
        losses=1.0,
        lower=binomial_lower(1, 20, PROMISE.delta or 0),
        upper=binomial_upper(1, 20, PROMISE.delta or 0),
        p_value=binomial_p_value(1, 20, 0.05),
        epsilon=0.05,
        delta=PROMISE.delta or 0,
        verdict=OPEN,
        needed_questions=None,
        saved_share=298 / 400,
        saved_share_ci95=(298 / 400, 298 / 400),
    )
    found = check(PROMISE, a_run(20, 1))
    assert found.saved_share_ci95 == pytest.approx(expected.saved_share_ci95)
    assert replace(found, saved_share_ci95=expected.saved_share_ci95) == expected


@pytest.mark.parametrize(
    ("questions", "lost", "verdict", "needed"), [(59, 0, HOLDS, None), (58, 0, OPEN, 59), (58, 20, BROKEN, None)]
)
def test_verdicts(questions: int, lost: int, verdict: str, needed: int | None) -> None:
    """0.95**59 is below 0.05, and 0.95**58 is not."""
    found = check(PROMISE, a_run(questions, lost))
    assert (found.verdict, found.needed_questions) == (verdict, needed)


def test_a_p_value_equal_to_delta_holds() -> None:
    delta = binomial_p_value(0, 50, 0.05)
    assert check(replace(PROMISE, delta=delta), a_run(50)).verdict == HOLDS
    assert check(replace(PROMISE, delta=delta * 0.999), a_run(50)).verdict == OPEN


def test_a_lower_bound_equal_to_epsilon_breaks_nothing() -> None:
    lower = check(PROMISE, a_run(20, 5)).lower
    assert check(replace(PROMISE, epsilon=lower), a_run(20, 5)).verdict == OPEN
    assert check(replace(PROMISE, epsilon=0.999 * lower), a_run(20, 5)).verdict == BROKEN


def test_without_a_confidence_95_percent_is_taken() -> None:
    found = check(replace(PROMISE, delta=None, method="crc"), a_run(20))
    assert (found.delta, found.upper) == (0.05, binomial_upper(0, 20, 0.05))


@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_the_penalty_is_that_of_the_promise(penalty: float) -> None:
    found = check(replace(PROMISE, risk="grade", penalty=penalty), a_run(20, 5))
    assert found.loss == pytest.approx(5 * (1 + penalty) / 20)


def test_answers_below_the_promised_threshold_are_withheld() -> None:
    unsure = [
        trace(f"q{n}", 0, ("7", 0.5), final="3" if n < 5 else "7", certainty=0.6 if n < 5 else 0.999) for n in range(20)
    ]
    run = replace(a_run(), read=lambda name, whole: unsure, keys=frozenset((f"q{n}", 0) for n in range(20)), _traces={})
    run = replace(run, _columns={}, _arrays={})
    assert check(replace(PROMISE, risk="wrong", parameter=0.9), run).loss == 0
    assert check(replace(PROMISE, risk="wrong", parameter=0.55), run).loss == 0.25


# What is refused


def refused(promise: Calibration, run: Run) -> str | None:
    """The message, or the hint if it is not the usual one; None if the run is taken."""
    try:
        check(promise, run)
    except NotCalibrated as error:
        return error.message if error.hint == NEW_RUN else error.hint
    return None


def test_the_hint() -> None:
    assert NEW_RUN == "Give a run of new questions with the same model, prompt and interval."


def test_the_run_of_the_promise_is_refused() -> None:
    assert refused(PROMISE, a_run(60)) == "The promise was made from the run in new: it proves nothing new."


def test_a_run_without_known_answers_is_refused_if_they_are_needed() -> None:
    bare = [replace(one, gold=None) for one in traces(20)]
    run = replace(a_run(), read=lambda name, whole: bare, _traces={}, _columns={}, _arrays={})
    assert refused(replace(PROMISE, risk="lost"), run) == "The run in new has no question with a known answer."
    assert refused(PROMISE, run) is None


OTHER = "The promise is for the model 'm'; the run is of {!r}."


@pytest.mark.parametrize(
    ("promised", "recorded", "model", "message"),
    [
        ("abc", "abc", "another name", None),
        ("abc", "xyz", "m", OTHER.format("m")),
        ("abc", "", "m", None),
        ("", "abc", "m", None),
        ("", "", "m", None),
        ("abc", "", "n", OTHER.format("n")),
        ("", "abc", "n", OTHER.format("n")),
        ("", "", "n", OTHER.format("n")),
    ],
)
def test_models_are_compared_by_weights_or_else_by_name(
    promised: str, recorded: str, model: str, message: str | None
) -> None:
    run = a_run(config=replace(CONFIG, fingerprint=recorded, model=model))
    assert refused(replace(PROMISE, fingerprint=promised), run) == message


SHOTS = (Example("1+1?", "2"),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"instruction": "Go."}, r"the prompt '{question}\nThink.'; the run has '{question}\nGo.'."),
        ({"instruction": None}, None),
        ({"system": "Be long."}, "the system message 'Be brief.'; the run has 'Be long.'."),
        ({"system": "Be long.", "instruction": None}, None),
        ({"asking": replace(CONFIG.asking, prefix="So ")}, r"the prefix 'Final Answer: \\boxed{'; the run has 'So '."),
        ({"asking": replace(CONFIG.asking, prefix=None)}, None),
        ({"budget": 401}, "the budget 400; the run has 401."),
        ({"temperature": 0.5}, "the temperature 0.6; the run has 0.5."),
        ({"temperature": None}, None),
        ({"top_p": 0.5}, "the top-p 1.0; the run has 0.5."),
        ({"top_p": None}, None),
        ({"examples": SHOTS}, "other worked examples than those of the run."),
        ({"examples": SHOTS, "instruction": None}, None),
    ],
)
def test_other_runs_are_refused(changes: dict[str, Any], message: str | None) -> None:
    found = refused(PROMISE, a_run(config=replace(CONFIG, **changes)))
    assert found == (None if message is None else f"The promise is for {message}")


@pytest.mark.parametrize(
    ("unknown", "changes"),
    [
        ({"prompt": None}, {"instruction": "Go."}),
        ({"system": None}, {"system": "Be long."}),
        ({"system": None}, {"examples": SHOTS}),
        ({"prefix": None}, {"asking": replace(CONFIG.asking, prefix="So ")}),
        ({"sampling": {}}, {"temperature": 0.5, "top_p": 0.5}),
    ],
)
def test_what_a_promise_does_not_know_is_not_compared(unknown: dict[str, Any], changes: dict[str, Any]) -> None:
    assert refused(replace(PROMISE, **unknown), a_run(config=replace(CONFIG, **changes))) is None


@pytest.mark.parametrize(
    ("promised", "recorded", "fits"),
    [(100, 100, True), (100, 50, True), (100, 0, True), (0, 80, True), (100, 80, False), (100, 200, False)],
)
def test_the_interval_must_be_a_multiple_of_that_of_the_run(promised: int, recorded: int, fits: bool) -> None:
    promise = replace(PROMISE, interval=promised, parameters={} if promised else {"interval": INTERVAL})
    message = f"The promise is for the interval {promised}; the run was probed every {recorded}."
    assert refused(promise, a_run(interval=recorded)) == (None if fits else message)


# In words

CHECKED = Checked("r", 1200, 0.01, 12.0, 0.005, 0.02, 0.2, 0.015, 0.1, OPEN, 2500, 0.25, None)


@pytest.mark.parametrize(
    ("verdict", "needed", "first"),
    [
        (HOLDS, None, "The promise holds here: the loss is at most 1.5%."),
        (BROKEN, None, "The promise is broken here: the loss is above 1.5%. Calibrate again on this traffic."),
        (
            OPEN,
            2500,
            "Whether the promise holds here cannot be told: about 2,500 questions would settle it at the rate seen.",
        ),
        (OPEN, None, "Whether the promise holds here cannot be told: more questions are needed."),
    ],
)
def test_the_outcome_in_words(verdict: str, needed: int | None, first: str) -> None:
    assert sentences(replace(CHECKED, verdict=verdict, needed_questions=needed)) == [
        first,
        "On 1,200 new questions the loss is 1%: at least 0.5% and at most 2%, each with 90% confidence.",
        "25% of the thinking tokens are saved, net of probes.",
    ]
