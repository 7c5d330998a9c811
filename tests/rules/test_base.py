"""What a rule inherits, how rules are found, and what is said about a name or a number that is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints
from typing import ClassVar

import pytest

from cgr.errors import UnknownName, UsageError
from cgr.probing import ProbeStyle
from cgr.rules import Cgr, FixedBudget, Rule, Seen, base, known_rules, make_rule
from cgr.rules.base import check_at_least_one, check_threshold
from cgr.rules.limits import SHARE, parameter
from cgr.rules.marks import Place


class Offered(FixedBudget):
    """Comes with another package."""


def offer(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """An installed package that offers a rule; the group that is asked for must be the right one."""
    found = EntryPoints([EntryPoint("offered", value, "cgr.rules")])
    monkeypatch.setattr(base, "_rules", dict(base._rules))
    monkeypatch.setattr(base, "entry_points", lambda group: found.select(group=group))


def test_installed_packages_offer_rules_in_the_group_of_cgr(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "tests.rules.test_base:Offered")
    assert known_rules()["offered"] is Offered
    assert [*known_rules()] == sorted(known_rules())


@pytest.mark.parametrize("value", ["tests.rules.test_base:offer", "pathlib:Path"])
def test_an_entry_point_must_name_a_rule(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    offer(monkeypatch, value)
    with pytest.raises(UsageError) as caught:
        known_rules()
    assert caught.value.message == "The entry point 'offered' is not a rule."
    assert caught.value.hint == "It must name a subclass of cgr.rules.Rule."


def test_an_unknown_parameter_is_named_with_its_rule() -> None:
    with pytest.raises(UnknownName) as caught:
        make_rule("cgr", treshold=0.9)
    assert caught.value.message == "There is no parameter of cgr called 'treshold'."
    assert caught.value.hint == "Did you mean 'threshold'? Known: interval, threshold."


def test_a_rule_without_a_name_is_called_by_its_class() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Nameless(Rule):
        part: float = parameter(0.5, SHARE)

    with pytest.raises(UsageError) as caught:
        Nameless(part=2)
    assert caught.value.message == "The value of 'part' of 'Nameless' cannot be 2."


def test_positions_of_its_own_unless_it_says_otherwise() -> None:
    """Recorded probes at any position decide a rule only if the rule has no positions of its own."""

    class Same(Cgr):
        pass

    class Chooses(Cgr):
        def next_probe(self, seen: Seen) -> int | None:
            return seen.at + 3

    class SaysOtherwise(Cgr):
        any_position: ClassVar[bool] = True

        def next_probe(self, seen: Seen) -> int | None:
            return seen.at + 3

    class SaysNo(Cgr):
        any_position: ClassVar[bool] = False

    assert [one.any_position for one in (Same, Chooses, SaysOtherwise, SaysNo)] == [True, False, True, False]


def test_the_former_name_of_the_probe_style_follows_an_override() -> None:
    style = ProbeStyle(aggregate="product")

    class New(Cgr):
        @property
        def probe_style(self) -> ProbeStyle:
            return style

    class Old(Cgr):
        @property
        def asks(self) -> ProbeStyle:
            return style

    assert New().probe_style == New().asks == style
    assert Old().probe_style == Old().asks == style
    assert Cgr().probe_style == Cgr().asks == ProbeStyle()


def test_a_rule_with_marks_probes_from_the_next_token_on() -> None:
    class AtMarks(Rule):
        place: ClassVar[Place | None] = "wait"

    assert AtMarks().next_probe(Seen(7)) == 8
    assert FixedBudget().next_probe(Seen(7)) is None


@pytest.mark.parametrize("threshold", [0, 0.5, 1])
def test_thresholds_from_0_to_1_are_certainties(threshold: float) -> None:
    check_threshold(threshold)


@pytest.mark.parametrize(("threshold", "shown"), [(-0.01, "-0.01"), (1.5, "1.5"), (2, "2"), (float("nan"), "nan")])
def test_other_thresholds_are_refused(threshold: float, shown: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_threshold(threshold)
    assert caught.value.message == f"A threshold of {shown} is not a certainty."
    assert caught.value.hint == "Choose one from 0 to 1, such as 0.99."


def test_a_number_of_tokens_is_1_or_more() -> None:
    check_at_least_one("interval", 1)
    with pytest.raises(UsageError) as caught:
        check_at_least_one("interval", 0)
    assert caught.value.message == "The interval cannot be 0 tokens."
    assert caught.value.hint == "Set the interval to 1 token or more."
