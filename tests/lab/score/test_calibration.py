from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.lab.decide.columns import Columns
from cgr.lab.score import bootstrap
from cgr.lab.score.calibration import (
    Bin,
    ProbeCalibration,
    Selective,
    auroc,
    auroc_of,
    best,
    calibration_error,
    effective,
    error_of,
    probe_calibration,
    reliability,
    risk_coverage,
    selective,
)
from cgr.lab.types import Bools, Floats
from tests.lab.runs import SIX_INFO, six

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
    found = selective(*numbers([0.875, 0.8125, 0.5, 0.5], [1, 1, 0, 1]))
    assert found.to_dict() == {
        "count": 4,
        "accuracy": 0.75,
        "aurc": pytest.approx((2 + 5) / 96),
        "e_aurc": pytest.approx((2 + 5 - 3) / 96),
        "ece": (0.125 + 0.1875) / 4,
        "auroc": pytest.approx(5 / 6),
        "risk_at_coverage": ((0.5, 0), (0.8, 0.25), (0.9, 0.25), (1.0, 0.25)),
        "reliability": (Bin(0.4, 0.5, 2, 0.5, 0.5).to_dict(), Bin(0.8, 0.9, 2, 0.84375, 1.0).to_dict()),
    }


@pytest.mark.parametrize(
    ("coverage", "risk"), [(0.0, 0), (0.2, 0), (0.21, 1 / 3), (0.6, 1 / 3), (0.8, 0.5), (0.81, 0.6), (1.0, 0.6)]
)
def test_the_risk_at_a_coverage_is_that_of_the_smallest_set_that_covers_as_much(coverage: float, risk: float) -> None:
    curve = risk_coverage(*numbers([0.9, 0.8, 0.7, 0.6, 0.8], [1, 1, 0, 0, 0]))
    assert curve.risk_at(coverage) == pytest.approx(risk)


def test_the_best_order_has_all_right_answers_before_all_wrong_ones() -> None:
    curve = best(np.array([False, True, False, True, True]))
    assert curve.taken.tolist() == [1, 2, 3, 4, 5]
    assert curve.wrong.tolist() == [0, 0, 0, 1, 2]


def test_an_answer_that_did_not_close_has_certainty_0() -> None:
    closed = np.array([True, False, True])
    assert effective(np.array([0.9, 0.8, 0.0]), closed).tolist() == [0.9, 0.0, 0.0]


def test_a_certainty_that_rounding_put_above_1_is_in_the_last_bin() -> None:
    certainty = 1 + 2**-52
    assert reliability(*numbers([certainty], [1])) == (Bin(0.9, 1.0, 1, certainty, 1.0),)


# The probes of a run


def graded_probes() -> Columns:
    """The six traces; question c has no gold answer, and the third probe of the first trace is only a bound."""
    first, *others = six()
    bound = replace(first, probes=(*first.probes[:2], replace(first.probes[2], bound=True)))
    traces = [replace(one, gold=None) if one.question_id == "c" else one for one in (bound, *others)]
    return Columns.of(traces, SIX_INFO)


# Of the probes that count, in the order of the traces; that which did not close has certainty 0.
SURE, RIGHT = numbers([0.41, 0.985, 0.2, 0.975, 0.9, 0.3, 0.962, 0, 0.6, 0.99], [0, 1, 1, 0, 1, 1, 1, 0, 0, 1])
QUESTION = np.array([0, 0, 1, 1, 1, 0, 0, 1, 1, 1])


def test_probes_that_are_graded_and_decoded_completely_are_measured() -> None:
    area, error = auroc_of(SURE, RIGHT, QUESTION, 3), error_of(SURE, RIGHT, QUESTION, 3)
    assert probe_calibration(graded_probes()).to_dict() == {
        "probes": 10,
        "closed": 0.9,
        "auroc": pytest.approx(16 / 24),
        "ci95_auroc": pytest.approx(bootstrap.of_each(3, area)[0]),
        "ece": pytest.approx((0.41 + 0.912 + 0.8 + 0.1 + 0.7 + 0 + 0.6) / 10),
        "ci95_ece": pytest.approx(bootstrap.of_each(3, error)[0]),
    }


def test_another_certainty_takes_the_place_of_the_recorded_one() -> None:
    columns = graded_probes()
    found = probe_calibration(columns, np.where(columns.right, 0.75, 0.25))
    assert (found.probes, found.auroc, found.ci95_auroc) == (10, 1.0, (0.5, 1.0))
    assert found.ece == pytest.approx((9 * 0.25 + 0) / 10)


def test_probes_that_are_all_right_have_an_error_but_no_auroc() -> None:
    columns = graded_probes()
    found = probe_calibration(replace(columns, right=columns.present))
    assert (found.probes, found.auroc, found.ci95_auroc) == (10, None, None)
    assert found.ece == pytest.approx(1 - SURE.mean())
    assert found.ci95_ece is not None
    assert found.ci95_ece[0] < 1 - SURE.mean() < found.ci95_ece[1]


@pytest.mark.parametrize("change", [{"gold": None}, {"probes": ()}])
def test_without_a_graded_probe_there_is_nothing_to_measure(change: dict[str, Any]) -> None:
    columns = Columns.of([replace(one, **change) for one in six()], SIX_INFO)
    assert probe_calibration(columns) == ProbeCalibration(0, 0.0, None, None, None, None)


COUNTS = st.lists(st.integers(0, 2), min_size=4, max_size=4)


@given(
    st.lists(
        st.tuples(st.sampled_from((0.0, 0.1, 0.5, 0.9, 1.0)), st.booleans(), st.integers(0, 3)), min_size=1, max_size=12
    ),
    st.lists(COUNTS, min_size=2, max_size=3),
)
def test_the_measures_of_a_draw_are_those_of_its_answers(
    answers: list[tuple[float, bool, int]], draws: list[list[int]]
) -> None:
    sure, right = arrays([(certainty, good) for certainty, good, _ in answers])
    question = np.array([number for _, _, number in answers])
    areas, errors = [], []
    for counts in np.array(draws):
        drawn = np.repeat(sure, counts[question]), np.repeat(right, counts[question])
        area = auroc(*drawn)
        areas.append([0.5 if area is None else pytest.approx(area)])
        errors.append([pytest.approx(calibration_error(reliability(*drawn))) if len(drawn[0]) else 0.0])
    units = np.array(draws, dtype=np.float64)
    assert auroc_of(sure, right, question, 4)(units).tolist() == areas
    assert error_of(sure, right, question, 4)(units).tolist() == errors


def test_a_draw_with_one_pair_or_one_answer() -> None:
    (sure, right), question = numbers([0.75, 0.25], [1, 0]), np.array([0, 1])
    draws = np.array([[1.0, 1.0], [2.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert auroc_of(sure, right, question, 2)(draws).tolist() == [[1.0], [0.5], [0.5], [0.5]]
    assert error_of(sure, right, question, 2)(draws).tolist() == [[0.25], [0.25], [0.25], [0.0]]
