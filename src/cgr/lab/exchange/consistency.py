"""What the lines of a file must agree on to be one run, and what the run is."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from cgr.errors import UsageError
from cgr.lab.exchange.line import Read
from cgr.lab.store import Key
from cgr.lab.store.config import Asking, ProbeSet, RunConfig
from cgr.records import AnswerFormat, Question

SMALL = re.compile(r"\s*\d{1,3}\s*")  # an integer 0..999


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What came over: so many traces of so many questions, with so many probes, every so many tokens (0: on no grid)."""

    traces: int
    questions: int
    probes: int
    interval: int


@dataclass(slots=True)
class Gathered:
    """All lines so far. What they say of the whole run, they must all say alike."""

    questions: dict[str, Question] = field(default_factory=dict)
    _lines: dict[Key, int] = field(default_factory=dict)
    _positions: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    _lengths: dict[Key, int] = field(default_factory=dict)
    _first: Read | None = None

    def add(self, number: int, found: Read) -> None:
        trace = found.trace
        key = (trace.question_id, trace.seed)
        if key in self._lines:
            raise UsageError(f"question {key[0]!r} with seed {key[1]} is in line {self._lines[key]} already.")
        self._agree(found)
        question = Question(trace.question_id, trace.question, trace.gold, found.format or "integer")
        if self.questions.setdefault(trace.question_id, question) != question:
            raise UsageError(f"question {key[0]!r} has another text, gold or format than above.")
        self._lines[key], self._lengths[key] = number, trace.thinking_tokens
        self._positions[key] = tuple(probe.at for probe in trace.probes)

    def _agree(self, found: Read) -> None:
        first = self._first = self._first or found
        for what, one, other in (
            ("budget", first.trace.budget, found.trace.budget),
            ("run", first.run, found.run),
            ("probe_set", first.probe_set, found.probe_set),
            ("format", first.format is None, found.format is None),
        ):
            if one != other:
                raise UsageError(f"{what} is not what the first line says.", "Import what differs into runs of their own.")

    def settled(self, source: str) -> tuple[RunConfig, ProbeSet | None, AnswerFormat | None]:
        """The run, its probes, and the format of its answers where the lines do not say it."""
        if self._first is None:
            raise UsageError("there are no traces.")
        first, interval = self._first, self._interval()
        probe_set = first.probe_set
        if probe_set is None and (first.run is None or any(self._positions.values())):
            probe_set = ProbeSet("interval", interval, first.run.asking if first.run else Asking())
        if probe_set and probe_set.where == "interval":
            self._check_grid(probe_set.interval)
        run = first.run or RunConfig(budget=first.trace.budget, interval=interval, source=source)
        return run, probe_set, None if first.format else self._format()

    def counts(self, probe_set: ProbeSet | None) -> Exchanged:
        probes = sum(map(len, self._positions.values()))
        return Exchanged(len(self._lines), len(self.questions), probes, probe_set.interval if probe_set else 0)

    def _interval(self) -> int:
        """The largest that all probes are multiples of; without any, the budget."""
        budget = self._first.trace.budget if self._first else 1
        return math.gcd(*(at for positions in self._positions.values() for at in positions)) or budget

    def _check_grid(self, interval: int) -> None:
        """Every multiple of the interval must have been probed, or no rule could be replayed."""
        budget = self._first.trace.budget if self._first else 1
        for key, length in self._lengths.items():
            wanted = range(interval, min(length, budget - 1) + 1, interval)
            if missing := set(wanted) - set(self._positions[key]):
                raise UsageError(
                    f"line {self._lines[key]} has no probe at {min(missing)}, though probes are every {interval} tokens.",
                    'Probe there too, or say "probe_set": {"where": "anywhere"} on every line.',
                )

    def _format(self) -> AnswerFormat:
        golds = [question.gold for question in self.questions.values() if question.gold is not None]
        return "integer" if all(SMALL.fullmatch(gold) for gold in golds) else "math"
