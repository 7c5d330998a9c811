"""What the driver asks of a session, and what it makes of the replies: arguments, probes, recorded probes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from cgr.drive.answer import AnswerStyle
from cgr.drive.driver import Driver, Outcome, answer_room, check_needs
from cgr.drive.events import Event, Probed, Thinking
from cgr.engines.base import Answered, Capabilities, Done, OnText, Sampling, Stretch
from cgr.engines.scripted import Answers, Scripted, ScriptedEngine, ScriptedSession
from cgr.errors import EngineError, MissingCapability, NotRecorded
from cgr.probing import ENTROPY_TOP, PREFIX
from cgr.reason import Abstention, Ask, Think, Thought
from cgr.records import Probe, Token
from cgr.rules import BudgetForcing, Cgr, CgrForced, Deer, Rule
from cgr.rules.deer import DEER_PREFIX
from tests.support import SURE, UNCLOSED, UNSURE, OnlyWatches, run, scripted, spec, story, sure_from

EIGHT = "a b c d e f g h"
RULE = Cgr(threshold=0.9, interval=2)
MARKED: tuple[Scripted, ...] = (("{", 0.999), *UNSURE)  # the prefix of `Deer` does not open the brace


class Notes(ScriptedSession):
    """Notes what it is asked: in `texts` whether text is wanted, and the numbers of `prefetch` and `probe`."""

    def __init__(self, engine: ScriptedEngine, **answered: Any) -> None:
        super().__init__(engine, Sampling())
        self.answered, self.texts = answered, list[bool]()
        self.ahead: list[tuple[int, bool]] = []
        self.probed: list[tuple[int, int, int]] = []

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        self.texts.append(on_text is not None)
        return await super().think(tokens, ban_end=ban_end, on_text=on_text)

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        self.ahead.append((tokens, ban_end))

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = -1
    ) -> Answered:
        self.probed.append((limit, rewind, top))
        answered = await super().probe(suffix, limit, done, guess, rewind=rewind)
        return replace(answered, **self.answered)


async def noted(
    thinking: str, rule: Rule, budget: int, answers: Answers = sure_from(99), **options: Any
) -> tuple[Outcome, Notes]:
    engine = scripted(thinking, answers)
    session = Notes(engine)
    return await Driver(engine, session, spec(), **options).run(rule, budget, Abstention()), session


def always(pieces: Sequence[Scripted]) -> Answers:
    return lambda at, suffix: pieces


@dataclass(frozen=True, kw_only=True)
class BansAtMarks(Deer):
    """Probes at marks, with the end tag banned."""

    @property
    def bans_end(self) -> bool:
        return True


AHEAD: list[tuple[str, Rule, str, list[tuple[int, bool]]]] = [
    ("a stretch as long as the last", RULE, EIGHT, [(2, False)] * 3),
    ("with the ban", CgrForced(threshold=0.9, interval=3, forcing="ban"), EIGHT, [(3, True)] * 2),
    (
        "as long as was wanted, though it ended",
        CgrForced(threshold=0.9, interval=4),
        "a b </think> c d e f g",
        [(4, False)] * 2,
    ),
    ("as long as the way to the last mark", Deer(), "a b c Wait d e Wait f g h", [(3, False), (3, False)]),
    ("at marks with the ban", BansAtMarks(), "a b c Wait d e Wait f g h", [(3, True), (3, True)]),
]


@pytest.mark.parametrize(("rule", "thinking", "ahead"), [row[1:] for row in AHEAD], ids=[row[0] for row in AHEAD])
async def test_how_far_an_overlapped_probe_thinks_ahead(rule: Rule, thinking: str, ahead: list[tuple[int, bool]]) -> None:
    _, session = await noted(thinking, rule, 8, always(MARKED) if isinstance(rule, Deer) else sure_from(99), overlap=True)
    assert session.ahead == ahead


async def test_a_probe_before_any_thinking_thinks_nothing_ahead() -> None:
    engine = scripted(EIGHT)
    session = Notes(engine)
    await Driver(engine, session, spec(), overlap=True).serve(Ask(0))
    assert session.ahead == [(0, False)]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [({}, False), ({"on_event": lambda event: None}, True), ({"style": AnswerStyle("boxed")}, True)],
)
async def test_text_is_requested_only_if_it_is_used(options: dict[str, Any], wanted: bool) -> None:
    """By a watcher, or to find the end of a sentence."""
    _, session = await noted(EIGHT, RULE, 4, **options)
    assert session.texts == [wanted] * 2


async def test_a_thought_has_all_that_was_thought() -> None:
    engine = scripted("a b c <eos>")
    driver = Driver(engine, await engine.open("", Sampling()), spec())
    assert await driver.serve(Think(2)) == Thought(2, False, False, False, (), (0, 1))
    assert await driver.serve(Think(2)) == Thought(1, True, True, False, (), (2,))
    assert driver.ids == [0, 1, 2]


async def test_marks_replace_the_positions_of_a_rule() -> None:
    outcome = await run(scripted(EIGHT), RULE, 8, marks=(3, 7))
    assert [probe.at for probe in outcome.decision.probes] == [3, 7]


async def test_recorded_marks_replace_those_of_the_text() -> None:
    engine = scripted("a b Wait d e f g h", always(MARKED))
    outcome = await run(engine, Deer(), 8, marks=(1, 5))
    assert [probe.at for probe in outcome.decision.probes] == [1, 5]
    assert story(engine) == "t1 p1 t4 p5 t3 p8"


async def test_probes_at_marks_and_the_answer_after_them() -> None:
    """A rule's own prefix is for its probes only. A probe at a mark does not know the tokens that were read past it."""
    events: list[Event] = []
    rule = Deer(tokens=6)
    outcome, session = await noted("a b Wait c d Wait e f g", rule, 8, always(MARKED), on_event=events.append)
    decision = outcome.decision
    assert [(probe.at, probe.suffix, probe.cached) for probe in decision.probes] == [
        (2, DEER_PREFIX, 2),
        (5, DEER_PREFIX, 5),
    ]
    assert decision.final is not None
    assert (decision.final.at, decision.final.suffix) == (8, PREFIX)
    assert [(limit, top) for limit, _, top in session.probed] == [(6, 0), (6, 0), (4, 0)]
    assert [rewind for _, rewind, _ in session.probed][-1] == 0
    assert "".join(event.text for event in events if isinstance(event, Thinking)) == outcome.thinking


