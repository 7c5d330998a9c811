"""Each rival as a table: one row for each sentence of its definition."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from cgr import certainty
from cgr.errors import CgrError, NotRecorded, UnknownName, UsageError
from cgr.probing import ProbeSpec
from cgr.records import Probe
from cgr.rules import (
    GIVE_UP,
    GO_ON,
    STOP,
    Action,
    AnswerConsistency,
    Conformal,
    DeepConf,
    Deer,
    Dynasor,
    Eat,
    PumaVerify,
    Rule,
    Seen,
    base,
    make_rule,
    read_parameters,
)
from cgr.rules import rule as register
from cgr.rules.level_rule import exponential_means
from tests.support import tokens_of


def asked(answer: str, *chances: float, closed: bool = True, **more: Any) -> Probe:
    """A probe of which the aggregate is taken when it is put in a row."""
    return Probe(0, answer, 0.0, closed, chances, **more)


def said(text: str, answer: str = "7", ended: bool = False) -> Probe:
    """A probe that decoded this text."""
    tokens = tokens_of((text, 0.99))
    return Probe(0, answer, 0.99, True, (0.99,), tokens=tokens, decoded=len(tokens) + ended)


def opened(*entropies: float) -> list[Probe]:
    return [Probe(0, "", 0.0, closed=False, entropy=entropy) for entropy in entropies]


def after(rule: Rule, probes: Sequence[Probe], every: int = 10) -> Action:
    """What the rule does after the last of these, having gone on after the others."""
    aggregate = rule.probe_style.over(ProbeSpec()).aggregate
    placed = tuple(
        Probe(
            every * number,
            probe.answer,
            certainty.aggregate(aggregate, probe.probabilities),
            probe.closed,
            probe.probabilities,
            probe.tokens,
            entropy=probe.entropy,
            decoded=probe.decoded,
        )
        for number, probe in enumerate(probes, 1)
    )
    actions = [rule.on_probe(Seen(one.at, placed[: number + 1])) for number, one in enumerate(placed)]
    assert actions[:-1] == [GO_ON] * (len(actions) - 1)
    return actions[-1]


Row = tuple[str, Rule, Sequence[Probe], Action]
DEER: list[Row] = [
    ("C is the arithmetic mean of p over the answer's tokens", Deer(), [asked("70", 0.92, 0.99)], STOP),
    ("it stops when C is over .95, not at it", Deer(), [asked("70", 0.95, 0.95)], GO_ON),
    ("below, it goes on", Deer(), [asked("70", 0.5, 1.0)], GO_ON),
    ("avg2 is the geometric mean", Deer(threshold=0.7, average="avg2"), [said("{7}", ended=True)], STOP),
    ("of which an arithmetic one is an upper bound", Deer(threshold=0.7), [asked("70", 0.5, 1.0)], STOP),
    ("and 0 where the probe does not close the thinking", Deer(threshold=0.7, average="avg2"), [said("{7}")], GO_ON),
    ("which a tag of several tokens does as text", Deer(average="avg2"), [said("{7}\n</think>")], STOP),
    ("an answer that does not close stops nothing", Deer(), [asked("70", 0.99, closed=False)], GO_ON),
]
MIXED = [asked("7", 0.1), asked("8", 0.9), asked("8.0", 0.2), asked("\\frac{16}{2}", 0.3)]
DYNASOR: list[Row] = [
    ("the last w answers are the same, however sure", Dynasor(agree=3), MIXED, STOP),
    ("as mathematics, not as text", Dynasor(agree=2), MIXED[:3], STOP),
    ("one that differs begins a new row", Dynasor(agree=3), MIXED[:3], GO_ON),
    ("an empty answer is none", Dynasor(agree=2), [asked("", closed=True), asked("", closed=True)], GO_ON),
    ("nor is one that did not close", Dynasor(agree=2), [asked("7", 1), asked("7", 1, closed=False)], GO_ON),
    ("no probe of the row holds a hedge word", Dynasor(agree=2), [said("7} Wait, "), said("7}")], GO_ON),
    ("whatever its case, and after the answer too", Dynasor(agree=2), [said("7}"), said("7}\\] HMM")], GO_ON),
    ("as a word, not as a part of one", Dynasor(agree=2), [said("7} now"), said("7} another nohow")], STOP),
    *[
        (f"{word} is a hedge word", Dynasor(agree=1), [said(f"7}} {word}.")], GO_ON)
        for word in ("wait", "hold", "but", "okay", "no", "hmm")
    ],
]
SETTLED, MOVING = opened(1.0, 1.0, 1.0, 1.0), opened(0.0, 3.0, 0.0, 3.0)
EAT: list[Row] = [
    ("it stops when the variance of the entropy is below delta", Eat(), SETTLED, STOP),
    ("not while it moves", Eat(), MOVING, GO_ON),
    ("not before min_steps probes", Eat(), SETTLED[:3], GO_ON),
    ("min_steps can be another", Eat(min_steps=2), SETTLED[:2], STOP),
    ("a larger delta stops sooner", Eat(delta=2.0, min_steps=4), MOVING, STOP),
    ("below is below, not at", Eat(delta=0.0), SETTLED, GO_ON),
]
CONSISTENT: list[Row] = [
    ("it stops at k equal answers in a row", AnswerConsistency(agree=3), MIXED, STOP),
    ("not at fewer", AnswerConsistency(agree=3), MIXED[:3], GO_ON),
    ("an answer that did not close breaks the row", AnswerConsistency(agree=2),
     [asked("7", 1), asked("7", 1, closed=False), asked("7", 1)], GO_ON),
    ("words of doubt are no matter", AnswerConsistency(agree=2), [said("7} wait"), said("7}")], STOP),
]  # fmt: skip
PUMA: list[Row] = [
    ("confident, then the same answer as confident", PumaVerify(), [asked("7", 0.98), asked("7", 0.98)], STOP),
    ("one confident probe is only a candidate", PumaVerify(), [asked("7", 0.99)], GO_ON),
    ("the candidate must reach the threshold", PumaVerify(), [asked("7", 0.97), asked("7", 0.99)], GO_ON),
    ("the next one may be lower by .03", PumaVerify(), [asked("7", 0.99), asked("7", 0.9601)], STOP),
    ("but not by more", PumaVerify(), [asked("7", 0.99), asked("7", 0.9599)], GO_ON),
    ("it must give the same answer", PumaVerify(), [asked("7", 0.99), asked("8", 0.99)], GO_ON),
    ("it must be the next one", PumaVerify(), [asked("7", 0.99), asked("8", 0.5), asked("7", 0.98)], GO_ON),
    ("confidence is the geometric mean", PumaVerify(threshold=0.7), [asked("77", 0.5, 1)] * 2, STOP),
    ("which min would not be", PumaVerify(threshold=0.71), [asked("77", 0.5, 1)] * 2, GO_ON),
    ("an answer that did not close is none", PumaVerify(), [asked("7", 1, closed=False)] * 2, GO_ON),
]
TOLD = Conformal(threshold=0.9, floor=0.5, over=100)
NEWEST = Conformal(floor=0.5, over=80, weight=1.0)  # after 60 tokens its floor is exactly .25
CONFORMAL: list[Row] = [
    ("it stops when the exponential mean reaches lambda", TOLD, [asked("7", 0.9)], STOP),
    ("the newest certainty has a weight of .95", TOLD, [asked("7", 0.0), asked("7", 0.95)], STOP),
    ("so that a moment ago still counts", TOLD, [asked("7", 0.0), asked("7", 0.94)], GO_ON),
    ("an answer that did not close has no certainty", TOLD, [asked("7", 0.99, closed=False)], GO_ON),
    ("under a rising floor it gives up", TOLD, [*[asked("7", 0.3)] * 7, asked("7", 0.3)], GIVE_UP),
    ("not while the floor is below it", TOLD, [asked("7", 0.3)] * 7, GO_ON),
    ("in the first half there is no floor", TOLD, [asked("7", 0.0)] * 5, GO_ON),
    ("then there is one", TOLD, [asked("7", 0.0)] * 6, GIVE_UP),
    (
        "at the floor it gives up",
        Conformal(floor=0.5, over=80, weight=1.0),
        [*[asked("7", 0.5)] * 5, asked("7", 0.25)],
        GIVE_UP,
    ),
    ("just above it goes on", Conformal(floor=0.5, over=80, weight=1.0), [*[asked("7", 0.5)] * 5, asked("7", 0.26)], GO_ON),
    ("without a length to rise over it never gives up", Conformal(), [asked("7", 0.0)] * 9, GO_ON),
]
ROWS = [*DEER, *DYNASOR, *EAT, *CONSISTENT, *PUMA, *CONFORMAL]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[1].name}: {row[0]}" for row in ROWS])
def test_a_sentence_of_a_definition(row: Row) -> None:
    _, rule, probes, action = row
    assert after(rule, probes) == action


LOW, HIGH = -2.0, -9.0  # log-probabilities: a flat distribution has higher ones below the first
DEEPCONF = [
    ("a token's confidence is minus the mean of the log-probabilities", [HIGH] * 4, GO_ON),
    ("a group below the floor gives the trace up", [LOW] * 4, GIVE_UP),
    ("a group is the mean over the window", [HIGH, LOW, LOW, HIGH], GO_ON),
    ("over the last tokens only", [HIGH, HIGH, HIGH, LOW, LOW, LOW, LOW], GIVE_UP),
    ("at the floor is not below it", [-5.0] * 4, GO_ON),
    ("there is no group before the window is full", [LOW] * 3, GO_ON),
    ("what was written into the thinking has no confidence", [LOW, math.nan, HIGH, HIGH], GO_ON),
    ("and alone is no group", [math.nan] * 4, GO_ON),
]


@pytest.mark.parametrize(("sentence", "tops", "action"), DEEPCONF, ids=[row[0] for row in DEEPCONF])
def test_a_sentence_of_deepconf(sentence: str, tops: list[float], action: Action) -> None:
    assert DeepConf(floor=5.0, window=4).on_thought(Seen(len(tops), tops=tuple(tops))) == action


def test_deepconf_is_told_its_floor_and_knows_its_window() -> None:
    with pytest.raises(UsageError, match="does not know its floor"):
        DeepConf().check()
    DeepConf(floor=5.0).check()
    assert DeepConf().within(32_000).window == 2000
    assert DeepConf().within(1_000_000).window == 2048
    assert DeepConf().within(1280).window == 80
    assert DeepConf(window=7).within(1280).window == 7


@pytest.mark.parametrize(
    ("rule", "at", "probes", "expected"),
    [
        (Deer(), 30, 9, 31),
        (Deer(), 30, 10, None),
        (Deer(trials=2), 30, 2, None),
        (Dynasor(), 40, 1, 64),
        (Dynasor(every=64), 64, 1, 128),
        (Eat(), 30, 50, 31),
        (AnswerConsistency(interval=50), 40, 0, 50),
        (PumaVerify(interval=50), 50, 0, 100),
        (Conformal(interval=50), 50, 0, 100),
        (DeepConf(), 50, 0, None),
    ],
)
def test_where_they_ask(rule: Rule, at: int, probes: int, expected: int | None) -> None:
    assert rule.next_probe(Seen(at, (asked("7", 0.5),) * probes)) == expected


@pytest.mark.parametrize(
    ("rule", "prefix", "tokens", "reads", "place"),
    [
        (Deer(), "\n**Final Answer**\n\\boxed", 20, "answer", "wait"),
        (Deer(average="avg2"), "\n**Final Answer**\n\\boxed", 20, "text", "wait"),
        (
            Dynasor(),
            "... Oh, I suddenly got the answer to the whole problem, **Final Answer**\n\n\\[ \\boxed{",
            20,
            "text",
            None,
        ),
        (Eat(), "\n</think>\n", 1, "entropy", "paragraph"),
        (AnswerConsistency(), "Final Answer: \\boxed{", 32, "answer", None),
        (PumaVerify(), "Final Answer: \\boxed{", 32, "answer", None),
        (Conformal(), "Final Answer: \\boxed{", 32, "answer", None),
    ],
)
def test_how_they_ask(rule: Rule, prefix: str, tokens: int, reads: str, place: str | None) -> None:
    spec = rule.probe_style.over(ProbeSpec())
    assert (spec.prefix, spec.limit, spec.reads, rule.place) == (prefix, tokens, reads, place)


def test_the_mean_and_variance_of_eat_as_its_definition_has_them() -> None:
    mean, variance = 2.0, 0.0
    expected = [variance]
    for entropy in (4.0, 1.0, 1.5):
        mean = 0.2 * entropy + 0.8 * mean
        variance = 0.2 * (entropy - mean) ** 2 + 0.8 * variance
        expected.append(variance)
    assert Eat(min_steps=1).levels(opened(2.0, 4.0, 1.0, 1.5)) == pytest.approx(expected)
    assert exponential_means([], 0.5) == []


def test_eat_without_entropies_says_so() -> None:
    with pytest.raises(NotRecorded) as caught:
        Eat().levels([asked("7", 0.5)])
    assert caught.value.message == "The probe at token 0 has no entropy."
    assert caught.value.hint == "Use an engine that gives it: see `cgr doctor`."
    assert Eat().levels([]) == []


def test_every_rival_has_a_parameter_to_compare_over_with_cautious_values_last() -> None:
    for name in ("deer", "dynasor", "eat", "answer-consistency", "puma-verify", "deepconf", "conformal"):
        rule = make_rule(name)
        assert rule.main in rule.parameters()
        assert len(set(rule.grid)) == len(rule.grid) > 3
        assert list(rule.grid) in (sorted(rule.grid), sorted(rule.grid, reverse=True))


@pytest.mark.parametrize(
    ("name", "given", "error"),
    [
        ("deer", {"threshold": 1.5}, UsageError),
        ("deer", {"average": "avg3"}, UnknownName),
        ("dynasor", {"every": 0}, UsageError),
        ("eat", {"alpha": 0.0}, UsageError),
        ("answer-consistency", {"interval": 0}, UsageError),
        ("puma-verify", {"threshold": -1.0}, UsageError),
        ("conformal", {"weight": 1.5}, UsageError),
        ("conformal", {"floor": 2.0}, UsageError),
        ("deepconf", {"percentile": 101.0}, UsageError),
        ("deepconf", {"window": 0}, UsageError),
    ],
)
def test_what_cannot_be_is_refused(name: str, given: dict[str, Any], error: type[CgrError]) -> None:
    with pytest.raises(error):
        make_rule(name, **given)


@pytest.fixture(autouse=True)
def picky() -> Iterator[None]:
    """A rule with parameters of other kinds."""

    @register("picky")
    @dataclass(frozen=True, kw_only=True)
    class Picky(Rule):
        """It does nothing with them."""

        bold: bool = False
        weights: tuple[float, ...] = ()

    yield
    del base._rules["picky"]


def test_parameters_as_a_person_writes_them() -> None:
    assert read_parameters("dynasor", ["agree=5", "every= 64"]) == {"agree": 5, "every": 64}
    assert read_parameters("deepconf", ["floor=9.5", "window=40"]) == {"floor": 9.5, "window": 40}
    assert read_parameters("picky", ["bold=yes"]) == {"bold": True}
    assert read_parameters("picky", ["bold=False"]) == {"bold": False}
    assert read_parameters("picky", ["weights=-20,0,0.5"]) == {"weights": (-20.0, 0.0, 0.5)}
    assert read_parameters("deer", ["average=avg2", "threshold=1"]) == {"average": "avg2", "threshold": 1.0}


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("dinasor", "agree=5", "no rule called 'dinasor'"),
        ("dynasor", "agreed=5", "no parameter of dynasor called 'agreed'"),
        ("dynasor", "agree", "'agree' sets nothing"),
        ("dynasor", "agree=2.5", "agree of dynasor is a whole number, not '2.5'"),
        ("picky", "bold=maybe", "bold of picky is a yes or no, not 'maybe'"),
        ("picky", "weights=1,x", "weights of picky is a number, not '1,x'"),
        ("deer", "threshold=high", "threshold of deer is a number, not 'high'"),
    ],
)
def test_parameters_that_are_none(name: str, given: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_parameters(name, [given])
