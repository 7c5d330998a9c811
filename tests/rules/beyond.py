"""Shared by the tests of rules past the paper: a row of answers as a script, live and recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cgr.engines.scripted import Answers
from cgr.lab.decide.replay import replay
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Decision, Ended, StopCause
from cgr.rules import Rule
from tests.support import OnlyWatches, run, scripted, spec

Said = tuple[str, float]
UNCLOSED: Said = ("1234", 0.99)


@dataclass(frozen=True)
class Row:
    """One sentence of a definition. `said`: the answer and its certainty at each multiple of the interval (2), the last one
    for ever after; `probes`: where the rule asks; `cause` and `tokens`: why and where it ends."""

    line: str
    rule: Rule
    said: Sequence[Said]
    probes: tuple[int, ...]
    cause: StopCause
    tokens: int
    answer: str | None
    budget: int = 16
    thinking: str = " ".join("abcdefghijklmnopqrstuvwxyz")


def answers(said: Sequence[Said], interval: int = 2) -> Answers:
    """Each digit is as sure as the whole, so a probe that is cut short is cut at the first."""

    def at(position: int, suffix: str) -> tuple[tuple[str, float], ...]:
        text, certainty = said[min(max(position // interval, 1), len(said)) - 1]
        digits = [(digit, certainty) for digit in text]
        return (*digits, ("}", 0.9)) if (text, certainty) != UNCLOSED else tuple(digits)

    return at


async def live(row: Row) -> Decision:
    return (await run(scripted(row.thinking, answers(row.said)), row.rule, row.budget)).decision


async def recorded(row: Row) -> Decision:
    """The same script, recorded in full at every interval, and replayed."""
    watched = await run(scripted(row.thinking, answers(row.said)), OnlyWatches(interval=2), row.budget, full=True)
    made = watched.decision
    assert made.final is not None
    ended: Ended = "budget" if made.stop_cause == "budget" else "end_of_thinking"
    trace = RecordedTrace(
        "q", 0, "7", made.thinking_tokens, ended, row.budget, made.final, made.probes, ids=watched.ids, eos=made.eos
    )
    return replay(row.rule, trace, spec())


def gist(decision: Decision) -> tuple[object, ...]:
    """All of a decision that must be the same live and replayed."""
    asked = tuple(probe.at for probe in decision.probes)
    return decision.stop_cause, decision.thinking_tokens, decision.answer, decision.abstained, asked