async def test_the_ban_holds_at_marks() -> None:
    engine = scripted("a </think> b Wait c </think> d", always(MARKED))
    outcome = await run(engine, BansAtMarks(), 4)
    assert outcome.thinking.split() == ["a", "b", "Wait", "c"]
    assert {entry for entry in engine.log if entry.startswith("think")} == {"think 1 ban"}


async def test_a_probe_has_all_that_the_engine_says_of_it() -> None:
    engine = scripted(EIGHT, always(UNSURE))
    driver = Driver(engine, Notes(engine, seconds=1.5, entropy=0.75), spec())
    await driver.serve(Think(3))
    suffix = await engine.encode(PREFIX)
    unsure = Token(engine.id_of("3"), "3", math.log(0.25)), Token(engine.id_of("}"), "}", math.log(0.999))
    assert await driver.serve(Ask(3)) == Probe(
        at=3,
        answer="3",
        certainty=math.exp(math.log(0.25)),
        closed=True,
        probabilities=(math.exp(math.log(0.25)),),
        tokens=unsure,
        suffix=PREFIX,
        suffix_ids=suffix,
        entropy=0.75,
        prefilled=len(suffix),
        cached=3,
        decoded=2,
        seconds=1.5,
    )


async def test_an_answer_that_the_model_ends_is_no_bound() -> None:
    probe = (await run(scripted(EIGHT, always((("4", 0.95), ("<eos>", 0.9)))), RULE, 4)).decision.probes[0]
    assert (probe.answer, probe.closed, probe.bound, probe.decoded, probe.ended) == ("4", False, False, 2, True)


@pytest.mark.parametrize(("given", "expected"), [(None, 1.0), (0.25, 0.25), (0.0, 0.0)])
async def test_the_entropy_is_the_engines_or_that_of_the_alternatives(given: float | None, expected: float) -> None:
    engine = scripted(EIGHT, always((("x", 0.5, {"x": 0.5, "y": 0.5}),)))
    session = Notes(engine, entropy=given)
    probe = await Driver(engine, session, spec(prefix="\n", reads="entropy")).serve(Ask(0))
    assert isinstance(probe, Probe)
    assert probe.entropy == pytest.approx(expected)
    assert session.probed == [(1, 0, ENTROPY_TOP)]


STATED: list[tuple[str, bool, Answers, tuple[int, int] | None]] = [
    ("full, closed", True, always((("b", 0.95), ("}", 0.9))), (1, 0)),
    ("full, closed, never stated", True, always(UNSURE), (0, 0)),
    ("full, not closed", True, always(UNCLOSED), None),
    ("not full, closed", False, always((("b", 0.95), ("}", 0.9))), None),
]


@pytest.mark.parametrize(("full", "answers", "expected"), [row[1:] for row in STATED], ids=[row[0] for row in STATED])
async def test_where_the_answer_stands_is_noted_in_full_probes(
    full: bool, answers: Answers, expected: tuple[int, int] | None
) -> None:
    events: list[Event] = []
    outcome = await run(scripted(EIGHT, answers), OnlyWatches(interval=2), 4, full=full, on_event=events.append)
    assert outcome.decision.probes[0].stated == expected
    assert [event for event in events if isinstance(event, Probed)] == [Probed(outcome.decision.probes[0])]


async def test_a_probe_without_the_loop_notes_where_its_answer_stands() -> None:
    engine = scripted(EIGHT, always((("b", 0.95), ("}", 0.9))))
    driver = Driver(engine, await engine.open("", Sampling()), spec(), full=True)
    await driver.serve(Think(2))
    probe = await driver.serve(Ask(2))
    assert isinstance(probe, Probe)
    assert probe.stated == (1, 0)


