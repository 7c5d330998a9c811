"""Which probe set decides a rule, and what is said if there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cgr.errors import NotRecorded
from cgr.lab.decide.run import default_probe_set, is_grid, is_irregular
from cgr.lab.store import DEFAULT
from cgr.lab.store.config import Asking, ProbeSet
from cgr.lab.store.recorded import SHADOW
from cgr.lab.store.schema import FILE
from cgr.rules import Cgr, Deer, Dynasor, Eat, FixedBudget, NoThinking, Rule, make_rule
from cgr.rules.deer import DEER_PREFIX
from cgr.rules.dynasor import DYNASOR_PREFIX
from tests.lab.decide.test_run import (
    ANYWHERE,
    CLOSED,
    CONFIG,
    ENTROPY,
    GRID,
    OTHER_PREFIX,
    START,
    WAIT,
    ByProduct,
    NeverThinks,
    made_of,
)

EVERY_5, EVERY_1 = replace(GRID, interval=5), replace(GRID, interval=1)
GRID_OF_B, WAIT_OF_B = replace(GRID, model="b"), replace(WAIT, model="b")


@pytest.mark.parametrize(
    ("sets", "main", "rule", "found"),
    [
        ({DEFAULT: GRID}, DEFAULT, FixedBudget(), ()),
        ({DEFAULT: GRID}, DEFAULT, Cgr(interval=20), (DEFAULT,)),
        # a rule without a style of its own takes the probes of the main set as they are asked there
        ({DEFAULT: OTHER_PREFIX, "mine": GRID}, DEFAULT, Cgr(interval=20), (DEFAULT,)),
        ({DEFAULT: OTHER_PREFIX, "mine": GRID}, DEFAULT, ByProduct(interval=20), (DEFAULT,)),
        ({"wait": WAIT, "mine": GRID}, "wait", Cgr(interval=20), ("wait",)),
        ({DEFAULT: ANYWHERE, "mine": GRID}, DEFAULT, Cgr(interval=20), (DEFAULT,)),
        # a rule that chooses its positions needs a grid, and one that does not think needs answers before any thinking
        ({DEFAULT: ANYWHERE, "mine": GRID}, DEFAULT, make_rule("adaptive", interval=20), ("mine",)),
        ({DEFAULT: ANYWHERE, "start": START}, DEFAULT, NeverThinks(), ("start",)),
        ({DEFAULT: GRID, "start": START}, DEFAULT, NoThinking(), ("start",)),
        # sets without answers inside the thinking do not serve
        ({"opened": ENTROPY, "mine": GRID}, "opened", Cgr(interval=20), ("mine",)),
        ({"start": START, "mine": GRID}, "start", Cgr(interval=20), ("mine",)),
        ({DEFAULT: GRID, "wait": WAIT}, DEFAULT, Deer(), ("wait",)),
        ({DEFAULT: GRID, "opened": ENTROPY, "closed": CLOSED}, DEFAULT, Eat(), ("opened", "closed")),
        # of several: the default one, or that with the largest interval
        ({"start": START, "x": EVERY_5, "b": GRID, "z": EVERY_1}, "start", Cgr(interval=20), ("b",)),
        ({"start": START, "x": GRID, DEFAULT: EVERY_5, "z": EVERY_1}, "start", Cgr(interval=20), (DEFAULT,)),
        # of several models: that which made the main set
        ({DEFAULT: GRID_OF_B, "z": WAIT, "b": WAIT_OF_B}, DEFAULT, Deer(), ("b",)),
    ],
)
def test_the_sets_that_a_rule_reads(sets: Mapping[str, ProbeSet], main: str, rule: Rule, found: tuple[str, ...]) -> None:
    assert made_of(sets, main)[0].sets_for(rule) == found


def test_a_set_with_probes_is_preferred() -> None:
    sets = {"start": START, "x": GRID, DEFAULT: EVERY_5, "z": EVERY_1, "b": EVERY_1}
    run, _ = made_of(sets, "start", filled=frozenset({"z", "x"}))
    assert run.sets_for(Cgr(interval=20)) == ("x",)


@pytest.mark.parametrize(
    ("sets", "rule", "needed"),
    [
        ({DEFAULT: GRID}, Cgr(interval=15), "every 15 tokens"),
        ({}, Cgr(interval=10), "every 10 tokens"),
        ({DEFAULT: GRID}, Deer(), f"at each wait after {DEER_PREFIX!r}"),
        ({DEFAULT: GRID}, Dynasor(), f"every 32 tokens after {DYNASOR_PREFIX!r} with what follows the answer"),
        ({DEFAULT: GRID}, Eat(), "at each paragraph after '\\n</think>\\n' for the next token's entropy"),
        ({DEFAULT: GRID, "opened": ENTROPY}, Eat(), "at each paragraph with the thinking closed"),
        ({DEFAULT: GRID}, NoThinking(), "before any thinking with the thinking closed"),
    ],
)
def test_probes_that_were_not_recorded_are_described(sets: Mapping[str, ProbeSet], rule: Rule, needed: str) -> None:
    main = DEFAULT if sets else None
    run, _ = made_of(sets, main)
    with pytest.raises(NotRecorded) as caught:
        run.decide(rule)
    assert caught.value.message == f"The rule {rule.name!r} needs probes {needed}, which were not recorded."
    assert caught.value.hint == f"Record them: cgr probe made --for {rule.name}"
    with pytest.raises(NotRecorded) as caught:
        replace(run, config=replace(CONFIG, source=SHADOW)).sets_for(rule)
    assert caught.value.hint == (
        "`cgr probe` can make them if the requests are recorded with `cgr serve --shadow --record-text`."
    )


@pytest.mark.parametrize(
    ("main", "rule", "needed"),
    [
        (GRID, Cgr(interval=15), "probes every 15 tokens"),
        (GRID, Deer(), f"probes at each wait after {DEER_PREFIX!r}"),
        (ENTROPY, Cgr(interval=10), "answers inside the thinking"),
        (START, Cgr(interval=10), "answers inside the thinking"),
        (ENTROPY, Dynasor(), f"probes every 32 tokens after {DYNASOR_PREFIX!r} with what follows the answer"),
    ],
)
def test_a_set_that_the_user_chose_is_not_replaced_by_another(main: ProbeSet, rule: Rule, needed: str) -> None:
    run, _ = made_of({"mine": main, DEFAULT: EVERY_5, "wait": WAIT}, "mine", chosen=True)
    with pytest.raises(NotRecorded) as caught:
        run.sets_for(rule)
    assert caught.value.message == f"The rule {rule.name!r} needs {needed}, which the probe set 'mine' does not have."
    hint = f"Leave the probe set out, or record what the rule needs: cgr probe made --for {rule.name}"
    assert caught.value.hint == hint


def test_the_command_that_records_more_imports_a_file_first(tmp_path: Path) -> None:
    places = {tmp_path: f"cgr probe {tmp_path}", tmp_path / FILE: f"cgr probe {tmp_path / FILE}"}
    places[tmp_path / "odd.jsonl"] = f"cgr import {tmp_path / 'odd.jsonl'} runs/odd, then cgr probe runs/odd"
    for path, command in places.items():
        if path != tmp_path:
            path.touch()
        run, _ = made_of({DEFAULT: GRID}, DEFAULT, folder=path)
        with pytest.raises(NotRecorded) as caught:
            run.sets_for(Deer())
        assert caught.value.hint == f"Record them: {command} --for deer"


TEXT = replace(GRID, asking=Asking(reads="text"))
ANY_TEXT = replace(ANYWHERE, asking=Asking(reads="text"))


@pytest.mark.parametrize(
    ("sets", "filled", "found"),
    [
        ({}, (), None),
        ({"a": WAIT, "b": GRID}, (), "a"),
        ({"a": WAIT, DEFAULT: GRID}, (), DEFAULT),
        ({"a": GRID, DEFAULT: WAIT}, ("a", DEFAULT), DEFAULT),
        ({DEFAULT: GRID, "w": WAIT, "i": ANYWHERE, "g": EVERY_5, "h": GRID}, ("w", "i", "g", "h"), "g"),
        ({DEFAULT: GRID, "w": WAIT, "i": ANYWHERE, "g": EVERY_5}, ("w", "i"), "i"),
        ({DEFAULT: GRID, "w": WAIT, "t": TEXT, "u": ANY_TEXT}, ("w", "t", "u"), DEFAULT),
        ({"w": WAIT, "i": ANYWHERE, "g": GRID}, ("w",), "w"),
        ({"t": TEXT, "i": ANYWHERE, "g": GRID}, ("t",), "t"),
    ],
)
def test_the_set_that_is_read_unless_another_is_named(
    sets: Mapping[str, ProbeSet], filled: tuple[str, ...], found: str | None
) -> None:
    assert default_probe_set(sets, filled) == found


@pytest.mark.parametrize(
    ("probe_set", "grid", "irregular"),
    [
        (GRID, True, False),
        (EVERY_1, True, False),
        (replace(GRID, interval=0), False, False),
        (TEXT, False, False),
        (WAIT, False, False),
        (replace(WAIT, interval=10), False, False),
        (ANYWHERE, False, True),
        (ANY_TEXT, False, False),
        (ENTROPY, False, False),
    ],
)
def test_sets_with_answers_on_a_grid_and_at_irregular_positions(probe_set: ProbeSet, grid: bool, irregular: bool) -> None:
    assert (is_grid(probe_set), is_irregular(probe_set)) == (grid, irregular)
