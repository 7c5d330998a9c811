"""What the lines of one file must agree on, and the run that they describe together."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from cgr.errors import UsageError
from cgr.lab.exchange.line import TraceLine
from cgr.lab.store import Key
from cgr.lab.store.config import Asking, ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import AnswerFormat, Question

INTEGER_0_TO_999 = re.compile(r"\s*\d{1,3}\s*")


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """Counts of imported traces, questions and probes, and the interval of the probes (0: irregular)."""

    traces: int
    questions: int
    probes: int
    interval: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is kept of a line: its number, the length of its trace, and the positions of its probes."""

    number: int
    length: int
    positions: tuple[int, ...]


@dataclass(slots=True)
class Consistency:
    """All lines so far. What a line states about the whole run must be the same on every line."""

    questions: dict[str, Question] = field(default_factory=dict)
    _lines: dict[Key, _Seen] = field(default_factory=dict)
    _first: TraceLine | None = None

    def add(self, number: int, line: TraceLine, trace: RecordedTrace) -> None:
        """Check a line against those before it; `UsageError` if they contradict each other."""
        key = (line.question_id, line.seed)
        if key in self._lines:
            raise UsageError(f"question {key[0]!r} with seed {key[1]} is already in line {self._lines[key].number}.")
        self._check_first(line)
        question = Question(line.question_id, line.question, line.gold, line.format or "integer")
        if self.questions.setdefault(line.question_id, question) != question:
            raise UsageError(f"question {key[0]!r} has another text, gold or format than in an earlier line.")
        self._lines[key] = _Seen(number, line.thinking_tokens, tuple(probe.at for probe in trace.probes))

    def _check_first(self, line: TraceLine) -> None:
        first = self._first = self._first or line
        for name in ("budget", "run", "probe_set"):
            if getattr(first, name) != getattr(line, name):
                raise UsageError(f"{name} differs from the first line.", "Import lines that differ into separate runs.")
        if (first.format is None) != (line.format is None):
            raise UsageError("format must be in every line or in none.")

    def resolve(self, source: str) -> tuple[RunConfig, ProbeSet | None, AnswerFormat | None]:
        """The run, its probe set, and the format of its answers if the lines do not state it."""
        if self._first is None:
            raise UsageError("there are no traces.")
        first, interval = self._first, self._interval(self._first.budget)
        probe_set = first.probe_set
        if probe_set is None and (first.run is None or any(line.positions for line in self._lines.values())):
            probe_set = ProbeSet("interval", interval, first.run.asking if first.run else Asking())
        if probe_set and probe_set.where == "interval":
            self._check_interval(probe_set.interval, first.budget)
        run = first.run or RunConfig(budget=first.budget, interval=interval, source=source)
        return run, probe_set, None if first.format else self._format()

    def counts(self, probe_set: ProbeSet | None) -> ImportCounts:
        """The counts of all lines."""
        probes = sum(len(line.positions) for line in self._lines.values())
        return ImportCounts(len(self._lines), len(self.questions), probes, probe_set.interval if probe_set else 0)

    def _interval(self, budget: int) -> int:
        """The greatest common divisor of all positions; the budget if there are no probes."""
        return math.gcd(*(at for line in self._lines.values() for at in line.positions)) or budget

    def _check_interval(self, interval: int, budget: int) -> None:
        """Every multiple of the interval must be probed, because a rule cannot be replayed otherwise."""
        for line in self._lines.values():
            expected = range(interval, min(line.length, budget - 1) + 1, interval)
            if missing := set(expected) - set(line.positions):
                raise UsageError(
                    f"line {line.number} has no probe at {min(missing)}, but the probes have an interval of {interval}.",
                    'Add this probe, or write "probe_set": {"where": "anywhere"} on every line.',
                )

    def _format(self) -> AnswerFormat:
        golds = [question.gold for question in self.questions.values() if question.gold is not None]
        return "integer" if all(INTEGER_0_TO_999.fullmatch(gold) for gold in golds) else "math"
