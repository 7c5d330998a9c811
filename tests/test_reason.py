"""The loop by hand: what it wants, one request at a time. No engine, no event loop, no I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.errors import UnknownName, UsageError
from cgr.reason import Abstention, Append, Ask, Reply, Request, Think, Thought, _settled, reason
from cgr.records import Decision, Probe, StopCause
from cgr.rules import (
    GIVE_UP,
    GO_ON,
    STOP,
    Action,
    BudgetForcing,
    Cgr,
    CgrForced,
    Deer,
    Eat,
    FixedBudget,
    KeepThinking,
    NoThinking,
    Rule,
    Seen,
    next_multiple,
)


def probe(at: int, certainty: float = 0.2, answer: str = "3", closed: bool = True) -> Probe:
    return Probe(at, answer, certainty, closed, decoded=2)


def play(rule: Rule, budget: int, *replies: Reply, **options: Any) -> tuple[list[Request], Decision]:
    """Everything that the loop asked for, given these replies, and what it decided. Options are those of `reason`."""
    loop = reason(rule, budget, **options)
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


@pytest.mark.parametrize("field", ["at_budget", "at_end_of_thinking"])
def test_an_unknown_policy(field: str) -> None:
    with pytest.raises(UnknownName) as caught:
        Abstention(**{field: "abstein"})  # type: ignore[arg-type]
    assert caught.value.message == "There is no abstention policy called 'abstein'."
    assert caught.value.hint == "Did you mean 'abstain'? Known: abstain, answer."


@pytest.mark.parametrize(
    ("certainty", "closed", "sure"), [(0.95, True, True), (0.9, True, True), (0.89, True, False), (0.95, False, False)]
)
@pytest.mark.parametrize("abstains_at", ["budget", "end_of_thinking"])
@pytest.mark.parametrize("cause", ["budget", "end_of_thinking"])
def test_abstaining(cause: StopCause, abstains_at: str, certainty: float, closed: bool, sure: bool) -> None:
    """An answer is withheld only where the policy says so, and only if it is not sure: closed, and at the threshold."""
    abstention = Abstention(**{f"at_{abstains_at}": "abstain"}, threshold=0.9)  # type: ignore[arg-type]
    final = probe(3, certainty, closed=closed)
    _, decision = play(FixedBudget(), 3, Thought(3, ended=cause == "end_of_thinking"), final, abstention=abstention)
    withheld = cause == abstains_at and not sure
    answer = None if withheld else "3"
    assert decision == Decision(cause, answer, certainty, closed, withheld, 3, final=final)


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


@dataclass(frozen=True, kw_only=True)
class Obeys(Rule):
    """Probes at 4, 8, ..., takes the given actions after its first probe, and notes what it saw."""

    name: ClassVar[str] = "obeys"
    needs: ClassVar[frozenset[str]] = frozenset({"token_ids"})
    inspect_every: ClassVar[int] = 2
    on: dict[str, Action] = field(default_factory=dict)
    noted: list[Seen] = field(default_factory=list)

    def next_probe(self, seen: Seen) -> int | None:
        return next_multiple(seen.at, 4)

    def on_thought(self, seen: Seen) -> Action:
        self.noted.append(seen)
        return self.on.get("thought", GO_ON) if seen.probes else GO_ON

    def on_probe(self, seen: Seen) -> Action:
        self.noted.append(seen)
        return self.on.get("probe", GO_ON)

    def on_end(self, seen: Seen) -> Action:
        self.noted.append(seen)
        return self.on.get("end", GO_ON)


class ObeysWithoutIds(Obeys):
    needs: ClassVar[frozenset[str]] = frozenset()


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(
    ("place", "at", "more"), [("probe", 4, []), ("thought", 6, [Thought(2)]), ("end", 5, [Thought(1, ended=True)])]
)
def test_a_stop_gives_the_answer_of_the_probe_or_of_the_model_that_thought(
    place: str, at: int, more: list[Reply], separate: bool
) -> None:
    """After a probe, after a stretch of thinking, and at the end of thinking."""
    first, final = probe(4, 0.95, "7"), probe(at, 0.8, "9")
    replies = [Thought(2), Thought(2), first, *more, *[final] * separate]
    requests, decision = play(Obeys(on={place: STOP}), 20, *replies, separate_prober=separate)
    assert requests == [Think(2), Think(2), Ask(4), *[Think(2)] * len(more), *[Ask(at, final="certainty")] * separate]
    chosen, by_model = (final, final) if separate else (first, None)
    assert decision == Decision(
        "certainty", chosen.answer, chosen.certainty, True, False, at, probes=(first,), final=by_model
    )


def test_a_stop_before_the_first_probe_asks_for_the_answer() -> None:
    final = probe(1, 0.8, "9")
    requests, decision = play(Obeys(on={"end": STOP}), 20, Thought(1, ended=True), final)
    assert requests == [Think(2), Ask(1, final="certainty")]
    assert decision == Decision("certainty", "9", 0.8, True, False, 1, final=final)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(
    ("place", "at", "more"), [("probe", 4, []), ("thought", 6, [Thought(2)]), ("end", 5, [Thought(1, ended=True)])]
)
def test_giving_up_asks_no_model_for_an_answer(place: str, at: int, more: list[Reply], separate: bool) -> None:
    replies = [Thought(2), Thought(2), probe(4, 0.95), *more]
    requests, decision = play(Obeys(on={place: GIVE_UP}), 20, *replies, separate_prober=separate)
    assert requests == [Think(2), Think(2), Ask(4), *[Think(2)] * len(more)]
    assert decision == Decision("gave_up", None, 0.95, True, True, at, probes=(probe(4, 0.95),))


@pytest.mark.parametrize(("kind", "has_ids"), [(Obeys, True), (ObeysWithoutIds, False)])
def test_a_rule_sees_the_tokens_and_confidences_of_all_thinking(kind: type[Obeys], has_ids: bool) -> None:
    """Those that were written in place of the end tag are marked: -1, and not a number."""
    rule = kind(on={"end": KeepThinking("Hm")})
    thoughts = (
        Thought(2, tops=(-1.0, -2.0), ids=(11, 12)),
        Thought(1, tops=(-3.0,), ids=(13,), ended=True),
        Thought(2, tops=(-4.0, -5.0), ids=(14, 15)),
    )
    requests, decision = play(rule, 7, *thoughts[:2], 2, probe(5), thoughts[2], probe(7))
    assert requests == [Think(2), Think(2), Append("Hm", 4), Ask(5), Think(2), Ask(7, final="budget")]
    assert (decision.forced, decision.thinking_tokens) == (1, 7)
    after_first, _, at_end, at_probe, after_last = rule.noted
    assert after_first == Seen(2, tops=(-1.0, -2.0), ids=(11, 12) if has_ids else ())
    assert at_end == Seen(3, tops=(-1.0, -2.0, -3.0), ids=(11, 12, 13) if has_ids else ())
    assert (at_probe.at, at_probe.probes, at_probe.forced) == (5, (probe(5),), 1)
    assert at_probe.tops == pytest.approx((-1, -2, -3, math.nan, math.nan), nan_ok=True)
    assert after_last.tops == pytest.approx((-1, -2, -3, math.nan, math.nan, -4, -5), nan_ok=True)
    assert after_last.ids == ((11, 12, 13, -1, -1, 14, 15) if has_ids else ())


def test_a_rule_cannot_keep_a_model_thinking_by_writing_nothing() -> None:
    with pytest.raises(UsageError) as caught:
        play(Obeys(on={"end": KeepThinking("")}), 20, Thought(1, ended=True), 0)
    assert caught.value.message == "The rule 'obeys' keeps thinking by writing nothing."
    assert caught.value.hint == "Give it some text to write."


@pytest.mark.parametrize(
    ("rule", "positions", "probed"),
    [
        (Cgr(threshold=0.9, interval=4), None, [4, 8]),
        (Cgr(threshold=0.9, interval=4), [3, 7, 9], [3, 7, 9]),
        (Cgr(threshold=0.9, interval=4), [5], [5]),
        (Cgr(threshold=0.9, interval=4), [], []),
        (Cgr(threshold=0.9, interval=4), [10, 12], []),  # none at the budget or after it
        (FixedBudget(), [3, 7], []),  # a rule that never probes
    ],
)
def test_given_positions_take_the_place_of_those_of_the_rule(
    rule: Rule, positions: Sequence[int] | None, probed: list[int]
) -> None:
    replies: list[Reply] = []
    for before, at in zip([0, *probed], [*probed, 10], strict=True):
        replies += [Thought(at - before), probe(at)]
    requests, decision = play(rule, 10, *replies, positions=positions)
    assert [one.tokens for one in requests if isinstance(one, Think)] == [
        one.tokens for one in replies if isinstance(one, Thought)
    ]
    assert [one.at for one in requests if isinstance(one, Ask)] == [*probed, 10]
    assert [one.at for one in decision.probes] == probed
    assert decision.stop_cause == "budget"


def test_a_rule_that_probes_at_marks_ignores_given_positions() -> None:
    requests, _ = play(Deer(), 10, Thought(10), probe(10), positions=[3])
    assert requests == [Think(10, until=Deer.place), Ask(10, final="budget")]
