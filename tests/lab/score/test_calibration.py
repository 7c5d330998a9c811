from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.lab.score.calibration import Selective, auroc, best, calibration_error, reliability, risk_coverage, selective
from cgr.lab.types import Bools, Floats

ANSWERS = st.lists(st.tuples(st.sampled_from((0.0, 0.1, 0.5, 0.9, 1.0)), st.booleans()), min_size=1, max_size=12)


def arrays(answers: list[tuple[float, bool]]) -> tuple[Floats, Bools]:
    certainty, right = zip(*answers, strict=True)
    return np.array(certainty), np.array(right, dtype=np.bool_)


def numbers(certainty: list[float], right: list[int]) -> tuple[Floats, Bools]:
    return np.array(certainty), np.array(right, dtype=np.bool_)


@pytest.mark.parametrize(
    ("certainty", "right", "area", "excess"),
    [
        ([0.9, 0.1], [0, 1], 0.875, 0.75),
        ([0.9, 0.1], [1, 0], 0.125, 0.0),
        ([0.9, 0.1], [0, 0], 1.0, 0.0),
        ([0.9, 0.1], [1, 1], 0.0, 0.0),
        ([0.5, 0.5], [1, 0], 0.5, 0.375),
        ([0.7], [0], 1.0, 0.0),
    ],
)
def test_areas_that_can_be_computed_by_hand(certainty: list[float], right: list[int], area: float, excess: float) -> None:
    found = selective(*numbers(certainty, right))
    assert found.aurc == pytest.approx(area)
    assert found.e_aurc == pytest.approx(excess)


def test_a_tie_is_one_step() -> None:
    curve = risk_coverage(*numbers([0.9, 0.8, 0.7, 0.6, 0.8], [1, 1, 0, 0, 0]))
    assert curve.coverage.tolist() == [0.2, 0.6, 0.8, 1.0]
    assert curve.risk.tolist() == pytest.approx([0, 1 / 3, 0.5, 0.6])
    assert curve.risk_at(0.5) == pytest.approx(1 / 3)


@given(ANSWERS)
def test_inside_a_tie_the_area_is_the_mean_over_all_orders(answers: list[tuple[float, bool]]) -> None:
    answers = answers[:6]
    certainty, right = arrays(answers)
    areas = []
    for order in itertools.permutations(range(len(answers))):
        nudged = certainty - 1e-9 * np.argsort(order)
        areas.append(risk_coverage(nudged, right).area)
    assert risk_coverage(certainty, right).area == pytest.approx(np.mean(areas))


@given(ANSWERS)
def test_no_order_beats_the_best(answers: list[tuple[float, bool]]) -> None:
    certainty, right = arrays(answers)
    area = risk_coverage(certainty, right).area
    assert -1e-12 <= best(right).area <= area + 1e-12
    assert area <= 1 + 1e-12


@given(ANSWERS)
def test_auroc_is_the_share_of_pairs_in_order(answers: list[tuple[float, bool]]) -> None:
    certainty, right = arrays(answers)
    pairs = [(a > b) + (a == b) / 2 for a in certainty[right] for b in certainty[~right]]
    assert auroc(certainty, right) == (pytest.approx(np.mean(pairs)) if pairs else None)


def test_calibration_by_hand() -> None:
    certainty, right = numbers([0.0, 0.1, 0.15, 0.95, 0.95, 1.0], [0, 0, 1, 1, 1, 0])
    bins = reliability(certainty, right)
    assert [(one.low, one.count) for one in bins] == [(0.0, 2), (0.1, 1), (0.9, 3)]
    assert bins[2].accuracy == pytest.approx(2 / 3)
    assert bins[2].certainty == pytest.approx(2.9 / 3)
    assert calibration_error(bins) == pytest.approx((2 * 0.05 + 0.85 + 3 * 0.3) / 6)


@pytest.mark.parametrize(("right", "error"), [(True, 0.55), (False, 0.45)])
def test_calibration_with_one_class_only(right: bool, error: float) -> None:
    certainty = np.repeat(np.arange(10) / 10, 10)
    bins = reliability(certainty, np.full(100, right), 20)
    assert calibration_error(bins) == pytest.approx(error)


@given(ANSWERS)
def test_every_answer_is_in_one_bin(answers: list[tuple[float, bool]]) -> None:
    bins = reliability(*arrays(answers))
    assert sum(one.count for one in bins) == len(answers)
    assert all(one.low - 1e-12 <= one.certainty <= one.high + 1e-12 for one in bins)
    assert 0 <= calibration_error(bins) <= 1


def test_nothing_has_no_measure() -> None:
    assert selective(np.zeros(0), np.zeros(0, dtype=np.bool_)) == Selective(0, None, None, None, None, None)


def test_the_whole_of_it() -> None:
    found = selective(*numbers([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1]))
    assert found.count == 4
    assert found.accuracy == 0.75
    assert found.auroc == pytest.approx(2 / 3)
    assert found.risk_at_coverage == ((0.5, 0), (0.8, 0.25), (0.9, 0.25), (1.0, 0.25))
