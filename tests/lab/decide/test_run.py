"""Which probe sets a run reads, what it keeps, and what it says is missing. `test_live` compares its decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from cgr.errors import NotRecorded, UnknownName
from cgr.lab.decide.columns import FINAL, GOLD
from cgr.lab.decide.run import Run
from cgr.lab.store import DEFAULT, Store
from cgr.lab.store.config import Asking, ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.probing import ProbeSpec, ProbeStyle
from cgr.records import Probe, Question
from cgr.rules import (
    GIVE_UP,
    GO_ON,
    Action,
    BudgetForcing,
    Cgr,
    DeepConf,
    Deer,
    Eat,
    FixedBudget,
    LevelRule,
    NoThinking,
    Rule,
    Seen,
    SureTwice,
)
from cgr.rules.deer import DEER_PREFIX
from tests.lab.decide.test_arrays import AT_END, INFO, three, values

GRID, ANYWHERE, START = (
    ProbeSet("interval", 10),
    ProbeSet("anywhere"),
    ProbeSet("start", asking=Asking(close_think="always")),
)
WAIT = ProbeSet("wait", asking=Asking(DEER_PREFIX, max_answer_tokens=20))
ENTROPY = ProbeSet("paragraph", asking=Asking("\n</think>\n", reads="entropy"))
CLOSED = ProbeSet("paragraph", asking=Asking(close_think="always"))
OTHER_PREFIX = ProbeSet("interval", 10, Asking("So \\boxed{"))
CONFIG = RunConfig(budget=60, interval=10)
Read = Mapping[str | None, Sequence[RecordedTrace]]


def made_of(
    sets: Mapping[str, ProbeSet], main: str | None, read: Read | None = None, **fields: Any
) -> tuple[Run, list[Any]]:
    """A run of the three traces with these probe sets, and the list of what it reads."""
    asked: list[Any] = []

    def reads(name: str | None, whole: bool) -> Sequence[RecordedTrace]:
        asked.append((name, whole))
        return (read or {}).get(name, three())

    run = Run.of(three(), INFO)
    given = {"sets": sets, "main": main, "read": reads, "filled": frozenset(sets), "config": CONFIG} | fields
    return replace(run, **given), asked


@dataclass(frozen=True, kw_only=True)
class NeverThinks(LevelRule):
    interval: int = 10
    name: ClassVar[str] = "never-thinks"
    thinks: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class ByProduct(Cgr):
    style: ClassVar[ProbeStyle] = ProbeStyle(aggregate="product")


# Runs that are not in a store


@pytest.mark.parametrize(("interval", "where"), [(10, "interval"), (1, "interval"), (0, "anywhere")])
def test_a_run_of_traces_has_one_probe_set(interval: int, where: Any) -> None:
    info, asking = replace(INFO, interval=interval), Asking(aggregate="mean")
    run = Run.of(three(), info, "mean")
    assert (run.info, run.config) == (info, RunConfig(budget=60, interval=interval, asking=asking))
    assert (run.sets, run.main) == ({DEFAULT: ProbeSet(where, interval, asking)}, DEFAULT)
    assert ({*run.keys}, run.questions) == ({("a", 0), ("a", 1), ("b", 4)}, ("a", "b"))
    assert (run.folder, [*run.filled], run.chosen, run.reference) == (Path("made"), [DEFAULT], False, GOLD)
    assert (run.traces(), run.spec(), run.left_out) == (tuple(three()), ProbeSpec(aggregate="mean"), 0)
    assert Run.of(three(), info).spec() == ProbeSpec()
    assert Run.of([replace(one, probes=()) for one in three()], info).filled == frozenset()


def test_some_questions_of_a_run() -> None:
    """What the whole run has read and computed is not taken for that of the part."""
    run, asked = made_of({DEFAULT: GRID, "wait": WAIT}, DEFAULT)
    assert len(run.arrays().columns) == 3
    part = run.only(np.array([False, True]))
    assert part.keys == {("b", 4)}
    assert part.traces() == (three()[2],)
    assert part.columns().questions == part.arrays().columns.questions == ("b",)
    assert part.decide(FixedBudget()).at.tolist() == [40]
    asked.clear()
    part.traces("wait", whole=True)
    assert asked == [("wait", True)]
    assert len(run.traces()) == len(run.columns()) == 3
    for wrong in ([True], [True, False, True]):
        with pytest.raises(ValueError, match="zip"):
            run.only(np.array(wrong))


def test_by_agreement_answers_are_compared_with_the_final_ones() -> None:
    run = Run.of([replace(one, gold=None) for one in three()], INFO)
    assert not run.has_golds
    assert Run.of(three(), INFO).has_golds
    rule = Cgr(threshold=0.8, interval=10)
    for one in (run.columns(), run.arrays().columns):
        assert one.reference == GOLD
    assert run.decide(rule).right.tolist() == [False, False, False]
    agreed = run.by_agreement()
    assert (agreed.reference, run.reference) == (FINAL, GOLD)
    assert agreed.columns().reference == agreed.arrays().columns.reference == FINAL
    assert agreed.columns().graded.tolist() == [True] * 3
    found = agreed.decide(rule)
    assert found.at.tolist() == [30, 20, 40]
    assert found.right.tolist() == found.agrees.tolist() == [True, True, True]
    assert agreed.decide(Cgr(threshold=0.95, interval=10)).right.tolist() == [False, True, True]
    by_loop = SureTwice(threshold=0.95, agree=1, interval=10)
    assert agreed.decide(by_loop).right.tolist() == [False, True, True]
    assert run.decide(by_loop).right.tolist() == [False, False, False]


# What is read and kept


def test_traces_are_read_once_for_each_set_and_without_token_ids_unless_they_are_wanted() -> None:
    others = [replace(one, probes=one.probes[:1]) for one in three()]
    run, asked = made_of({DEFAULT: GRID, "wait": WAIT}, DEFAULT, {"wait": others})
    for _ in range(2):
        assert run.traces() == run.rule_traces() == tuple(three())
        assert run.traces("wait") == tuple(others)
        run.rule_traces(whole=True)
        run.traces("wait", whole=True)
    assert asked == [(DEFAULT, False), (None, False), ("wait", False), (DEFAULT, True), ("wait", True)]
    assert all(isinstance(whole, bool) for _, whole in asked)
    assert run.columns().at.shape == (3, 5)
    assert run.columns("wait").at.shape == run.rule_columns("wait").at.shape == (3, 1)
    assert run.rule_columns() is run.columns()


def test_the_final_answer_is_that_of_the_run_and_traces_outside_the_main_set_are_left_out() -> None:
    """A probe set may have another final answer, and traces that the main set does not have."""
    others = [replace(one, final=replace(one.final, answer="9")) for one in three()]
    few = frozenset({("a", 0), ("b", 4)})
    run, _ = made_of({DEFAULT: GRID, "wait": WAIT}, DEFAULT, {"wait": others, DEFAULT: [three()[0], three()[2]]}, keys=few)
    assert run.left_out == 1
    assert run.traces("wait") == tuple(others)
    assert run.rule_traces("wait") == run.rule_traces() == (three()[0], three()[2])
    same, _ = made_of({DEFAULT: GRID, "wait": WAIT}, DEFAULT, keys=few)
    assert same.rule_traces("wait") == (three()[0], three()[2])
    assert [one.final for one in run.arrays("wait").read(False)] == [three()[0].final, three()[2].final]


@pytest.mark.parametrize(("there", "count"), [(2, "1 trace"), (1, "2 traces"), (0, "3 traces")])
def test_a_probe_set_that_was_not_finished_is_named(there: int, count: str) -> None:
    run, _ = made_of({DEFAULT: GRID, "wait": WAIT}, DEFAULT, {"wait": three()[:there]})
    with pytest.raises(NotRecorded) as caught:
        run.rule_traces("wait")
    assert caught.value.message == f"The probe set 'wait' lacks {count} of the run in made."
    assert caught.value.hint == "Run the command that made it again."


def test_the_aggregate_is_that_of_the_probe_set_or_of_the_run_without_any() -> None:
    sets = {name: replace(GRID, asking=Asking(aggregate=name)) for name in ("mean", "product")}
    config = replace(CONFIG, asking=Asking(aggregate="geometric-mean"))
    run, _ = made_of(sets, "mean", config=config)
    assert [run.spec().aggregate, run.spec("product").aggregate] == ["mean", "product"]
    assert [run.arrays().spec.aggregate, run.arrays("product").spec.aggregate] == ["mean", "product"]
    assert made_of({}, None, config=config)[0].spec().aggregate == "geometric-mean"


def test_positions_are_irregular_unless_the_set_is_on_a_grid() -> None:
    run, _ = made_of({DEFAULT: GRID, "wait": WAIT}, DEFAULT, info=replace(INFO, interval=0))
    assert [run.arrays().irregular, run.arrays("wait").irregular] == [False, True]
    assert made_of({"wait": WAIT}, "wait")[0].arrays().irregular is True
    assert made_of({}, None)[0].arrays().irregular is False
    assert run.arrays() is run.arrays(DEFAULT)


def entropies() -> list[RecordedTrace]:
    """Each probe of the three traces, with an entropy in place of the answer."""
    return [
        replace(one, probes=tuple(Probe(p.at, "", 0.0, False, entropy=1.0, decoded=1) for p in one.probes))
        for one in three()
    ]


def cut_short(row: int) -> list[RecordedTrace]:
    """The three traces; the last answer of one of them was cut short."""
    last = replace(three()[row].probes[-1], closed=False, bound=True)
    changed = replace(three()[row], probes=(*three()[row].probes[:-1], last))
    return [changed if number == row else one for number, one in enumerate(three())]


def test_answers_are_arrays_too_if_they_are_whole_and_at_the_same_positions() -> None:
    """Otherwise the loop decides; the decisions are the same."""
    sets, rule = {"opened": ENTROPY, "answers": CLOSED}, Eat(delta=0.5, min_steps=2)
    late = [replace(one, probes=(*one.probes, Probe(59, "7", 0.5, True))) for one in three()[:1]]
    found = {}
    for name, answers in {"whole": three(), "cut": cut_short(0), "more": [*late, *three()[1:]]}.items():
        run, _ = made_of(sets, "opened", {"opened": entropies(), "answers": answers})
        assert run.sets_for(rule) == ("opened", "answers")
        closed = run.arrays("opened", "answers").answers
        assert (closed is not None) == (name == "whole")
        assert closed is None or closed.certainty[1].tolist() == [0.3, 0.8, 0, 0, 0]
        assert run.arrays("opened").answers is None
        found[name] = values(run.decide(rule))
    assert found["whole"] == found["cut"] == found["more"]
    assert (found["whole"]["at"], found["whole"]["certainty"]) == ([20, 20, 20], [0.6, 0.8, 0.5])
    assert found["whole"]["probe_tokens"] == [4, 4, 4]


# Decisions


def test_a_rule_is_decided_by_the_set_that_was_made_for_it() -> None:
    sure = [replace(one, probes=(Probe(5, "7", 0.99, True, (0.99,), decoded=2),)) for one in three()]
    run, asked = made_of({DEFAULT: GRID, "wait": WAIT}, DEFAULT, {"wait": sure})
    assert run.decide(Deer(threshold=0.98)).at.tolist() == [5, 5, 5]
    assert {name for name, _ in asked} == {"wait", None}
    assert values(run.decide(FixedBudget())) == AT_END
    assert run.decide(SureTwice(threshold=0.5, interval=10)).at.tolist() == [30, 25, 40]


def test_a_set_without_probes_decides_only_rules_that_do_not_think() -> None:
    answered = [replace(one, probes=(Probe(0, "7", 0.9, True),)) for one in three()]
    run, _ = made_of({DEFAULT: GRID, "start": START}, DEFAULT, {"start": answered}, filled=frozenset())
    with pytest.raises(NotRecorded) as caught:
        run.decide(Cgr(interval=10))
    assert caught.value.message == "No probe was recorded in made."
    assert caught.value.hint == "Make them with `cgr probe made`; traces that are shorter than its interval get none."
    assert run.decide(NoThinking()).at.tolist() == [0, 0, 0]


@dataclass(frozen=True, kw_only=True)
class Impatient(Rule):
    """Gives up at a token that it derives from the recording."""

    limit: int = 0
    name: ClassVar[str] = "impatient"
    needs: ClassVar[frozenset[str]] = frozenset({"thinking_logprobs"})
    inspect_every: ClassVar[int] = 1

    def on_recording(self, recorded: Any) -> Impatient:
        return replace(self, limit=len(recorded.tops[1]))

    def on_thought(self, seen: Seen) -> Action:
        return GIVE_UP if seen.at == self.limit > 0 else GO_ON


@dataclass(frozen=True, kw_only=True)
class Watches(Rule):
    """Looks at the log-probabilities and goes on."""

    name: ClassVar[str] = "watches"
    needs: ClassVar[frozenset[str]] = frozenset({"thinking_logprobs"})
    inspect_every: ClassVar[int] = 1

    def on_thought(self, seen: Seen) -> Action:
        return GO_ON


@pytest.mark.parametrize("rule", [DeepConf(), Impatient(), Watches()], ids=lambda rule: rule.name)
def test_a_rule_that_reads_log_probabilities_derives_its_values_from_the_recording(rule: Rule) -> None:
    with pytest.raises(NotRecorded) as caught:
        Run.of(three(), INFO).decide(rule)
    assert caught.value.message == "The log-probabilities of the thinking were not recorded, and the rule needs them."
    run = Run.of([replace(one, tops=(-4.0,) * one.thinking_tokens) for one in three()], INFO)
    assert run.decide(Impatient()).at.tolist() == [25, 25, 25]
    assert not run.decide(DeepConf()).gave_up.any()


def test_a_forced_run_is_named_where_it_was_forced_in_another_way() -> None:
    run, _ = made_of({DEFAULT: GRID}, DEFAULT, config=replace(CONFIG, rule="budget-forcing"))
    with pytest.raises(NotRecorded) as caught:
        run.decide(BudgetForcing(at_most=3))
    assert caught.value.message == "The thinking in made was forced to go on with '\\nWait', without a limit."


# In a store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three traces with token ids, an empty default set, and a set that has only the first trace."""
    with Store.create(tmp_path / "stored", CONFIG) as store:
        for question in ("b", "a"):
            store.add_questions([Question(question, f"{question}?", "7", "integer")])
        for one in three():
            store.add_trace(replace(one, ids=tuple(range(one.thinking_tokens)), question=f"{one.question_id}?"))
        store.add_probe_set(GRID, DEFAULT)
        store.add_probe_set(replace(GRID, interval=5), "every-5")
        store.add_probing(("a", 0), "every-5", three()[0].probes)
    return tmp_path / "stored"


