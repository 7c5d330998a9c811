"""What `ProbeArrays` reads of the traces, how often, and what it says is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from cgr.errors import NotRecorded
from cgr.lab.decide.arrays import ProbeArrays, readable, with_aggregate
from cgr.lab.decide.columns import Columns
from cgr.lab.store.recorded import SHADOW, SHADOW_TEXT, RecordedTrace
from cgr.probing import ProbeSpec, ProbeStyle
from cgr.records import Probe
from cgr.rules import Cgr, Deer, PumaVerify
from tests.lab.decide.test_arrays import INFO, changed, three


@dataclass(frozen=True, kw_only=True)
class ByProduct(Cgr):
    style: ClassVar[ProbeStyle] = ProbeStyle(aggregate="product")


@dataclass(frozen=True, kw_only=True)
class ByMean(Cgr):
    style: ClassVar[ProbeStyle] = ProbeStyle(aggregate="mean")


class Reader:
    """Reads these traces and notes whether they were wanted with token ids."""

    def __init__(self, traces: Sequence[RecordedTrace]) -> None:
        self.traces, self.asked = traces, list[bool]()

    def __call__(self, whole: bool) -> Sequence[RecordedTrace]:
        self.asked.append(whole)
        return self.traces


def made_of(traces: Sequence[RecordedTrace]) -> tuple[ProbeArrays, Reader]:
    read = Reader(traces)
    return ProbeArrays(Columns.of(traces, INFO), ProbeSpec(), read), read


def two_probabilities() -> list[RecordedTrace]:
    return changed(three(), 1, 1, probabilities=(0.8, 0.5), certainty=0.5)


def test_the_recorded_certainty_is_taken_as_it_is() -> None:
    probes, read = made_of(two_probabilities())
    assert probes.certainty(Cgr()) is probes.columns.certainty
    assert probes.certainty(Cgr())[1].tolist() == [0.3, 0.5, 0.0, 0.0, 0.0]
    assert read.asked == []


def test_other_aggregates_are_computed_once_each_without_token_ids() -> None:
    probes, read = made_of(two_probabilities())
    for _ in range(2):
        assert probes.certainty(ByProduct())[1, :2].tolist() == [0.3, 0.4]
        assert probes.certainty(ByMean())[1, :2].tolist() == [0.3, 0.65]
    assert np.isnan(probes.certainty(ByMean())[1, 2:]).all()
    assert read.asked == [False, False]
    assert all(one is False for one in read.asked)


def test_levels_are_computed_once_for_all_values_of_the_main_parameter() -> None:
    probes, read = made_of(three())
    made = probes.present.copy()
    made[0, 1:] = False
    levels = probes.levels(PumaVerify(threshold=0.5, drop=0.5), made)
    assert np.isnan(levels[0, 1:]).all()
    assert not np.isnan(levels[made]).any()
    assert probes.levels(PumaVerify(threshold=0.9, drop=0.5), made) is levels
    other = probes.levels(PumaVerify(threshold=0.5, drop=0.25), made)
    assert other is not levels
    assert read.asked == [False, False]
    assert all(one is False for one in read.asked)


def test_levels_of_a_rule_that_reads_text_need_the_tokens_of_probes() -> None:
    probes, read = made_of(three())
    assert np.nan_to_num(probes.levels(Deer(average="avg2"), probes.present)).tolist() == [[0.0] * 5] * 3
    assert probes.levels(Deer(average="avg1"), probes.present)[1, :2].tolist() == [0.3, 0.8]
    assert read.asked == [True, False]
    assert all(isinstance(one, bool) for one in read.asked)


@pytest.mark.parametrize("read", [three()[:2], [*three(), three()[0]]], ids=["fewer", "more"])
def test_other_traces_than_those_of_the_columns_are_refused(read: list[RecordedTrace]) -> None:
    probes = ProbeArrays(Columns.of(three(), INFO), ProbeSpec(), lambda whole: read)
    with pytest.raises(ValueError, match="zip"):
        probes.certainty(ByMean())


def test_a_result_is_computed_once_for_each_key() -> None:
    probes, _ = made_of(three())
    computed: list[int] = []

    def compute() -> int:
        computed.append(1)
        return len(computed)

    assert [probes.kept(key, compute) for key in ("a", "b", "a", "b")] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("", "Make the run with them: cgr generate --logprobs ..."),
        (SHADOW, "A recording of `cgr serve --shadow` never has them; `cgr generate --logprobs` records them."),
        (SHADOW_TEXT, "A recording of `cgr serve --shadow` never has them; `cgr generate --logprobs` records them."),
    ],
)
def test_log_probabilities_of_the_thinking_must_be_there_for_every_token(source: str, hint: str) -> None:
    known = [replace(one, tops=(-2.0,) * one.thinking_tokens) for one in three()]
    probes, read = made_of(known)
    assert probes.tops == [one.tops for one in known]
    assert read.asked == [True]
    short = [*known[:2], replace(known[2], tops=known[2].tops[1:])]
    with pytest.raises(NotRecorded) as caught:
        _ = ProbeArrays(Columns.of(short, replace(INFO, source=source)), ProbeSpec(), lambda whole: short).tops
    assert caught.value.message == "The log-probabilities of the thinking were not recorded, and the rule needs them."
    assert caught.value.hint == hint


def test_the_first_trace_of_each_question_is_found() -> None:
    assert made_of(three())[0].first_traces == [0, 2]


@pytest.mark.parametrize(
    ("probe", "probabilities"),
    [
        (Probe(10, "7", 0.5, True), (0.5,)),
        (Probe(10, "7", 0.5, True, (0.9, 0.5)), (0.9, 0.5)),
        (Probe(10, "7", 0.0, True), ()),
    ],
)
def test_the_certainty_of_a_probe_without_probabilities_is_its_only_probability(
    probe: Probe, probabilities: tuple[float, ...]
) -> None:
    assert readable(probe) == replace(probe, probabilities=probabilities)


def test_columns_under_another_aggregate_change_probes_and_final_answers() -> None:
    """A final answer without probabilities keeps its certainty; padding stays at 0."""
    traces = two_probabilities()
    traces[0] = replace(traces[0], final=replace(traces[0].final, probabilities=(0.5, 0.25), certainty=0.25))
    columns = Columns.of(traces, INFO)
    found = with_aggregate(columns, traces, "product")
    assert found.final_certainty.tolist() == [0.125, 0.4, 0.7]
    assert found.final_certainty.dtype == found.certainty.dtype == np.float64
    assert found.certainty[0].tolist() == columns.certainty[0].tolist()
    assert found.certainty[1].tolist() == [0.3, 0.4, 0.0, 0.0, 0.0]
    assert with_aggregate(columns, traces, "mean").final_certainty.tolist() == [0.375, 0.4, 0.7]
    assert found.at is columns.at
