"""A whole run as arrays: T traces by P probes, padded. Everything that is scored is computed from these and nothing else.

Padding is never sure and never right, so most sums need no mask. An answer is right only if it closed; a question without a
gold answer is not `graded`, and counts in what was spent but nowhere in accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from cgr.errors import UsageError
from cgr.lab.grading import is_right, is_valid
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.lab.types import Bools, Floats, Ints
from cgr.probing import answer_span
from cgr.records import AnswerFormat, Probe, Token

PAD = -1  # the position of a probe that is not there


class Checker:
    """Says whether answers are right, each different one asked of the real checker once."""

    def __init__(self) -> None:
        self._right: dict[tuple[AnswerFormat, str, str], bool] = {}

    def right(self, answer: str | None, closed: bool, gold: str | None, format: AnswerFormat) -> bool:
        if not closed or gold is None or not answer:
            return False
        key = (format, gold, answer)
        if key not in self._right:
            self._right[key] = is_right(answer, gold, format)
        return self._right[key]


@dataclass(frozen=True, eq=False)
class Columns:
    """One entry a trace; those of probes are (T, P), in ascending order of position, padded at the end.

    `question` and `seed` are indices into `questions` and `seeds`. `natural` is the length of the thinking, capped at the
    budget. `final_*` tell of the answer decoded when the thinking was over; `wrote` and `written_right` of what the model
    wrote by itself after that, which is never scored.
    """

    info: RunInfo
    questions: tuple[str, ...]
    seeds: tuple[int, ...]
    question: Ints
    seed: Ints
    graded: Bools
    natural: Ints
    ended: Bools
    budget: Ints
    final_certainty: Floats
    final_closed: Bools
    final_valid: Bools
    final_right: Bools
    wrote: Bools
    written_right: Bools
    at: Ints
    certainty: Floats
    closed: Bools
    bound: Bools
    right: Bools
    decoded: Ints
    suffix: Ints

    @classmethod
    def of(cls, traces: Iterable[RecordedTrace], info: RunInfo) -> Columns:
        """The arrays of these traces; they are read once and not kept."""
        gathered = _Gathered()
        for trace in traces:
            gathered.add(trace)
        if not gathered.natural:
            raise UsageError(f"The run {info.name!r} has no traces yet.", "Make some with `cgr generate`.")
        return gathered.columns(info)

    def __len__(self) -> int:
        return len(self.natural)

    @property
    def present(self) -> Bools:
        """Where there is a probe and not padding."""
        return np.not_equal(self.at, PAD)

    @property
    def limit(self) -> int:
        """The budget of the run: the largest that any trace had."""
        return int(self.budget.max())

    @property
    def steps(self) -> Ints:
        """The grid that everything over the budget is shown on: each interval, strictly below the budget."""
        interval = self.info.interval if self.info.interval >= 1 else max(1, self.limit // 32)
        return np.arange(interval, self.limit, interval, dtype=np.int64)

    def on_grid(self, positions: Ints) -> Ints:
        """For each trace and position, the index of the probe that was made exactly there, or -1."""
        found = np.full((len(self), len(positions)), -1, dtype=np.int64)
        if not len(positions) or not self.at.size:
            return found
        column = np.searchsorted(positions, self.at)
        hits = self.present & (column < len(positions))
        hits &= positions[np.minimum(column, len(positions) - 1)] == self.at
        rows, probes = np.nonzero(hits)
        found[rows, column[rows, probes]] = probes
        return found


def boxed(text: str) -> str | None:
    """What stands in the last box of a text, if it was closed."""
    _, box, rest = text.rpartition("\\boxed{")
    span = answer_span([Token(0, rest, 0.0)]) if box else None
    return span.answer if span and span.closed else None


@dataclass
class _Gathered:
    """Plain lists that become the arrays."""

    checker: Checker = field(default_factory=Checker)
    questions: dict[str, int] = field(default_factory=dict)
    keys: dict[tuple[str, int], None] = field(default_factory=dict)
    graded: list[bool] = field(default_factory=list)
    natural: list[int] = field(default_factory=list)
    ended: list[bool] = field(default_factory=list)
    budget: list[int] = field(default_factory=list)
    finals: list[tuple[float, bool, bool, bool, bool, bool]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    probes: list[tuple[int, float, bool, bool, bool, int, int]] = field(default_factory=list)

    def add(self, trace: RecordedTrace) -> None:
        key = (trace.question_id, trace.seed)
        if key in self.keys:
            raise UsageError(
                f"Question {trace.question_id!r} is there twice with seed {trace.seed}.", "Keep one trace for each of them."
            )
        self.keys[key] = None
        self.questions.setdefault(trace.question_id, len(self.questions))
        self.graded.append(trace.gold is not None)
        self.natural.append(min(trace.thinking_tokens, trace.budget))
        self.ended.append(trace.ended == "end_of_thinking")
        self.budget.append(trace.budget)
        self.finals.append(self._final(trace))
        kept = sorted((probe for probe in trace.probes if 0 < probe.at < trace.budget), key=lambda probe: probe.at)
        self.counts.append(len(kept))
        self.probes.extend(self._probe(trace, probe) for probe in kept)

    def _final(self, trace: RecordedTrace) -> tuple[float, bool, bool, bool, bool, bool]:
        final, written = trace.final, boxed(trace.written)
        valid = final.valid and is_valid(final.answer, trace.format)
        written_right = self.checker.right(written, True, trace.gold, trace.format)
        return final.certainty, final.closed, valid, self._right(trace, final), written is not None, written_right

    def _probe(self, trace: RecordedTrace, probe: Probe) -> tuple[int, float, bool, bool, bool, int, int]:
        right = self._right(trace, probe)
        return probe.at, probe.certainty, probe.closed, probe.bound, right, probe.decoded, len(probe.suffix_ids)

    def _right(self, trace: RecordedTrace, probe: Probe) -> bool:
        return self.checker.right(probe.answer, probe.closed, trace.gold, trace.format)

    def columns(self, info: RunInfo) -> Columns:
        seeds = sorted({seed for _, seed in self.keys})
        seed_index = {seed: index for index, seed in enumerate(seeds)}
        certainty, closed, valid, right, wrote, written_right = zip(*self.finals, strict=True)
        at, sure, ends, bound, good, decoded, suffix = self._padded()
        return Columns(
            info=info,
            questions=tuple(self.questions),
            seeds=tuple(seeds),
            question=np.array([self.questions[question] for question, _ in self.keys], dtype=np.int64),
            seed=np.array([seed_index[seed] for _, seed in self.keys], dtype=np.int64),
            graded=np.array(self.graded, dtype=np.bool_),
            natural=np.array(self.natural, dtype=np.int64),
            ended=np.array(self.ended, dtype=np.bool_),
            budget=np.array(self.budget, dtype=np.int64),
            final_certainty=np.array(certainty, dtype=np.float64),
            final_closed=np.array(closed, dtype=np.bool_),
            final_valid=np.array(valid, dtype=np.bool_),
            final_right=np.array(right, dtype=np.bool_),
            wrote=np.array(wrote, dtype=np.bool_),
            written_right=np.array(written_right, dtype=np.bool_),
            at=at.astype(np.int64),
            certainty=sure,
            closed=ends.astype(np.bool_),
            bound=bound.astype(np.bool_),
            right=good.astype(np.bool_),
            decoded=decoded.astype(np.int64),
            suffix=suffix.astype(np.int64),
        )

    def _padded(self) -> tuple[Floats, ...]:
        """The flat probes as (T, P) arrays, one for each of their fields."""
        counts = np.array(self.counts, dtype=np.int64)
        there = np.arange(counts.max())[None, :] < counts[:, None]
        flat = np.array(self.probes, dtype=np.float64).reshape(len(self.probes), 7)
        padded = []
        for column, padding in enumerate((PAD, 0, 0, 0, 0, 0, 0)):
            array = np.full(there.shape, padding, dtype=np.float64)
            array[there] = flat[:, column]
            padded.append(array)
        return tuple(padded)
