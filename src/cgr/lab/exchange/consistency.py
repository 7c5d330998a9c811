"""Checks the lines of an import against each other, and derives from all of them what produced the run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cgr.certainty import OPTIONS
from cgr.errors import UsageError
from cgr.lab.exchange.blocks import UNKNOWN_ASKING
from cgr.lab.exchange.line import TraceLine
from cgr.lab.grading import clean_gold
from cgr.lab.store import DEFAULT, Key
from cgr.lab.store.config import ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import AnswerFormat, Question

START = "start"  # the probe set of the probes at 0
INTEGER_0_TO_999 = re.compile(r"\s*\d{1,3}\s*")


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """Counts of imported traces, questions and probes, and the interval of the probes (0: irregular)."""

    traces: int
    questions: int
    probes: int
    interval: int


@dataclass(slots=True)
class Consistency:
    """All lines so far. What a line states about the whole run must be the same on every line."""

    questions: dict[str, Question] = field(default_factory=dict)
    _lines: dict[Key, tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)  # number, length, probed positions
    _forced: dict[int, RecordedTrace] = field(default_factory=dict)  # by number, without probes
    _first: TraceLine | None = None
    _options: bool = False  # some probe has the probabilities of its options
    _more: int = 0  # probes in other sets

    def add(self, number: int, line: TraceLine, trace: RecordedTrace) -> None:
        """Check a line against those before it; `UsageError` if they contradict each other."""
        _check_gold(line)
        key = (line.question_id, line.seed)
        if key in self._lines:
            raise UsageError(f"question {key[0]!r} with seed {key[1]} is already in line {self._lines[key][0]}.")
        self._check_first(line)
        self._check_more(line, trace)
        question = Question(line.question_id, line.question, line.gold, line.format or "integer")
        if not _may_differ(self.questions.setdefault(line.question_id, question), question):
            raise UsageError(
                f"question {key[0]!r} has another text, gold or format than in an earlier line.",
                "Only questions of the format 'choice' can have another text and gold with another seed.",
            )
        if trace.forced:
            self._forced[number] = replace(trace, probes=(), ids=(), text="", logprobs=(), tops=())
        self._lines[key] = (number, line.thinking_tokens, tuple(probe.at for probe in trace.probes))
        self._options = self._options or any(probe.options for probe in (*trace.probes, trace.final))

    def _check_first(self, line: TraceLine) -> None:
        first = self._first = self._first or line
        for name in ("budget", "run", "probe_set"):
            if getattr(first, name) != getattr(line, name):
                raise UsageError(f"{name} differs from the first line.", "Import lines that differ into separate runs.")
        if (first.format is None) != (line.format is None):
            raise UsageError("format must be in every line or in none.")

    def _check_more(self, line: TraceLine, trace: RecordedTrace) -> None:
        """The other probe sets must be the same on every line, and those with an interval complete."""
        first = self._first or line
        if {name: one.probe_set for name, one in first.more_probe_sets.items()} != {
            name: one.probe_set for name, one in line.more_probe_sets.items()
        }:
            raise UsageError("more_probe_sets differ from those of the first line.", "Each line has the same sets.")
        for name, (probes, _) in line.recorded_more().items():
            spec = line.more_probe_sets[name].probe_set
            if name == DEFAULT or (name == START and any(probe.at == 0 for probe in trace.probes)):
                raise UsageError(f"a set of more_probe_sets cannot be called {name!r}.", "That is the name of another set.")
            positions, length = [probe.at for probe in probes], line.thinking_tokens
            if spec.where == "interval" and (missing := _missing(spec.interval, length, line.budget, positions, trace)):
                raise UsageError(
                    f"there is no probe of the set {name!r} at {min(missing)}.", "Add it, or leave out the set."
                )
            self._more += len(probes)

    def more_sets(self) -> dict[str, ProbeSet]:
        """The other probe sets by name."""
        return {name: one.probe_set for name, one in self._first.more_probe_sets.items()} if self._first else {}

    def resolve(self, source: str) -> tuple[RunConfig, ProbeSet | None, ProbeSet | None, AnswerFormat | None]:
        """The run, its probe set, the set of its probes at 0, and the format of answers if the lines do not state it."""
        if self._first is None:
            raise UsageError("there are no traces.")
        first, stated = self._first, self._first.probe_set
        interval = math.gcd(*(at for _, _, positions in self._lines.values() for at in positions))
        run, stated = self._over_options(_completed(first, interval, source), stated)
        probe_set = stated or ProbeSet("interval", interval, run.asking, run.model, run.fingerprint)
        start = probe_set if probe_set.where == "start" else start_of(probe_set)
        has_start = self._has_start(only=probe_set is start)
        main = probe_set if probe_set is not start and (stated or interval) else None
        if main and main.where == "interval":
            self._check_interval(main.interval, first.budget)
        golds = [question.gold for question in self.questions.values() if question.gold is not None]
        guessed: AnswerFormat = "integer" if all(map(INTEGER_0_TO_999.fullmatch, golds)) else "math"
        return run, main, start if has_start else None, None if first.format else guessed

    def _over_options(self, run: RunConfig, stated: ProbeSet | None) -> tuple[RunConfig, ProbeSet | None]:
        """The same with certainty over the options, if nothing is stated about the probes and the options are known: from
        the lines, or from a model that will be probed about choice questions."""
        choices = all(question.format == "choice" for question in self.questions.values())
        if not self._options and not (choices and not any(positions for _, _, positions in self._lines.values())):
            return run, stated
        asking = replace(UNKNOWN_ASKING, aggregate=OPTIONS)
        run = replace(run, asking=asking) if run.asking == UNKNOWN_ASKING else run
        return run, replace(stated, asking=asking) if stated and stated.asking == UNKNOWN_ASKING else stated

    def _has_start(self, *, only: bool) -> bool:
        """Whether there are probes at 0: on every line, or on none. `only`: there can be no others."""
        probed = {number: positions for number, _, positions in self._lines.values()}
        if only and (other := next((one for one, positions in probed.items() if any(positions)), None)):
            raise UsageError(
                f"line {other} has probes after 0, but the probe set is at the start.", "Leave out its `where`."
            )
        without = next((number for number, positions in probed.items() if 0 not in positions), None)
        if without and any(0 in positions for positions in probed.values()):
            raise UsageError(f"line {without} has no probe at 0, but others have one.", "Add it, or leave out the others.")
        return not without

    def counts(self, probe_set: ProbeSet | None) -> ImportCounts:
        """The counts of all lines."""
        probes = sum(len(positions) for _, _, positions in self._lines.values()) + self._more
        return ImportCounts(len(self._lines), len(self.questions), probes, probe_set.interval if probe_set else 0)

    def _check_interval(self, interval: int, budget: int) -> None:
        """Every multiple of the interval must be probed, because a rule cannot be replayed otherwise."""
        for number, length, positions in self._lines.values():
            if missing := _missing(interval, length, budget, positions, self._forced.get(number)):
                raise UsageError(
                    f"line {number} has no probe at {min(missing)}, but the probes have an interval of {interval}.",
                    'Add this probe, or write "probe_set": {"where": "anywhere"} on every line.',
                )


def _missing(interval: int, length: int, budget: int, positions: Iterable[int], trace: RecordedTrace | None) -> set[int]:
    """The multiples of the interval that have no probe. In a text that was appended to force the thinking of `trace`, the
    probe is after it."""
    if interval < 1:
        raise UsageError("the interval of a probe set must be at least 1.", 'Or write "where": "anywhere".')
    expected = set(range(interval, min(length, budget - 1) + 1, interval))
    if trace:
        expected = {at for at in map(trace.cut, expected) if at < budget}
    return expected - set(positions)


def start_of(probe_set: ProbeSet) -> ProbeSet:
    """The set of the probes at 0 in a file: `no-thinking` reads them, and it closes the thinking."""
    return replace(probe_set, where="start", interval=0, asking=replace(probe_set.asking, close_think="always"))


def _completed(line: TraceLine, interval: int, source: str) -> RunConfig:
    """The configuration of the run. A block without a budget is partial: what the file shows is filled in, and what nobody
    stated stays unknown."""
    if line.run and line.run.budget:
        return line.run
    nothing = RunConfig(temperature=None, top_p=None, instruction=None, asking=UNKNOWN_ASKING, written_tokens=None)
    run = line.run or nothing
    if line.probe_set and run.asking == UNKNOWN_ASKING:
        run = replace(run, asking=line.probe_set.asking)
    return replace(run, budget=line.budget, interval=run.interval or interval, source=run.source or source)


def _check_gold(line: TraceLine) -> None:
    """Refuse a gold that no answer can equal."""
    if line.gold is None or clean_gold(line.gold, line.format or "math") is not None:
        return
    if not line.gold.strip():
        raise UsageError("gold is empty.", "Write null if the correct answer is unknown.")
    raise UsageError(f"the gold {line.gold!r} does not have the format {line.format!r}.", "Correct the gold or the format.")


def _may_differ(first: Question, other: Question) -> bool:
    """Whether two lines can describe the same question: the options of a choice may be in another order with another seed,
    with another letter as the gold."""
    if first.format != "choice" or (first.gold is None) != (other.gold is None):
        return first == other
    return first.format == other.format
