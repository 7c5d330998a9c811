"""An array form makes the decisions of the loop, and a rule that changes it is replayed by the loop."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.errors import NotRecorded, UsageError
from cgr.lab.decide.arrays import Decisions, ProbeArrays, at_budget, decide_arrays
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import decide, decide_probes, replayed
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.probing import ProbeSpec, ProbeStyle
from cgr.records import Ended, Probe, Token
from cgr.rules import (
    GIVE_UP,
    GO_ON,
    STOP,
    Action,
    Cgr,
    DeepConf,
    FixedBudget,
    KeepThinking,
    LevelRule,
    Rule,
    Seen,
    known_rules,
    make_rule,
)
from tests.lab.runs import probe, trace

BUDGETS, INTERVAL = (40, 60), 10
INFO = RunInfo("made", "none", "none", max(BUDGETS), INTERVAL)
LEVELS = (0.0, 0.3, 0.5, 0.9, 0.99, 1.0)
FIELDS = ("at", "sure", "certainty", "closed", "right", "probe_tokens", "suffix_tokens", "gave_up", "agrees")
# Values of parameters, beside the main one and the distance between probes.
PARAMETERS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "conformal": {"floor": st.sampled_from(LEVELS), "weight": st.sampled_from((0.5, 0.95))},
    "deer": {"average": st.sampled_from(("avg1", "avg2")), "trials": st.integers(1, 4)},
    "eat": {"min_steps": st.integers(1, 3)},
    "puma-verify": {"drop": st.sampled_from((0.0, 0.2, 1.0))},
    "calibrated": {
        "rare": st.integers(1, 3),
        "low": st.sampled_from((0.0, 0.3, 0.5)),
        "then": st.sampled_from(("answer", "give-up")),
        "near": st.sampled_from((0.4, 0.8, 1.0)),
        "weights": st.sampled_from(
            (
                ((0.0, 1.0, 0.0, 0.0, 0.0), (0.1, 0.0, 0.0, 0.0, 0.0)),
                ((0.5, 0.4, 1.0, -0.5, -1.0), (0.4, 0.0, 0.1, 0.1, 0.0)),
                ((0.5, 0.4, 1.0, -0.5, -1.0, 1.0, 0.5, -0.2), (0.4, 0.0, 0.1, 0.1, 0.0, 0.1, 0.1, -0.1)),
            )
        ),
        "hopeless": st.sampled_from(((), ((0.2, 0.6), (0.4, 0.9)))),
    },
    "cgr-drought": {"floor": st.sampled_from(LEVELS), "threshold": st.sampled_from(LEVELS)},
    "code-stop": {"first": st.sampled_from(LEVELS), "threshold": st.sampled_from(LEVELS), "ramp": st.integers(1, 3)},
    "deepconf": {"floor": st.sampled_from((3.0, 4.0, 5.0)), "window": st.integers(1, 6)},
}
MAINS = {"cgr-drought": (0.1, 0.3, 0.5, 1.0), "code-stop": (0.5, 1.0, 2.0, 3.0)}  # where the levels cannot be its values
WITH_ARRAYS = [name for name in known_rules() if make_rule(name).has_array_form]


@st.composite
def probes_at(draw: st.DrawFn, at: int) -> Probe:
    closed = draw(st.booleans())
    made = probe(
        at,
        draw(st.sampled_from(("7", "7.0", "8", "x", ""))),
        draw(st.lists(st.sampled_from(LEVELS), max_size=3)),
        closed=closed,
        bound=not closed and draw(st.integers(0, 5)) == 0,
    )
    text = draw(st.sampled_from(("7}", "7} wait", "7} now</think>")))
    stated = draw(st.sampled_from(((0, 0), (1, 20), (3, 0), (2, 5), None)))
    made = replace(made, suffix_ids=(1, 2), entropy=draw(st.sampled_from((0.0, 0.5, 3.0))), stated=stated)
    return replace(made, tokens=(Token(0, text, -0.1),))


@st.composite
def recordings(draw: st.DrawFn) -> tuple[list[RecordedTrace], list[RecordedTrace]]:
    """Traces with probes on a grid that may have holes, or anywhere; the same with other answers at the same places."""
    traces, answers = [], []
    grid, question = draw(st.booleans()), st.sampled_from(("a", "b"))
    for seed in range(draw(st.integers(1, 4))):
        budget, name = draw(st.sampled_from(BUDGETS)), draw(question)
        length = draw(st.integers(1, budget))
        ended: Ended = "budget" if length == budget else "end_of_thinking"
        last = min(length, budget - 1)
        holes = draw(st.sets(st.integers(1, 5), max_size=1))
        on_grid = [INTERVAL * place for place in range(1, last // INTERVAL + 1) if place not in holes]
        places = on_grid if grid else sorted(draw(st.sets(st.integers(1, last), max_size=5)))
        final = replace(draw(probes_at(length)), bound=False)
        gold, chance = draw(st.sampled_from((None, "7", "8"))), random.Random(draw(st.integers(0, 99)))
        tops = tuple(chance.choices((-2.0, -4.0, -6.0, math.nan), k=length))
        made = RecordedTrace(name, seed, gold, length, ended, budget, final, tops=tops)
        traces.append(replace(made, probes=tuple(draw(probes_at(at)) for at in places)))
        answers.append(replace(made, probes=tuple(replace(draw(probes_at(at)), bound=False) for at in places)))
    return traces, answers


@st.composite
def rules(draw: st.DrawFn, name: str) -> Rule:
    known, cls = known_rules()[name].parameters(), known_rules()[name]
    given = {key: draw(values) for key, values in PARAMETERS.get(name, {}).items()}
    for spacing in ("interval", "every"):
        if spacing in known:
            given[spacing] = draw(st.sampled_from((INTERVAL, 2 * INTERVAL, 7 * INTERVAL)))
    if cls.main is not None:
        whole = isinstance(known[cls.main], int)
        values = MAINS.get(name, (*LEVELS, *cls.grid))
        given[cls.main] = draw(st.integers(1, 3) if whole else st.sampled_from(values))
    if "weights" in given:
        given["answered"], given["left"] = given.pop("weights")
    return make_rule(name, **given).within(max(BUDGETS))


def or_none(decided: Callable[[], Decisions]) -> Decisions | None:
    try:
        return decided()
    except NotRecorded:
        return None


def assert_same(one: Decisions | None, other: Decisions | None) -> None:
    assert (one is None) == (other is None)
    if one and other:
        for name in FIELDS:
            assert getattr(one, name).tolist() == pytest.approx(getattr(other, name).tolist()), name


@pytest.mark.parametrize("name", WITH_ARRAYS)
@given(data=st.data())
def test_an_array_form_makes_the_decisions_of_the_loop(name: str, data: st.DataObject) -> None:
    """On any recording; what one of them cannot decide, the other cannot decide either."""
    rule, (traces, answers), irregular = data.draw(rules(name)), data.draw(recordings()), data.draw(st.booleans())
    closed = None if rule.answers else Columns.of(answers, INFO)
    probes = ProbeArrays(Columns.of(traces, INFO), ProbeSpec(), lambda whole: traces, closed, irregular=irregular)
    assert rule.has_array_form
    own = None if rule.answers else answers
    slow = or_none(lambda: replayed(rule, traces, ProbeSpec(), own, irregular=irregular))
    assert_same(or_none(lambda: decide_arrays(rule, probes)), slow)


BUILT_IN = {name: cls for name, cls in known_rules().items() if cls.__module__.startswith("cgr.rules")}
ANY_POSITION = [name for name, cls in BUILT_IN.items() if cls.any_position and cls.place is None]


def test_these_rules_are_decided_by_probes_at_any_position() -> None:
    """`adaptive` chooses its positions on a grid."""
    assert set(ANY_POSITION) == {
        *("answer-consistency", "calibrated", "cgr", "cgr-drought", "cgr-forced", "code-stop", "conformal", "dynasor"),
        *("give-up", "loop-breaker", "puma-verify", "smoothed", "sure-twice"),
    }
    assert [name for name in BUILT_IN if make_rule(name).needs_grid] == ["adaptive"]
    assert Level.any_position
    assert not ProbesElsewhere.any_position
    assert ProbesElsewhere().needs_grid


@pytest.mark.parametrize("name", [name for name in ANY_POSITION if name not in ("cgr-forced", "loop-breaker")])
@given(data=st.data())
def test_on_a_grid_the_recorded_positions_are_those_of_the_rule(name: str, data: st.DataObject) -> None:
    """By the loop and, where there is one, by the array form."""
    spacing = {"interval", "every"} & known_rules()[name].parameters().keys()
    at_each = dict.fromkeys(spacing, INTERVAL) | ({"rare": 1} if name == "calibrated" else {})
    rule, (traces, _) = replace(data.draw(rules(name)), **at_each), data.draw(recordings())
    whole = [replace(one, probes=tuple(made for made in one.probes if made.at % INTERVAL == 0)) for one in traces]
    columns = Columns.of(whole, INFO)
    arrays = {flag: ProbeArrays(columns, ProbeSpec(), lambda _: whole, irregular=flag) for flag in (False, True)}
    if (on_grid := or_none(lambda: decide_probes(rule, arrays[False]))) is not None:
        assert_same(or_none(lambda: decide_probes(rule, arrays[True])), on_grid)


def test_probes_at_irregular_positions_decide_a_rule_that_reads_what_was_probed() -> None:
    """Every probe is read, in order, whatever the interval of the rule; a rule that chooses positions is refused."""
    asked = [(7, "8", (0.6,), True), (11, "7", (0.97,), True), (31, "7", (0.99,), True), (32, "7", (1.0,), True)]
    traces = [trace("q", 0, "7", 60, "budget", ("7", 0.5), asked, budget=60)]
    columns = Columns.of(traces, replace(INFO, interval=0))
    expected = {"cgr": 31, "give-up": 31, "sure-twice": 31, "smoothed": 31, "conformal": 32, "calibrated": 32}
    expected |= {"answer-consistency": 32, "puma-verify": 32}
    thresholds = {"cgr": 0.99, "give-up": 0.99, "conformal": 0.99, "sure-twice": 0.97, "smoothed": 0.96}
    for name, at in expected.items():
        given = {"threshold": thresholds[name]} if name in thresholds else {}
        rule = make_rule(name, **given).within(60)
        decided = decide(rule, columns, traces)
        assert decided.at.tolist() == [at], name
        assert_same(decided, replayed(rule, traces, irregular=True))
        assert decided.probe_tokens.tolist() == [2 * sum(position <= at for position, *_ in asked)]
    with pytest.raises(NotRecorded, match="'adaptive' chooses where to probe; these probes are at irregular positions"):
        decide(make_rule("adaptive"), columns, traces)
    assert decide(FixedBudget(), columns, traces).at.tolist() == [60]


def test_a_rule_cannot_give_up_on_a_probe_that_was_cut_short() -> None:
    """Its certainty is only a bound: neither form may use it."""
    asked = [probe(at, "7", (0.9,)) for at in (10, 20, 30, 40)]
    last = probe(50, "", (0.9,), closed=False, bound=True)
    one = replace(three()[2], probes=(*asked, last))
    rule = make_rule("conformal", threshold=1.0, floor=1.0, weight=1.0, interval=INTERVAL).within(60)
    for decided in (partial(decide, rule, Columns.of([one], INFO), [one]), partial(replayed, rule, [one])):
        with pytest.raises(NotRecorded, match="at token 50"):
            decided()
    whole = replace(one, probes=(*asked, replace(last, bound=False)))
    assert decide(rule, Columns.of([whole], INFO), [whole]).gave_up.all()


def test_these_rules_have_an_array_form() -> None:
    assert set(WITH_ARRAYS) == {
        *("cgr", "fixed-budget", "answer-consistency", "calibrated", "conformal", "deepconf", "deer", "dynasor", "eat"),
        *("cgr-drought", "code-stop", "puma-verify"),
    }


@given(recordings(), st.sampled_from(LEVELS), st.sampled_from(LEVELS))
def test_levels_are_kept_for_other_thresholds(
    made: tuple[list[RecordedTrace], list[RecordedTrace]], first: float, second: float
) -> None:
    traces, _ = made
    probes = ProbeArrays(Columns.of(traces, INFO), ProbeSpec(), lambda whole: traces)
    for threshold in (first, second):
        rule = make_rule("puma-verify", threshold=threshold, interval=INTERVAL, drop=0.5)
        fast, slow = partial(decide_arrays, rule, probes), partial(replayed, rule, traces)
        assert_same(or_none(fast), or_none(slow))


# Rules of users


@dataclass(frozen=True, kw_only=True)
class Level(LevelRule):
    """A plain rule of a user: it stops from a certainty of .9 on."""

    interval: int = INTERVAL
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})

    def enough(self, level: Any) -> Any:
        return level >= 0.9


@dataclass(frozen=True, kw_only=True)
class ProbesAtEnd(Level):
    probes_at_end: ClassVar[bool] = True

    def on_end(self, seen: Seen) -> Action:
        return STOP if seen.last.certainty >= 0.5 else GO_ON


@dataclass(frozen=True, kw_only=True)
class Inspects(Level):
    inspect_every: ClassVar[int] = 7

    def on_thought(self, seen: Seen) -> Action:
        return GIVE_UP if seen.at >= 14 else GO_ON


@dataclass(frozen=True, kw_only=True)
class ActsAtEnd(Level):
    def on_end(self, seen: Seen) -> Action:
        return GIVE_UP


@dataclass(frozen=True, kw_only=True)
class ProbesElsewhere(Level):
    def next_probe(self, seen: Seen) -> int | None:
        return 2 * INTERVAL if seen.at < 2 * INTERVAL else None


@dataclass(frozen=True, kw_only=True)
class GivesUpOnProbe(Cgr):
    interval: int = INTERVAL

    def on_probe(self, seen: Seen) -> Action:
        return GIVE_UP if len(seen.probes) == 2 else GO_ON


@dataclass(frozen=True, kw_only=True)
class Reads(Level):
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs", "token_ids"})


@dataclass(frozen=True, kw_only=True)
class ThinksNever(Level):
    thinks: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class StopsOnThought(DeepConf):
    def on_thought(self, seen: Seen) -> Action:
        return GIVE_UP if seen.at == 3 else GO_ON


@dataclass(frozen=True, kw_only=True)
class ProbesOnce(FixedBudget):
    def next_probe(self, seen: Seen) -> int | None:
        return INTERVAL if seen.at < INTERVAL else None

    def on_probe(self, seen: Seen) -> Action:
        return STOP


CHANGED = (ProbesAtEnd(), Inspects(), ActsAtEnd(), ProbesElsewhere(), GivesUpOnProbe(), ProbesOnce())


def three() -> list[RecordedTrace]:
    """Ends sure, ends unsure, and a sure probe on the way."""
    rows = [(25, ("7", 0.6), [0.3, 0.4]), (38, ("8", 0.2), [0.1, 0.2, 0.3]), (60, ("7", 0.5), [0.3, 0.95, 0.1, 0.2, 0.3])]
    made = []
    for seed, (length, final, levels) in enumerate(rows):
        asked = [(INTERVAL * place, "7", (level,), True) for place, level in enumerate(levels, 1)]
        ended: Ended = "budget" if length == 60 else "end_of_thinking"
        one = trace("q", seed, "7", length, ended, final, asked, budget=60)
        at_end = (*one.probes, *(() if length % INTERVAL == 0 else (probe(length, "7", (0.6,)),)))
        made.append(replace(one, probes=at_end, ids=tuple(range(length)), tops=(-4.0,) * length))
    return made


@pytest.mark.parametrize("rule", CHANGED, ids=lambda rule: type(rule).__name__)
def test_a_rule_that_changes_its_array_form_is_replayed(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over arrays each of these would get other answers."""
    monkeypatch.setattr(type(rule), "name", "mine", raising=False)
    traces = three()
    columns, author = Columns.of(traces, INFO), next(cls for cls in type(rule).__mro__ if "decide_all" in vars(cls))
    assert not rule.has_array_form
    decided, loop = decide(rule, columns, traces), replayed(rule, traces)
    assert_same(decided, loop)
    probes = ProbeArrays(columns, ProbeSpec(), lambda whole: traces)
    ignored = decide_arrays(rule, probes)
    assert any(getattr(ignored, name).tolist() != getattr(loop, name).tolist() for name in FIELDS), author


