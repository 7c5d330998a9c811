"""Rules that keep a model thinking, and any other rule made to do so."""

from __future__ import annotations

from typing import Any

import pytest

from cgr.errors import UsageError
from cgr.records import Probe
from cgr.rules import GO_ON, STOP, Cgr, CgrForced, KeepThinking, Seen, make_rule
from cgr.rules.forced_thinking import keep_thinking

SURE, UNSURE = Probe(4, "7", 0.95, closed=True), Probe(4, "7", 0.85, closed=True)


@pytest.mark.parametrize(
    ("text", "shown"), [("", "''"), (5, "5"), ((), "()"), (["x" * 99], "['" + "x" * 58)], ids=["empty", "5", "()", "long"]
)
def test_the_text_must_be_some_text(text: Any, shown: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_rule("budget-forcing", text=text)
    assert caught.value.message == f"The value of 'text' of 'budget-forcing' cannot be {shown}."
    assert caught.value.hint == "Use some text, such as '\\nWait'."


def test_a_rule_that_keeps_thinking_decides_as_before() -> None:
    """It stops where it stopped, with its own parameters, and what it wrote itself is still written."""
    forced = keep_thinking(CgrForced(threshold=0.9, interval=4, text="\nHm", at_most=1), "\nWait", at_most=2)
    assert forced.on_end(Seen(4, (SURE,))) == STOP
    assert forced.on_end(Seen(4, (UNSURE,))) == KeepThinking("\nHm")
    assert forced.on_end(Seen(4, (UNSURE,), forced=1)) == KeepThinking("\nWait")
    assert forced.on_end(Seen(4, (UNSURE,), forced=2)) == GO_ON


def test_a_rule_that_keeps_thinking_is_described_as_before() -> None:
    rule = Cgr(threshold=0.9, interval=4)
    forced = keep_thinking(rule)
    assert isinstance(forced, Cgr)
    assert (forced.name, forced.threshold, forced.interval) == ("cgr", 0.9, 4)
    assert forced.summary() == rule.summary() != ""
    assert (type(forced).__name__, type(forced).__module__) == ("Cgr", "cgr.rules.cgr")
    assert forced.on_end(Seen(9, forced=99)) == KeepThinking("\nWait")
