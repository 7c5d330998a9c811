"""Questions answered live in two ways, on the embedded model."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.live import Pair, Solved, pairs, sentences, table
from cgr import Model
from cgr.lab.questions import load_questions

WAYS = ("fixed-budget", "cgr")
SOLVED = Solved(True, "7", "budget", 100, 0, 4.0)


def test_both_ways_think_the_same_until_one_stops(loaded: Model) -> None:
    questions = load_questions("arithmetic", limit=3)
    options = {"budget": 384, "interval": 48, "threshold": 0.9}
    found = list(pairs(loaded, questions, options, WAYS))
    assert [one.question for one in found] == [question.id for question in questions]
    assert all(one.plain.probe_tokens == 0 and one.plain.seconds > 0 for one in found)
    stopped = [one for one in found if one.rule.stop_cause == "certainty"]
    assert stopped
    assert all(one.rule.thinking_tokens <= one.plain.thinking_tokens for one in stopped)
    others = [one for one in found if one not in stopped]
    assert all(one.same and one.rule.thinking_tokens == one.plain.thinking_tokens for one in others)


def test_the_share_is_of_all_the_time() -> None:
    half = replace(SOLVED, right=False, answer="8", thinking_tokens=30, probe_tokens=6, seconds=1.0)
    found = [Pair("a", SOLVED, half, same=False), Pair("b", replace(SOLVED, seconds=2.0), SOLVED, same=True)]
    plain, rule = table(found, WAYS).rows
    assert plain == ("fixed-budget", "2 of 2", 100, 0, 3.0, 1.0)
    assert rule == ("cgr", "1 of 2", 65, 3, 2.5, 5 / 6)


def test_the_time_has_an_interval_and_probes_without_a_stop_a_cost() -> None:
    half = replace(SOLVED, thinking_tokens=30, probe_tokens=6, seconds=1.0)
    found = [Pair("a", SOLVED, half, same=True), Pair("b", SOLVED, replace(SOLVED, seconds=5.0), same=True)]
    same, time, full = sentences(found)
    assert same == "The same answer both ways: 2 of 2."
    assert time == "Time with the rule: 75.0% of that without (95% interval 25.0% to 125.0%)."
    assert full == "Questions on which the rule saved nothing: 1; their probes made them 1.25 times as long."
    assert list(sentences(found[:1])) == ["The same answer both ways: 1 of 1."]
