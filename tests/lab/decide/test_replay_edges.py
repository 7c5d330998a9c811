"""The loop on recorded traces: full results by hand, what it reads, and what it says is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from cgr.errors import CgrError, NotRecorded
from cgr.lab.decide.arrays import Decisions, ProbeArrays
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import _run_without_loop, decide, decide_probes, deciding, reads_whole, replay, replayed
from cgr.lab.store.recorded import RecordedTrace
from cgr.probing import ProbeSpec
from cgr.records import Probe
from cgr.rules import (
    GIVE_UP,
    GO_ON,
    STOP,
    Action,
    BudgetForcing,
    Cgr,
    DeepConf,
    Deer,
    Dynasor,
    Eat,
    FixedBudget,
    Rule,
    Seen,
    SureTwice,
    make_rule,
    next_multiple,
)
from cgr.rules.forced_thinking import keep_thinking
from tests.lab.decide.test_arrays import AT_END, INFO, changed, recorded, three, values
from tests.lab.decide.test_arrays_edges import Reader


def arrays(traces: Sequence[RecordedTrace], **options: Any) -> tuple[ProbeArrays, Reader]:
    read = Reader(traces)
    return ProbeArrays(Columns.of(traces, INFO), ProbeSpec(), read, **options), read


@dataclass(frozen=True, kw_only=True)
class StopsOrGivesUp(Rule):
    """Stops at the second probe of a trace that began with 8, and gives up at the third one of any other."""

    name: ClassVar[str] = "stops-or-gives-up"

    def next_probe(self, seen: Seen) -> int | None:
        return next_multiple(seen.at, 10)

    def on_probe(self, seen: Seen) -> Action:
        if seen.probes[0].answer == "8":
            return STOP if len(seen.probes) == 2 else GO_ON
        return GIVE_UP if len(seen.probes) == 3 else GO_ON


def test_the_loop_on_three_traces() -> None:
    assert values(replayed(StopsOrGivesUp(), three())) == {
        "at": [20, 25, 30],
        "sure": [True, False, False],
        "certainty": [0.6, 0.4, 0.75],
        "closed": [True, True, True],
        "right": [True, False, False],
        "probe_tokens": [4, 4, 6],
        "suffix_tokens": [6, 6, 9],
        "gave_up": [False, False, True],
        "agrees": [True, True, False],
    }
    assert values(replayed(FixedBudget(), three())) == AT_END


def test_a_stop_agrees_only_if_its_answer_closed_and_is_the_final_one() -> None:
    """An answer at the end always agrees with itself, also if it did not close."""
    rule, traces = StopsOrGivesUp(), three()
    assert replayed(rule, changed(traces, 0, 1, answer="9")).agrees.tolist() == [False, True, False]
    assert replayed(rule, changed(traces, 0, 1, closed=False)).agrees.tolist() == [False, True, False]
    open_end = [replace(one, final=replace(one.final, closed=False)) for one in traces]
    assert replayed(rule, open_end).agrees.tolist() == [False, True, False]


def test_the_format_of_the_question_says_what_is_right() -> None:
    one = replace(three()[0], gold="B", format="choice", final=Probe(60, "(B)", 0.5, True))
    assert replayed(FixedBudget(), [one]).right.tolist() == [True]


def test_the_loop_reads_probabilities_by_the_aggregate_it_is_given() -> None:
    traces = changed(three(), 0, 1, probabilities=(0.6, 1.0))
    rule = SureTwice(threshold=0.8, agree=1, interval=10)
    assert replayed(rule, traces).at.tolist() == [30, 20, 40]
    assert replayed(rule, traces, ProbeSpec(aggregate="mean")).at.tolist() == [20, 20, 40]
    probes = ProbeArrays(Columns.of(traces, INFO), ProbeSpec(aggregate="mean"), lambda whole: traces)
    assert decide_probes(rule, probes).at.tolist() == [20, 20, 40]


# Rules whose probes hold no answer


def paragraphs() -> tuple[list[RecordedTrace], list[RecordedTrace]]:
    """Entropies after two paragraphs, and the answers there with the thinking closed."""
    opened = [Probe(at, "", 0.0, False, entropy=1.0, decoded=1, suffix_ids=(1, 2)) for at in (7, 15)]
    answered = [Probe(at, "7", 0.9, True, (0.9,), decoded=3, suffix_ids=(1, 2, 3, 4)) for at in (7, 15)]
    one = recorded("a", 0, 60, ("7", 0.5), [])
    return [replace(one, probes=tuple(opened))], [replace(one, probes=tuple(answered))]


STABLE = Eat(delta=0.5, min_steps=2)
STOPPED = {
    "at": [15],
    "sure": [True],
    "certainty": [0.9],
    "closed": [True],
    "right": [True],
    "probe_tokens": [2 + 3],
    "suffix_tokens": [4 + 4],
    "gave_up": [False],
    "agrees": [True],
}


def test_the_answer_of_a_rule_without_answers_is_decoded_after_the_stop_and_paid() -> None:
    traces, answers = paragraphs()
    assert values(replayed(STABLE, traces, ProbeSpec(), answers)) == STOPPED
    with pytest.raises(NotRecorded) as caught:
        replayed(STABLE, traces)
    what = "the answer after 15 tokens, with the thinking closed,"
    assert caught.value.message == f"Question 'a', seed 0: {what} was not recorded."


def test_such_a_rule_is_decided_by_the_loop_unless_the_answers_are_arrays() -> None:
    traces, answers = paragraphs()
    probes, read = arrays(traces)
    assert values(decide_probes(STABLE, probes, answers)) == STOPPED
    assert read.asked == [False]
    probes, _ = arrays(traces, answers=Columns.of(answers, INFO))
    assert values(decide_probes(STABLE, probes)) == STOPPED


# Where the loop probes


def irregular() -> RecordedTrace:
    """Probes at 7, 15 and 20, in no order."""
    made = {15: 0.99, 20: 0.9, 7: 0.98}
    probes = tuple(Probe(at, "7", level, True, (level,), decoded=2) for at, level in made.items())
    return replace(recorded("a", 0, 60, ("7", 0.5), []), probes=probes)


@pytest.mark.parametrize(
    ("rule", "anywhere", "at"),
    [
        (SureTwice(threshold=0.98, interval=20), True, [7, 15]),
        (FixedBudget(), True, []),
        (Deer(threshold=0.98), False, [7, 15]),
        (Deer(threshold=0.97), False, [7]),
        (Cgr(threshold=0.5, interval=20), False, [20]),
        (Cgr(threshold=0.5, interval=20), True, [7]),
    ],
    ids=str,
)
def test_rules_at_marks_and_on_irregular_recordings_probe_where_the_trace_was_probed(
    rule: Rule, anywhere: bool, at: list[int]
) -> None:
    assert [one.at for one in replay(rule, irregular(), irregular=anywhere).probes] == at
    if not anywhere:
        assert [one.at for one in replay(rule, irregular()).probes] == at
    found = replayed(rule, [irregular()], irregular=anywhere)
    assert found.at.tolist() == [at[-1] if at else 60]
    assert found.probe_tokens.tolist() == [2 * len(at)]


def test_a_rule_without_an_array_form_reads_all_probes_of_an_irregular_recording() -> None:
    probes, read = arrays([irregular()], irregular=True)
    assert decide_probes(SureTwice(threshold=0.98), probes).at.tolist() == [15]
    assert read.asked == [False]
    assert read.asked[0] is False


def test_a_rule_that_chooses_its_positions_is_refused_there() -> None:
    with pytest.raises(NotRecorded) as caught:
        decide_probes(make_rule("adaptive"), arrays([irregular()], irregular=True)[0])
    sentence = "The rule 'adaptive' chooses where to probe; these probes are at irregular positions."
    assert caught.value.message == sentence
    hint = "Record probes on a grid with `cgr probe`, or use a rule that reads every probe, such as cgr."
    assert caught.value.hint == hint


# What the loop reads


@pytest.mark.parametrize(
    ("rule", "whole"),
    [
        (Cgr(), False),
        (FixedBudget(), False),
        (Eat(), False),
        (Deer(average="avg1"), False),
        (Deer(average="avg2"), True),
        (Dynasor(), True),
        (DeepConf(floor=1.0), True),
        (make_rule("loop-breaker"), True),
    ],
    ids=str,
)
def test_token_ids_are_read_only_for_rules_that_need_them(rule: Rule, whole: bool) -> None:
    assert reads_whole(rule) is whole


def looping() -> RecordedTrace:
    return replace(three()[0], ids=tuple(range(15)) + (1, 2) * 22 + (3,))


def test_a_rule_that_reads_token_ids_gets_them_or_names_the_trace_without() -> None:
    rule = make_rule("loop-breaker", interval=10, threshold=1.0, least=8)
    probes, read = arrays([looping()])
    assert decide_probes(rule, probes).at.tolist() == [30]
    assert read.asked == [True]
    with pytest.raises(NotRecorded) as caught:
        replay(rule, replace(looping(), ids=(), seed=3))
    assert caught.value.message == "Question 'a', seed 3: the token ids of the thinking are missing."
    assert caught.value.hint == (
        "The rule 'loop-breaker' reads them. Runs of `cgr generate` have them, imports with `ids`, and recordings of "
        "`cgr serve --shadow --record-text`."
    )
    nothing = replace(looping(), ids=(), thinking_tokens=0, ended="end_of_thinking", probes=())
    assert replay(rule, nothing).thinking_tokens == 0


def test_the_confidence_of_the_thinking_is_replayed() -> None:
    one = replace(three()[0], tops=(-5.0,) * 20 + (-2.0,) * 40)
    assert values(replayed(DeepConf(floor=3.0, window=4), [one]))["at"] == [23]
    assert values(replayed(DeepConf(floor=3.0, window=4), [one]))["gave_up"] == [True]


def test_where_answers_stand_must_be_known_of_every_closed_answer_inside_the_thinking() -> None:
    """Not of a probe before any thinking, nor of one that did not close. It is looked up once."""
    weights = (0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    rule = make_rule("calibrated", answered=weights, left=(0.1, *weights[2:], 0.0), interval=10, rare=1).within(60)
    known = [replace(one, probes=tuple(replace(p, stated=(1, 2)) for p in one.probes)) for one in three()]
    open_probe = changed(known, 1, 1, closed=False, stated=None)
    at_start = replace(open_probe[0], probes=(Probe(0, "7", 0.5, True), *open_probe[0].probes))
    probes, read = arrays([at_start, *open_probe[1:]])
    for _ in range(2):
        assert len(decide_probes(rule, probes).at) == 3
    assert [one is False for one in read.asked] == [True, True]
    with pytest.raises(NotRecorded) as caught:
        decide_probes(rule, arrays(changed(known, 2, 2, stated=None))[0])
    sentence = "The rule 'calibrated' was fitted with `stated`: where answers stand in the thinking. These probes lack it."
    assert caught.value.message == sentence
    assert caught.value.hint == "Add it with `cgr probe RUN --stated`, or fit the rule to this run."


# One trace


def test_the_trace_is_named_where_a_replay_lacks_something() -> None:
    with pytest.raises(NotRecorded) as caught:
        replay(Cgr(interval=15), three()[1])
    assert caught.value.message == "Question 'a', seed 1: a probe at token 15 was not recorded."
    with pytest.raises(NotRecorded) as caught:
        replay(FixedBudget(), three()[2], budget=41)
    assert caught.value.message == "Question 'b', seed 4: thinking past token 40 was not recorded."
    assert replay(FixedBudget(), three()[1], budget=61).thinking_tokens == 25


@pytest.mark.parametrize("eos", [False, True])
def test_a_turn_that_ended_inside_the_thinking_is_said_by_the_decision(eos: bool) -> None:
    made = replay(FixedBudget(), replace(three()[1], eos=eos))
    assert (made.eos, made.stop_cause, made.thinking_tokens) == (eos, "end_of_thinking", 25)


@pytest.mark.parametrize(
    "rule", [BudgetForcing(text="Hm"), BudgetForcing(), keep_thinking(FixedBudget())], ids=lambda rule: type(rule).__name__
)
def test_forced_thinking_is_replayed_past_the_appended_text(rule: Rule) -> None:
    one = replace(three()[0], ids=tuple(range(60)), forced=((12, 3), (40, 3)))
    made = replay(rule, one)
    assert (made.forced, made.thinking_tokens, made.stop_cause) == (2, 60, "budget")
    with pytest.raises(NotRecorded, match="an end after 12 tokens, where it was forced on, was not recorded"):
        replay(FixedBudget(), one)


# A function from a threshold to decisions


def test_cgr_reads_every_recorded_probe_and_other_rules_those_on_their_grid() -> None:
    one = replace(irregular(), thinking_tokens=25, ended="end_of_thinking")
    columns = Columns.of([one], replace(INFO, interval=20))
    assert deciding(columns)(0.9).at.tolist() == deciding(columns, "cgr")(0.9).at.tolist() == [7]
    assert deciding(columns, "conformal", [one])(0.9).at.tolist() == [20]


def test_each_threshold_is_decided_once() -> None:
    columns = Columns.of(three(), INFO)
    found = deciding(columns, "sure-twice", three())
    for threshold, at in ((0.5, [30, 25, 40]), (0.9, [60, 25, 40])):
        assert found(threshold).at.tolist() == at
        assert found(threshold) is found(threshold)
        rule = SureTwice(threshold=threshold, interval=10)
        assert values(found(threshold)) == values(decide(rule, columns, three()))


def test_a_rule_may_be_decided_elsewhere() -> None:
    columns, asked = Columns.of(three(), INFO), list[Rule]()

    def elsewhere(rule: Rule) -> Decisions:
        asked.append(rule)
        return replayed(FixedBudget(), three())

    found = deciding(columns, "sure-twice", decide_rule=elsewhere)
    assert found(0.5) is found(0.5)
    assert found(0.25) is not found(0.5)
    assert asked == [SureTwice(threshold=0.5, interval=10), SureTwice(threshold=0.25, interval=10)]
    always = deciding(columns, "fixed-budget", decide_rule=elsewhere)
    assert always(0.1) is always(0.2)
    assert asked[2:] == [FixedBudget()]


def test_a_replay_that_waits_is_an_error_with_a_hint() -> None:
    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(CgrError) as caught:
        _run_without_loop(waits())
    assert (caught.value.message, caught.value.hint) == ("A replay waited for something.", "Replay only what was recorded.")
