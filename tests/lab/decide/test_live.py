"""Every rule live, over a recording, and over arrays: the same. What a recording lacks is said by name."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cgr.drive.driver import Driver
from cgr.engines.base import Prompt, Sampling
from cgr.engines.scripted import ScriptedEngine
from cgr.errors import NotRecorded, UnknownName, UsageError
from cgr.lab.decide.arrays import Decisions, at_budget
from cgr.lab.decide.replay import reads_whole, replay, replayed
from cgr.lab.decide.run import Run
from cgr.lab.fit import calibrated_threshold, warm_floor
from cgr.lab.record.generate import agenerate
from cgr.lab.record.probe import aprobe
from cgr.lab.store import Store
from cgr.lab.store.checks import write_all
from cgr.lab.store.config import ProbeRequest
from cgr.lab.store.needed_probes import requests_for, requests_of
from cgr.lab.store.recorded import RecordedTrace
from cgr.probing import ProbeSpec
from cgr.reason import Abstention
from cgr.records import Conversation, Decision, Question, messages_of
from cgr.rules import (
    AnswerConsistency,
    BudgetForcing,
    Cgr,
    CgrForced,
    Conformal,
    DeepConf,
    Deer,
    Dynasor,
    Eat,
    FixedBudget,
    NoThinking,
    PumaVerify,
    Rule,
    SureTwice,
    known_rules,
)
from cgr.rules.deepconf import lowest_groups
from cgr.rules.forced_thinking import keep_thinking
from tests.lab.decide.test_replay import FIELDS
from tests.lab.record.test_generate import plan
from tests.support import run as told
from tests.support import scripted

BUDGET, INTERVAL, SCRIPTS = 48, 4, 12
WORDS = ("a", "b.", "so", "Wait", "Waiter", "Alternatively", "\n\n", "\n", ".\n\n", "hmm")
RULES: tuple[Rule, ...] = (
    *(Deer(threshold=threshold) for threshold in (0.3, 0.6, 0.9)),
    *(Deer(average="avg2", threshold=threshold) for threshold in (0.2, 0.6)),
    Deer(threshold=0.7, trials=2),
    *(Dynasor(agree=agree, every=INTERVAL) for agree in (1, 2, 3)),
    Dynasor(agree=2, every=2 * INTERVAL),
    *(Eat(delta=delta, min_steps=steps) for delta, steps in itertools.product((0.01, 0.5, 5.0), (1, 2, 4))),
    *(AnswerConsistency(agree=agree, interval=INTERVAL) for agree in (1, 2, 4)),
    AnswerConsistency(agree=2, interval=3 * INTERVAL),
    *(PumaVerify(threshold=threshold, drop=0.2, interval=INTERVAL) for threshold in (0.3, 0.6, 0.9)),
    *(Conformal(threshold=high, floor=low, interval=INTERVAL) for high, low in ((0.6, 0.0), (0.9, 0.3), (0.99, 0.9))),
    *(DeepConf(floor=floor, window=5) for floor in (3.0, 4.0, 5.0)),
    Cgr(threshold=0.6, interval=INTERVAL),
    FixedBudget(),
    NoThinking(),
)


class Story(ScriptedEngine):
    """Thinks something else on every question, by chance; answers by the question, the place and the suffix."""

    def __init__(self) -> None:
        super().__init__((), self._answer, entropies=self._entropy, tops=self._top)
        self.question = ""

    async def prompt(self, conversation: Conversation) -> tuple[int, ...]:
        text = messages_of(conversation)[-1].content
        return (self.id_of(f"?{text.split(maxsplit=1)[0]}"),)

    async def open(self, prompt: Prompt, sampling: Sampling, **more: Any) -> Any:
        ids = prompt if not isinstance(prompt, str) and isinstance(prompt[0], int) else await self.prompt(prompt)  # type: ignore[arg-type]
        story = Told(self, list(self._words)[ids[0]])  # type: ignore[index]
        return await story.open(prompt, sampling)

    def _answer(self, at: int, suffix: str) -> Sequence[tuple[str, float]]:
        raise NotImplementedError

    def _entropy(self, at: int) -> float:
        raise NotImplementedError

    def _top(self, at: int) -> float:
        raise NotImplementedError


class Told(Story):
    """The story of one question."""

    def __init__(self, whole: Story, question: str) -> None:
        ScriptedEngine.__init__(self, (), self._answer, entropies=self._entropy, tops=self._top)
        self.question, self._words = question, whole._words
        chance = random.Random(question)
        self.thinking = (*chance.choices(WORDS, k=chance.randint(5, 2 * BUDGET)), "</think>")

    async def open(self, prompt: Prompt, sampling: Sampling, **more: Any) -> Any:
        return await ScriptedEngine.open(self, prompt, sampling)

    def _chance(self, *what: object) -> random.Random:
        return random.Random(repr((self.question, *what)))

    def _answer(self, at: int, suffix: str) -> Sequence[tuple[str, float]]:
        chance = self._chance(at, suffix)
        begin = [("{", 0.9)] if suffix.endswith("boxed") else []
        digits = [(chance.choice("778"), chance.choice((0.2, 0.5, 0.8, 0.95, 0.99)))]
        end = chance.choice(([("}", 0.9), ("now", 0.5)], [("}", 0.9), (" wait", 0.5)], [("}.", 0.9), ("</think>", 0.9)]))
        return [*begin, *digits, *(end if chance.random() < 0.8 else [("7", 0.9)] * 30)]

    def _entropy(self, at: int) -> float:
        return self._chance(at).choice((0.0, 0.5, 1.0, 1.0, 3.0))

    def _top(self, at: int) -> float:
        return -self._chance(at, "top").choice((2.0, 4.0, 6.0))


ENGINE = Story()


def asked() -> tuple[Question, ...]:
    return tuple(Question(f"q{number}", f"{number} ?", "7", "integer") for number in range(SCRIPTS))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of many short stories, with all that every rule needs."""
    folder = tmp_path_factory.mktemp("rivals")

    async def make() -> None:
        await agenerate(folder, plan(asked(), budget=BUDGET, interval=INTERVAL, logprobs=True), ENGINE)
        with Store.open(folder) as store:
            config = store.config
        wishes = requests_for(["cgr", "all"], config)
        more = [wish for rule in RULES for wish in requests_of(rule)]
        for wish in (*wishes, *more):
            await aprobe(folder, wish, ENGINE)

    asyncio.run(make())
    return folder


