"""The whole record of a promise, the value it is made for, what is refused in exact words, and the hash of a run."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cgr import __version__
from cgr.calibration import Calibration
from cgr.errors import NotRecorded, UsageError
from cgr.lab.calibrate import BY_GOLD, calibrate, open_finished, run_hash
from cgr.lab.calibrate.walk import Goal
from cgr.lab.decide.run import Run
from cgr.lab.score.accuracy import split_questions
from cgr.lab.score.bounds import binomial_upper, questions_to_promise
from cgr.lab.store import DEFAULT, Store
from cgr.lab.store.config import Asking, ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.prompts import Example
from cgr.rules import BudgetForcing, Calibrated, Cgr, DeepConf, Dynasor
from cgr.rules.dynasor import DYNASOR_PREFIX
from tests.lab.calibrate.promised import BUDGET, CONFIG, INFO, INTERVAL, SET, drawn, run_of, stored, trace, traces
from tests.lab.fit.test_fit import sample

RULE = Cgr(interval=INTERVAL)
LEARNING = Calibrated(interval=10, rare=1)
FITTED = Calibrated(interval=10, rare=1, hopeless=((0.5, 0.9),))


def made(found: list[RecordedTrace], goal: Goal) -> Calibration:
    return calibrate(run_of(found), RULE, goal)


# The value


def test_a_promise_of_the_most_cautious_value_alone() -> None:
    """Half of the answers change from 0.9999 down."""
    found = made(traces(40, wrong=[(n, 0.9999) for n in range(20)], sure=0.999999), Goal(0.1))
    assert (found.parameter, found.losses, found.needed_questions, found.answered_share) == (0.99999, 0, None, None)
    assert found.bound == pytest.approx(1 - 0.05 ** (1 / 40))
    assert found.saved_share == pytest.approx(20 * (298 - 6) / (40 * 400))
    assert found.saved_share_ci95 is not None
    low, high = found.saved_share_ci95
    assert 0 < low < 20 * (298 - 6) / (40 * 400) < high < 298 / 400


def test_a_promise_of_a_value_that_saves_nothing() -> None:
    """No answer is accepted at the most cautious value, and half of them change at the next."""
    found = made(traces(40, wrong=[(n, 0.9999) for n in range(20)], sure=0.9999), Goal(0.1))
    assert (found.parameter, found.losses, found.saved_share) == (0.99999, 0, -6 / 400)


def test_without_a_promise_the_first_value_that_saves_is_shown() -> None:
    """One loss from 0.97 down, where the first answers are accepted, and two from 0.6 down."""
    found = made(traces(20, wrong=[(0, 0.97), (1, 0.6)], sure=0.97), Goal(0.1))
    assert (found.parameter, found.bound, found.saved_share, found.saved_share_ci95) == (None, None, None, None)
    assert (found.losses, found.notes) == (1, ())
    assert found.needed_questions == questions_to_promise(np.array([1.0] + [0.0] * 19), 0.1, "exact", 0.05)
    assert found.possible_epsilon == pytest.approx(binomial_upper(1, 20, 0.05))


def test_a_value_that_saves_exactly_nothing_saves_nothing() -> None:
    """Probes that cost nothing: before 0.97, the saving is 0."""
    free = [replace(one, probes=tuple(replace(each, decoded=0) for each in one.probes))
            for one in traces(20, wrong=[(0, 0.97)], sure=0.97)]  # fmt: skip
    found = made(free, Goal(0.1))
    assert (found.parameter, found.losses, found.sequence[0].saved_share) == (None, 1, 0)


def test_where_nothing_is_saved_the_first_value_that_is_tested_is_shown() -> None:
    """No probe is sure. 39 traces are answered at 0.999, five wrongly, and one more at 0.99, wrongly."""
    late = [trace(f"q{n}", 0, ("7", 0.1), final="3" if n < 6 else "7", certainty=0.99 if n == 0 else 0.999)
            for n in range(40)]  # fmt: skip
    found = made(late, Goal(0.1, risk="wrong"))
    assert (found.parameter, found.losses, found.answered_share) == (None, 5, 39 / 40)
    assert found.possible_epsilon == pytest.approx(binomial_upper(5, 39, 0.05))


def test_where_nothing_is_tested_the_least_cautious_value_is_shown() -> None:
    """At 0.6, the wrong answer is withheld."""
    late = [trace(f"q{n}", 0, ("7", 0.1), final="3" if n < 1 else "7", certainty=0.55 if n == 0 else 0.999)
            for n in range(10)]  # fmt: skip
    found = made(late, Goal(0.01, risk="wrong"))
    assert (found.parameter, found.losses, found.answered_share) == (None, 1, 1)
    assert {step.p_value for step in found.sequence} == {None}


def test_no_more_than_everything_can_be_lost() -> None:
    """The bound of Grade alone would be up to 2."""
    found = made(traces(2), Goal(0.01, risk="grade"))
    assert (found.parameter, found.possible_epsilon) == (None, 1.0)
    assert found.sequence[0].bound > 1


# The record

SHOTS = (Example("1+1?", "2"),)


def test_the_whole_record() -> None:
    config = RunConfig(model="m", budget=BUDGET, interval=INTERVAL, fingerprint="abc", temperature=0.5, top_p=0.9,
                       instruction="Think.", system="Be brief.", examples=SHOTS)  # fmt: skip
    run = replace(run_of(traces(40, seeds=2, sure=0.995)), config=config)
    run = replace(run, sets={DEFAULT: ProbeSet("interval", INTERVAL, Asking(prefix="So {"), "m", "abc")})
    found = calibrate(run, RULE, Goal(0.3, 0.1, "grade", penalty=2.0)).to_dict()
    steps, created = found.pop("sequence"), found.pop("created")
    assert abs(datetime.now(UTC) - datetime.fromisoformat(created)) < timedelta(hours=1)
    assert (len(created), created[-6:]) == (len("2026-01-01T00:00:00+00:00"), "+00:00")
    assert len(steps) == 21
    assert found == {
        "rule": "cgr",
        "parameter": 0.5,
        "risk": "grade",
        "epsilon": 0.3,
        "delta": 0.1,
        "method": "ltt",
        "questions": 40,
        "losses": 0.0,
        "bound": steps[-1]["bound"],
        "saved_share": pytest.approx(298 / 400),
        "saved_share_ci95": pytest.approx((298 / 400, 298 / 400)),
        "needed_questions": None,
        "possible_epsilon": steps[-1]["bound"],
        "model": "m",
        "fingerprint": "abc",
        "prompt": "{question}\nThink.",
        "prefix": "So {",
        "interval": INTERVAL,
        "budget": BUDGET,
        "sampling": {"temperature": 0.5, "top_p": 0.9},
        "run": run_hash(run.rule_columns()),
        "version": __version__,
        "main": "threshold",
        "parameters": {},
        "probe": {"close_think": "never", "max_answer_tokens": 4, "aggregate": "min"},
        "probe_model": None,
        "kind": "betting",
        "traces": 80,
        "abstains": False,
        "answered_share": None,
        "penalty": 2.0,
        "headroom": 0.75,
        "false_sure": {"threshold": 0.99, "probes": 80, "share": 0.0},
        "verdict": None,
        "notes": (),
        "run_name": "made-up",
        "system": "Be brief.",
        "examples": found["examples"],
        "schema": 1,
        "digest": found["digest"],
    }
    assert calibrate(run, RULE, Goal(0.3, 0.1, "grade", penalty=2.0)).examples == SHOTS


def test_a_record_says_that_there_is_nothing_to_save() -> None:
    late = [replace(one, probes=tuple(replace(each, answer="4") for each in one.probes)) for one in traces(5, sure=0.9)]
    assert made(late, Goal(0.5)).verdict == "There is nothing to save here: head room is under 15%."


def test_a_record_is_signed() -> None:
    found = made(traces(5), Goal(0.5))
    assert found.digest == found.signed().digest != ""


@pytest.mark.parametrize(
    ("rule", "goal", "expected"),
    [
        (RULE, Goal(0.5), (False, None, None, Goal().delta)),
        (RULE, Goal(0.5, risk="wrong"), (True, 1.0, None, Goal().delta)),
        (replace(FITTED, interval=INTERVAL), Goal(0.5, risk="wrong"), (False, 1.0, None, Goal().delta)),
        (RULE, Goal(0.5, risk="lost", method="crc"), (False, None, None, None)),
        (RULE, Goal(0.5, risk="grade", penalty=0.0), (False, None, 0.0, Goal().delta)),
    ],
)
def test_what_depends_on_the_risk_and_the_method(rule: Cgr, goal: Goal, expected: tuple[Any, ...]) -> None:
    found = calibrate(run_of(traces(10, sure=0.999999)), rule, goal)
    assert (found.abstains, found.answered_share, found.penalty, found.delta) == expected


def test_the_other_parameters_of_the_rule_are_kept() -> None:
    found = calibrate(sample(), FITTED, Goal(0.3))
    assert found.parameters.keys() == {one.name for one in fields(FITTED)} - {"price", "interval"}
    assert (found.parameters["rare"], found.parameters["hopeless"], found.main) == (1, ((0.5, 0.9),), "price")


def test_an_unknown_instruction_makes_prompt_and_system_unknown() -> None:
    run = run_of(traces(5))
    found = calibrate(replace(run, config=replace(run.config, instruction=None, system="Be brief.")), RULE, Goal(0.5))
    assert (found.prompt, found.system) == (None, None)


@pytest.mark.parametrize(
    ("model", "fingerprint", "expected"), [("m", "abc", None), ("m", "xyz", None), ("n", "abc", None), ("n", "xyz", "n")]
)
def test_another_model_that_was_probed_is_named(model: str, fingerprint: str, expected: str | None) -> None:
    run = run_of(traces(5))
    config = replace(run.config, model="m", fingerprint="abc")
    sets = {DEFAULT: ProbeSet("interval", INTERVAL, Asking(), model, fingerprint)}
    assert calibrate(replace(run, config=config, sets=sets), RULE, Goal(0.5)).probe_model == expected


def test_the_longest_answer_is_unknown_if_it_differs_between_formats() -> None:
    whole = traces(4)
    maths = [replace(one, format="math") for one in whole]
    limits = [made(found, Goal(0.5)).probe["max_answer_tokens"] for found in (whole, maths, [*whole[:2], *maths[2:]])]
    assert limits == [4, 32, None]


def test_probes_at_irregular_positions_have_no_interval() -> None:
    assert calibrate(Run.of(traces(5), replace(INFO, interval=0)), RULE, Goal(0.5)).interval == 0


def test_for_a_rule_with_its_own_prefix_the_probes_are_those_of_the_run() -> None:
    own = Asking(prefix=DYNASOR_PREFIX, max_answer_tokens=20, reads="text", aggregate="mean")
    asking = Asking(prefix="So {", close_think="always", max_answer_tokens=7)
    run = replace(run_of(traces(5)), sets={DEFAULT: ProbeSet("interval", INTERVAL, own)})
    found = calibrate(replace(run, config=replace(run.config, asking=asking)), Dynasor(every=INTERVAL), Goal(0.5))
    assert (found.prefix, found.interval) == ("So {", 0)
    assert found.probe == {"close_think": "always", "max_answer_tokens": 7, "aggregate": "min"}


# What is refused


def refused(run: Run, rule: Any, goal: Goal, **options: Any) -> tuple[str, str]:
    with pytest.raises((UsageError, NotRecorded)) as caught:
        calibrate(run, rule, goal, **options)
    return caught.value.message, caught.value.hint


def test_a_rule_that_lacks_a_parameter_is_refused_before_anything_else() -> None:
    with pytest.raises(UsageError) as caught:
        DeepConf().check()
    assert refused(run_of(traces(5)), DeepConf(), Goal()) == (caught.value.message, caught.value.hint)


def test_on_a_run_that_was_forced_otherwise_the_run_is_named() -> None:
    run = run_of(traces(5))
    forced = replace(run, config=replace(run.config, rule="budget-forcing", forced_text="Hm", forced_at_most=2))
    message, _ = refused(forced, BudgetForcing(text="Well", at_most=1), Goal())
    assert message == "The thinking in made-up was forced to go on with 'Hm', at most 2 times."


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 1.5])
def test_weights_need_a_part_of_the_questions(share: float) -> None:
    assert refused(sample(), LEARNING, Goal(0.3), learn_on=share) == (
        f"Weights cannot be learned from a share of {share:g} of the questions, with a promise from the others.",
        "Use more than 0 and less than 1, such as 0.5.",
    )


@pytest.mark.parametrize("fitted", [{}, {"share": 1.0}, {"share": 1.5}])
def test_weights_from_every_question_leave_none_for_the_promise(fitted: dict[str, Any]) -> None:
    assert refused(sample(), FITTED, Goal(0.3), fitted={"run": "made-up", **fitted}) == (
        "The weights of 'calibrated' were learned from every question of this run.",
        "Leave some out: cgr fit made-up --share 0.5, or calibrate on another run.",
    )


@pytest.mark.parametrize(("gold", "words"), [("7", " with known answers"), (None, "")])
def test_too_few_questions_for_two_parts(gold: str | None, words: str) -> None:
    few = run_of([replace(one, gold=gold) for one in traces(3)])
    assert refused(few, replace(LEARNING, interval=INTERVAL), Goal(0.3)) == (
        "The run has too few questions to learn weights of 'calibrated' on one part and promise on another.",
        f"Record more questions{words}.",
    )


@pytest.mark.parametrize("learn_on", [0.2, 0.5])
def test_weights_are_learned_from_their_share(learn_on: float) -> None:
    run = sample(count=40)
    learning, others = split_questions(run.rule_columns(), learn_on)
    found = calibrate(run, LEARNING, Goal(0.3), learn_on=learn_on)
    assert (found.questions, int(learning.sum())) == (int(others.sum()), round(learn_on * 40))
    note = f"Weights come from {round(learn_on * 40)} questions, the promise from {found.questions} others."
    assert found.notes == (note,)
    assert found.parameters["answered"] != LEARNING.answered


def test_weights_that_were_learned_before_stay() -> None:
    found = calibrate(sample(count=40), FITTED, Goal(0.3), learn_on=7.0, fitted={"run": "made-up", "share": 0.25})
    assert (found.questions, found.parameters["hopeless"]) == (30, ((0.5, 0.9),))
    assert found.notes == ("Weights come from 10 questions, the promise from 30 others.",)
    assert calibrate(sample(count=40), FITTED, Goal(0.3)).questions == 40


def test_the_parts_are_those_of_all_questions_of_the_run() -> None:
    """Also of those that were not probed: `cgr fit` splits alike."""
    run = sample(count=40)
    wider = replace(run, questions=(*run.questions, *(f"more {n}" for n in range(40))))
    learning, others = split_questions(run.rule_columns(), 0.5, wider.questions)
    found = calibrate(wider, LEARNING, Goal(0.3))
    assert found.notes == (f"Weights come from {learning.sum()} questions, the promise from {others.sum()} others.",)
    assert learning.sum() != 20


def test_without_known_answers_weights_come_from_agreement() -> None:
    run = sample(count=40)
    bare = Run.of([replace(one, gold=None) for one in run.traces()], run.info)
    agreeing = calibrate(bare, LEARNING, Goal(0.3)).parameters
    assert agreeing["answered"] != LEARNING.answered
    assert agreeing != calibrate(run, LEARNING, Goal(0.3)).parameters


@pytest.mark.parametrize(("epsilon", "delta", "needed"), [(0.01, 0.05, "299"), (0.001, 0.05, "2,995"), (0.1, 0.5, "7")])
@pytest.mark.parametrize("risk", ["disagreement", "lost"])
def test_one_question_is_too_few(epsilon: float, delta: float, needed: str, risk: str) -> None:
    assert refused(run_of(traces(1)), RULE, Goal(epsilon, delta, risk)) == (
        "The run in made-up has one question: nothing can be promised from it.",
        f"Record at least {needed} questions for a loss of at most {epsilon:g}.",
    )


@pytest.mark.parametrize(("golds", "count"), [(0, "No question has"), (1, "Only one question has")])
@pytest.mark.parametrize("risk", ["lost", "wrong", "grade"])
def test_too_few_known_answers(golds: int, count: str, risk: str) -> None:
    run = run_of([replace(one, gold="7" if n < golds else None) for n, one in enumerate(traces(2))])
    assert refused(run, RULE, Goal(0.1, risk=risk)) == (
        f"{count} a known answer, which the risk {risk!r} needs.",
        "Use --risk disagreement: it needs none.",
    )


def test_two_questions_are_enough_to_be_counted() -> None:
    assert made(traces(2), Goal(0.1)).questions == 2


# Opening


def test_the_probe_set_can_be_named(tmp_path: Path) -> None:
    folder = stored(tmp_path / "run", traces(3))
    with Store.open(folder, write=True) as store:
        store.add_probe_set(replace(SET, interval=50), "other")
    with pytest.raises(NotRecorded) as caught:
        open_finished(folder, "other")
    assert caught.value.message == f"The run in {folder} has no probes yet."
    assert caught.value.hint == f"Make them with `cgr probe {folder}`."
    assert open_finished(folder, DEFAULT).main == open_finished(folder).main == DEFAULT
    assert open_finished(folder).config == CONFIG


# The hash


def test_the_hash_is_the_one_that_earlier_files_hold() -> None:
    columns = run_of([trace("q", 0, ("7", 0.5)), trace("\ud800", 3, ("3", 0.25), gold=None)]).rule_columns()
    assert run_hash(columns) == "07c01a503861eb5a1298b3a2c1b323295c11439609bca4addcb708c997fe8b64"


ARRAYS = [one.name for one in fields(run_of(traces(1)).rule_columns()) if one.type in ("Bools", "Floats", "Ints")]


@pytest.mark.parametrize("name", ARRAYS)
def test_the_hash_depends_on_everything_but_golds(name: str) -> None:
    columns = run_of(drawn(1, 3)).rule_columns()
    value: Any = getattr(columns, name).copy()
    value.flat[0] = not value.flat[0] if value.dtype == np.bool_ else value.flat[0] + 1
    other: Any = {name: value}
    same: Any = {name: np.asfortranarray(getattr(columns, name))}
    assert (run_hash(replace(columns, **other)) == run_hash(columns)) == (name in BY_GOLD)
    assert run_hash(replace(columns, **same)) == run_hash(columns)
