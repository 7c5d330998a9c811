"""A second model that is asked instead: it says when, and the one that thinks answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from cgr import Model
from cgr.drive.driver import Driver, Outcome
from cgr.engines.base import Sampling
from cgr.engines.llama.engine import LlamaEngine
from cgr.engines.paired import PairedEngine
from cgr.engines.scripted import Answers, ScriptedEngine
from cgr.errors import UsageError
from cgr.reason import Abstention
from cgr.rules import Cgr, FixedBudget, Rule
from tests.support import OTHERS, QUESTION, SURE, UNSURE, OnlyWatches, certainties, gist, scripted, spec, story, sure_from

OWN = (("4", 0.4), ("2", 0.5), ("}", 1.0))
RULE = Cgr(threshold=0.9, interval=2)


class Letters(ScriptedEngine):
    """Reads letter by letter; what it was told before each probe is kept."""

    def __init__(self, answers: Answers) -> None:
        super().__init__((), answers)
        self.told: list[str] = []

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(self.id_of, text))

    async def decode(self, ids: Sequence[int]) -> str:
        words = list(self._words)
        text = "".join(words[one] for one in ids)
        if text.endswith("boxed{"):
            self.told.append(text)
        return text


def paired(thinking: str, own: Answers, asked: Answers) -> tuple[PairedEngine, ScriptedEngine, Letters]:
    generator, prober = scripted(thinking, own), Letters(asked)
    return PairedEngine(generator, prober), generator, prober


async def run(engine: PairedEngine, rule: Rule = RULE, budget: int = 8, overlap: bool = False, **options: str) -> Outcome:
    session = await engine.open("Why?", Sampling(), room=100)
    driver = Driver(engine, session, spec(**options), overlap=overlap)
    return await driver.run(rule, budget, Abstention())


async def test_the_prober_says_when_and_the_generator_answers() -> None:
    engine, generator, _ = paired("a b c d e f g h", lambda at, suffix: OWN, sure_asked(3))
    decision = (await run(engine)).decision
    assert decision.stop_cause == "certainty"
    assert decision.thinking_tokens == 6
    assert [(probe.at, probe.answer) for probe in decision.probes] == [(2, "3"), (4, "3"), (6, "7")]
    assert decision.answer == "42"
    assert decision.certainty == pytest.approx(0.4)
    assert decision.final is not None
    assert decision.final.at == 6
    assert decision.answer_tokens == 3
    assert story(generator) == "t2 t2 t2 p6"


def sure_asked(count: int) -> Answers:
    """Sure from the so-manieth time that it is asked."""
    asked = 0

    def answers(at: int, suffix: str) -> Sequence[tuple[str, float]]:
        nonlocal asked
        asked += 1
        return SURE if asked >= count else UNSURE

    return answers


@pytest.mark.parametrize("overlap", [False, True])
async def test_it_is_told_all_that_was_thought(overlap: bool) -> None:
    engine, _, prober = paired("a b c d e f g h", sure_from(0), sure_asked(3))
    await run(engine, overlap=overlap)
    assert prober.told == [f"{text}Final Answer: \\boxed{{" for text in ("a b ", "a b c d ", "a b c d e f ")]


async def test_what_is_settled_goes_into_its_session() -> None:
    """And only the rest before each suffix."""
    words = " ".join(f"word{number}" for number in range(400))
    engine, _, prober = paired(words, sure_from(1 << 30), sure_from(1 << 30))
    await run(engine, Cgr(threshold=0.9, interval=50), budget=400)
    assert sum(entry.startswith("append") for entry in prober.log) == 7
    assert all(len(told) < 400 for told in prober.told)
    assert prober.told[-1].endswith("word349 Final Answer: \\boxed{")


async def test_at_the_end_the_generator_is_asked_as_ever() -> None:
    engine, generator, prober = paired("a b c </think> x", sure_from(0), sure_asked(9))
    decision = (await run(engine)).decision
    assert (decision.stop_cause, decision.answer) == ("end_of_thinking", "7")
    assert story(generator) == "t2 t2 P3"
    assert len(prober.told) == 1


async def test_the_end_tag_is_each_models_own() -> None:
    engine, _, prober = paired("a b c d e f g h", sure_from(0), sure_asked(2))
    prober.info = type(prober.info)("letters", "scripted", 1000, "[T]", "[/T]")
    await run(engine, close_think="always")
    assert prober.told == ["a b [/T]Final Answer: \\boxed{", "a b c d [/T]Final Answer: \\boxed{"]


async def test_a_stop_is_asked_for_as_a_probe_is() -> None:
    """`auto` closes the thinking before the answer at the budget, not before one that a sure probe would have given."""
    engine, generator, _ = paired("a b c d e f g h", sure_from(0), sure_asked(2))
    await run(engine, close_think="auto")
    assert story(generator) == "t2 t2 p4"


async def test_nothing_is_asked_of_it_without_probes() -> None:
    engine, generator, prober = paired("a b c d e f g h", sure_from(0), sure_asked(1))
    decision = (await run(engine, FixedBudget())).decision
    assert (decision.answer, decision.probes, prober.told) == ("7", (), [])
    assert story(generator) == "t8 p8"


async def test_both_sessions_are_closed() -> None:
    engine, *_ = paired("a b", sure_from(0), sure_asked(1))
    session = await engine.open("Why?", Sampling(), room=9)
    closed: list[str] = []

    async def close_one() -> None:
        closed.append("generator")

    async def close_other() -> None:
        closed.append("prober")

    session.session.close, session.reader.session.close = close_one, close_other  # type: ignore[method-assign]
    await session.close()
    assert closed == ["generator", "prober"]


async def test_a_prompt_of_tokens_needs_its_question() -> None:
    engine, *_ = paired("a b", sure_from(0), sure_asked(1))
    with pytest.raises(UsageError):
        await engine.open((1, 2, 3), Sampling(), room=9)
    await engine.open("Why not?", Sampling(), room=9)


async def test_probabilities_are_needed_of_both() -> None:
    engine, generator, prober = paired("a b", sure_from(0), sure_asked(1))
    assert engine.capabilities.gives("logprobs")
    for one in (generator, prober):
        was = one.capabilities
        one.capabilities = type(was)("none")
        assert not engine.capabilities.gives("logprobs")
        one.capabilities = was


async def test_the_vocabulary_decides_how_it_is_told(engine: LlamaEngine) -> None:
    assert await PairedEngine(engine, engine).same_vocabulary()
    assert not await PairedEngine(engine, Letters(sure_asked(1))).same_vocabulary()


@pytest.mark.parametrize("question", [QUESTION, OTHERS[1]])
@pytest.mark.parametrize("options", [{}, {"close_think": "auto"}, {"rule": "cgr-forced", "budget": 200}])
async def test_the_same_file_twice_is_plain_probing(model: Model, question: str, options: dict[str, Any]) -> None:
    """Told in its own tokens, it decides the same, at the same place."""
    wanted: dict[str, Any] = {"threshold": 0.9, "budget": 400, "seed": 3} | options
    plain = await model.asolve(question, **wanted)
    pair = Model(PairedEngine(model.engine, model.engine))
    both = await pair.asolve(question, **wanted)
    assert gist(both) == gist(plain)
    assert certainties(both) == pytest.approx(certainties(plain), abs=1e-4)
    assert (plain.probe_model, both.probe_model) == (None, "embedded")
    assert both.summary()["probe_model"] == "embedded"


async def test_the_same_file_told_as_text(model: Model) -> None:
    """The embedded model writes as it reads, so that its own text comes back as its own tokens."""
    pair = PairedEngine(model.engine, model.engine)
    pair._same_vocabulary = False
    plain, told = [
        await one.asolve(QUESTION, rule=OnlyWatches.name, interval=32, budget=300) for one in (model, Model(pair))
    ]
    assert [probe.answer for probe in told.probes] == [probe.answer for probe in plain.probes]
    assert certainties(told) == pytest.approx(certainties(plain), abs=1e-4)
    assert all(math.isfinite(value) for value in certainties(told))
    assert all(probe.cached > probe.prefilled for probe in told.probes[2:])
