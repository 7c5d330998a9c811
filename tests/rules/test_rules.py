"""Rules by name, by decorator, by entry point; their parameters, and that they keep no state."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint, EntryPoints
from typing import ClassVar

import pytest

from cgr.errors import UnknownName, UsageError
from cgr.records import Probe, StopCause
from cgr.rules import (
    GO_ON,
    STOP,
    Action,
    BudgetForcing,
    Cgr,
    CgrForced,
    FixedBudget,
    KeepThinking,
    Rule,
    Seen,
    base,
    known_rules,
    make_rule,
    next_multiple,
    rule,
)
from tests.support import run, scripted

EIGHT = "a b c d e f g h"
CGR = Cgr(threshold=0.9, interval=2)
FORCED = CgrForced(threshold=0.9, interval=4)


@pytest.mark.parametrize(("at", "expected"), [(0, 4), (3, 4), (4, 8), (5, 8), (8, 12)])
def test_next_multiple(at: int, expected: int) -> None:
    assert next_multiple(at, 4) == expected


def test_the_papers_rules_are_there() -> None:
    assert {"fixed-budget", "no-thinking", "cgr", "budget-forcing", "cgr-forced"} <= known_rules().keys()
    assert Cgr.parameters() == {"threshold": 0.99, "interval": 1000}
    for cls in known_rules().values():
        assert cls.summary().endswith(".") or ":" in cls.summary()
        assert "\n" not in cls.summary()


def test_a_rule_by_name() -> None:
    assert make_rule("cgr", threshold=0.8, interval=None) == Cgr(threshold=0.8)
    with pytest.raises(UnknownName, match="no rule called 'crg'") as caught:
        make_rule("crg")
    assert "Did you mean 'cgr'?" in caught.value.hint
    with pytest.raises(UnknownName, match="'treshold'") as caught:
        make_rule("cgr", treshold=0.9)
    assert "'threshold'" in caught.value.hint


@pytest.mark.parametrize("threshold", [-0.01, 1.01, float("nan")])
def test_a_threshold_is_a_certainty(threshold: float) -> None:
    with pytest.raises(UsageError, match="'threshold' of 'cgr' cannot be") as caught:
        Cgr(threshold=threshold)
    assert caught.value.hint == "Use at least 0 and at most 1."


def test_an_interval_is_one_or_more() -> None:
    with pytest.raises(UsageError, match="interval"):
        Cgr(interval=0)


@pytest.mark.parametrize("name", ["budget-forcing", "cgr-forced"])
def test_ways_of_forcing(name: str) -> None:
    assert make_rule(name, forcing="ban").bans_end
    assert not make_rule(name).bans_end
    with pytest.raises(UnknownName, match="value of 'forcing'"):
        make_rule(name, forcing="bann")


async def test_a_rule_of_a_users_own() -> None:
    """Registered by a decorator; it keeps no state, only looks at what was seen."""

    @rule("twice-the-same")
    @dataclass(frozen=True, kw_only=True)
    class TwiceTheSame(Rule):
        """Stop when two probes in a row agree."""

        interval: int = 2
        needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})

        def next_probe(self, seen: Seen) -> int | None:
            return next_multiple(seen.at, self.interval)

        def on_probe(self, seen: Seen) -> Action:
            same = len(seen.probes) > 1 and seen.probes[-2].answer == seen.last.answer
            return STOP if same else GO_ON

    try:
        mine = make_rule("twice-the-same", interval=3)
        answers = ["1", "2", "2", "2"]
        engine = scripted(EIGHT + " i j", lambda at, suffix: ((answers[at // 3], 0.3), ("}", 0.9)))
        decision = (await run(engine, mine, 10)).decision
        assert (decision.thinking_tokens, decision.answer) == (6, "2")
    finally:
        del base._rules["twice-the-same"]


class FromAPackage(FixedBudget):
    """Comes with another package."""


def offered(value: str) -> EntryPoints:
    return EntryPoints([EntryPoint("offered", value, base.ENTRY_POINTS)])


def test_a_rule_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_rules", dict(base._rules))
    monkeypatch.setattr(base, "entry_points", lambda group: offered("tests.rules.test_rules:FromAPackage"))
    assert known_rules()["offered"] is FromAPackage
    assert make_rule("offered").name == "offered"


def test_an_entry_point_that_is_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_rules", dict(base._rules))
    monkeypatch.setattr(base, "entry_points", lambda group: offered("tests.rules.test_rules:offered"))
    with pytest.raises(UsageError, match="'offered' is not a rule"):
        known_rules()


def test_rules_look_only_at_what_was_seen() -> None:
    sure = Probe(at=4, answer="7", certainty=0.95, closed=True)
    assert CGR.on_probe(Seen(4, (sure,))) == STOP
    assert CGR.on_end(Seen(4, (sure,))) == GO_ON
    assert FORCED.on_end(Seen(4, (sure,))) == STOP
    assert BudgetForcing(at_most=2).on_end(Seen(4, forced=1)) == KeepThinking("\nWait")
    assert BudgetForcing(at_most=2).on_end(Seen(4, forced=2)) == GO_ON
    assert BudgetForcing(text="\nHm").on_end(Seen(4)) == KeepThinking("\nHm")


UNLIMITED = {
    "prefix",
    "text",
    "rising",
    "answered",
    "left",
    "hopeless",
}  # texts, flags, and weights with checks of their own
BAD_VALUES = [
    ("adaptive", "near", 1.5),
    ("adaptive", "rare", 0),
    ("adaptive", "cap", 0),
    ("adaptive", "cost", 0),
    ("answer-consistency", "agree", -1),
    ("answer-consistency", "agree", 0),
    ("answer-consistency", "interval", 0),
    ("budget-forcing", "at_most", -1),
    ("calibrated", "price", -0.1),
    ("calibrated", "span", -1),
    ("calibrated", "answered", (float("nan"),) * 5),
    ("cgr", "threshold", "high"),
    ("conformal", "weight", 0),
    ("conformal", "over", 0),
    ("deepconf", "percentile", 101),
    ("deepconf", "floor", float("nan")),
    ("deepconf", "window", 0),
    ("deer", "trials", 0),
    ("deer", "tokens", -3),
    ("dynasor", "agree", -1),
    ("dynasor", "every", 0),
    ("dynasor", "tokens", 0),
    ("eat", "delta", -1),
    ("eat", "alpha", 2),
    ("eat", "min_steps", 0),
    ("give-up", "patience", 0),
    ("loop-breaker", "times", 1),
    ("loop-breaker", "least", 0),
    ("loop-breaker", "longest", 0),
    ("puma-verify", "drop", -0.1),
    ("puma-verify", "drop", 1.1),
    ("smoothed", "weight", 0),
    ("sure-twice", "agree", 0),
]


def own_rules() -> dict[str, type[Rule]]:
    return {name: one for name, one in known_rules().items() if one.__module__.startswith("cgr.")}


def test_every_parameter_has_limits() -> None:
    unlimited = {
        f"{name}.{one.name}"
        for name, cls in own_rules().items()
        for one in fields(cls)
        if one.metadata.get("limits") is None and one.name not in UNLIMITED
    }
    assert unlimited == set()


@pytest.mark.parametrize(("name", "parameter", "value"), BAD_VALUES)
def test_impossible_values_are_refused(name: str, parameter: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"'{parameter}'") as caught:
        make_rule(name, **{parameter: value})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "cause", "text"),
    [
        ("cgr", "certainty", "the certainty reached 0.99"),
        ("dynasor", "certainty", "3 probes in a row gave the same answer without hedging"),
        ("answer-consistency", "certainty", "3 probes in a row gave the same answer"),
        ("eat", "certainty", "the entropy of the next token was stable"),
        ("calibrated", "gave_up", "a correct answer became too unlikely"),
        ("give-up", "gave_up", "12 probes in a row were less certain than 0.3"),
        ("no-thinking", "budget", "this rule does not let the model think"),
        ("fixed-budget", "budget", "the budget was spent"),
        ("dynasor", "end_of_thinking", "the model ended its thinking"),
    ],
)
def test_why_the_thinking_stopped(name: str, cause: StopCause, text: str) -> None:
    assert make_rule(name).why(cause) == text


def test_every_rule_says_why_it_stops_and_where_it_probes() -> None:
    for name, cls in own_rules().items():
        made = make_rule(name, **{"floor": 14.0} if name == "deepconf" else {})
        assert "{" not in made.why("certainty", 1.0) + made.why("gave_up")
        stops = cls.main is not None and name != "deepconf"
        assert (made.why("certainty", 1.0) != Rule.stop_text) == stops, name
    assert make_rule("loop-breaker").why("certainty", 0.5) == "the thinking repeated itself"
    assert make_rule("loop-breaker").why("certainty", 0.99) == "the certainty reached 0.99"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cgr", "a probe every 1000 tokens"),
        ("dynasor", "a probe every 32 tokens"),
        ("adaptive", "probes at multiples of 1000 tokens"),
        ("calibrated", "probes at multiples of 1000 tokens"),
        ("deer", 'a probe before each "Wait" or "Alternatively"'),
        ("eat", "a probe after each paragraph"),
        ("no-thinking", "no probes"),
        ("fixed-budget", "no probes"),
        ("deepconf", "no probes"),
    ],
)
def test_where_a_rule_probes(name: str, text: str) -> None:
    assert make_rule(name).probe_text == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{count} probes in a row were sure", "1 probe was sure"),
        ("{count} probes in a row had no answer", "1 probe had no answer"),
        ("{count} probes in a row gave nothing", "1 probe gave nothing"),
        ("after {count} probes in a row were sure", "after 1 probes in a row were sure"),
    ],
)
def test_one_probe_is_not_many(text: str, expected: str) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Told(Rule):
        name: ClassVar[str] = "told"
        stop_text: ClassVar[str] = text
        count: int = 1

    assert Told().why("certainty") == expected
    assert Told(count=2).why("certainty") == text.format(count=2)


def test_the_summary_is_the_first_paragraph_on_one_line() -> None:
    class Described(Rule):
        pass

    class Silent(Rule):
        pass

    Described.__doc__, Silent.__doc__ = "Stop at once,\n    or later.\n\n    The rest.", None
    assert Described.summary() == "Stop at once, or later."
    assert Silent.summary() == ""
