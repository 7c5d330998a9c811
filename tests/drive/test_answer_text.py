"""The answer as text after the thinking: written by the model, only the boxed answer, or withheld."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from cgr.drive.answer import AnswerStyle, BlankStops, Style, WrittenAnswer, ends_sentence
from cgr.drive.driver import Driver, Outcome
from cgr.drive.events import Answering, Decided, Event, Probed, Thinking
from cgr.engines.base import Sampling, Written
from cgr.engines.scripted import ScriptedEngine, ScriptedSession
from cgr.reason import Abstention
from cgr.records import Decision, Token
from cgr.rules import Cgr, Deer, FixedBudget, NoThinking, Rule
from tests.support import SURE, UNCLOSED, run, scripted, spec, sure_from

RULE = Cgr(threshold=0.9, interval=2)
TOKEN = Token(5, "so", math.log(0.5))


async def answered(
    engine: ScriptedEngine, style: AnswerStyle, rule: Rule = RULE, budget: int = 8, **options: Any
) -> tuple[Outcome, list[Event]]:
    """The outcome, and the events from the decision on."""
    events: list[Event] = []
    outcome = await run(engine, rule, budget, style=style, on_event=events.append, **options)
    return outcome, events[events.index(Decided(outcome.decision)) :]


def words_of(engine: ScriptedEngine, words: str) -> tuple[int, ...]:
    return tuple(map(engine.id_of, words.split(" ")))


def thought_of(engine: ScriptedEngine) -> list[str]:
    return [entry for entry in engine.log if entry.startswith(("think", "append"))]


async def test_after_a_cut_the_wrap_up_ends_the_thinking_and_the_model_answers() -> None:
    engine, events = scripted("a b c d so it is <eos> x", sure_from(4)), list[Event]()
    outcome = await run(engine, RULE, 8, style=AnswerStyle(wrap_up="\nI know"), on_event=events.append)
    decision = outcome.decision
    assert (decision.stop_cause, decision.thinking_tokens, decision.answer) == ("certainty", 4, "7")
    assert outcome == Outcome(decision, words_of(engine, "a b c d \n I know"), "", 0, WrittenAnswer(3, "eos"))
    assert events == [
        Thinking("a b "),
        Probed(decision.probes[0]),
        Thinking("c d "),
        Probed(decision.probes[1]),
        Thinking("\nI know", forced=True),
        Decided(decision),
        Answering("so", 1),
        Answering(" it", 1),
        Answering(" is", 1),
        Answering("", 0),
        Answering(""),
    ]


WRAPPED: list[tuple[str, str, str, int]] = [
    ("at the budget", "a b c d e f so", "a b c d e f Enough", 1),
    ("at the model's own end", "a b c </think> so it", "a b c", 0),
]


@pytest.mark.parametrize(("script", "thinking", "written"), [row[1:] for row in WRAPPED], ids=[row[0] for row in WRAPPED])
async def test_the_wrap_up_is_written_only_where_the_thinking_was_cut(script: str, thinking: str, written: int) -> None:
    engine = scripted(script)
    outcome, _ = await answered(engine, AnswerStyle(wrap_up="Enough", sentence_wait=3), budget=6)
    assert outcome.ids == words_of(engine, thinking)
    assert thought_of(engine) == [*["think 2"] * (2 + written), f"append {written}"]


class NothingToEncode(ScriptedEngine):
    async def encode(self, text: str) -> tuple[int, ...]:
        assert text, "a server would be asked for nothing"
        return await super().encode(text)


async def test_without_a_wrap_up_nothing_is_written() -> None:
    engine, events = NothingToEncode(tuple("abcdef"), sure_from(4)), list[Event]()
    outcome = await run(engine, RULE, 8, style=AnswerStyle(), on_event=events.append)
    assert outcome.ids == words_of(engine, "a b c d")
    assert [event for event in events if isinstance(event, Thinking)] == [Thinking("a b "), Thinking("c d ")]
    assert outcome.answer == WrittenAnswer(2, "eos")


LIMITS: list[tuple[int | None, int, WrittenAnswer]] = [
    (None, 100, WrittenAnswer(5, "eos")),
    (None, 3, WrittenAnswer(3, "limit")),
    (9, 2, WrittenAnswer(5, "limit")),
    (7, 100, WrittenAnswer(3, "limit")),
    (5, 100, WrittenAnswer(1, "limit")),
    (4, 100, WrittenAnswer(1, "limit")),
    (1, 100, WrittenAnswer(1, "limit")),
]


@pytest.mark.parametrize(("max_tokens", "context", "expected"), LIMITS)
async def test_thinking_and_answer_share_the_limit(max_tokens: int | None, context: int, expected: WrittenAnswer) -> None:
    """One token is left for the answer in any case; without a limit, it is that of the context."""
    engine = ScriptedEngine(tuple("abcdvwxyz"), sure_from(4), context)
    outcome, _ = await answered(engine, AnswerStyle(max_tokens=max_tokens))
    assert outcome.answer == expected


WAITS: list[tuple[str, str, int, int, str]] = [
    ("to the end of the sentence", "a b c d e f. g h", 8, 20, "a b c d e f."),
    ("no longer than allowed", "a b c d e f. g h", 1, 20, "a b c d e"),
    ("exactly as long as allowed", "a b c d e f g h", 2, 20, "a b c d e f"),
    ("not where none is allowed", "a b c d e f. g h", 0, 20, "a b c d"),
    ("not past the budget", "a b c d e f g h. i j", 5, 6, "a b c d e f"),
    ("not after a whole sentence", "a b c d. e f. g", 5, 20, "a b c d."),
    ("not past the model's own end", "a b c d e </think> f g. h", 5, 20, "a b c d e"),
]


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize(
    ("script", "wait", "budget", "thinking"), [row[1:] for row in WAITS], ids=[row[0] for row in WAITS]
)
async def test_a_cut_waits_for_the_end_of_a_sentence(
    script: str, wait: int, budget: int, thinking: str, watched: bool
) -> None:
    engine, events = scripted(script, sure_from(4)), list[Event]()
    style = AnswerStyle(sentence_wait=wait)
    outcome = await run(engine, RULE, budget, style=style, on_event=events.append if watched else None)
    assert outcome.ids == words_of(engine, thinking)
    assert outcome.decision.thinking_tokens == 4
    assert set(thought_of(engine)) <= {"think 2", "think 1", "append 0"}


SENTENCES: list[tuple[str, bool]] = [
    ("", False),
    (" ", False),
    ("so", False),
    ("so,", False),
    ("so.", True),
    ("so.  ", True),
    (" so. x", False),
    ("so.X", False),
    ("so!", True),
    ("so?", True),
    ("so。", True),
    ("so！", True),
    ("so？", True),
    ("so;", True),
    ("so\n", True),
    ("3\n", True),
    ("3;", True),
    (".", True),
    ("3.", False),
    ("a3.", False),
    ("is 33. ", False),
    ("3 .", True),
    ("3x.", True),
]


@pytest.mark.parametrize(("text", "ends"), SENTENCES)
def test_ends_of_sentences(text: str, ends: bool) -> None:
    assert ends_sentence(text) is ends


BOXED: list[tuple[str, dict[str, Any], Any, int, str, WrittenAnswer]] = [
    ("a sure probe", {}, sure_from(6), 8, "Final Answer: \\boxed{7}", WrittenAnswer(3 + 2, "eos")),
    ("the budget", {}, sure_from(99), 4, "Final Answer: \\boxed{3}", WrittenAnswer(3 + 2, "eos")),
    ("no brace", {}, lambda at, suffix: UNCLOSED, 4, "Final Answer: \\boxed{1234}", WrittenAnswer(3 + 4, "limit")),
    (
        "a prefix with end tags",
        {"prefix": "I stop.</think> So </think>It is \\boxed{"},
        sure_from(6),
        8,
        "It is \\boxed{7}",
        WrittenAnswer(3 + 2, "eos"),
    ),
]


@pytest.mark.parametrize(
    ("probing", "answers", "budget", "text", "written"), [row[1:] for row in BOXED], ids=[row[0] for row in BOXED]
)
async def test_the_boxed_answer_is_the_prefix_and_the_probed_answer(
    probing: dict[str, Any], answers: Any, budget: int, text: str, written: WrittenAnswer
) -> None:
    """Its tokens are those of the prefix and those that the probe decoded; nothing else is written."""
    engine = scripted("a b c d e f g h so it is", answers)
    style = AnswerStyle("boxed", wrap_up="Enough", sentence_wait=9)
    outcome, events = await answered(engine, style, budget=budget, spec=spec(**probing))
    assert events == [Decided(outcome.decision), Answering(text)]
    assert outcome.answer == written
    assert not [entry for entry in engine.log if entry.startswith("append")]


@pytest.mark.parametrize("style", ["full", "boxed"])
async def test_an_answer_that_is_withheld_is_replaced(style: Style) -> None:
    engine = scripted("a b c d so it is")
    written = AnswerStyle(style, abstention="I do not know.")
    outcome, events = await answered(engine, written, budget=4, abstention=Abstention(at_budget="abstain"))
    assert outcome.decision.abstained
    assert events == [Decided(outcome.decision), Answering("I do not know.")]
    assert outcome.answer == WrittenAnswer(0, "eos")


PLAIN: list[tuple[str, str, Rule, int, list[str], tuple[str, int]]] = [
    ("to its own end", "a b c </think> so it", FixedBudget(), 600, ["think 256"], ("end_of_thinking", 3)),
    ("to the budget", "a b c d so it", FixedBudget(), 4, ["think 4"], ("budget", 4)),
    ("in pieces", "a " * 700, RULE, 600, ["think 256", "think 256", "think 88"], ("budget", 600)),
    ("not at all", "a b c", NoThinking(), 4, [], ("budget", 0)),
]


@pytest.mark.parametrize(
    ("script", "rule", "budget", "thinks", "end"), [row[1:] for row in PLAIN], ids=[row[0] for row in PLAIN]
)
async def test_without_probes_the_model_thinks_and_answers_freely(
    script: str, rule: Rule, budget: int, thinks: list[str], end: tuple[Any, int]
) -> None:
    engine = scripted(script)
    outcome, events = await answered(engine, AnswerStyle(probed=False), rule, budget)
    cause, tokens = end
    expected = Decision(cause, None, 0.0, closed=False, abstained=False, thinking_tokens=tokens)
    assert outcome.decision == expected
    assert events[0] == Decided(expected)
    assert thought_of(engine) == [*thinks, "append 0"]
    assert outcome.answer is not None
    assert outcome.answer.tokens > 0


class Writes(ScriptedSession):
    """Writes these pieces, and notes when the writing is left."""

    def __init__(self, engine: ScriptedEngine, pieces: Sequence[Written]) -> None:
        super().__init__(engine, Sampling())
        self.pieces = pieces

    async def write(self, limit: int) -> AsyncIterator[Written]:
        try:
            for piece in self.pieces:
                yield piece
        finally:
            self.engine.log.append("left")


PIECES: list[tuple[str, tuple[str, ...], list[Written], list[Answering], WrittenAnswer]] = [
    (
        "log-probabilities, and no reason for the end",
        (),
        [Written("so", 1, None, (TOKEN,)), Written(" it is", 2)],
        [Answering("so", 1, (TOKEN,)), Answering(" it is", 2), Answering("")],
        WrittenAnswer(3, "limit"),
    ),
    (
        "a reason before the last piece",
        (),
        [Written("so", 1, "stop"), Written(".", 1)],
        [Answering("so", 1), Answering(".", 1), Answering("")],
        WrittenAnswer(2, "stop"),
    ),
    (
        "a blank stop string",
        ("\n\n",),
        [Written("\n\nso", 2), Written("\n", 1), Written("\nx", 2), Written("y", 1, "eos")],
        [Answering("\n\nso", 2), Answering("", 1), Answering("", 2)],
        WrittenAnswer(5, "stop"),
    ),
    (
        "the beginning of a blank stop string at the end",
        ("\n\n",),
        [Written("so\n", 2, "eos")],
        [Answering("so", 2), Answering("\n")],
        WrittenAnswer(2, "eos"),
    ),
]


@pytest.mark.parametrize(
    ("stops", "pieces", "expected", "written"), [row[1:] for row in PIECES], ids=[row[0] for row in PIECES]
)
async def test_the_pieces_of_a_written_answer(
    stops: tuple[str, ...], pieces: list[Written], expected: list[Event], written: WrittenAnswer
) -> None:
    engine, events, waits = scripted("a b", sure_from(0)), list[Event](), list[int]()

    async def ready() -> None:
        waits.append(len(events))

    style = AnswerStyle(blank_stops=stops)
    driver = Driver(engine, Writes(engine, pieces), spec(), on_event=events.append, ready=ready, style=style)
    outcome = await driver.run(RULE, 8, Abstention())
    assert events[3:] == expected
    assert outcome.answer == written
    assert engine.log[-1] == "left"
    assert waits == [0, *range(4, 4 + len(expected) - 1)]  # before the thinking, and after each piece but a last stop


async def test_tokens_read_past_a_mark_stay_in_a_thinking_that_is_answered_from() -> None:
    """They cannot be forgotten by the session that writes the answer."""
    engine = scripted("a b Wait, c d e f g h i so it is", lambda at, suffix: (("{", 0.999), *SURE))
    outcome, _ = await answered(engine, AnswerStyle(wrap_up="Enough"), Deer(), 20)
    read = sum(int(entry.split()[1]) for entry in engine.log if entry.startswith("think"))
    assert outcome.decision.thinking_tokens == 2 < read
    assert outcome.ids == words_of(engine, " ".join(engine.thinking[:read]) + " Enough")
    assert outcome.wasted_tokens == 0


def test_blank_stops_hold_back_no_more_than_they_must() -> None:
    blank = BlankStops(("\n\n\n",))
    assert blank.feed("ab") == ("ab", False)
    assert blank.feed("c\n") == ("c", False)
    assert blank.feed("d\n\n") == ("\nd", False)
    assert (blank.flush(), blank.flush()) == ("\n\n", "")


def test_nothing_is_held_back_after_a_blank_stop_string() -> None:
    blank = BlankStops(("\n\n\n",))
    assert [blank.feed("a\n"), blank.feed("\n\nb")] == [("a", False), ("", True)]
    assert blank.flush() == ""