class Mute(ScriptedEngine):
    """Knows the text of what it is probed with, but not that of the thinking."""

    silent = False

    async def decode(self, ids: Sequence[int]) -> str:
        if list(ids[:1]) != [self.id_of("a")]:
            return await super().decode(ids)
        if self.silent:
            return ""
        raise EngineError("No tokenizer.")


@pytest.mark.parametrize("silent", [False, True])
async def test_where_an_answer_stands_is_unknown_without_the_text(silent: bool) -> None:
    engine = Mute(EIGHT.split(), always(SURE))
    engine.silent = silent
    driver = Driver(engine, await engine.open("", Sampling()), spec(), full=True)
    await driver.serve(Think(2))
    probe = await driver.serve(Ask(2))
    assert isinstance(probe, Probe)
    assert (probe.answer, probe.stated) == ("7", None)


RECORDED = Probe(6, "42", 0.5, closed=False, probabilities=(0.5,), bound=True)
AMONG = replace(RECORDED, answer="A", options=(("A", 0.5), ("B", 0.5)))
WHOLE = replace(RECORDED, closed=True, bound=False, probabilities=(0.5, 0.75), certainty=0.1)
OPEN = Probe(6, "", 0.0, closed=False, probabilities=(0.9,), entropy=1.5)

REREAD: list[tuple[str, dict[str, Any], Probe, float | None, float | None]] = [
    ("a bound below the threshold", {}, RECORDED, 0.6, 0.5),
    ("a bound at the threshold", {}, RECORDED, 0.5, None),
    ("a bound above the threshold", {}, RECORDED, 0.4, None),
    ("a bound without a threshold", {}, RECORDED, None, None),
    ("a bound of an aggregate that may rise", {"aggregate": "mean"}, RECORDED, 0.6, None),
    ("a bound without options", {"aggregate": "options"}, RECORDED, 0.6, 0.5),
    ("a bound among options", {"aggregate": "options"}, AMONG, 0.6, None),
    ("a whole answer", {}, WHOLE, None, 0.5),
    ("a whole answer under another aggregate", {"aggregate": "mean"}, WHOLE, 0.9, 0.625),
    ("only an entropy", {"prefix": "\n", "reads": "entropy"}, OPEN, None, 0.0),
]


@pytest.mark.parametrize(
    ("probing", "recorded", "cut_below", "certainty"), [row[1:] for row in REREAD], ids=[row[0] for row in REREAD]
)
async def test_a_recorded_probe_is_read_again(
    probing: dict[str, Any], recorded: Probe, cut_below: float | None, certainty: float | None
) -> None:
    """Under the aggregate of now; a bound only where it is below what is asked for."""
    engine = scripted(EIGHT)
    driver = Driver(engine, Notes(engine, recorded=recorded), spec(**probing))
    ask = Ask(6, cut_below=cut_below)
    if certainty is not None:
        assert await driver.serve(ask) == replace(recorded, certainty=certainty)
        return
    with pytest.raises(NotRecorded) as caught:
        await driver.serve(ask)
    assert caught.value.message == "The probe at token 6 was cut short: its certainty is at most 0.5."
    assert caught.value.hint == "Record full probabilities, or replay at the threshold it was recorded for or above."


async def test_a_recorded_probe_stays_as_it_was_recorded() -> None:
    """Where its answer stands and its options were noted when it was recorded, or are not known."""
    engine = scripted(EIGHT, always((("A", 0.9, {"A": 0.9, "B": 0.1}), ("}", 0.9))))
    recorded = replace(WHOLE, answer="A", certainty=0.5)
    driver = Driver(engine, Notes(engine, recorded=recorded), spec(options=("A", "B")), full=True)
    await driver.serve(Think(2))
    assert await driver.serve(Ask(6)) == recorded


@pytest.mark.parametrize(
    ("specs", "room"),
    [
        ([{}], 3 + 4),
        ([{"max_answer_tokens": 9}], 3 + 9),
        ([{"max_answer_tokens": 9}, {"prefix": "So it is then the number \\boxed{"}], 3 + 9),
        ([{"max_answer_tokens": 5}, {"prefix": "So it is then the number \\boxed{"}], 7 + 4),
    ],
)
async def test_the_room_for_an_answer(specs: list[dict[str, Any]], room: int) -> None:
    """The scripted engine has one token for each word; the end tag and the first word of the prefix are one."""
    assert await answer_room(scripted(EIGHT), *[spec(**one) for one in specs]) == room


def test_what_is_missing_is_named_first_by_the_alphabet() -> None:
    engine = scripted(EIGHT)
    engine.capabilities = Capabilities()
    with pytest.raises(MissingCapability) as caught:
        check_needs(CgrForced(forcing="ban"), engine)
    assert caught.value.message == "The rule 'cgr-forced' needs 'ban', which scripted does not give."
    assert caught.value.hint == "Choose another engine or another rule (`cgr rules`)."
    check_needs(BudgetForcing(), engine)
