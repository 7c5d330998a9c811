"""Each sentence of the rules past the paper as a row: answers, and what must come of them, live and replayed."""

from __future__ import annotations

import pytest

from cgr.errors import NotRecorded, UnknownName, UsageError
from cgr.lab.decide.replay import replay
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Probe
from cgr.rules import Adaptive, GiveUpEarly, LoopBreaker, Rule, Smoothed, SureTwice, make_rule
from cgr.rules.history import History, history
from cgr.rules.loop_breaker import loops
from tests.rules.beyond import UNCLOSED, Row, gist, live, recorded

LOW, NEAR, SURE, OTHER = ("3", 0.2), ("7", 0.85), ("7", 0.96), ("8", 0.96)
ALL = (2, 4, 6, 8, 10, 12, 14)

ADAPTIVE = Adaptive(threshold=0.95, interval=2, near=0.8, rare=3, cap=1)
TIGHT = Adaptive(threshold=0.95, interval=2, near=0.8, rare=1, cap=0.5, cost=2)
ADAPTIVES = (
    Row("before the first probe, one interval in `rare`", ADAPTIVE, [SURE], (6,), "certainty", 6, "7"),
    Row("after one below `near`, one in `rare`", ADAPTIVE, [LOW] * 5 + [SURE], (6, 12), "certainty", 12, "7"),
    Row("else every one", ADAPTIVE, [LOW, LOW, NEAR, SURE], (6, 8), "certainty", 8, "7"),
    Row("`near` itself is near", ADAPTIVE, [LOW, LOW, ("7", 0.8), SURE], (6, 8), "certainty", 8, "7"),
    Row("seldom again when hope is lost", ADAPTIVE, [LOW, LOW, NEAR, LOW], (6, 8, 14), "budget", 16, "3"),
    Row("not closed is no hope", ADAPTIVE, [LOW, LOW, UNCLOSED, LOW], (6, 12), "budget", 16, "3"),
    Row("a probe is put off until the share allows it", TIGHT, [LOW], (4, 8, 12), "budget", 16, "3"),
    Row("the share allows it just so", TIGHT, [LOW, SURE], (4,), "certainty", 4, "7"),
)
TWICE = SureTwice(threshold=0.9, interval=2)
THRICE = SureTwice(threshold=0.9, interval=2, agree=3)
RISING = SureTwice(threshold=0.9, interval=2, rising=True)
TWICES = (
    Row("one lucky probe is not enough", TWICE, [SURE, LOW], ALL, "budget", 16, "3"),
    Row("the same answer twice in a row", TWICE, [LOW, SURE, SURE], (2, 4, 6), "certainty", 6, "7"),
    Row("written otherwise it is the same", TWICE, [("7", 0.96), ("07", 0.96)], (2, 4), "certainty", 4, "07"),
    Row("another answer is not", TWICE, [SURE, OTHER, SURE, SURE], (2, 4, 6, 8), "certainty", 8, "7"),
    Row("each at least as certain as the threshold", TWICE, [SURE, NEAR, SURE, LOW], ALL, "budget", 16, "3"),
    Row("not closed does not count", TWICE, [UNCLOSED, UNCLOSED, LOW], ALL, "budget", 16, "3"),
    Row("`agree` in a row", THRICE, [SURE, SURE, LOW, SURE], (2, 4, 6, 8, 10, 12), "certainty", 12, "7"),
    Row("rising: not less certain than before", RISING, [SURE, ("7", 0.95), SURE], (2, 4, 6), "certainty", 6, "7"),
    Row("rising: as certain is enough", RISING, [SURE, SURE], (2, 4), "certainty", 4, "7"),
)
SMOOTHED = Smoothed(threshold=0.9, interval=2, weight=0.5, floor=0.5)
SMOOTHEDS = (  # from .5 towards .96: .73, .845, .9025
    Row("it moves by the weight and stops at the threshold", SMOOTHED, [SURE], (2, 4, 6), "certainty", 6, "7"),
    Row("it begins anew when the answer changes", SMOOTHED, [SURE, SURE, OTHER], (2, 4, 6, 8, 10), "certainty", 10, "8"),
    Row("and after a probe below the floor", SMOOTHED, [SURE, SURE, LOW, SURE], (2, 4, 6, 8, 10, 12), "certainty", 12, "7"),
    Row("or one that did not close", SMOOTHED, [SURE, SURE, UNCLOSED, SURE], (2, 4, 6, 8, 10, 12), "certainty", 12, "7"),
    Row("between floor and threshold it goes on", SMOOTHED, [SURE, ("7", 0.6)], ALL, "budget", 16, "7"),
    Row(
        "a weight of 1 is plain cgr",
        Smoothed(threshold=0.9, interval=2, weight=1),
        [LOW, SURE],
        (2, 4),
        "certainty",
        4,
        "7",
    ),
)
GIVING = GiveUpEarly(threshold=0.95, interval=2, floor=0.3, patience=3)
GIVE_UPS = (
    Row("it gives up when `patience` probes in a row are below", GIVING, [LOW], (2, 4, 6), "gave_up", 6, None),
    Row("one with hope among them", GIVING, [LOW, LOW, NEAR, LOW], (2, 4, 6, 8, 10, 12), "gave_up", 12, None),
    Row("the floor itself is hope", GIVING, [("3", 0.3)], ALL, "budget", 16, "3"),
    Row("not closed is no hope", GIVING, [UNCLOSED], (2, 4, 6), "gave_up", 6, None),
    Row("as cgr otherwise", GIVING, [LOW, LOW, SURE], (2, 4, 6), "certainty", 6, "7"),
    Row(
        "sure goes before hopeless",
        GiveUpEarly(threshold=0.1, interval=2, floor=0.5, patience=1),
        [LOW],
        (2,),
        "certainty",
        2,
        "3",
    ),
)
BREAKER = LoopBreaker(threshold=0.95, interval=2, times=3, least=6, longest=4)
GIVES = LoopBreaker(threshold=0.95, interval=2, times=3, least=6, longest=4, then="give-up")
ROUND = "a b c d d e d e d e f g h i j k"
LOOPS = (
    Row("the same tokens `times` times in a row", BREAKER, [LOW], (2, 4, 6, 8, 10), "certainty", 10, "3", thinking=ROUND),
    Row("with then=give-up there is no answer", GIVES, [LOW], (2, 4, 6, 8, 10), "gave_up", 10, None, thinking=ROUND),
    Row("nor where it did not close", BREAKER, [UNCLOSED], (2, 4, 6, 8, 10), "gave_up", 10, None, thinking=ROUND),
    Row("no loop", BREAKER, [LOW], ALL, "budget", 16, "3"),
    Row("shorter than `least`", BREAKER, [LOW], ALL, "budget", 16, "3", thinking="a b c c c d e f g h i j k l m n"),
    Row("as cgr otherwise", BREAKER, [LOW, SURE], (2, 4), "certainty", 4, "7", thinking=ROUND),
)
ROWS = [*ADAPTIVES, *TWICES, *SMOOTHEDS, *GIVE_UPS, *LOOPS]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule.name}: {row.line}")
async def test_live(row: Row) -> None:
    expected = (row.cause, row.tokens, row.answer, row.cause == "gave_up", row.probes)
    assert gist(await live(row)) == expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule.name}: {row.line}")