async def live(rule: Rule, question: Question, **options: Any) -> Decision:
    session = await ENGINE.open(question.text, Sampling(logprobs=bool(rule.inspect_every)))
    driver = Driver(ENGINE, session, ProbeSpec(max_answer_tokens=4), full=True, **options)
    return (await driver.run(rule.within(BUDGET), BUDGET, Abstention())).decision


def read_by(recordings: Run, rule: Rule) -> Sequence[RecordedTrace]:
    """The traces with the probes that this rule reads."""
    return recordings.rule_traces(*recordings.sets_for(rule)[:1], whole=reads_whole(rule))


def assert_same(one: Decisions, other: Decisions) -> None:
    for name in (*FIELDS, "gave_up"):
        assert getattr(one, name).tolist() == pytest.approx(getattr(other, name).tolist()), name


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_live_is_replayed_and_replayed_is_over_arrays(rule: Rule, run: Path) -> None:
    recordings = Run.open(run)
    decided = recordings.decide(rule)
    made = [asyncio.run(live(rule, question)) for question in asked()]
    assert decided.at.tolist() == [one.thinking_tokens for one in made]
    assert decided.sure.tolist() == [one.stop_cause == "certainty" for one in made]
    assert decided.gave_up.tolist() == [one.stop_cause == "gave_up" for one in made]
    assert decided.right.tolist() == [one.closed and one.answer == "7" for one in made]
    assert decided.certainty.tolist() == pytest.approx([one.certainty for one in made])
    stopped = [one.stop_cause == "certainty" for one in made]
    paid = [one.probe_tokens + (one.answer_tokens if sure else 0) for one, sure in zip(made, stopped, strict=True)]
    assert decided.probe_tokens.tolist() == paid
    names = recordings.sets_for(rule)
    answers = recordings.rule_traces(names[1]) if len(names) > 1 else None
    assert_same(
        decided,
        replayed(
            rule.within(BUDGET),
            read_by(recordings, rule),
            ProbeSpec(),
            answers,
        ),
    )


