"""The rule that forces a fixed number of times: as a table, live on the embedded model, and replayed on a forced run."""

from __future__ import annotations

import pytest

import cgr
from cgr.errors import UsageError
from cgr.records import Probe
from cgr.rules import GO_ON, STOP, Action, KeepThinking, Seen, make_rule

CLOSED, OPEN = Probe(4, "7", 0.01, closed=True), Probe(4, "7", 0.99, closed=False)
FORCE = KeepThinking("\nWait")


@pytest.mark.parametrize(
    ("ends", "probe", "forced", "expected"),
    [
        (1, CLOSED, 0, STOP),  # at any certainty
        (2, CLOSED, 0, FORCE),
        (2, CLOSED, 1, STOP),
        (2, CLOSED, 2, STOP),
        (1, OPEN, 0, FORCE),  # an answer that did not close stops nothing
        (2, OPEN, 1, FORCE),
    ],
)
def test_it_stops_at_the_nth_end(ends: int, probe: Probe, forced: int, expected: Action) -> None:
    assert make_rule("nth-end", ends=ends).on_end(Seen(4, (probe,), forced=forced)) == expected


def test_a_limit_of_forcing_still_holds() -> None:
    rule = make_rule("nth-end", ends=3, at_most=1, text="\nHm")
    assert rule.on_end(Seen(4, (CLOSED,))) == KeepThinking("\nHm")
    assert rule.on_end(Seen(4, (CLOSED,), forced=1)) == GO_ON


def test_there_is_no_end_number_zero() -> None:
    with pytest.raises(UsageError, match="'ends' of 'nth-end' cannot be 0"):
        make_rule("nth-end", ends=0)


def test_it_says_why_it_stops() -> None:
    assert make_rule("nth-end", ends=2).why("certainty", 0.5) == "the model wanted to end its thinking (end number 2)"


def test_live_the_first_end_is_the_natural_one() -> None:
    question = "Find x, the greatest common divisor of 344 and 946."
    natural = cgr.solve(question, rule="fixed-budget", seed=3)
    first = cgr.solve(question, rule="nth-end", seed=3)
    second = cgr.solve(question, rule="nth-end", parameters={"ends": 2}, seed=3)
    assert first.stop_cause == second.stop_cause == "certainty"
    assert first.thinking == natural.thinking
    assert (first.forced, second.forced) == (0, 1)
    assert second.thinking.startswith(f"{first.thinking}\nWait")