async def test_replayed_the_same(row: Row) -> None:
    """From a recording of whole answers, though live they are cut short."""
    assert gist(await recorded(row)) == gist(await live(row))


@pytest.mark.parametrize(
    ("name", "parameters", "what"),
    [
        ("adaptive", {"rare": 0}, "'rare' of '.*' cannot be 0"),
        ("adaptive", {"cap": 0}, "'cap' of 'adaptive' cannot be 0"),
        ("adaptive", {"near": 2}, "'near' of 'adaptive' cannot be 2"),
        ("sure-twice", {"agree": 0}, "'agree' of 'sure-twice' cannot be 0"),
        ("smoothed", {"weight": 0}, "'weight' of 'smoothed' cannot be 0"),
        ("give-up", {"patience": 0}, "patience"),
        ("loop-breaker", {"times": 1}, "'times' of 'loop-breaker' cannot be 1"),
        ("calibrated", {"answered": (1.0,)}, "5 or 8 weights"),
        ("calibrated", {"rare": 0}, "'rare' of '.*' cannot be 0"),
        ("calibrated", {"left": (0.0,) * 8}, "as many as 'answered'"),
        ("calibrated", {"price": -1}, "price"),
        ("calibrated", {"low": 0.6}, "'low' cannot be above that of 'floor'"),
    ],
)
def test_parameters_that_cannot_be(name: str, parameters: dict[str, float], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        make_rule(name, **parameters)


def test_an_unknown_end_of_a_loop() -> None:
    with pytest.raises(UnknownName, match="value of 'then'"):
        make_rule("loop-breaker", then="stopp")


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ((1, 2, 1, 2, 1, 2), True),
        ((9, 1, 2, 1, 2, 1, 2), True),
        ((1, 2, 1, 2, 1, 2, 9), False),
        ((2, 1, 2, 1, 2), False),
        ((1,) * 6, True),
        ((1,) * 5, False),
        ((1, 2, 3, 4, 5) * 3, False),
        ((), False),
    ],
)
def test_loops(ids: tuple[int, ...], found: bool) -> None:
    """Three times, at least six tokens, at most four a turn."""
    assert loops(ids, 3, 6, 4) == found


