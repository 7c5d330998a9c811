from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.errors import CgrError, NotRecorded, UnknownName
from cgr.lab.decide import replay as decisions
from cgr.lab.decide.arrays import Decisions, at_budget, first_sure, first_true
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import decide, deciding, replay, replayed
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.probing import ProbeSpec
from cgr.reason import Abstention
from cgr.records import Ended
from cgr.rules import GO_ON, STOP, Action, Cgr, FixedBudget, NoThinking, Rule, Seen, base, next_multiple, rule
from tests.lab.runs import SIX_INFO, probe, six, trace

FIELDS = ("at", "sure", "certainty", "closed", "right", "probe_tokens", "suffix_tokens")
BUDGET, INTERVAL = 60, 10
INFO = RunInfo("made", "none", "none", BUDGET, INTERVAL)
LEVELS = (0.0, 0.3, 0.5, 0.9, 0.99, 1.0)


def assert_same(one: Decisions, other: Decisions) -> None:
    for name in FIELDS:
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name


def or_none(form: Callable[[], Decisions]) -> Decisions | None:
    try:
        return form()
    except NotRecorded:
        return None


@st.composite
def recorded(draw: st.DrawFn, seed: int, *, holes: bool = False) -> RecordedTrace:
    length = draw(st.integers(1, BUDGET))
    ended: Ended = "budget" if length == BUDGET else "end_of_thinking"
    answers, levels = st.sampled_from(("7", "8", "x", "")), st.sampled_from(LEVELS)
    probes = []
    for at in range(INTERVAL, min(length, BUDGET - 1) + 1, INTERVAL):
        if holes and draw(st.integers(0, 5)) == 0:
            continue
        closed = draw(st.booleans())
        bound = holes and not closed and draw(st.booleans())
        chances = draw(st.lists(levels, max_size=3))
        made = probe(at, draw(answers), chances, closed=closed, bound=bound)
        probes.append(replace(made, suffix_ids=(1, 2)))
    final = replace(probe(length, draw(answers), draw(st.lists(levels, max_size=3))), closed=draw(st.booleans()))
    return RecordedTrace("q", seed, "7", length, ended, BUDGET, final, tuple(probes))


@st.composite
def runs(draw: st.DrawFn, *, holes: bool = False) -> list[RecordedTrace]:
    return [draw(recorded(seed, holes=holes)) for seed in range(draw(st.integers(1, 4)))]


@given(runs(), st.sampled_from(LEVELS), st.sampled_from((INTERVAL, 2 * INTERVAL, 7 * INTERVAL)))
def test_cgr_over_arrays_is_the_loop(traces: list[RecordedTrace], threshold: float, interval: int) -> None:
    wanted = Cgr(threshold=threshold, interval=interval)
    assert_same(decide(wanted, Columns.of(traces, INFO)), replayed(wanted, traces))


@given(runs(holes=True), st.sampled_from(LEVELS))
def test_what_a_recording_cannot_decide_is_said_by_both(traces: list[RecordedTrace], threshold: float) -> None:
    wanted = Cgr(threshold=threshold, interval=INTERVAL)
    fast = or_none(lambda: decide(wanted, Columns.of(traces, INFO)))
    slow = or_none(lambda: replayed(wanted, traces))
    assert (fast is None) == (slow is None)
    if fast and slow:
        assert_same(fast, slow)


@given(runs(), st.sampled_from(LEVELS))
def test_all_that_was_recorded_is_the_loop_on_a_whole_grid(traces: list[RecordedTrace], threshold: float) -> None:
    columns = Columns.of(traces, INFO)
    assert_same(first_sure(columns, threshold), replayed(Cgr(threshold=threshold, interval=INTERVAL), traces))
    assert_same(deciding(columns)(threshold), first_sure(columns, threshold))


