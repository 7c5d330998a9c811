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
from cgr.lab.score import bounds
from cgr.lab.score import paired as module
from cgr.lab.score.accuracy import split_questions
from cgr.lab.score.bounds import BETTING, EQUAL, EXACT, UNKNOWN, hash_order
from cgr.lab.score.paired import (
    Paired,
    Score,
    Totals,
    by_question,
    measure,
    most_saving,
    most_saving_within,
    question_changes,
)
from cgr.lab.types import Floats
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


# The sums


def totals(right: list[list[int]], thinking: list[list[int]] | None = None, traces: int = 1) -> Totals:
    """(settings, questions); by default each question is thought about for 100 tokens. No probes."""
    good = np.array(right, dtype=np.float64)
    tokens = np.full(good.shape, 100.0) if thinking is None else np.array(thinking, dtype=np.float64)
    return Totals(np.full((1, good.shape[1]), float(traces)), good, traces - good, tokens, np.zeros(good.shape))


def losses(*lost: int, questions: int = 100, thinking: Sequence[int] = ()) -> Totals:
    """The baseline is right on all questions; each setting is wrong on the first so many."""
    right = [[int(place >= count) for place in range(questions)] for count in (0, *lost)]
    tokens = [[count] * questions for count in (100, *(thinking or [50] * len(lost)))]
    return totals(right, tokens)


def test_shares_are_of_the_thinking_of_the_baseline() -> None:
    sums = Totals(*map(np.array, ([8.0], [6.0, 5.0], [2.0, 1.0], [200.0, 100.0], [0.0, 30.0])))
    assert sums.accuracy.tolist() == [0.75, 0.625]
    assert sums.diff_points.tolist() == [0.0, -12.5]
    assert sums.gross.tolist() == [0.0, 0.5]
    assert sums.cost.tolist() == [1.0, 0.65]
    assert sums.net.tolist() == [0.0, 0.35]


@pytest.mark.parametrize(("penalty", "grades"), [(0.0, [0.75, 0.625]), (0.5, [0.625, 0.5625]), (2.0, [0.25, 0.375])])
def test_a_wrong_answer_costs_the_penalty_and_giving_up_costs_nothing(penalty: float, grades: list[float]) -> None:
    sums = Totals(*map(np.array, ([8.0], [6.0, 5.0], [2.0, 1.0], [200.0, 100.0], [0.0, 30.0])))
    assert sums.grade(penalty).tolist() == grades


def test_totals_of_some_settings_or_some_questions() -> None:
    sums = totals([[1, 1, 0], [1, 0, 0], [0, 1, 1]], [[9, 8, 7], [6, 5, 4], [3, 2, 1]])
    some = sums.only([2])
    assert [values.tolist() for values in vars(some).values()] == [
        *([[1, 1, 1]], [[1, 1, 0], [0, 1, 1]], [[0, 0, 1], [1, 0, 0]]),
        *([[9, 8, 7], [3, 2, 1]], [[0, 0, 0], [0, 0, 0]]),
    ]
    few = some.among(np.array([True, False, True]))
    assert [values.tolist() for values in vars(few).values()] == [
        *([[1, 1]], [[1, 0], [0, 1]], [[0, 1], [1, 0]], [[9, 7], [3, 1]], [[0, 0], [0, 0]]),
    ]
    assert [values.tolist() for values in vars(few.summed()).values()] == [[2], [1, 1], [1, 1], [16, 4], [0, 0]]


def half_graded() -> tuple[Columns, Decisions]:
    """The six traces, of which question c has no gold answer, and where a threshold of 0.96 stops them."""
    columns = Columns.of([replace(one, gold=None) if one.question_id == "c" else one for one in six()], SIX_INFO)
    return columns, replace(arrays.first_sure(columns, 0.96), suffix_tokens=np.array([8, 4, 100, 2, 2, 100]))


def test_the_sums_of_questions_with_a_known_answer() -> None:
    columns, decided = half_graded()
    gave_up = np.array([True, True, False, False, False, False])
    sums = by_question(columns, [arrays.at_end(columns), decided, replace(decided, gave_up=gave_up)])
    assert sums.traces.tolist() == [[2, 2]]
    assert sums.right.tolist() == [[1, 1], [2, 1], [1, 1]]
    assert sums.wrong.tolist() == [[1, 1], [0, 1], [0, 0]]
    assert sums.thinking.tolist() == [[5500, 8000], [4000, 5000], [4000, 5000]]
    assert sums.probing.tolist() == [[0, 0], [12, 18], [12, 18]]


# The scores