@pytest.mark.parametrize("rule", [Reads(), ThinksNever(), StopsOnThought(floor=1.0)], ids=lambda one: type(one).__name__)
def test_other_rules_that_need_the_loop(rule: Rule) -> None:
    assert not rule.has_array_form


def test_forcing_needs_the_loop() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Forces(Level):
        def on_end(self, seen: Seen) -> Action:
            return KeepThinking()

    @dataclass(frozen=True, kw_only=True)
    class Bans(Level):
        @property
        def bans_end(self) -> bool:
            return True

    for rule in (Forces(), Bans()):
        assert rule.forces
        assert not rule.has_array_form
    assert not Level().forces
    assert Level().has_array_form


def test_a_user_may_write_an_array_form() -> None:
    """The class that writes `decide_all` may change everything else beside it."""

    @dataclass(frozen=True, kw_only=True)
    class Mine(ProbesOnce):
        def decide_all(self, recorded: Any) -> Any:
            return None

    assert Mine().has_array_form
    traces = three()
    assert decide_probes(Mine(), ProbeArrays(Columns.of(traces, INFO), ProbeSpec(), lambda whole: traces)).fired == 0


def test_levels_of_a_users_own_are_computed_from_the_records() -> None:
    """A subclass of `cgr` with other levels is not taken for `cgr`."""

    @dataclass(frozen=True, kw_only=True)
    class Halved(Cgr):
        interval: int = INTERVAL

        def levels(self, probes: Any) -> list[float]:
            return [probe.certainty / 2 for probe in probes]

    rule, traces = Halved(threshold=0.45), three()
    Halved.name = "halved"
    assert rule.has_array_form
    assert rule.sure_at is None
    decided = decide(rule, Columns.of(traces, INFO), traces)
    assert decided.at.tolist() == replayed(rule, traces).at.tolist() == [25, 38, 20]
    assert decide(Cgr(threshold=0.45, interval=INTERVAL), Columns.of(traces, INFO)).at.tolist() == [25, 38, 20]
    assert decide(replace(rule, threshold=0.2), Columns.of(traces, INFO), traces).at.tolist() == [20, 38, 20]


