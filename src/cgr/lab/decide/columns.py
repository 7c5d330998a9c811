"""A whole run as arrays: T traces by P probes, padded. All scores are computed from these arrays.

Padding is never certain and never right, so most sums need no mask. An answer is right only if it closed. A question
without a gold answer is not `graded`: it counts in tokens, not in accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgr.errors import UsageError
from cgr.lab.grading import is_right, is_valid
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.lab.types import Bools, Floats, Ints
from cgr.probing import answer_span
from cgr.records import AnswerFormat, Probe, Token

PAD = -1  # the position of a probe that is not there
FINALS: dict[str, type] = {
    "final_certainty": np.float64,
    **dict.fromkeys(("final_closed", "final_valid", "final_right", "wrote", "written_right"), np.bool_),
}
PROBES: dict[str, type] = {
    **{"at": np.int64, "certainty": np.float64, "closed": np.bool_, "bound": np.bool_, "right": np.bool_},
    **{"decoded": np.int64, "suffix": np.int64},
}


class Checker:
    """Checks answers; each different answer is checked once."""

    def __init__(self) -> None:
        self._right: dict[tuple[AnswerFormat, str, str], bool] = {}

    def right(self, answer: str | None, closed: bool, gold: str | None, format: AnswerFormat) -> bool:
        """Whether this answer is right; False if it did not close or there is no gold answer."""
        if not closed or gold is None or not answer:
            return False
        key = (format, gold, answer)
        if key not in self._right:
            self._right[key] = is_right(answer, gold, format)
        return self._right[key]


@dataclass(frozen=True, eq=False)
class Columns:
    """One entry for each trace. Arrays of probes are (T, P), in ascending order of position, padded at the end.

    `question` and `seed` are indices into `questions` and `seeds`. `natural` is the length of the thinking, capped at the
    budget. `final_*`: the answer decoded at the end of thinking. `wrote` and `written_right`: the answer that the model
    wrote freely after that, which is never scored.
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
        """The arrays of these traces. The traces are read once and not kept."""
        rows = _Rows()
        for trace in traces:
            rows.add(trace)
        if not rows.natural:
            raise UsageError(f"The run {info.name!r} has no traces yet.", "Make some with `cgr generate`.")
        return rows.columns(info)

    def __len__(self) -> int:
        return len(self.natural)

    @property
    def present(self) -> Bools:
        """True where there is a probe, False for padding."""
        return np.not_equal(self.at, PAD)

    @property
    def limit(self) -> int:
        """The budget of the run: the largest budget of any trace."""
        return int(self.budget.max())

    @property
    def steps(self) -> Ints:
        """The grid for everything that is shown over the budget: the multiples of the interval below the budget."""
        interval = self.info.interval if self.info.interval >= 1 else max(1, self.limit // 32)
        return np.arange(interval, self.limit, interval, dtype=np.int64)

    def on_grid(self, positions: Ints) -> Ints:
        """For each trace and position, the index of the probe at exactly this position, or -1."""
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
    """The content of the last `\\boxed{...}` in a text; None if there is none or it is not closed."""
    _, box, rest = text.rpartition("\\boxed{")
    span = answer_span([Token(0, rest, 0.0)]) if box else None
    return span.answer if span and span.closed else None


@dataclass
class _Rows:
    """Lists that become the arrays."""

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
                f"Question {trace.question_id!r} occurs twice with seed {trace.seed}.", "Keep one trace for each of them."
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
        finals = zip(FINALS.items(), zip(*self.finals, strict=True), strict=True)
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
            **{name: np.array(values, dtype=kind) for (name, kind), values in finals},
            **self._padded(),
        )

    def _padded(self) -> dict[str, NDArray[Any]]:
        """The probes as (T, P) arrays, one for each of their fields."""
        counts = np.array(self.counts, dtype=np.int64)
        there = np.arange(counts.max())[None, :] < counts[:, None]
        flat = np.array(self.probes, dtype=np.float64).reshape(len(self.probes), len(PROBES))
        padded: dict[str, NDArray[Any]] = {}
        for column, (name, kind) in enumerate(PROBES.items()):
            padded[name] = np.full(there.shape, PAD if name == "at" else 0, dtype=kind)
            padded[name][there] = flat[:, column].astype(kind)
        return padded
