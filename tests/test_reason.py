"""The loop by hand: what it wants, one request at a time. No engine, no event loop, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.errors import UnknownName
from cgr.reason import Abstention, Append, Ask, Reply, Request, Think, Thought, _settled, reason
from cgr.records import Decision, Probe
from cgr.rules import GIVE_UP, STOP, Action, BudgetForcing, Cgr, CgrForced, Eat, FixedBudget, NoThinking, Rule, Seen


def probe(at: int, certainty: float = 0.2, answer: str = "3", closed: bool = True) -> Probe:
    return Probe(at, answer, certainty, closed, decoded=2)


def play(rule: Rule, budget: int, *replies: Reply, abstention: Abstention = Abstention()) -> tuple[list[Request], Decision]:
    """Everything that the loop asked for, given these replies, and what it decided."""
    loop = reason(rule, budget, abstention)
    requests = [next(loop)]
    try:
        for reply in replies:
            requests.append(loop.send(reply))
    except StopIteration as stop:
        decision: Decision = stop.value
        return requests, decision
    raise AssertionError(f"It wants more: {requests[-1]}")


def test_think_ask_stop() -> None:
    requests, decision = play(Cgr(threshold=0.9, interval=4), 12, Thought(4), probe(4), Thought(4), probe(8, 0.95, "7"))
    assert requests == [Think(4), Ask(4, cut_below=0.9), Think(4), Ask(8, cut_below=0.9)]
    assert (decision.stop_cause, decision.answer, decision.thinking_tokens) == ("certainty", "7", 8)
    assert [one.at for one in decision.probes] == [4, 8]


def test_the_final_answer_is_asked_for_in_full() -> None:
    requests, decision = play(Cgr(threshold=0.9, interval=4), 5, Thought(4), probe(4), Thought(1), probe(5))
    assert requests[-1] == Ask(5, final="budget")
    assert decision.final == probe(5)
    requests, decision = play(FixedBudget(), 5, Thought(3, ended=True, eos=True), probe(3))
    assert requests[-1] == Ask(3, final="end_of_thinking", close_thinking=True)
    assert decision.eos


def test_no_thinking_asks_at_once() -> None:
    requests, decision = play(NoThinking(), 1000, probe(0))
    assert requests == [Ask(0, final="budget", close_thinking=True)]
    assert decision.thinking_tokens == 0


def test_forcing_counts_real_tokens() -> None:
    """`\\nWait` is as many tokens as the engine says."""
    requests, decision = play(BudgetForcing(), 10, Thought(3, ended=True), 5, Thought(2), probe(10))
    assert requests == [Think(10), Append("\nWait", 7), Think(2), Ask(10, final="budget")]
    assert (decision.forced, decision.thinking_tokens) == (1, 10)


def test_forcing_asks_before_it_appends() -> None:
    rule = CgrForced(threshold=0.9, interval=4)
    requests, decision = play(rule, 8, Thought(2, ended=True), probe(2), 1, Thought(1), probe(4, 0.99, "7"))
    assert requests == [Think(4), Ask(2, cut_below=0.9), Append("\nWait", 6), Think(1), Ask(4, cut_below=0.9)]
    assert decision.answer == "7"


def test_banning_is_asked_for_with_the_thinking() -> None:
    requests, _ = play(BudgetForcing(forcing="ban"), 4, Thought(4), probe(4))
    assert requests[0] == Think(4, ban_end=True)


@given(st.integers(1, 40), st.integers(1, 12), st.lists(st.integers(0, 12), max_size=30), st.integers(1, 3))
def test_positions(budget: int, interval: int, ends: list[int], wait: int) -> None:
    """Whatever the model does: never past B, probes ascend, none at B or twice at one place, every k*Delta is met."""
    loop = reason(CgrForced(threshold=0.9, interval=interval), budget)
    reply: Reply | None = None
    at, asked = 0, []
    while True:
        try:
            request = next(loop) if reply is None else loop.send(reply)
        except StopIteration as stop:
            decision: Decision = stop.value
            break
        match request:
            case Think(tokens):
                assert 1 <= tokens <= budget - at
                stretch = min(ends.pop(), tokens) if ends else tokens
                reply, at = Thought(stretch, ended=stretch < tokens), at + stretch
            case Append(_, at_most):
                reply = min(wait, at_most)
                at += reply
            case Ask(position, final):
                assert position == at
                asked += [position] if final is None else []
                reply = probe(position)
    assert decision.thinking_tokens == budget
    assert asked == sorted(set(asked))
    assert all(position < budget for position in asked)
    for mark in range(interval, budget, interval):
        assert any(mark <= position < mark + wait for position in asked) or budget < mark + wait


def test_an_unknown_policy() -> None:
    with pytest.raises(UnknownName, match="abstention policy") as caught:
        Abstention(at_budget="abstein")  # type: ignore[arg-type]
    assert "'abstain'" in caught.value.hint


@dataclass(frozen=True, kw_only=True)
class GivesUp(Rule):
    """Gives up at its only probe."""

    name: ClassVar[str] = "gives-up"
    at: int = 4

    def next_probe(self, seen: Seen) -> int | None:
        return self.at if seen.at < self.at else None

    def on_probe(self, seen: Seen) -> Action:
        return GIVE_UP


def test_giving_up_has_no_answer_but_the_last_certainty() -> None:
    _, decision = play(GivesUp(), 12, Thought(4), probe(4, 0.3))
    assert (decision.stop_cause, decision.answer, decision.abstained) == ("gave_up", None, True)
    assert (decision.certainty, decision.closed, decision.thinking_tokens, decision.final) == (0.3, True, 4, None)


def settled(rule: Rule, seen: Seen, action: Action, separate: bool, *replies: Reply) -> tuple[list[Request], Decision]:
    loop = _settled(rule, seen, action, separate)
    requests: list[Request] = []
    try:
        requests.append(next(loop))
        for reply in replies:
            requests.append(loop.send(reply))
    except StopIteration as stop:
        decision: Decision = stop.value
        return requests, decision
    raise AssertionError(f"It wants more: {requests[-1]}")


def test_giving_up_without_a_probe() -> None:
    requests, decision = settled(GivesUp(), Seen(8), GIVE_UP, False)
    assert requests == []
    assert (decision.stop_cause, decision.answer, decision.abstained) == ("gave_up", None, True)
    assert (decision.certainty, decision.closed, decision.thinking_tokens) == (0.0, False, 8)


@pytest.mark.parametrize(("rule", "separate"), [(Cgr(), True), (Eat(), False), (Eat(), True), (Cgr(), False)])
def test_the_answer_after_a_stop(rule: Rule, separate: bool) -> None:
    """The probe's own answer, unless it has none or another model was probed: then a last probe is decoded."""
    again = separate or not rule.answers
    requests, decision = settled(rule, Seen(8, (probe(8, 0.95, "7"),)), STOP, separate, *([probe(8, 0.8, "9")] * again))
    assert requests == ([Ask(8, final="certainty", close_thinking=not rule.answers)] if again else [])
    assert (decision.stop_cause, decision.abstained) == ("certainty", False)
    assert (decision.answer, decision.certainty) == (("9", 0.8) if again else ("7", 0.95))
    assert decision.final == (probe(8, 0.8, "9") if again else None)