def test_the_score_of_a_setting_has_the_graded_traces_only() -> None:
    columns, decided = half_graded()
    paired = measure(columns, [decided])
    ends = [100 * end(np.array([[0.5, 0.0]])[:, hash_order("ab")], BETTING)[0] for end in BOUNDS]
    baseline, score = paired.all
    assert baseline == Score(
        *(0.5, (0.5, 0.5), 0.0, (0, 0), 0.0, (0, 0), 0.0, (0, 0), 3375.0, 0.0, 0.0, 0.0, (0, 0), EQUAL),
    )
    assert score.to_dict() == {
        "accuracy": 0.75,
        "ci95_accuracy": (0.5, 1.0),
        "diff_points": 25.0,
        "ci95_diff_points": (0.0, 50.0),
        "gross_share": pytest.approx(4500 / 13500),
        "ci95_gross_share": pytest.approx((1500 / 5500, 3000 / 8000)),
        "net_share": pytest.approx(4470 / 13500),
        "ci95_net_share": pytest.approx((1488 / 5500, 2982 / 8000)),
        "thinking_tokens": 2250.0,
        "probe_tokens": 7.5,
        "suffix_tokens": 4.0,
        "stopped": 1.0,
        "ci95_bound_points": pytest.approx(tuple(ends)),
        "verdict": UNKNOWN,
    }
    assert paired.scores == (score,)
    assert (baseline.equal, score.equal) == (True, False)
    assert paired.names == ("a", "b")


def test_one_graded_question_is_too_few() -> None:
    with pytest.raises(UsageError) as caught:
        measure(columns_of(["a", "b"], {"a"}), [])
    assert caught.value.message == "The run 'six' has fewer than two questions with a known answer."
    assert caught.value.hint == "An interval needs at least two; a useful one needs dozens."
    assert len(measure(columns_of(["a", "b"]), []).all) == 1


# The bounds

BOUNDS = (bounds.lower_changes, bounds.upper_changes)
NAMES = ("one", "two", "three", "four", "five", "six")
UNEVEN = totals([[3, 3, 0, 2, 2, 1], [0, 3, 1, 2, 2, 1], [3, 3, 0, 3, 0, 1]], traces=3)
CHANGES = np.array([[0, 0, 0, 0, 0, 0], [-1, 0, 1 / 3, 0, 0, 0], [0, 0, 0, 1 / 3, -2 / 3, 0]])


def test_changes_are_means_over_the_traces_of_a_question_in_hash_order() -> None:
    order = hash_order(NAMES)
    assert order.tolist() != sorted(order)
    assert question_changes(UNEVEN) == pytest.approx(CHANGES)
    assert question_changes(UNEVEN, NAMES) == pytest.approx(CHANGES[:, order])
    assert Paired.of(UNEVEN, names=NAMES).changes == pytest.approx(CHANGES[:, order])


def test_without_a_change_bounds_have_the_width_of_an_exact_bound() -> None:
    end = 100 * (1 - (0.75 * 0.025) ** (1 / 100))
    paired = Paired.of(losses(0))
    assert paired.lows.tolist() == [0.0, pytest.approx(-end)]
    assert paired.highs.tolist() == [0.0, pytest.approx(end)]
    assert Paired.of(losses(0), only_losses=True).highs.tolist() == [0.0, 0.0]


def test_several_traces_of_a_question_are_bounded_by_betting() -> None:
    paired, ordered = Paired.of(UNEVEN, names=NAMES), CHANGES[1:, hash_order(NAMES)]
    assert paired.lows.tolist() == [0.0, *(100 * bounds.lower_changes(ordered, BETTING)).tolist()]
    assert paired.highs.tolist() == [0.0, *(100 * bounds.upper_changes(ordered, BETTING)).tolist()]


def test_settings_numbered_from_the_baseline_have_the_questions_they_need() -> None:
    unchanged, worse = np.zeros(100), np.array([-1.0] * 10 + [0.0] * 90)
    paired = Paired.of(losses(0, 10))
    assert paired.questions_needed(1) == bounds.questions_needed(unchanged, EXACT)
    assert paired.questions_needed(2) == bounds.questions_needed(worse, EXACT)
    expected = bounds.questions_needed(CHANGES[1, hash_order(NAMES)], BETTING)
    assert Paired.of(UNEVEN, names=NAMES).questions_needed(1) == expected


# Some of the settings


def test_some_settings_have_their_own_sums_decisions_and_bounds() -> None:
    columns, decided = half_graded()
    whole = measure(columns, [replace(decided, right=np.zeros_like(decided.right)), decided])
    lows, highs = whole.lows.tolist(), whole.highs.tolist()
    some = whole.only([2])
    assert [*map(id, some.decided)] == [id(whole.decided[0]), id(decided)]
    assert some.total.right.tolist() == [2, 3]
    assert (some.lows.tolist(), some.highs.tolist()) == ([lows[0], lows[2]], [highs[0], highs[2]])
    assert some.all == (whole.all[0], whole.all[2])


def test_some_settings_need_no_decisions() -> None:
    some = Paired.of(losses(0, 10), draws=20).only([2])
    assert (some.decided, some.total.right.tolist()) == ((), [100, 90])


def test_some_settings_share_the_draws_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []

    def counted(units: int, draws: int) -> list[Floats]:
        made.append((units, draws))
        return [np.ones((draws, units))]

    monkeypatch.setattr(module, "resampled", counted)
    whole = Paired.of(losses(0, 10), draws=7)
    assert whole.only([2]).draws.right.tolist() == [[100] * 7, [90] * 7]
    assert whole.only([1]).draws.right.tolist() == [[100] * 7, [100] * 7]
    assert made == [(100, 7)]