@pytest.mark.parametrize(
    ("ids", "least", "found"),
    [
        ((1, 2, 3) * 3, 6, True),
        ((1, 2, 3, 4) * 3, 6, True),
        ((1, 2, 3) * 2, 6, False),
        ((9, 1, 1, 1), 3, True),
        ((9, 1, 1), 2, False),
        ((9, 1, 1, 1), 4, False),
    ],
)
def test_loops_of_any_length_up_to_the_longest(ids: tuple[int, ...], least: int, found: bool) -> None:
    """Three times, at most four a turn, one included."""
    assert loops(ids, 3, least, 4) == found


def test_a_stop_of_unknown_certainty_is_one_at_a_loop() -> None:
    assert BREAKER.why("certainty") == "the thinking repeated itself"


def test_a_loop_cannot_be_looked_for_without_tokens() -> None:
    final = Probe(4, "7", 0.9, True, (0.9,))
    trace = RecordedTrace("q", 0, "7", 4, "budget", 4, final)
    with pytest.raises(NotRecorded, match="the token ids of the thinking are missing"):
        replay(LoopBreaker(interval=2), trace)


def probe(at: int, answer: str, certainty: float, closed: bool = True) -> Probe:
    return Probe(at, answer, certainty, closed, (certainty,))


@pytest.mark.parametrize(
    ("probes", "expected"),
    [
        ([], History()),
        ([probe(2, "7", 0.9)], History(0.9)),
        ([probe(2, "7", 0.9), probe(4, "7", 0.8), probe(8, "7", 0.7)], History(0.7, held=6)),
        ([probe(2, "7", 0.9), probe(4, "8", 0.8), probe(6, "8", 0.8)], History(0.8, held=2, changes=1)),
        ([probe(2, "7", 0.9), probe(4, "7", 0.3), probe(6, "7", 0.8)], History(0.8)),
        ([probe(2, "7", 0.9), probe(4, "1", 0.1), probe(6, "8", 0.8)], History(0.8, changes=1)),
        ([probe(2, "7", 0.9), probe(4, "7", 0.3)], History()),
        ([probe(2, "7", 0.1), probe(6, "7", 0.9, closed=False)], History(dry=6)),
        ([probe(2, "7", 0.3), probe(6, "7", 0.1)], History(dry=4)),
    ],
)
def test_history(probes: list[Probe], expected: History) -> None:
    """From .5 on it is an answer, below .2 it is a drought."""
    assert history(probes, 0.5, 0.2) == expected


@pytest.mark.parametrize("rule", [ADAPTIVE, TWICE, SMOOTHED, GIVING, BREAKER, GIVES], ids=lambda rule: rule.name)
def test_what_is_compared(rule: Rule) -> None:
    assert rule.main == "threshold"
    assert list(rule.grid) == sorted(rule.grid)
