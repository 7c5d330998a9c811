from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.errors import UsageError
from cgr.lab.decide.columns import PAD, Checker, Columns, boxed
from tests.lab.runs import SIX_INFO, probe, six, trace


def columns_of_six() -> Columns:
    return Columns.of(six(), SIX_INFO)


def test_one_row_a_trace_and_one_column_a_probe() -> None:
    columns = columns_of_six()
    assert columns.at.tolist() == [
        [1000, 2000, 3000],
        [1000, 2000, 3000],
        [1000, PAD, PAD],
        [1000, 2000, PAD],
        [1000, 2000, 3000],
        [PAD, PAD, PAD],
    ]
    assert columns.questions == ("a", "b", "c")
    assert columns.seeds == (0, 1)
    assert columns.question.tolist() == [0, 1, 2, 0, 1, 2]
    assert columns.seed.tolist() == [0, 0, 0, 1, 1, 1]
    assert columns.natural.tolist() == [3500, 4000, 1800, 2000, 4000, 900]
    assert columns.steps.tolist() == [1000, 2000, 3000]
    assert columns.limit == 4000


def test_padding_is_never_sure_and_never_right() -> None:
    columns = columns_of_six()
    padding = ~columns.present
    for array in (columns.closed, columns.right, columns.bound, columns.certainty, columns.decoded):
        assert not array[padding].any()


def test_right_means_equal_to_the_gold_and_closed() -> None:
    columns = columns_of_six()
    assert columns.right.tolist()[0] == [False, True, True]
    assert columns.final_right.tolist() == [True, True, True, False, False, True]
    assert columns.final_valid.tolist() == [True, True, True, True, False, True]
    unclosed = trace("a", 0, "7", 500, "end_of_thinking", ("7", 0.9), [(100, "7", (0.9,), False)], closed=False)
    alone = Columns.of([unclosed], SIX_INFO)
    assert not alone.right.any()
    assert not alone.final_right.any()


def test_a_question_without_gold_is_not_graded() -> None:
    columns = Columns.of([trace("a", 0, None, 900, "end_of_thinking", ("7", 0.9)), *six()[1:]], SIX_INFO)
    assert columns.graded.tolist() == [False, True, True, True, True, True]
    assert not columns.final_right[0]


def test_probes_come_in_order_and_only_those_inside_the_thinking() -> None:
    probes = tuple(probe(at, "7", (0.5,)) for at in (3000, 0, 1000, 4000, 2000))
    columns = Columns.of([replace(six()[1], probes=probes)], SIX_INFO)
    assert columns.at.tolist() == [[1000, 2000, 3000]]


def test_a_longer_trace_than_its_budget_counts_up_to_it() -> None:
    assert Columns.of([replace(six()[1], thinking_tokens=4321)], SIX_INFO).natural.tolist() == [4000]


def test_nothing_and_the_same_twice_are_refused() -> None:
    with pytest.raises(UsageError, match="no traces"):
        Columns.of([], SIX_INFO)
    with pytest.raises(UsageError, match="'a' occurs twice with seed 0"):
        Columns.of([six()[0], six()[0]], SIX_INFO)


def test_a_run_without_a_grid_is_shown_in_thirty_two_steps() -> None:
    columns = Columns.of(six(), replace(SIX_INFO, interval=0))
    assert columns.steps[0] == 125
    assert len(columns.steps) == 31


@given(st.lists(st.sets(st.integers(1, 39)), min_size=1, max_size=5), st.sets(st.integers(1, 60)))
def test_on_grid_finds_the_probe_that_was_made_exactly_there(places: list[set[int]], wanted: set[int]) -> None:
    traces = [
        trace("q", seed, "7", 40, "budget", ("7", 1.0), [(at, "7", (0.5,), True) for at in sorted(row)], budget=40)
        for seed, row in enumerate(places)
    ]
    found = Columns.of(traces, SIX_INFO).on_grid(np.array(sorted(wanted), dtype=np.int64))
    for row, made in enumerate(places):
        for column, at in enumerate(sorted(wanted)):
            assert found[row, column] == (sorted(made).index(at) if at in made else -1)


@pytest.mark.parametrize(("at", "due"), [(10, 10), (18, 18), (21, 20), (23, 23), (30, 30), (40, 40)])
def test_a_probe_after_an_appended_text_was_due_inside_it(at: int, due: int) -> None:
    forced = ((18, 3), (28, 2), (38, 2))  # 20 lies inside the first; the others end at 30 and 40
    made = replace(six()[1], probes=(probe(at, "7", (0.5,)),), forced=forced)
    assert Columns.of([made], replace(SIX_INFO, interval=10)).due.tolist() == [[due]]
    assert Columns.of([made], replace(SIX_INFO, interval=0)).due.tolist() == [[at]]


def test_each_answer_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def is_right(answer: str, gold: str, format: str) -> bool:
        asked.append(answer)
        return answer == gold

    monkeypatch.setattr("cgr.lab.decide.columns.is_right", is_right)
    checker = Checker()
    assert [checker.right("7", True, "7", "integer") for _ in range(3)] == [True] * 3
    assert asked == ["7"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("So it is \\boxed{70}.", "70"),
        ("First \\boxed{1}, no: \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("It is \\boxed{7", None),
        ("It is 70.", None),
        ("", None),
    ],
)
def test_what_a_model_wrote_by_itself_is_in_its_last_box(text: str, found: str | None) -> None:
    assert boxed(text) == found


def test_what_a_model_wrote_is_kept_apart() -> None:
    columns = Columns.of([replace(six()[3], written="So \\boxed{70}."), six()[4]], SIX_INFO)
    assert columns.wrote.tolist() == [True, False]
    assert columns.written_right.tolist() == [True, False]
    assert columns.final_right.tolist() == [False, False]
