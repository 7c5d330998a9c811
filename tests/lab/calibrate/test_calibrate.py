"""A promise from a run: the walk, each kind of loss, what is said if there are too few questions, and weights apart."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cgr.calibration import NotCalibrated, percent, sentence
from cgr.errors import NotRecorded, UsageError
from cgr.lab.calibrate import calibrate, open_finished, run_hash
from cgr.lab.calibrate.check import BROKEN, HOLDS, OPEN, check
from cgr.lab.calibrate.losses import CalibrationQuestions, MeanLosses, SelectiveLosses
from cgr.lab.calibrate.output import outcome
from cgr.lab.calibrate.walk import THRESHOLDS, Goal, sequence, walk
from cgr.lab.decide.run import Run
from cgr.lab.score import bounds
from cgr.lab.score.accuracy import split_questions
from cgr.lab.store import Store
from cgr.rules import Calibrated, Cgr, DeepConf, Dynasor, FixedBudget
from tests.lab.calibrate.promised import CONFIG, INTERVAL, SET, drawn, probe, run_of, stored, trace, traces
from tests.lab.fit.test_fit import sample

RULE = Cgr(interval=INTERVAL)


# The walk


def test_the_sequence_is_fixed_and_begins_with_the_most_cautious_value() -> None:
    assert sequence(RULE) == [replace(RULE, threshold=value) for value in sorted(THRESHOLDS, reverse=True)]
    assert sequence(Dynasor()) == [Dynasor(agree=int(value)) for value in sorted(Dynasor.grid, reverse=True)]


def test_the_walk_ends_at_the_first_value_that_fails() -> None:
    assert walk([True, True, False, True]) == [True, True, False, False]
    assert walk([False, True]) == [False, False]
    assert walk([None, True, None, True, False, True]) == [False, True, False, True, False, False]


def test_the_last_value_that_passes_is_promised() -> None:
    """One loss in 500 from 0.95 down is allowed at 1%, nine are not."""
    wrong = [(1, 0.955), *((n, 0.915) for n in range(2, 10))]
    found = calibrate(run_of(traces(500, wrong=wrong, sure=0.999)), RULE, Goal(0.01))
    assert found.parameter == 0.925
    assert (found.questions, found.losses, found.kind) == (500, 1, "exact")
    passed = {step.parameter: step.passed for step in found.sequence}
    assert (passed[0.925], passed[0.9]) == (True, False)
    assert found.bound == pytest.approx(bounds.binomial_upper(1, 500, 0.05))
    assert found.needed_questions is None
    assert found.saved_share == pytest.approx((492 * (300 - 2) - 8 * 6) / (400 * 500))
    p = next(step.p_value for step in found.sequence if step.parameter == 0.925)
    assert p == pytest.approx(0.99**500 + 500 * 0.01 * 0.99**499)


def test_a_later_value_that_would_pass_is_not_reached() -> None:
    """A stop at .9 hides the loss at .95: its p-value is small, and it is not promised."""
    early = [trace(f"q{n}", 0, ("7", 0.9)) for n in range(30)]
    early = [replace(one, probes=(one.probes[0], probe(200, "3", 0.96), *one.probes[2:])) for one in early]
    found = calibrate(run_of([*early, *traces(500, sure=0.999)[30:]]), RULE, Goal(0.01))
    below = [step for step in found.sequence if step.parameter <= 0.9]
    assert found.parameter == 0.97
    assert all(step.p_value is not None and step.p_value < 0.05 for step in below)
    assert not any(step.passed for step in below)


def test_several_seeds_are_one_unit_and_are_bounded_by_betting() -> None:
    many = [(n, 0.99) for n in range(8)]
    found = calibrate(run_of(traces(500, seeds=8, wrong=many)), RULE, Goal(0.01))
    assert found.kind == "betting"
    assert found.losses == pytest.approx(1.0)
    assert (found.questions, found.traces) == (500, 4000)
    run = run_of(traces(500, seeds=8, wrong=many))
    columns = run.rule_columns()
    losses = np.array([0.125 if name in {f"q{n}" for n in range(8)} else 0.0 for name in columns.questions])
    expected = bounds.risk_p_value(losses[bounds.hash_order(columns.questions)], 0.01, bounds.BETTING)
    assert found.sequence[-1].p_value == pytest.approx(expected)


# Too few questions


@pytest.mark.parametrize(("questions", "possible"), [(30, 0.095), (100, 0.030)])
def test_too_few_questions(questions: int, possible: float) -> None:
    found = calibrate(run_of(traces(questions)), RULE, Goal(0.01))
    assert found.parameter is None
    assert found.saved_share is None
    assert found.needed_questions == 299
    assert found.possible_epsilon == pytest.approx(possible, abs=5e-4)
    assert not any(step.passed for step in found.sequence)
    assert outcome(found)[1:] == [
        "About 299 questions are needed at the rate seen.",
        f"These questions can promise {percent(found.possible_epsilon or 1)}, and no better.",
    ]


def test_where_sure_probes_are_wrong_more_questions_do_not_help() -> None:
    wrong = [(n, 0.999999) for n in range(100)]
    found = calibrate(run_of(traces(400, wrong=wrong)), RULE, Goal(0.01))
    assert (found.parameter, found.needed_questions) == (None, None)
    assert "Certainty is not to be trusted here" in (found.verdict or "")
    assert "More questions will not help" in outcome(found)[1]
    assert "has a loss of 25%" in outcome(found)[1]


def test_where_one_sure_probe_in_three_is_wrong_nothing_is_promised_below_the_surest() -> None:
    """Little head room, and certainty that means nothing up to .998: the command comes to that by itself."""
    late = [
        replace(one, probes=(replace(one.probes[0], answer="3", certainty=0.998), *one.probes[1:]))
        if number % 3 == 0
        else replace(one, probes=tuple(replace(each, certainty=0.5, answer="4") for each in one.probes))
        if number % 3 == 1
        else one
        for number, one in enumerate(traces(600, sure=0.9992))
    ]
    found = calibrate(run_of(late), RULE, Goal(0.01))
    assert found.parameter == 0.999
    assert found.false_sure["share"] == pytest.approx(0.5)
    assert "Certainty is not to be trusted here" in (found.verdict or "")
    assert [step.passed for step in found.sequence if step.parameter <= 0.998] == [False] * 17


def test_needed_questions_follow_the_rate_seen() -> None:
    losses = np.zeros(100)
    losses[0] = 1
    needed = bounds.questions_to_promise(losses, 0.02, bounds.EXACT)
    assert needed is not None
    assert (
        bounds.binomial_p_value(0.01 * needed, needed, 0.02)
        <= 0.05
        < bounds.binomial_p_value(0.01 * (needed - 1), needed - 1, 0.02)
    )
    assert bounds.questions_to_promise(losses, 0.01, bounds.EXACT) is None
    by_betting = bounds.questions_to_promise(np.zeros(50), 0.02, bounds.BETTING)
    assert by_betting is not None
    assert bounds.risk_p_value(np.zeros(by_betting), 0.02, bounds.BETTING) <= 0.05


# The losses


def losses_of(run: Run, risk: str, threshold: float, penalty: float = 1.0) -> MeanLosses | SelectiveLosses:
    columns = run.rule_columns()
    questions = CalibrationQuestions.of(columns, np.ones(len(columns.questions), dtype=np.bool_), risk)
    below = threshold if risk == "wrong" else None
    found = questions.losses(risk, run.decide(replace(RULE, threshold=threshold)), below, penalty)
    assert isinstance(found, MeanLosses | SelectiveLosses)
    return found


SOME = [
    trace("same", 0, ("7", 0.99)),
    trace("lost", 0, ("3", 0.99)),
    trace("gained", 0, ("7", 0.99), final="3"),
    trace("wrong twice", 0, ("3", 0.99), final="4"),
    trace("unsure", 0, ("3", 0.5), certainty=0.5),
    trace("unsure and wrong", 0, ("3", 0.5), final="4", certainty=0.5),
]


def test_disagreement_counts_every_change() -> None:
    assert losses_of(run_of(SOME), "disagreement", 0.9).count == 3
    assert losses_of(run_of(SOME), "disagreement", 0.9999).count == 0


def test_disagreement_needs_no_golds() -> None:
    without = run_of([replace(one, gold=None) for one in SOME])
    assert losses_of(without, "disagreement", 0.9).count == 3


def test_lost_counts_right_answers_that_become_wrong() -> None:
    assert losses_of(run_of(SOME), "lost", 0.9).count == 1


def test_wrong_is_among_the_answers_given() -> None:
    found = losses_of(run_of(SOME), "wrong", 0.9)
    assert found.mean == pytest.approx(2 / 4)
    assert isinstance(found, MeanLosses)
    assert (len(found.values), found.kind) == (4, bounds.EXACT)


def test_wrong_with_several_seeds_is_the_rescaled_mean() -> None:
    both = [*SOME, *(replace(one, seed=1) for one in SOME)]
    found = losses_of(run_of(both), "wrong", 0.9)
    assert isinstance(found, SelectiveLosses)
    assert found.mean == pytest.approx(2 / 4)
    epsilon = 0.3
    values = found.wrong - epsilon * found.answered + epsilon
    assert sorted(values.tolist()) == pytest.approx(sorted([0, 1, 0, 1, epsilon, epsilon]))
    assert found.p_value(epsilon, 0.05) == pytest.approx(bounds.risk_p_value(values, epsilon, bounds.BETTING))
    assert found.lower(0.05) <= found.mean <= found.upper(0.05)


def test_grade_is_the_difference_to_answering_everything() -> None:
    """One answer is lost and one is gained. Without the gain, a right answer became a wrong one."""
    assert losses_of(run_of(SOME), "grade", 0.9, penalty=0.5).mean == pytest.approx(0.0)
    fewer = run_of([one for one in SOME if one.question_id != "gained"])
    assert losses_of(fewer, "grade", 0.9, penalty=0.5).mean == pytest.approx(1.5 / 5)
    assert losses_of(fewer, "grade", 0.9).kind == bounds.BETTING


def test_a_rule_that_gives_up_changes_the_answer() -> None:
    run = run_of([trace("q", 0, ("7", 0.1)), trace("p", 0, ("7", 0.99))])
    rule = Calibrated(interval=INTERVAL, rare=1, price=1.0, hopeless=((0.1, 0.99),), then="give-up")
    decided = run.decide(rule)
    assert decided.gave_up.tolist() == [True, False]
    assert decided.agrees.tolist() == [False, True]


@pytest.mark.parametrize("risk", ["lost", "wrong", "grade"])
def test_risks_that_need_golds_say_so(risk: str) -> None:
    without = run_of([replace(one, gold=None) for one in traces(40)])
    with pytest.raises(UsageError, match="known answer") as caught:
        calibrate(without, RULE, Goal(0.1, risk=risk))
    assert "disagreement" in caught.value.hint


def test_every_risk_makes_a_promise_with_its_sentence() -> None:
    run, risks = run_of(traces(700, sure=0.999)), ("disagreement", "lost", "wrong", "grade")
    said = {risk: sentence(calibrate(run, RULE, Goal(0.02, risk=risk))) for risk in risks}
    assert said["disagreement"].startswith("With 95% confidence at most 2% of answers change; 74.5% of the thinking tokens")
    assert "at most 2% of answers turn from right to wrong" in said["lost"]
    assert "at most 2% of the answers given are wrong; 100% of the questions are answered" in said["wrong"]
    assert "Grade is at most 0.02 a question below" in said["grade"]


def test_values_that_answer_nothing_are_not_tested() -> None:
    found = calibrate(run_of(traces(700, sure=0.999)), RULE, Goal(0.02, risk="wrong"))
    steps = {step.parameter: step for step in found.sequence}
    assert (steps[0.99999].p_value, steps[0.99999].passed) == (None, False)
    assert steps[0.999].passed
    assert found.parameter == 0.5
    assert found.allowed[0] == 0.999


def test_conformal_risk_control_never_claims_confidence() -> None:
    found = calibrate(run_of(traces(100)), RULE, Goal(0.01, method="crc"))
    assert found.parameter == 0.5
    assert found.delta is None
    assert found.bound == pytest.approx(1 / 101)
    assert all(step.p_value is None for step in found.sequence)
    assert "confidence" not in sentence(found)
    few = calibrate(run_of(traces(98)), RULE, Goal(0.01, method="crc"))
    assert (few.parameter, few.needed_questions) == (None, 99)


# Bad input


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_impossible_losses(epsilon: float) -> None:
    with pytest.raises(UsageError, match="cannot be promised"):
        Goal(epsilon)


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_impossible_confidence(delta: float) -> None:
    with pytest.raises(UsageError, match="confidence"):
        Goal(0.01, delta)


def test_conformal_risk_control_refuses_risks_that_are_not_monotone() -> None:
    with pytest.raises(UsageError, match="Conformal risk control"):
        Goal(0.01, risk="wrong", method="crc")


def test_one_question_promises_nothing() -> None:
    with pytest.raises(UsageError, match="one question") as caught:
        calibrate(run_of(traces(1)), RULE, Goal(0.01))
    assert "299" in caught.value.hint


@pytest.mark.parametrize("rule", [FixedBudget(), DeepConf()])
def test_rules_without_a_sequence_are_refused(rule: Cgr) -> None:
    with pytest.raises(UsageError):
        calibrate(run_of(traces(20)), rule, Goal(0.1))


def test_a_run_without_probes_is_refused(tmp_path: Path) -> None:
    bare = [replace(one, probes=()) for one in traces(20)]
    with pytest.raises(NotRecorded, match="no probes"):
        open_finished(stored(tmp_path / "bare", bare))


def test_a_run_that_is_being_written_is_refused(tmp_path: Path) -> None:
    folder = stored(tmp_path / "run", traces(20))
    with Store.open(folder, write=True), pytest.raises(UsageError, match="Another process is writing") as caught:
        open_finished(folder)
    assert "cgr merge" in caught.value.hint
    assert open_finished(folder).keys


# Weights and promise apart


def test_weights_come_from_other_questions_than_the_promise() -> None:
    run = sample()
    rule = Calibrated(interval=10, rare=1)
    found = calibrate(run, rule, Goal(0.3, risk="lost"))
    learning, others = split_questions(run.rule_columns(), 0.5, run.questions)
    assert found.questions == int(others.sum())
    assert found.notes == (
        f"Weights come from {int(learning.sum())} questions, the promise from {int(others.sum())} others.",
    )
    learned = found.stopping_rule(found.sequence[0].parameter)
    assert isinstance(learned, Calibrated)
    assert not learned.unfitted


def test_weights_learned_from_this_run_are_refused_unless_questions_were_left_out() -> None:
    run = sample()
    fitted = Calibrated(interval=10, rare=1, hopeless=((0.5, 0.9),))
    name = run.info.name
    with pytest.raises(UsageError, match="learned from every question"):
        calibrate(run, fitted, Goal(0.3), fitted={"run": name})
    half = calibrate(run, fitted, Goal(0.3), fitted={"run": name, "share": 0.5})
    whole = calibrate(run, fitted, Goal(0.3), fitted={"run": "another"})
    assert half.questions < whole.questions == len(run.rule_columns().questions)


# Checking a promise on new data


def test_check_says_whether_a_promise_holds(tmp_path: Path) -> None:
    promise = calibrate(open_finished(stored(tmp_path / "old", traces(400))), RULE, Goal(0.02))
    assert promise.parameter == 0.5

    def verdict(name: str, questions: int, lost: int) -> str:
        found = traces(questions, wrong=[(n, 0.999) for n in range(lost)])
        return check(promise, open_finished(stored(tmp_path / name, found))).verdict

    assert verdict("good", 300, 0) == HOLDS
    assert verdict("bad", 300, 30) == BROKEN
    assert verdict("few", 50, 0) == OPEN
    few = check(promise, open_finished(tmp_path / "few"))
    assert few.needed_questions == 149
    with pytest.raises(NotCalibrated, match="made from the run"):
        check(promise, open_finished(tmp_path / "old"))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"fingerprint": "other", "model": "another"}, "model"),
        ({"instruction": "Think."}, "prompt"),
        ({"budget": 401}, "budget"),
        ({"temperature": 0.9}, "temperature"),
    ],
)
def test_check_refuses_other_runs(tmp_path: Path, changes: dict[str, object], word: str) -> None:
    promise = calibrate(open_finished(stored(tmp_path / "old", traces(400))), RULE, Goal(0.02))
    other = stored(tmp_path / "other", traces(30), replace(CONFIG, **changes))  # type: ignore[arg-type]
    with pytest.raises(NotCalibrated, match=word):
        check(promise, open_finished(other))


def test_check_refuses_another_interval(tmp_path: Path) -> None:
    promise = calibrate(open_finished(stored(tmp_path / "old", traces(400))), RULE, Goal(0.02))
    other = stored(tmp_path / "other", traces(30), CONFIG, replace(SET, interval=80))
    with pytest.raises(NotCalibrated, match="interval"):
        check(promise, open_finished(other))


def test_the_hash_of_a_run_changes_with_its_content() -> None:
    found = drawn(1, 20)
    changed = [replace(found[0], final=probe(400, "8", 0.999)), *found[1:]]
    hashes = {run_hash(run_of(one).rule_columns()) for one in (found, changed, found[1:])}
    assert len(hashes) == 3
    assert run_hash(run_of(drawn(1, 20)).rule_columns()) in hashes


def test_the_same_traces_without_golds_are_no_new_data(tmp_path: Path) -> None:
    promise = calibrate(open_finished(stored(tmp_path / "old", traces(400))), RULE, Goal(0.02))
    bare = stored(tmp_path / "bare", [replace(one, gold=None) for one in traces(400)])
    with pytest.raises(NotCalibrated, match="proves nothing new"):
        check(promise, open_finished(bare))