@given(runs(), st.integers(1, BUDGET // INTERVAL))
def test_a_smaller_budget_is_the_loop_with_that_budget(traces: list[RecordedTrace], step: int) -> None:
    found = at_budget(Columns.of(traces, INFO), step * INTERVAL)
    for row, one in enumerate(traces):
        loop = replay(FixedBudget(), one, budget=step * INTERVAL)
        assert found.at[row] == loop.thinking_tokens
        assert found.certainty[row] == loop.certainty
        assert found.right[row] == (loop.closed and loop.answer == "7")
    assert not found.sure.any()
    assert not found.probe_tokens.any()


def test_the_six_traces_at_four_thresholds() -> None:
    columns = Columns.of(six(), SIX_INFO)
    stops = {theta: first_sure(columns, theta).at.tolist() for theta in (0.96, 0.97, 0.98, 0.99)}
    assert stops == {
        0.96: [2000, 2000, 1000, 2000, 3000, 900],
        0.97: [2000, 2000, 1800, 2000, 3000, 900],
        0.98: [2000, 4000, 1800, 2000, 3000, 900],
        0.99: [3000, 4000, 1800, 2000, 3000, 900],
    }
    assert first_sure(columns, 0.97).sure.tolist() == [True, True, False, False, True, False]


def test_a_probe_between_the_steps_stops_too_but_not_a_rule_that_never_asks_there() -> None:
    one = trace("q", 0, "7", 35, "end_of_thinking", ("8", 0.2),
                [(at, "7", (0.99 if at == 15 else 0.1,), True) for at in (10, 15, 20, 30)], budget=BUDGET)  # fmt: skip
    columns = Columns.of([one], INFO)
    assert first_sure(columns, 0.9).at.tolist() == [15]
    assert decide(Cgr(threshold=0.9, interval=10), columns).at.tolist() == [35]
    with pytest.raises(NotRecorded, match="a probe at token 25 was not recorded"):
        decide(Cgr(threshold=0.9, interval=25), columns)


def test_a_run_without_probes_ends_as_the_baseline() -> None:
    columns = Columns.of([trace("q", 0, "7", 5, "end_of_thinking", ("7", 1.0), budget=BUDGET)], INFO)
    assert_same(first_sure(columns, 0.5), decide(FixedBudget(), columns))
    assert first_sure(columns, 0.5).fired == 0


def test_the_baseline_at_a_budget_that_was_not_probed_is_not_recorded() -> None:
    with pytest.raises(NotRecorded, match="a probe at token 1500"):
        at_budget(Columns.of(six(), SIX_INFO), 1500)


def test_no_thinking_needs_its_own_probe() -> None:
    with pytest.raises(NotRecorded, match="a probe at token 0 was not recorded"):
        deciding(Columns.of(six(), SIX_INFO), "no-thinking", six())(0.9)
    asked = [replace(one, probes=(probe(0, "70", (0.5,)), *one.probes)) for one in six()]
    decided = decide(NoThinking(), Columns.of(asked, SIX_INFO), asked)
    assert decided.at.tolist() == [0] * 6
    assert decided.right.tolist() == [True, False, False, True, False, False]


@pytest.fixture
def twice() -> Iterator[str]:
    """Somebody's own rule: it stops when the same answer came twice in a row."""

    @rule("twice")
    @dataclass(frozen=True, kw_only=True)
    class Twice(Rule):
        """Stop when two answers in a row are equal."""

        interval: int = 1000

        def next_probe(self, seen: Seen) -> int | None:
            return next_multiple(seen.at, self.interval)

        def on_probe(self, seen: Seen) -> Action:
            answers = [one.answer for one in seen.probes[-2:]]
            return STOP if len(answers) == 2 and answers[0] == answers[1] else GO_ON

    yield "twice"
    del base._rules["twice"]


def test_a_rule_of_ones_own_is_replayed_by_the_loop(twice: str) -> None:
    columns = Columns.of(six(), SIX_INFO)
    decide_twice = deciding(columns, twice, six())
    decided = decide_twice(0.96)
    assert decided.at.tolist() == [3000, 4000, 1800, 2000, 4000, 900]
    assert decided.sure.tolist() == [True, False, False, True, False, False]
    assert decide_twice(0.99) is decided


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(UnknownName, match="no rule called 'crg'"):
        deciding(Columns.of(six(), SIX_INFO), "crg")


def test_replay_abstains_as_it_is_told() -> None:
    one = six()[2]
    quiet = Abstention("abstain", "abstain", 0.98)
    assert replay(Cgr(threshold=0.98), one, abstention=quiet).answer is None
    assert replay(Cgr(threshold=0.97), one, abstention=replace(quiet, threshold=0.97)).answer == "16"


def test_other_aggregates_reread_the_probabilities() -> None:
    one = six()[0]
    assert replay(Cgr(threshold=0.99), one).thinking_tokens == 3000
    assert replay(Cgr(threshold=0.6), one, ProbeSpec(aggregate="mean")).thinking_tokens == 1000


def test_a_replay_never_waits() -> None:
    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(CgrError, match="waited"):
        decisions._run_without_loop(waits())


def test_first_true_of_nothing() -> None:
    assert first_true(np.zeros((2, 0), dtype=np.bool_)).tolist() == [0, 0]