def test_some_settings_use_the_bounds_of_all_if_these_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []

    def counted(changes: Floats, kind: bounds.Kind) -> Floats:
        rows.append(len(changes))
        means: Floats = changes.mean(axis=1)
        return means

    monkeypatch.setattr(bounds, "lower_changes", counted)
    whole = Paired.of(losses(5, 10))
    assert whole.only([2]).lows.tolist() == [0, -10]
    assert rows == [2]
    assert whole.lows.tolist() == [0, -5, -10]
    assert whole.only([2]).lows.tolist() == [0, -10]
    assert rows == [2, 3]


# The best setting


def test_settings_tie_if_the_interval_of_the_difference_holds_0() -> None:
    paired = Paired.of(losses(0, 0, 0, 0, questions=4, thinking=(75, 50, 25, 50)), draws=50)
    assert paired.behind(1) == ((0.25, 0.25), (0.0, 0.0), (-0.25, -0.25), (0.0, 0.0))
    assert [paired.tied_with(place) for place in range(4)] == [(), (3,), (), (1,)]
    assert paired.best_net() == 2


def test_settings_that_save_on_different_questions_tie() -> None:
    sums = totals([[1] * 4] * 4, [[100] * 4, [100, 100, 0, 0], [0, 0, 100, 100], [100] * 4])
    paired = Paired.of(sums, draws=200)
    assert paired.behind(0) == ((0, 0), (-1, 1), (0, 1))
    assert (paired.tied_with(0), paired.tied_with(1)) == ((1, 2), (0, 2))
    assert paired.best_net() == 0  # the first among equals


@pytest.mark.parametrize(
    ("lost", "thinking", "place"),
    [
        ((2, 0, 0), (10, 50, 20), 2),
        ((2, 0, 5), (10, 50, 20), 1),
        ((0, 2), (50, 20), 0),
        ((2, 1), (10, 50), None),  # the smallest loss is 1 point, the margin
        ((5, 3), (10, 50), None),
        ((3, 5), (50, 10), None),
    ],
)
def test_the_best_setting_of_equal_accuracy(lost: tuple[int, ...], thinking: tuple[int, ...], place: int | None) -> None:
    assert Paired.of(losses(*lost, thinking=thinking)).best_equal() == place


@pytest.mark.parametrize(
    ("lows", "net", "expected"),
    [
        ([-0.5, -0.9, -2.0], [0.1, 0.3, 0.9], (1, True)),
        ([-0.5, -0.9, -2.0], [0.4, 0.3, 0.9], (0, True)),
        ([-0.5, -0.5, -2.0], [0.5, 0.5, 0.5], (1, True)),
        ([-0.5, -0.5, -0.5], [0.5, 0.5 - 4e-13, 0.4], (1, True)),  # equal but for rounding
        ([-0.5, -0.5, -0.5], [0.5, 0.5 - 1e-9, 0.4], (0, True)),
        ([-2.0, -1.0], [0.5, 0.2], (1, False)),  # at the margin
        ([-3.0, -2.0, -2.0 - 1e-10, -2.5], [0.9, 0.2, 0.4, 0.8], (2, False)),
        ([-3.0, -2.0, -2.0 - 1e-10, -2.5], [0.9, 0.4, 0.2, 0.8], (1, False)),
        ([-3.0], [-0.5], (0, False)),
    ],
)
def test_the_setting_of_equal_accuracy_that_saves_most(lows: list[float], net: list[float], expected: object) -> None:
    assert most_saving(np.array(lows), np.array(net)) == expected


@pytest.mark.parametrize(
    ("loss", "points", "net", "place"),
    [
        (2.0, [-3.0, -2.0, -1.0, 0.0], [0.9, 0.5, 0.3, 0.1], 1),
        (2.0, [-3.0, -2.0, -1.0, 0.0], [0.9, 0.3, 0.4, 0.1], 2),
        (2.0, [-3.0, -2.0 - 1e-10, 0.0], [0.9, 0.5, 0.1], 1),
        (0.0, [-1.0, 2.0, 1.0], [0.9, 0.5, 0.6], 2),
        (1.0, [-5.0, -3.0, -3.0], [0.9, 0.2, 0.1], 1),  # none: the smallest loss
        (2.0, [0.0, 0.0, 0.0], [0.5, 0.5 - 4e-13, 0.4], 1),  # equal but for rounding
        (2.0, [0.0, 0.0, 0.0], [0.5, 0.5 - 1e-9, 0.4], 0),
        (2.0, [-5.0], [-0.5], 0),
    ],
)
def test_the_setting_within_a_loss_that_saves_most(loss: float, points: list[float], net: list[float], place: int) -> None:
    assert most_saving_within(loss, np.array(points), np.array(net)) == place


# Splits of the questions


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