def test_a_stored_run_reads_the_first_set_that_has_probes(folder: Path) -> None:
    run = Run.open(folder)
    assert (run.main, run.info.interval, run.info.name, run.chosen) == ("every-5", 5, "stored", False)
    assert ([*run.keys], run.left_out, run.questions) == ([("a", 0)], 2, ("b", "a"))
    assert ([*run.filled], [*run.sets], run.folder, run.config) == (["every-5"], [DEFAULT, "every-5"], folder, CONFIG)
    assert [one.ids for one in run.traces()] == [()]
    assert [one.ids for one in run.traces(whole=True)] == [tuple(range(60))]
    assert [one.at for one in run.traces()[0].probes] == [10, 20, 30, 40, 50]


def test_a_stored_run_may_be_read_by_another_set(folder: Path) -> None:
    run = Run.open(folder, DEFAULT)
    assert (run.main, run.info.interval, run.keys, run.chosen) == (DEFAULT, 10, frozenset(), True)
    with pytest.raises(UnknownName) as caught:
        Run.open(folder, "every-4")
    assert caught.value.message == "There is no probe set called 'every-4'."
    assert caught.value.hint == "Did you mean 'every-5'? Known: default, every-5."


def test_a_stored_run_without_probe_sets_has_all_its_traces(tmp_path: Path) -> None:
    with Store.create(tmp_path, CONFIG) as store:
        store.add_questions([Question("a", "a?", "7", "integer")])
        store.add_trace(replace(three()[0], probes=(), question="a?"))
    run = Run.open(tmp_path)
    assert (run.main, [*run.keys], run.left_out, run.info.interval) == (None, [("a", 0)], 0, 10)
    assert run.decide(FixedBudget()).at.tolist() == [60]
    with Store.open(tmp_path, write=True) as store:
        store.add_probe_set(GRID, DEFAULT)
    assert Run.open(tmp_path).main == DEFAULT
