"""A session with a reader: a second model is probed on the way, and the model that thinks gives the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cgr.drive.driver import Driver, Outcome
from cgr.engines.base import Answered, Done, Engine, ModelInfo, Sampling
from cgr.engines.scripted import Answers, Scripted, ScriptedEngine, ScriptedSession
from cgr.reason import Abstention
from cgr.records import Token
from cgr.rules import Cgr
from tests.support import SURE, UNSURE, scripted, spec, sure_from

EIGHT = "a b c d e f g h"
RULE = Cgr(threshold=0.9, interval=2)


class Letters(ScriptedEngine):
    """Has a token for each letter, and tags of its own."""

    def __init__(self, answers: Answers) -> None:
        super().__init__((), answers)
        self.info = ModelInfo("letters", "scripted", 1000, "[T]", "[/T]")

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(self.id_of, text))

    async def decode(self, ids: Sequence[int]) -> str:
        return "".join(list(self._words)[one] for one in ids)


class Follows:
    """A reader that notes what it is asked."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.letters = engine
        self.asked: list[tuple[list[int], str, int, list[int], int]] = []

    @property
    def engine(self) -> Engine:
        return self.letters

    async def probe(
        self, ids: Sequence[int], suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, top: int = -1
    ) -> Answered:
        self.asked.append((list(ids), await self.letters.decode(suffix), limit, list(guess), top))
        session = ScriptedSession(self.letters, Sampling())
        session.at = len(ids)
        return await session.probe(suffix, limit, done, guess)


class Guesses(ScriptedSession):
    """Notes the guesses that it is given."""

    guesses: list[tuple[int, ...]]

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        self.guesses.append(tuple(guess))
        return await super().probe(suffix, limit, done, guess, rewind=rewind, top=top)


async def read_along(
    own: Answers, asked: Answers, budget: int = 8, **options: Any
) -> tuple[Outcome, Follows, ScriptedEngine, Guesses]:
    engine, reader = scripted(EIGHT, own), Follows(Letters(asked))
    session = Guesses(engine, Sampling())
    session.reader, session.guesses = reader, []
    outcome = await Driver(engine, session, spec(**options)).run(RULE, budget, Abstention())
    return outcome, reader, engine, session


async def test_the_reader_is_probed_and_the_session_answers() -> None:
    """The reader gets all that was thought, its own suffix, and its last answer as a guess; the session gets no guess."""
    own = (("4", 0.4), ("2", 0.5), ("}", 1.0))
    outcome, reader, engine, session = await read_along(lambda at, suffix: own, sure_from(6))
    decision = outcome.decision
    assert [(probe.at, probe.answer) for probe in decision.probes] == [(2, "3"), (4, "3"), (6, "7")]
    assert (decision.stop_cause, decision.answer, decision.thinking_tokens) == ("certainty", "42", 6)
    assert decision.final is not None
    assert (decision.final.at, decision.final.suffix_ids) == (6, await engine.encode("Final Answer: \\boxed{"))
    three = reader.letters.id_of("3")
    assert reader.asked == [
        ([0, 1], "Final Answer: \\boxed{", 4, [], 0),
        ([0, 1, 2, 3], "Final Answer: \\boxed{", 4, [three], 0),
        ([0, 1, 2, 3, 4, 5], "Final Answer: \\boxed{", 4, [three], 0),
    ]
    assert session.guesses == [()]


async def test_at_the_budget_the_session_is_asked() -> None:
    outcome, reader, _, _ = await read_along(sure_from(0), sure_from(99), budget=4)
    assert (outcome.decision.stop_cause, outcome.decision.answer, len(reader.asked)) == ("budget", "7", 1)


async def test_the_end_tag_is_the_readers_own() -> None:
    _, reader, engine, _ = await read_along(sure_from(0), sure_from(2), close_think="always")
    assert [suffix for _, suffix, *_ in reader.asked] == ["[/T]Final Answer: \\boxed{"]
    assert engine.log[-1] == "probe 2 </think> Final Answer: \\boxed{"


async def test_an_answer_after_a_sure_probe_is_asked_for_as_a_probe_is() -> None:
    """`auto` closes the thinking only before the answer at the budget."""
    _, _, engine, _ = await read_along(sure_from(0), sure_from(2), close_think="auto")
    assert engine.log[-1] == "probe 2 Final Answer: \\boxed{"
    _, _, engine, _ = await read_along(sure_from(0), sure_from(99), 2, close_think="auto")
    assert engine.log[-1] == "probe 2 </think> Final Answer: \\boxed{"


async def test_options_are_read_from_the_tokens_of_the_reader() -> None:
    letter: tuple[Scripted, ...] = (("B", 0.6, {"B": 0.6, "A": 0.2}), ("}", 0.99))
    outcome, reader, _, _ = await read_along(lambda at, suffix: UNSURE, lambda at, suffix: letter, 4, options=("A", "B"))
    probe = outcome.decision.probes[0]
    assert [(name, round(chance, 6)) for name, chance in probe.options] == [("A", 0.2), ("B", 0.6)]
    assert isinstance(probe.tokens[0], Token)
    assert probe.tokens[0].id == reader.letters.id_of("B")


async def test_without_a_reader_the_sure_probe_is_the_answer() -> None:
    engine = scripted(EIGHT, lambda at, suffix: SURE)
    outcome = await Driver(engine, await engine.open("", Sampling()), spec()).run(RULE, 8, Abstention())
    assert (outcome.decision.final, outcome.decision.answer) == (None, "7")
