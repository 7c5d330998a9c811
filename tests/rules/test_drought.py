"""`cgr-drought` and `code-stop`: each sentence of their definitions, live and replayed."""

from __future__ import annotations

import pytest

from cgr.records import Probe
from cgr.rules import CgrDrought, CodeStop, Seen
from tests.rules.beyond import UNCLOSED, Row, gist, live, recorded

LOW, HALF, SURE = ("3", 0.2), ("3", 0.5), ("7", 0.99)
ALL = (2, 4, 6, 8, 10, 12, 14)
DROUGHT = CgrDrought(interval=2, drought=0.375, span=16)  # six tokens
CODE = CodeStop(interval=2, limit=100, ramp=2, first=0.6, threshold=0.9)
UNSTABLE = CodeStop(interval=2, limit=2.5)
ROWS = [
    Row("as cgr", DROUGHT, [LOW, SURE], (2, 4), "certainty", 4, "7"),
    Row("after a drought it stops with the last answer", DROUGHT, [LOW], (2, 4, 6), "certainty", 6, "3"),
    Row("the floor itself is an answer", DROUGHT, [LOW, LOW, HALF, LOW], (2, 4, 6, 8, 10, 12), "certainty", 12, "3"),
    Row("not closed is a drought, but no answer", DROUGHT, [UNCLOSED] * 3 + [LOW], (2, 4, 6, 8), "certainty", 8, "3"),
    Row("by default no drought ends the thinking", CgrDrought(interval=2, span=16), [LOW], ALL, "budget", 16, "3"),
    Row("nor without a span", CgrDrought(interval=2, drought=0.1), [LOW], ALL, "budget", 16, "3"),
    Row("the first threshold is `first`", CODE, [("7", 0.6)], (2,), "certainty", 2, "7"),
    Row("it changes over `ramp` probes", CODE, [LOW, ("7", 0.76)], (2, 4), "certainty", 4, "7"),
    Row("below it goes on", CODE, [LOW, ("7", 0.74), ("7", 0.89), ("7", 0.9)], (2, 4, 6, 8), "certainty", 8, "7"),
    Row("unstable for too long stops", UNSTABLE, [LOW], (2, 4, 6, 8), "certainty", 8, "3"),
    Row("with an answer that closed", UNSTABLE, [LOW, LOW, LOW, UNCLOSED, LOW], (2, 4, 6, 8, 10), "certainty", 10, "3"),
    Row(
        "a certainty that rises is not unstable",
        UNSTABLE,
        [LOW, ("3", 0.4), ("3", 0.5), ("3", 0.6)],
        ALL,
        "budget",
        16,
        "3",
    ),
    Row("one that falls is", UNSTABLE, [("3", 0.8), ("3", 0.6), ("3", 0.5)], (2, 4, 6, 8), "certainty", 8, "3"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.line)
async def test_live(row: Row) -> None:
    assert gist(await live(row)) == (row.cause, row.tokens, row.answer, False, row.probes)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.line)
async def test_replayed_the_same(row: Row) -> None:
    assert gist(await recorded(row)) == gist(await live(row))


def test_a_span_of_0_is_the_budget_at_hand() -> None:
    assert CgrDrought(drought=0.2).within(500) == CgrDrought(drought=0.2, span=500)
    assert CgrDrought(span=100).within(500) == CgrDrought(span=100)


def test_a_live_probe_is_cut_short_unless_its_answer_may_be_given() -> None:
    dry = tuple(Probe(at, "3", 0.1, closed=True) for at in (2, 4, 6))
    cut = [DROUGHT.cut_below(Seen(at, dry[:before])) for at, before in ((2, 0), (4, 1), (6, 2), (8, 3))]
    assert cut == [0.5, 0.5, None, None]


def test_the_score_counts_early_probes_more_as_time_goes_on() -> None:
    """With log base e: the probes at 20 and 40 are unstable, seen from 40 and from 80."""
    probes = [Probe(at, "3", sure, closed=True) for at, sure in ((10, 0.9), (20, 0.1), (40, 0.1), (80, 0.9))]
    assert CodeStop().levels(probes) == pytest.approx([0, 0, 1 + 0.6931 + 1, 1 + 1.3863 + 1 + 0.6931], abs=1e-3)


@pytest.mark.parametrize(
    ("rule", "certainty", "why"),
    [
        (DROUGHT, 0.99, "the certainty reached 0.99"),
        (DROUGHT, 0.3, "the certainty stayed below 0.5 for 38% of the budget"),
        (CODE, 0.9, "the certainty reached the threshold"),
        (CODE, 0.2, "the certainty was unstable for too long"),
    ],
)
def test_why_they_stopped(rule: CgrDrought | CodeStop, certainty: float, why: str) -> None:
    assert rule.why("certainty", certainty) == why
