"""Each line of the paper's algorithms, and of what settles their edges, as a row: a script, a rule, and what must happen.

The scripts' end of thinking is `</think>`; `story` is what was asked of the engine, in order (see `support.story`): t4
thinks up to 4 tokens, p4 probes after 4 tokens, P4 does so with thinking closed first, a2 appends 2 tokens. The last p or P
of a story that did not stop by certainty is the final answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cgr.engines.scripted import Answers
from cgr.reason import Abstention
from cgr.records import StopCause
from cgr.rules import (
    BudgetForcing,
    Cgr,
    CgrForced,
    FixedBudget,
    NoThinking,
    Rule,
)
from tests.support import EMPTY, SURE, UNCLOSED, UNSURE, run, scripted, spec, story, sure_from

EIGHT = "a b c d e f g h"
NEVER = sure_from(1 << 30)


@dataclass(frozen=True)
class Row:
    line: str
    rule: Rule
    thinking: str
    budget: int
    story: str
    cause: StopCause
    tokens: int
    answers: Answers = NEVER
    answer: str = "3"
    forced: int = 0
    eos: bool = False


def only_at(position: int, there: tuple[tuple[str, float], ...], else_: tuple[tuple[str, float], ...] = UNSURE) -> Answers:
    return lambda at, suffix: there if at == position else else_


CGR = Cgr(threshold=0.9, interval=2)
ALGORITHM_1 = (
    Row("while t < B", CGR, EIGHT, 6, "t2 p2 t2 p4 t2 p6", "budget", 6),
    Row("B is no multiple of Delta", CGR, EIGHT, 5, "t2 p2 t2 p4 t1 p5", "budget", 5),
    Row("Delta = B: the end of the budget is its own event", CGR, EIGHT, 2, "t2 p2", "budget", 2),
    Row("Delta > B", CGR, EIGHT, 1, "t1 p1", "budget", 1),
    Row("x = </think>: break", CGR, "a b c </think> d", 6, "t2 p2 t2 P3", "end_of_thinking", 3),
    Row("x = </think> at once", CGR, "</think> d", 6, "t2 P0", "end_of_thinking", 0),
    Row("a probe at k*Delta = n", CGR, "a b </think> c", 6, "t2 p2 t2 P2", "end_of_thinking", 2),
    Row("x = </think> after B tokens: the budget was first", CGR, "a b c d </think>", 4, "t2 p2 t2 p4", "budget", 4),
    Row("x = </think> after B-1 tokens", CGR, "a b c </think>", 4, "t2 p2 t2 P3", "end_of_thinking", 3),
    Row("eos inside thinking", CGR, "a b c <eos> d", 6, "t2 p2 t2 P3", "end_of_thinking", 3, eos=True),
    Row("t mod Delta = 0: probe", Cgr(threshold=0.9, interval=3), EIGHT, 8, "t3 p3 t3 p6 t2 p8", "budget", 8),
    Row("c >= theta: break", CGR, EIGHT, 8, "t2 p2 t2 p4", "certainty", 4, sure_from(4), "7"),
    Row("c >= theta at the first probe", CGR, EIGHT, 8, "t2 p2", "certainty", 2, sure_from(0), "7"),
    Row("sure only between probes", CGR, EIGHT, 6, "t2 p2 t2 p4 t2 p6", "budget", 6, only_at(3, SURE)),
    Row("sure only at B: the final answer is", CGR, EIGHT, 4, "t2 p2 t2 p4", "budget", 4, sure_from(4), "7"),
    Row(
        "c = theta stops",
        Cgr(threshold=0.5, interval=2),
        EIGHT,
        8,
        "t2 p2",
        "certainty",
        2,
        lambda at, suffix: (("5", 0.5), ("}", 1.0)),
        "5",
    ),
    Row(
        "c just below theta goes on",
        Cgr(threshold=0.5, interval=2),
        EIGHT,
        4,
        "t2 p2 t2 p4",
        "budget",
        4,
        lambda at, suffix: (("5", 0.499999), ("}", 1.0)),
        "5",
    ),
    Row("an unclosed answer never stops", CGR, EIGHT, 4, "t2 p2 t2 p4", "budget", 4, only_at(2, UNCLOSED)),
    Row("an empty answer has certainty 0", CGR, EIGHT, 4, "t2 p2 t2 p4", "budget", 4, only_at(2, EMPTY)),
    Row(
        "unclosed at theta = 0 neither",
        Cgr(threshold=0, interval=2),
        EIGHT,
        4,
        "t2 p2 t2 p4",
        "budget",
        4,
        only_at(2, UNCLOSED),
    ),
    Row(
        "an unsure brace is no content", CGR, EIGHT, 4, "t2 p2", "certainty", 2, only_at(2, (("7", 0.99), ("}", 0.1))), "7"
    ),
)
ALGORITHM_2 = (
    Row("while t < B", BudgetForcing(), EIGHT, 6, "t6 p6", "budget", 6),
    Row("x = </think>: x <- Wait", BudgetForcing(), "a </think> b c d e", 6, "t6 a2 t3 p6", "budget", 6, forced=1),
    Row("as often as it takes", BudgetForcing(), "a </think> b </think> c", 6, "t6 a2 t3 a2 p6", "budget", 6, forced=2),
    Row("at once", BudgetForcing(), "</think> a b c", 4, "t4 a2 t2 p4", "budget", 4, forced=1),
    Row("Wait never exceeds B", BudgetForcing(), "a b c </think> d", 4, "t4 a1 p4", "budget", 4, forced=1),
    Row(
        "at most once, as s1",
        BudgetForcing(at_most=1),
        "a </think> b </think> c",
        9,
        "t9 a2 t6 P4",
        "end_of_thinking",
        4,
        forced=1,
    ),
    Row("at most never", BudgetForcing(at_most=0), "a </think> b", 9, "t9 P1", "end_of_thinking", 1),
    Row("eos is forced on too", BudgetForcing(), "a <eos> b c d", 5, "t5 a2 t2 p5", "budget", 5, forced=1),
    Row("the end tag banned", BudgetForcing(forcing="ban"), "a </think> b </think> c d", 4, "T4 p4", "budget", 4),
    Row("never probes", BudgetForcing(), EIGHT, 8, "t8 p8", "budget", 8, sure_from(0), "7"),
)
FORCED = CgrForced(threshold=0.9, interval=4)
LONG = "c d e f g h i j k"
ALGORITHM_3 = (
    Row("while t < B", FORCED, EIGHT, 6, "t4 p4 t2 p6", "budget", 6),
    Row("x = </think>: probe; c >= theta: break", FORCED, "a b </think> c", 8, "t4 p2", "certainty", 2, sure_from(2), "7"),
    Row("else x <- Wait, and on", FORCED, f"a </think> {LONG}", 4, "t4 p1 a2 t1 p4", "budget", 4, forced=1),
    Row("Wait reaches k*Delta: probe", FORCED, f"a b </think> {LONG}", 6, "t4 p2 a2 p4 t2 p6", "budget", 6, forced=1),
    Row(
        "Wait crosses k*Delta: probe after it",
        FORCED,
        f"a b c </think> {LONG}",
        9,
        "t4 p3 a2 p5 t3 p8 t1 p9",
        "budget",
        9,
        forced=1,
    ),
    Row(
        "that probe may stop", FORCED, f"a b c </think> {LONG}", 9, "t4 p3 a2 p5", "certainty", 5, only_at(5, SURE), "7", 1
    ),
    Row(
        "two probes that coincide are one",
        FORCED,
        f"a b c d </think> {LONG}",
        8,
        "t4 p4 t4 a2 t2 p8",
        "budget",
        8,
        forced=1,
    ),
    Row("Wait never exceeds B", FORCED, "a b c </think> d", 4, "t4 p3 a1 p4", "budget", 4, forced=1),
    Row(
        "at most once: the second </think> ends it",
        CgrForced(threshold=0.9, interval=4, at_most=1),
        "a </think> b </think> c",
        8,
        "t4 p1 a2 t1 p4 t4 P4",
        "end_of_thinking",
        4,
        forced=1,
    ),
    Row("no probe at B after Wait", FORCED, "a b c d e f </think> g", 8, "t4 p4 t4 p6 a2 p8", "budget", 8, forced=1),
    Row(
        "each </think> is probed",
        FORCED,
        "a </think> b c d </think> e f",
        9,
        "t4 p1 a2 t1 p4 t4 p6 a2 p8 t1 p9",
        "budget",
        9,
        forced=2,
    ),
    Row("t mod Delta = 0: probe; c >= theta: break", FORCED, EIGHT, 8, "t4 p4", "certainty", 4, sure_from(3), "7"),
    Row(
        "unclosed at </think>: forced on",
        FORCED,
        "a b </think> c d e f",
        4,
        "t4 p2 a2 p4",
        "budget",
        4,
        only_at(2, UNCLOSED),
        forced=1,
    ),
    Row("eos is probed and forced on", FORCED, "a b <eos> c d e", 5, "t4 p2 a2 p4 t1 p5", "budget", 5, forced=1),
    Row(
        "the end tag banned",
        CgrForced(threshold=0.9, interval=4, forcing="ban"),
        "a </think> b c d e f",
        6,
        "T4 p4 T2 p6",
        "budget",
        6,
    ),
    Row(
        "banned, and sure",
        CgrForced(threshold=0.9, interval=2, forcing="ban"),
        "a </think> b c",
        6,
        "T2 p2",
        "certainty",
        2,
        sure_from(2),
        "7",
    ),
)
BASELINES = (
    Row("fixed budget: B tokens", FixedBudget(), EIGHT, 6, "t6 p6", "budget", 6),
    Row("fixed budget: or </think>", FixedBudget(), "a b </think> c", 6, "t6 P2", "end_of_thinking", 2),
    Row("fixed budget: eos", FixedBudget(), "a b <eos> c", 6, "t6 P2", "end_of_thinking", 2, eos=True),
    Row("fixed budget never probes", FixedBudget(), EIGHT, 8, "t8 p8", "budget", 8, sure_from(0), "7"),
    Row("no thinking: closed at 0", NoThinking(), EIGHT, 6, "P0", "budget", 0),
)


@pytest.mark.parametrize(
    "row", [*ALGORITHM_1, *ALGORITHM_2, *ALGORITHM_3, *BASELINES], ids=lambda row: f"{row.rule.name}: {row.line}"
)
async def test_algorithms(row: Row) -> None:
    engine = scripted(row.thinking, row.answers)
    decision = (await run(engine, row.rule, row.budget)).decision
    assert story(engine) == row.story
    assert (decision.stop_cause, decision.thinking_tokens) == (row.cause, row.tokens)
    assert (decision.answer, decision.forced, decision.eos) == (row.answer, row.forced, row.eos)
    assert decision.thinking_tokens <= row.budget
    assert not decision.abstained


@pytest.mark.parametrize(
    "row", [*ALGORITHM_1, *ALGORITHM_2, *ALGORITHM_3, *BASELINES], ids=lambda row: f"{row.rule.name}: {row.line}"
)
async def test_overlap_decides_the_same(row: Row) -> None:
    """Thinking ahead while a probe is in flight changes nothing but the tokens thrown away."""
    plain = await run(scripted(row.thinking, row.answers), row.rule, row.budget)
    ahead = await run(scripted(row.thinking, row.answers), row.rule, row.budget, overlap=True)
    assert ahead.decision == plain.decision
    assert ahead.ids == plain.ids
    assert plain.wasted_tokens == 0


async def test_a_sure_probe_is_the_answer() -> None:
    decision = (await run(scripted(EIGHT, sure_from(4)), CGR, 8)).decision
    assert decision.final is None
    assert decision.answer_tokens == 0
    assert decision.answer == decision.probes[-1].answer
    assert decision.certainty == decision.probes[-1].certainty == pytest.approx(0.999)
    assert decision.probe_tokens == 1 + 2  # the first is cut at its low digit, the second has a brace


async def test_the_final_answer_is_decoded_with_the_same_limit() -> None:
    engine = scripted("a b </think>", lambda at, suffix: UNCLOSED)
    decision = (await run(engine, FixedBudget(), 8)).decision
    assert decision.final is not None
    assert decision.final.decoded == decision.answer_tokens == 4
    assert not decision.closed
    assert not decision.final.valid


async def test_forced_text_is_part_of_the_thinking() -> None:
    outcome = await run(scripted("a </think> b c d"), BudgetForcing(), 5)
    assert outcome.thinking.split() == ["a", "Wait", "b", "c"]
    assert len(outcome.ids) == outcome.decision.thinking_tokens == 5


@pytest.mark.parametrize(
    ("close_think", "expected"),
    [("never", "t2 p2 t2 p4"), ("auto", "t2 p2 t2 P4"), ("always", "t2 P2 t2 P4")],
)
async def test_close_think_at_the_budget(close_think: str, expected: str) -> None:
    engine = scripted(EIGHT)
    await run(engine, CGR, 4, spec=spec(close_think=close_think))
    assert story(engine) == expected


@pytest.mark.parametrize("close_think", ["never", "auto", "always"])
async def test_after_a_natural_end_thinking_is_always_closed(close_think: str) -> None:
    engine = scripted("a b c </think>")
    await run(engine, FixedBudget(), 8, spec=spec(close_think=close_think))
    assert story(engine) == "t8 P3"


ENDS = {"budget": "a b c d", "end_of_thinking": "a b c </think>"}


@dataclass(frozen=True)
class Abstains:
    policies: Abstention
    cause: str
    final: tuple[tuple[str, float], ...]
    abstains: bool


AT_BUDGET = Abstention(at_budget="abstain", threshold=0.9)
AT_END = Abstention(at_end_of_thinking="abstain", threshold=0.9)
ABSTENTION = (
    Abstains(Abstention(threshold=0.9), "budget", UNSURE, False),
    Abstains(Abstention(threshold=0.9), "end_of_thinking", UNSURE, False),
    Abstains(AT_BUDGET, "budget", UNSURE, True),
    Abstains(AT_BUDGET, "budget", SURE, False),
    Abstains(AT_BUDGET, "budget", UNCLOSED, True),
    Abstains(AT_BUDGET, "budget", EMPTY, True),
    Abstains(AT_BUDGET, "end_of_thinking", UNSURE, False),
    Abstains(AT_END, "end_of_thinking", UNSURE, True),
    Abstains(AT_END, "end_of_thinking", SURE, False),
    Abstains(AT_END, "end_of_thinking", UNCLOSED, True),
    Abstains(AT_END, "budget", UNSURE, False),
    Abstains(Abstention("abstain", "abstain", 0.2), "budget", UNSURE, False),
)


@pytest.mark.parametrize("row", ABSTENTION)
async def test_abstention_is_apart_from_stopping(row: Abstains) -> None:
    engine = scripted(ENDS[row.cause], lambda at, suffix: row.final)
    decision = (await run(engine, FixedBudget(), 4, abstention=row.policies)).decision
    assert (decision.stop_cause, decision.abstained) == (row.cause, row.abstains)
    assert (decision.answer is None) == row.abstains
    assert decision.final is not None  # the answer that was withheld is still there to be seen
    assert decision.certainty == decision.final.certainty


async def test_a_sure_stop_never_abstains() -> None:
    both = Abstention("abstain", "abstain", threshold=1.0)
    decision = (await run(scripted(EIGHT, sure_from(2)), CGR, 8, abstention=both)).decision
    assert (decision.stop_cause, decision.answer, decision.abstained) == ("certainty", "7", False)