def test_the_stories_are_worth_it(run: Path) -> None:
    """Each kind of rule stops somewhere and somewhere not; two give up."""
    recordings = Run.open(run)
    for name, rules in itertools.groupby(RULES, key=lambda rule: rule.name):
        if name in ("fixed-budget", "no-thinking"):
            continue
        outcomes = [recordings.decide(rule) for rule in rules]
        ended = np.concatenate([one.sure | one.gave_up for one in outcomes])
        assert ended.any(), name
        assert not ended.all(), name
        assert np.concatenate([one.gave_up for one in outcomes]).any() == (name in ("conformal", "deepconf"))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.place], ids=str)
async def test_marks_are_found_as_they_come_with_overlap_too(rule: Rule) -> None:
    for question in asked():
        plainly, overlapped = await live(rule, question), await live(rule, question, overlap=True)
        assert [probe.at for probe in plainly.probes] == [probe.at for probe in overlapped.probes]
        assert plainly.thinking_tokens == overlapped.thinking_tokens


def test_each_set_is_made_once_and_named_by_what_it_is(run: Path) -> None:
    with Store.open(run) as store:
        names = store.probe_sets()
        config = store.config
    assert {"default", "wait", "wait-text", "every-4-text", "paragraph-entropy", "paragraph", "start"} <= names.keys()
    shared = requests_for(["cgr", "answer-consistency", "puma-verify", "conformal"], config)
    assert len(shared) == 1
    assert requests_for(["fixed-budget", "deepconf", "budget-forcing", "cgr-forced"], config) == []
    with pytest.raises(UnknownName, match="no rule called 'dear'"):
        requests_for(["dear"], config)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A run with nothing but its default probes."""

    async def make() -> None:
        await agenerate(tmp_path, plan(asked()[:2], budget=BUDGET, interval=INTERVAL, probe=True), ENGINE)

    asyncio.run(make())
    return tmp_path


@pytest.mark.parametrize(
    ("rule", "message", "hint"),
    [
        (Deer(), "probes at each wait after", "--for deer"),
        (Dynasor(), "every 32 tokens after .* with what follows the answer", "--for dynasor"),
        (Eat(), "at each paragraph after .* for the next token's entropy", "--for eat"),
        (Cgr(interval=6), "every 6 tokens", "--for cgr"),
        (NoThinking(), "before any thinking with the thinking closed", "--for no-thinking"),
        (DeepConf(), "log-probabilities of the thinking", "--logprobs"),
        (known_rules()["budget-forcing"](), "forces the model to keep thinking", "--rule budget-forcing"),
    ],
    ids=lambda value: value.name if isinstance(value, Rule) else "",
)
def test_what_is_missing_is_said_by_name(bare: Path, rule: Rule, message: str, hint: str) -> None:
    with pytest.raises(NotRecorded, match=message) as caught:
        Run.open(bare).decide(rule)
    assert hint in caught.value.hint


def test_rules_without_a_way_of_their_own_need_no_more_than_the_default(bare: Path) -> None:
    recordings = Run.open(bare)
    for rule in (Cgr(interval=INTERVAL), PumaVerify(interval=2 * INTERVAL), AnswerConsistency(interval=INTERVAL)):
        assert recordings.sets_for(rule) == ("default",)
        assert len(recordings.decide(rule).at) == len(recordings.rule_columns())


def test_the_floor_of_deepconf_comes_from_the_first_trace_of_each_question(run: Path) -> None:
    recordings = Run.open(run)
    lowest = np.array([lowest_groups(trace.tops, 5)[-1] for trace in recordings.rule_traces(whole=True)])
    floors = [warm_floor(recordings, DeepConf(window=5, percentile=share)) for share in (0, 50, 100)]
    assert floors == [lowest.min(), np.median(lowest), lowest.max()]
    assert not recordings.decide(DeepConf(window=5, percentile=0)).gave_up.any()
    half = recordings.decide(DeepConf(window=5, percentile=50))
    assert half.gave_up.tolist() == (lowest < floors[1]).tolist()
    assert half.gave_up.any()
    assert DeepConf().has_array_form


def test_a_threshold_that_costs_too_much_is_not_chosen(run: Path) -> None:
    recordings = Run.open(run)
    rule = Conformal(interval=INTERVAL, floor=0.0)
    strict, lax = (calibrated_threshold(recordings, rule, epsilon) for epsilon in (0.0, 1.0))
    assert (strict, lax) == (rule.grid[-1], rule.grid[0])
    some = calibrated_threshold(recordings, rule, 0.3, ["q0", "q1", "q2"])
    lost = recordings.rule_columns().final_right & ~recordings.decide(replace(rule, threshold=some)).right
    assert some == rule.grid[-1] or (lost[:3].sum() + 1) / 4 <= 0.3


@pytest.fixture
def unfinished(bare: Path) -> Path:
    asyncio.run(aprobe(bare, requests_of(Deer())[0], ENGINE))
    with Store.open(bare, write=True) as store:
        store._db.execute("DELETE FROM probes")
        store._db.execute("DELETE FROM probings WHERE trace = 1 AND probe_set = 2")
        write_all(store._db)
    return bare


def test_a_set_that_was_not_finished_is_named(unfinished: Path) -> None:
    with pytest.raises(NotRecorded, match="'wait' lacks 1 trace"):
        Run.open(unfinished).decide(Deer())


FORCED = "a b c </think> d e f g </think> h i </think> j k l m n o p q r s t u v w x y z"


@pytest.mark.parametrize("probed", ["on the way", "after"])
@pytest.mark.parametrize(("budget", "interval"), [(20, 4), (16, 3), (7, 5)])
def test_a_forced_run_serves_both_ways_of_forcing(tmp_path: Path, probed: str, budget: int, interval: int) -> None:
    def engine() -> ScriptedEngine:
        return scripted(FORCED, lambda at, suffix: ((str(at % 10), 0.5 + at / 50), ("}", 0.9)))

    probe = probed == "on the way"
    wanted = plan(asked()[:1], budget=budget, interval=interval, rule="cgr-forced", probe=probe)
    asyncio.run(agenerate(tmp_path, wanted, engine()))
    if probed == "after":
        asyncio.run(aprobe(tmp_path, ProbeRequest(), engine()))
    recordings = Run.open(tmp_path)
    (trace,) = recordings.rule_traces()
    assert [at for at, _ in trace.forced][:2] == [at for at in (3, 9) if at < budget]
    for rule in (BudgetForcing(), *(CgrForced(interval=interval, threshold=level) for level in (0.5, 0.6, 0.7, 0.8, 0.99))):
        made = asyncio.run(told(engine(), rule, budget, full=True)).decision
        decided = recordings.decide(rule)
        assert (decided.at[0], decided.sure[0]) == (made.thinking_tokens, made.stop_cause == "certainty")
        assert (decided.probe_tokens[0], decided.certainty[0]) == (made.probe_tokens, pytest.approx(made.certainty))
        assert replay(rule, read_by(recordings, rule)[0]).forced == made.forced


@pytest.mark.parametrize("at_most", [None, 1])
@pytest.mark.parametrize(("budget", "interval"), [(20, 4), (16, 3), (7, 5)])
def test_on_a_forced_run_every_rule_decides_inside_the_forced_thinking(
    tmp_path: Path, at_most: int | None, budget: int, interval: int
) -> None:
    def engine() -> ScriptedEngine:
        return scripted(FORCED, lambda at, suffix: ((str(at // 4), 0.5 + at / 50), ("}", 0.9)))

    how: dict[str, Any] = {} if at_most is None else {"at_most": at_most}
    wanted = plan(asked()[:1], budget=budget, interval=interval, rule="budget-forcing", probe=True, parameters=how)
    asyncio.run(agenerate(tmp_path, wanted, engine()))
    recordings = Run.open(tmp_path)
    levels = (0.5, 0.6, 0.7, 0.99)
    rules = [kind(interval=interval, threshold=level) for kind in (Cgr, SureTwice) for level in levels]
    for rule in (FixedBudget(), *rules):
        made = asyncio.run(told(engine(), keep_thinking(rule, "\nWait", at_most), budget, full=True)).decision
        decided = recordings.decide(rule)
        assert (decided.at[0], decided.sure[0]) == (made.thinking_tokens, made.stop_cause == "certainty")
        assert (decided.probe_tokens[0], decided.certainty[0]) == (made.probe_tokens, pytest.approx(made.certainty))


def test_a_smaller_budget_on_a_forced_run_is_answered_after_the_appended_text(tmp_path: Path) -> None:
    engine = scripted(FORCED, lambda at, suffix: ((str(at % 10), 0.5), ("}", 0.9)))
    asyncio.run(agenerate(tmp_path, plan(asked()[:1], budget=20, interval=2, rule="budget-forcing", probe=True), engine))
    columns = Run.open(tmp_path).rule_columns()
    moved = {int(due): int(at) for due, at in zip(columns.due[0], columns.at[0], strict=True) if due != at}
    (start, count) = Run.open(tmp_path).rule_traces()[0].forced[0]
    assert moved
    assert start + count in moved.values()
    for budget in range(2, 20, 2):
        assert at_budget(columns, budget).at.tolist() == [moved.get(budget, budget)]


@pytest.mark.parametrize("probe", [False, True])
def test_fewer_forcings_are_not_what_was_recorded(tmp_path: Path, probe: bool) -> None:
    asyncio.run(agenerate(tmp_path, plan(asked()[:1], budget=20, rule="budget-forcing", probe=probe), scripted(FORCED)))
    for rule in (BudgetForcing(at_most=1), CgrForced(text="\nHm"), BudgetForcing(text="\nHm")):
        with pytest.raises(NotRecorded, match=r"forced to go on with '\\nWait', without a limit"):
            Run.open(tmp_path).decide(rule)
    with pytest.raises(NotRecorded, match="an end after 9 tokens, where it was forced on"):
        replay(BudgetForcing(at_most=1), Run.open(tmp_path).rule_traces()[0])


@pytest.mark.parametrize("probed", ["on the way", "after"])
@pytest.mark.parametrize("text", ["\nWait", "Hm let me see"])
def test_a_run_that_was_forced_once_serves_the_same_forcing(tmp_path: Path, probed: str, text: str) -> None:
    def engine() -> ScriptedEngine:
        return scripted(FORCED, lambda at, suffix: ((str(at % 10), 0.5 + at / 50 + 0.1 * ("think" in suffix)), ("}", 0.9)))

    once: dict[str, Any] = {"at_most": 1, "text": text}
    wanted = plan(asked()[:1], budget=20, interval=4, rule="budget-forcing", probe=probed == "on the way", parameters=once)
    asyncio.run(agenerate(tmp_path, wanted, engine()))
    if probed == "after":
        asyncio.run(aprobe(tmp_path, ProbeRequest(), engine()))
    run = Run.open(tmp_path)
    (trace,) = run.rule_traces()
    assert (len(trace.forced), trace.ended) == (1, "end_of_thinking")
    levels = (0.5, 0.6, 0.65, 0.7, 0.8, 0.99)
    for rule in (BudgetForcing(), *(CgrForced(interval=4, threshold=level) for level in levels)):
        made = asyncio.run(told(engine(), replace(rule, **once), 20, full=True)).decision
        for asked_for in (rule, replace(rule, **once)):  # the run says how it was forced
            decided = run.decide(asked_for)
            assert (decided.at[0], decided.sure[0]) == (made.thinking_tokens, made.stop_cause == "certainty")
            assert (decided.probe_tokens[0], decided.certainty[0]) == (made.probe_tokens, pytest.approx(made.certainty))
    with pytest.raises(NotRecorded, match="at most 1 times"):
        run.decide(BudgetForcing(at_most=2, text=text))


@pytest.mark.parametrize("rule", ["budget-forcing", "cgr-forced"])
def test_only_text_and_limit_change_a_forced_recording(rule: str) -> None:
    with pytest.raises(UsageError, match="'forcing' does not change how traces are recorded"):
        plan(asked()[:1], rule=rule, parameters={"forcing": "ban"})
