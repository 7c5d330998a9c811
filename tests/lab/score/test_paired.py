"""Settings on the same questions: shared draws, and questions that are split the same way for everybody."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.errors import UsageError
from cgr.lab.decide import arrays
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import decide as decide_rule
from cgr.lab.score import bootstrap as intervals
from cgr.lab.score.accuracy import split_questions
from cgr.lab.score.paired import by_question, measure
from cgr.rules import Cgr
from tests.lab.runs import SIX_INFO, plausible, six

DRAWS = 400
TRACES, INFO = plausible(12, 3, chance=4)
COLUMNS = Columns.of(TRACES, INFO)


def decide(rule: Cgr) -> Decisions:
    return decide_rule(rule, COLUMNS, TRACES)


def columns_of(names: Sequence[str], without_gold: Collection[str] = ()) -> Columns:
    """One trace of each question; some have no gold answer."""
    golds = [None if name in without_gold else "16" for name in names]
    pairs = zip(names, golds, strict=True)
    return Columns.of([replace(six()[2], question_id=name, gold=gold) for name, gold in pairs], SIX_INFO)


def test_draws_are_shared_so_that_differences_are_paired() -> None:
    decided = [arrays.at_budget(COLUMNS, COLUMNS.limit), decide(Cgr(threshold=0.9)), decide(Cgr(threshold=0.9))]
    made = by_question(COLUMNS, decided).resampled(DRAWS)
    assert made.right.shape == (3, DRAWS)
    assert (made.right[1] == made.right[2]).all()
    assert (made.traces == len(COLUMNS)).all()
    assert made.thinking.mean(axis=1) == pytest.approx(by_question(COLUMNS, decided).summed().thinking, rel=0.05)
    assert intervals.intervals(made.diff_points)[0] == (0, 0)


def test_draws_in_blocks_are_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = by_question(COLUMNS, [arrays.at_budget(COLUMNS, COLUMNS.limit)])
    monkeypatch.setattr(intervals, "_MAX_CELLS", 7 * len(COLUMNS.questions))
    made = questions.resampled(100)
    assert made.right.shape == (1, 100)
    assert (made.traces == len(COLUMNS)).all()


def test_one_graded_question_is_too_few() -> None:
    with pytest.raises(UsageError, match="fewer than two questions"):
        measure(columns_of(["a", "b"], {"a"}), [])


@given(st.sets(st.text(max_size=4), min_size=4, max_size=40), st.floats(0.2, 0.8))
def test_a_split_is_apart_complete_and_the_same_in_any_order(names: set[str], share: float) -> None:
    ordered = sorted(names)
    tuning, shown = split_questions(columns_of(ordered), share)
    assert (tuning | shown).all()
    if (tuning & shown).any():
        assert min(round(share * len(names)), len(names) - round(share * len(names))) < 2
        return
    assert tuning.sum() == round(share * len(names))
    back, _ = split_questions(columns_of(ordered[::-1]), share)
    assert (back[::-1] == tuning).all()


def test_questions_without_a_gold_answer_do_not_move_the_others() -> None:
    names = [f"q{number}" for number in range(20)]
    graded = np.arange(20) % 3 > 0
    tuning, shown = split_questions(columns_of(names), 0.5)
    ungraded = [name for name, has in zip(names, graded, strict=True) if not has]
    some, others = split_questions(columns_of(names, ungraded), 0.5)
    assert (some == (tuning & graded)).all()
    assert (others == (shown & graded)).all()


def test_questions_that_are_not_in_the_columns_do_not_move_the_others() -> None:
    names = [f"q{number}" for number in range(20)]
    tuning, _ = split_questions(columns_of(names), 0.5)
    some, _ = split_questions(columns_of(names[5:]), 0.5, names)
    assert (some == tuning[5:]).all()
