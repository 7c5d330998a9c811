"""The driver: the loop on an engine. Short cuts, events, overlap, replay, and what is said when something is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.drive.driver import Driver, Outcome
from cgr.drive.events import Decided, Event, Probed, Thinking
from cgr.engines.base import Answered, Capabilities, Done, Sampling
from cgr.engines.replay import ReplayEngine
from cgr.engines.scripted import Answers, ScriptedEngine, ScriptedSession
from cgr.errors import EngineError, MissingCapability, NotRecorded
from cgr.reason import Abstention
from cgr.records import Probe, Trace
from cgr.rules import BudgetForcing, Cgr, CgrForced, Deer, FixedBudget, Rule
from tests.support import SURE, OnlyWatches, run, scripted, spec, story, sure_from

EIGHT = "a b c d e f g h"
RULE = Cgr(threshold=0.9, interval=2)
LOW_THEN_HIGH = (("4", 0.5), ("2", 0.99), ("}", 0.99))


def always(pieces: Sequence[tuple[str, float]]) -> Answers:
    return lambda at, suffix: pieces


async def first_probe(**options: Any) -> Probe:
    outcome = await run(scripted(EIGHT, always(LOW_THEN_HIGH)), RULE, 4, **options)
    return outcome.decision.probes[0]


@pytest.mark.parametrize("aggregate", ["min", "product"])
async def test_a_low_token_cuts_the_probe(aggregate: str) -> None:
    probe = await first_probe(spec=spec(aggregate=aggregate))
    assert (probe.bound, probe.closed, probe.answer, probe.decoded) == (True, False, "4", 1)
    assert probe.certainty == pytest.approx(0.5)


@pytest.mark.parametrize("aggregate", ["mean", "geometric-mean"])
async def test_where_certainty_may_rise_nothing_is_cut(aggregate: str) -> None:
    probe = await first_probe(spec=spec(aggregate=aggregate))
    assert (probe.bound, probe.closed, probe.answer, probe.decoded) == (False, True, "42", 3)


@pytest.mark.parametrize("aggregate", ["min", "product", "mean", "geometric-mean"])
async def test_full_decodes_whole_answers(aggregate: str) -> None:
    probe = await first_probe(full=True, spec=spec(aggregate=aggregate))
    assert (probe.bound, probe.closed, probe.answer, probe.decoded) == (False, True, "42", 3)


async def test_the_final_answer_is_never_cut() -> None:
    decision = (await run(scripted(EIGHT, always(LOW_THEN_HIGH)), RULE, 4)).decision
    assert decision.final is not None
    assert (decision.final.bound, decision.final.answer, decision.answer) == (False, "42", "42")


pieces = st.lists(
    st.tuples(st.sampled_from(["1", "2", "{", "}", " ", "3}", "}$"]), st.floats(0.01, 1)), min_size=4, max_size=4
)


@given(st.lists(pieces, min_size=4, max_size=4), st.floats(0, 1), st.sampled_from(["min", "product", "mean"]))
async def test_the_short_cut_is_exact(script: list[list[tuple[str, float]]], threshold: float, aggregate: str) -> None:
    """Cut or full, the decision is the same; and a cut certainty is an upper bound of the full one."""
    rule, probing = Cgr(threshold=threshold, interval=2), spec(aggregate=aggregate)
    cut = (await run(scripted(EIGHT, lambda at, suffix: script[at // 2 - 1]), rule, 8, spec=probing)).decision
    whole = (await run(scripted(EIGHT, lambda at, suffix: script[at // 2 - 1]), rule, 8, spec=probing, full=True)).decision
    assert (cut.stop_cause, cut.answer, cut.certainty, cut.thinking_tokens) == (
        whole.stop_cause,
        whole.answer,
        whole.certainty,
        whole.thinking_tokens,
    )
    for short, long in zip(cut.probes, whole.probes, strict=True):
        assert short.certainty >= long.certainty or not short.bound
        assert (short.answer, short.certainty, short.closed) == (long.answer, long.certainty, long.closed) or short.bound


async def test_a_right_guess_is_verified_in_one_pass() -> None:
    """The last answer is offered as a guess; the result is that of decoding it token by token."""
    sure = (("4", 0.8), ("2", 0.85), ("}", 0.99))
    engine = scripted(EIGHT, always(sure))
    decision = (await run(engine, RULE, 6, full=True)).decision
    assert len(decision.probes) == 2
    assert engine.passes == 3 + 1 + 1  # the first probe token by token, the second and the final answer in one
    assert [replace(probe, at=0, cached=0) for probe in decision.probes] == [
        replace(decision.probes[0], at=0, cached=0) for _ in decision.probes
    ]


async def test_a_wrong_guess_costs_nothing_but_passes() -> None:
    answers = {2: (("4", 0.8), ("2", 0.8), ("}", 0.9)), 4: (("4", 0.8), ("7", 0.8), ("}", 0.9))}
    engine = scripted(EIGHT, lambda at, suffix: answers.get(at, answers[4]))
    decision = (await run(engine, RULE, 6, full=True)).decision
    assert [probe.answer for probe in decision.probes] == ["42", "47"]
    assert engine.passes == 3 + 2 + 1


async def test_events_tell_the_whole_story() -> None:
    events: list[Event] = []
    outcome = await run(scripted("a b </think> c d e"), CgrForced(threshold=0.9, interval=4), 6, on_event=events.append)
    thinking = [event for event in events if isinstance(event, Thinking)]
    assert " ".join(event.text for event in thinking).split() == outcome.thinking.split()
    assert [event.text for event in thinking if event.forced] == ["\nWait"]
    assert tuple(event.probe for event in events if isinstance(event, Probed)) == outcome.decision.probes
    assert events[-1] == Decided(outcome.decision)


async def test_events_tell_only_what_fits_of_a_wait() -> None:
    events: list[Event] = []
    outcome = await run(scripted("a b c </think> d"), BudgetForcing(), 4, on_event=events.append)
    assert [event.text.strip(" ") for event in events if isinstance(event, Thinking)] == ["a b c", "\n"]
    assert outcome.thinking.endswith("\n ")


async def test_watching_changes_nothing() -> None:
    events: list[Event] = []
    watched = await run(scripted(EIGHT, sure_from(4)), RULE, 8, on_event=events.append)
    assert watched == await run(scripted(EIGHT, sure_from(4)), RULE, 8)


async def test_tokens_read_past_a_mark_are_wasted() -> None:
    """A mark is certain only once what follows it was read. After a stop at the mark, that was read for nothing."""
    engine = scripted("a b Wait, c d e f", lambda at, suffix: (("{", 0.999), *SURE))
    outcome = await run(engine, Deer(), 7)
    assert (outcome.decision.stop_cause, outcome.decision.thinking_tokens) == ("certainty", 2)
    read = sum(int(entry.split()[1]) for entry in engine.log if entry.startswith("think"))
    assert read > 2
    assert outcome.wasted_tokens == read - 2


async def test_tokens_thought_past_a_stop_are_wasted() -> None:
    outcome = await run(scripted(EIGHT, sure_from(4)), RULE, 8, overlap=True)
    assert outcome.decision.thinking_tokens == len(outcome.ids) == 4
    assert outcome.wasted_tokens == 2


class Breaks(ScriptedSession):
    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), **more: Any
    ) -> Answered:
        raise EngineError("It broke.", "Mend it.")

    async def close(self) -> None:
        self.engine.log.append("close")


@dataclass(frozen=True, kw_only=True)
class NeedsEntropy(FixedBudget):
    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})


@pytest.mark.parametrize("overlap", [False, True])
async def test_a_session_is_closed_when_its_engine_fails(overlap: bool) -> None:
    engine = scripted(EIGHT)
    driver = Driver(engine, Breaks(engine), spec(), overlap=overlap)
    with pytest.raises(EngineError, match="It broke"):
        await driver.run(RULE, 8, Abstention())
    assert engine.log[-1] == "close"


async def test_what_a_rule_needs_is_checked_before_anything_is_computed() -> None:
    engine = scripted(EIGHT)
    with pytest.raises(MissingCapability, match="needs 'entropy', which scripted does not give"):
        await Driver(engine, Breaks(engine), spec()).run(NeedsEntropy(), 8, Abstention())
    assert engine.log == ["close"]


@pytest.mark.parametrize(
    ("rule", "capabilities", "missing"),
    [
        (RULE, Capabilities(logprobs="none"), "logprobs"),
        (RULE, Capabilities(logprobs="top-k"), None),
        (BudgetForcing(forcing="ban"), Capabilities(), "ban"),
        (BudgetForcing(forcing="ban"), Capabilities(ban=True), None),
        (BudgetForcing(), Capabilities(), None),
        (FixedBudget(), Capabilities(), None),
    ],
)
async def test_needs(rule: Rule, capabilities: Capabilities, missing: str | None) -> None:
    engine = scripted(EIGHT)
    engine.capabilities = capabilities
    if missing is None:
        assert (await run(engine, rule, 4)).decision.thinking_tokens == 4
        return
    with pytest.raises(MissingCapability, match=missing) as caught:
        await run(engine, rule, 4)
    assert caught.value.hint


async def recorded(engine: ScriptedEngine, rule: Rule, budget: int = 8, **options: Any) -> tuple[Outcome, ReplayEngine]:
    """A run, and the engine that plays it back."""
    outcome = await run(engine, rule, budget, **options)
    decision = outcome.decision
    ended = "budget" if decision.stop_cause == "budget" else "end_of_thinking"
    trace = Trace("q7", 3, outcome.ids, outcome.thinking, "budget", budget)
    trace = replace(trace, ended="end_of_thinking", eos=decision.eos) if ended == "end_of_thinking" else trace
    return outcome, ReplayEngine(trace, decision.probes, decision.final)


async def replay(engine: ReplayEngine, rule: Rule, budget: int = 8, **options: Any) -> Outcome:
    session = await engine.open("", Sampling())
    abstention = options.pop("abstention", Abstention())
    return await Driver(engine, session, options.pop("spec", spec()), **options).run(rule, budget, abstention)


@pytest.mark.parametrize("thinking", [EIGHT, "a b c </think> d", "a b c d </think> e", "a b c <eos>", "</think>"])
@pytest.mark.parametrize("sure_at", [2, 4, 1 << 30])
async def test_a_replay_decides_as_it_was(thinking: str, sure_at: int) -> None:
    _, player = await recorded(scripted(thinking, sure_from(sure_at)), OnlyWatches(interval=2), full=True)
    live = await run(scripted(thinking, sure_from(sure_at)), RULE, 8, full=True)
    assert (await replay(player, RULE)).decision == live.decision


async def test_a_replay_at_a_smaller_budget_ends_with_the_probe_there() -> None:
    _, player = await recorded(scripted(EIGHT), OnlyWatches(interval=2))
    live = await run(scripted(EIGHT), RULE, 4, full=True)
    again = (await replay(player, RULE, 4)).decision
    assert (again.stop_cause, again.answer, again.thinking_tokens) == ("budget", live.decision.answer, 4)


async def test_a_replay_under_another_aggregate() -> None:
    _, player = await recorded(scripted(EIGHT, always(LOW_THEN_HIGH)), OnlyWatches(interval=2))
    live = await run(scripted(EIGHT, always(LOW_THEN_HIGH)), Cgr(threshold=0.7, interval=2), 8, spec=spec(aggregate="mean"))
    again = await replay(player, Cgr(threshold=0.7, interval=2), spec=spec(aggregate="mean"))
    assert again.decision == live.decision
    assert again.decision.stop_cause == "certainty"


async def test_a_bound_is_replayed_only_where_it_decides() -> None:
    _, player = await recorded(scripted(EIGHT, always(LOW_THEN_HIGH)), RULE)
    assert (await replay(player, RULE)).decision.stop_cause == "budget"
    assert (await replay(player, Cgr(threshold=0.95, interval=2))).decision.stop_cause == "budget"
    with pytest.raises(NotRecorded, match="cut short") as caught:
        await replay(player, Cgr(threshold=0.45, interval=2))
    assert "full probabilities" in caught.value.hint


async def test_a_bound_says_nothing_of_an_aggregate_that_may_rise() -> None:
    """The beginning's mean is .5, the whole answer's .75: below .7 only while it is a beginning."""
    _, player = await recorded(scripted(EIGHT, always(LOW_THEN_HIGH)), RULE)
    with pytest.raises(NotRecorded, match="cut short"):
        await replay(player, Cgr(threshold=0.7, interval=2), spec=spec(aggregate="mean"))


MISSING: list[tuple[str, Rule, int, str]] = [
    ("a probe at another place", Cgr(interval=3), 8, "a probe at token 3"),
    ("more thinking", FixedBudget(), 9, "thinking past token 8"),
    ("thinking with a ban", BudgetForcing(forcing="ban"), 8, "the end tag banned"),
]


@pytest.mark.parametrize(("rule", "budget", "what"), [row[1:] for row in MISSING], ids=[row[0] for row in MISSING])
async def test_what_was_not_recorded_is_named(rule: Rule, budget: int, what: str) -> None:
    _, player = await recorded(scripted(EIGHT), OnlyWatches(interval=2))
    player.capabilities = replace(player.capabilities, ban=True)
    with pytest.raises(NotRecorded, match=f"Question 'q7', seed 3: .*{what}") as caught:
        await replay(player, rule, budget)
    assert caught.value.hint


async def test_forcing_cannot_be_replayed() -> None:
    _, player = await recorded(scripted("a b </think> c d"), OnlyWatches(interval=2))
    with pytest.raises(NotRecorded, match="forced on"):
        await replay(player, BudgetForcing(), 8)


async def test_a_recording_without_its_end() -> None:
    _, player = await recorded(scripted(EIGHT), OnlyWatches(interval=2))
    player.final = None
    assert (await replay(player, RULE, 6)).decision.answer == "3"
    with pytest.raises(NotRecorded, match="the final answer"):
        await replay(player, RULE)


async def test_the_ban_lasts_over_several_stretches() -> None:
    engine = scripted("a </think> b c </think> d e f g")
    outcome = await run(engine, CgrForced(threshold=0.9, interval=2, forcing="ban"), 6)
    assert outcome.thinking.split() == ["a", "b", "c", "d", "e", "f"]
    assert story(engine) == "T2 p2 T2 p4 T2 p6"
