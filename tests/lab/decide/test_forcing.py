"""A rule that forces the thinking to continue is decided only by a run that was forced in the same way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cgr.errors import NotRecorded
from cgr.lab.decide.forcing import as_forced
from cgr.lab.store.config import RunConfig
from cgr.rules import GO_ON, Action, BudgetForcing, Cgr, CgrForced, KeepThinking, Rule, Seen

FOLDER = Path("runs/one")
NATURAL = RunConfig(budget=20)
FORCED = replace(NATURAL, rule="budget-forcing", forced_text="Hm", forced_at_most=2)


def test_a_natural_run_leaves_a_rule_as_it_is_and_refuses_one_that_forces() -> None:
    assert as_forced(Cgr(threshold=0.5), NATURAL, FOLDER) == Cgr(threshold=0.5)
    with pytest.raises(NotRecorded) as caught:
        as_forced(BudgetForcing(), NATURAL, FOLDER)
    sentence = "The rule 'budget-forcing' forces the model to keep thinking; the traces of this run were not forced."
    assert caught.value.message == sentence
    assert caught.value.hint == "Record a forced run: cgr generate --rule budget-forcing --probe ..."


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (BudgetForcing(), BudgetForcing(text="Hm", at_most=2)),
        (BudgetForcing(text="Hm"), BudgetForcing(text="Hm", at_most=2)),
        (CgrForced(at_most=2, threshold=0.5), CgrForced(text="Hm", at_most=2, threshold=0.5)),
    ],
    ids=str,
)
def test_defaults_are_replaced_by_how_the_run_was_forced(rule: Rule, found: Rule) -> None:
    assert as_forced(rule, FORCED, FOLDER) == found


@pytest.mark.parametrize(("at_most", "often"), [(None, "without a limit"), (2, "at most 2 times")])
@pytest.mark.parametrize("rule", [BudgetForcing(text="Wait"), BudgetForcing(at_most=3), CgrForced(text="Hm", at_most=1)])
def test_another_text_or_limit_is_not_what_was_recorded(rule: Rule, at_most: int | None, often: str) -> None:
    with pytest.raises(NotRecorded) as caught:
        as_forced(rule, replace(FORCED, forced_at_most=at_most), FOLDER)
    assert caught.value.message == f"The thinking in runs/one was forced to go on with 'Hm', {often}."
    assert caught.value.hint == "Leave out text and at_most, or record another run."


def test_on_a_forced_run_another_rule_is_forced_in_the_same_way() -> None:
    found = as_forced(Cgr(threshold=0.5, interval=7), FORCED, FOLDER)
    assert isinstance(found, Cgr)
    assert (found.threshold, found.interval, found.name) == (0.5, 7, "cgr")
    endings = [found.on_end(Seen(9, forced=forced)) for forced in (0, 1, 2)]
    assert endings == [KeepThinking("Hm"), KeepThinking("Hm"), GO_ON]


@dataclass(frozen=True, kw_only=True)
class OnlyForces(Rule):
    """Somebody's own rule, with these two parameters and no others."""

    text: str = "\nWait"
    at_most: int | None = None

    def on_end(self, seen: Seen) -> Action:
        return KeepThinking(self.text)


@dataclass(frozen=True, kw_only=True)
class ForcesByText(Rule):
    """Somebody's own rule, without a limit."""

    text: str = "\nWait"

    def on_end(self, seen: Seen) -> Action:
        return KeepThinking(self.text)


def test_a_rule_of_ones_own_takes_text_and_limit_if_it_has_both() -> None:
    assert as_forced(OnlyForces(), FORCED, FOLDER) == OnlyForces(text="Hm", at_most=2)
    assert as_forced(ForcesByText(), FORCED, FOLDER) == ForcesByText()
