from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.errors import UsageError
from cgr.lab.decide.columns import FINAL, GOLD, PAD, Checker, Columns, as_arrays, boxed
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
    with pytest.raises(UsageError) as caught:
        Columns.of([], SIX_INFO)
    assert caught.value.message == "The run 'six' has no traces yet."
    assert caught.value.hint == "Make some with `cgr generate`."
    with pytest.raises(UsageError) as caught:
        Columns.of([six()[0], six()[0]], SIX_INFO)
    assert caught.value.message == "Question 'a' occurs twice with seed 0."
    assert caught.value.hint == "Keep one trace for each of them."


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


def test_on_grid_ignores_padding_and_positions_that_are_not_asked_for() -> None:
    columns = columns_of_six()
    for wanted in ([], [500], [1000, 3000], [PAD, 2000], [0, 1000], [2500]):
        found = columns.on_grid(np.array(wanted, dtype=np.int64))
        assert found.dtype == np.int64
        rows = [[row.index(at) if at in row and at != PAD else -1 for at in wanted] for row in columns.at.tolist()]
        assert found.tolist() == rows
    without = Columns.of([six()[5]], SIX_INFO)
    assert without.on_grid(np.array([1000], dtype=np.int64)).tolist() == [[-1]]


@pytest.mark.parametrize(("at", "due"), [(10, 10), (18, 18), (21, 20), (23, 23), (30, 30), (40, 40)])
def test_a_probe_after_an_appended_text_was_due_inside_it(at: int, due: int) -> None:
    forced = ((18, 3), (28, 2), (38, 2))  # 20 lies inside the first; the others end at 30 and 40
    made = replace(six()[1], probes=(probe(at, "7", (0.5,)),), forced=forced)
    assert Columns.of([made], replace(SIX_INFO, interval=10)).due.tolist() == [[due]]
    assert Columns.of([made], replace(SIX_INFO, interval=0)).due.tolist() == [[at]]


@pytest.mark.parametrize(
    ("interval", "forced", "due"),
    [
        (1, (18, 3), 20),  # every position is a multiple of 1
        (2, (18, 3), 20),
        (9, (18, 3), 21),  # 18 is where the text begins, not inside it
        (0, (18, 3), 21),
        (10, (19, 2), 20),
        (10, (20, 1), 21),
        (10, (18, 4), 21),
    ],
)
def test_a_probe_is_due_at_the_last_multiple_strictly_inside_the_text(
    interval: int, forced: tuple[int, int], due: int
) -> None:
    made = replace(six()[1], probes=(probe(21, "7", (0.5,)),), forced=(forced,))
    assert Columns.of([made], replace(SIX_INFO, interval=interval)).due.tolist() == [[due]]


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
        ("It is 70}.", None),
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


def test_all_fields_of_two_traces() -> None:
    """Choices: `(B)` is a valid and right answer of that format only."""
    asked = (
        replace(probe(1000, "(B)", (0.5, 0.25)), suffix_ids=(1, 2, 3)),
        probe(2000, "A", (0.75,), closed=False, bound=True),
    )
    first = replace(six()[0], gold="B", format="choice", final=replace(six()[0].final, answer="B."), probes=asked)
    second = replace(six()[4], question_id="c", seed=7, gold=None, budget=5000, written="It is \\boxed{588}.")
    columns = Columns.of([first, replace(first, seed=7, written="\\boxed{(b)}", probes=()), second], SIX_INFO)
    expected = {
        "questions": ("a", "c"),
        "seeds": (0, 7),
        "question": [0, 0, 1],
        "seed": [0, 1, 1],
        "graded": [True, True, False],
        "natural": [3500, 3500, 4000],
        "ended": [True, True, False],
        "budget": [4000, 4000, 5000],
        "final_certainty": [0.999, 0.999, 0.5],
        "final_closed": [True, True, False],
        "final_valid": [True, True, False],
        "final_right": [True, True, False],
        "wrote": [False, True, True],
        "written_right": [False, True, False],
        "at": [[1000, 2000, PAD], [PAD, PAD, PAD], [1000, 2000, 3000]],
        "certainty": [[0.25, 0.75, 0], [0, 0, 0], [0.999, 0.6, 0.99]],
        "closed": [[True, False, False], [False, False, False], [False, True, True]],
        "bound": [[False, True, False], [False, False, False], [False, False, False]],
        "right": [[True, False, False], [False, False, False], [False, False, False]],
        "decoded": [[3, 1, 0], [0, 0, 0], [4, 2, 4]],
        "suffix": [[3, 0, 0], [0, 0, 0], [0, 0, 0]],
        "agrees": [[False, False, False], [False, False, False], [False, False, False]],
        "due": [[1000, 2000, 0], [0, 0, 0], [1000, 2000, 3000]],
        "reference": GOLD,
    }
    for name, wanted in expected.items():
        found = getattr(columns, name)
        assert (found.tolist() if isinstance(found, np.ndarray) else found) == wanted, name
    assert columns.limit == 5000
    assert len(columns) == 3
    kinds = {name: getattr(columns, name).dtype for name in expected if isinstance(getattr(columns, name), np.ndarray)}
    floats, counts = (
        ("final_certainty", "certainty"),
        ("question", "seed", "natural", "budget", "at", "decoded", "suffix", "due"),
    )
    for name, kind in kinds.items():
        assert kind == (np.float64 if name in floats else np.int64 if name in counts else np.bool_), name


def test_a_final_answer_is_valid_if_it_closed_and_has_the_format() -> None:
    final = six()[0].final
    finals = [final, replace(final, closed=False), replace(final, answer="seventy"), replace(final, answer="")]
    columns = Columns.of([replace(six()[0], seed=seed, final=one) for seed, one in enumerate(finals)], SIX_INFO)
    assert columns.final_valid.tolist() == [True, False, False, False]
    assert columns.final_right.tolist() == [True, False, False, False]


def test_by_agreement_the_final_answer_is_the_reference() -> None:
    """Also of a trace without a gold answer, and of one whose final answer did not close."""
    columns = Columns.of([replace(six()[0], gold=None), *six()[1:]], SIX_INFO)
    found = columns.by_agreement()
    assert found.graded.dtype == found.final_right.dtype == np.bool_
    assert found.graded.tolist() == found.final_right.tolist() == [True] * 6
    assert found.right.tolist() == columns.agrees.tolist()
    assert columns.agrees.tolist() == [
        [False, True, True],
        [True, False, True],
        [True, False, False],
        [False, False, False],
        [False, False, False],
        [False, False, False],
    ]
    assert (columns.reference, found.reference) == (GOLD, FINAL)
    assert found.at is columns.at


def test_rows_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        as_arrays(Columns, [(0, 1), (0,)])


def test_whole_numbers_and_flags_keep_their_types_as_arrays() -> None:
    found = as_arrays(Columns, [(0, 1, 1, 5), (1, 0, 0, 6)])
    assert [one.dtype for one in found] == [np.int64, np.int64, np.bool_, np.int64]
    assert [one.tolist() for one in found] == [[0, 1], [1, 0], [True, False], [5, 6]]