def test_a_rule_may_still_say_how_it_asks_under_the_former_name() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Old(Level):
        @property
        def asks(self) -> ProbeStyle:
            return replace(super().asks, aggregate="product")

    traces = three()
    for name in ("cgr", "deer", "dynasor", "puma-verify"):
        assert make_rule(name).asks == make_rule(name).probe_style
    assert Old().probe_style == ProbeStyle(aggregate="product")
    assert Level().asks == Level().probe_style == ProbeStyle()
    plain = ProbeArrays(Columns.of(traces, INFO), ProbeSpec(), lambda whole: traces)
    twice = [tuple(replace(one, probabilities=one.probabilities * 2) for one in made.probes) for made in traces]
    doubled = [replace(one, probes=probes) for one, probes in zip(traces, twice, strict=True)]
    other = ProbeArrays(Columns.of(doubled, INFO), ProbeSpec(), lambda whole: doubled)
    assert plain.certainty(Old())[2, 1] == pytest.approx(0.95)
    assert other.certainty(Old())[2, 1] == pytest.approx(0.95**2)
    assert other.certainty(Level())[2, 1] == pytest.approx(0.95)


def test_a_check_is_made_before_arrays_are_read() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Unready(Level):
        def check(self) -> None:
            raise UsageError("Not ready.")

    traces = three()
    with pytest.raises(UsageError, match="Not ready"):
        decide(Unready(), Columns.of(traces, INFO), traces)


# The baseline under a smaller budget


def test_a_probe_at_the_budget_that_was_cut_short_cannot_answer() -> None:
    whole = three()[2]
    bound = replace(whole, probes=(replace(whole.probes[0], closed=False, bound=True), *whole.probes[1:]))
    with pytest.raises(NotRecorded, match="the end of the probe at token 10"):
        at_budget(Columns.of([bound], INFO), 10)
    assert at_budget(Columns.of([bound], INFO), 20).at.tolist() == [20]
    assert at_budget(Columns.of([replace(whole, probes=())], INFO), 60).at.tolist() == [60]


def test_without_probes_nothing_is_paid() -> None:
    columns = Columns.of([replace(one, probes=()) for one in three()], INFO)
    assert not np.any(decide(FixedBudget(), columns).probe_tokens)
