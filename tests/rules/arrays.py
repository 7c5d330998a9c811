"""Shared by the tests of array forms: traces on a grid of 10 tokens, as a rule reads them."""

from __future__ import annotations

from collections.abc import Sequence

from cgr.lab.decide.arrays import ProbeArrays
from cgr.lab.decide.columns import Columns
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.probing import ProbeSpec
from cgr.records import Ended, Probe

INFO = RunInfo("made", "none", "none", 60, 10)


def traced(number: int, probes: Sequence[Probe], *, length: int = 60, tops: Sequence[float] = ()) -> RecordedTrace:
    """The trace of question `number`, with a budget of 60; a shorter one ends by itself."""
    final = Probe(length, "7", 0.9, closed=True)
    ended: Ended = "budget" if length == 60 else "end_of_thinking"
    return RecordedTrace(f"q{number}", 0, "7", length, ended, 60, final, tuple(probes), tops=tuple(tops))


def arrays(*traces: RecordedTrace, irregular: bool = False) -> ProbeArrays:
    return ProbeArrays(Columns.of(traces, INFO), ProbeSpec(), lambda whole: traces, irregular=irregular)
