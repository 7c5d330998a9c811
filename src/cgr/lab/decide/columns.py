"""A whole run as arrays: T traces by P probes, padded. All scores are computed from these arrays.

Padding is never certain and never right, so most sums need no mask. An answer is right only if it closed. A question
without a gold answer is not `graded`: it counts in tokens, not in accuracy. Where no question has one, `by_agreement` takes
the final answer of each trace in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgr.errors import UsageError
from cgr.lab.grading import is_right, is_valid
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.lab.types import Bools, Floats, Ints
from cgr.probing import answer_span
from cgr.records import AnswerFormat, Probe, Token
from cgr.rules.same_answer import agrees as agrees_with

PAD = -1  # the position of a probe that is not there
GOLD, FINAL = "gold", "final"  # what an answer is compared with: the known answer, or the final one of its trace
PROBE_FIELDS = 9  # the last array fields of `Columns`, from `at` on
DTYPES: dict[Any, type] = {"Bools": np.bool_, "Floats": np.float64, "Ints": np.int64}


class Checker:
    """Checks answers; each different answer is checked once."""

    def __init__(self) -> None:
        self._is_right = cache(is_right)

    def right(self, answer: str | None, closed: bool, gold: str | None, format: AnswerFormat) -> bool:
        """Whether this answer is right; False if it did not close or there is no gold answer."""
        return closed and gold is not None and bool(answer) and self._is_right(answer, gold, format)

    def probe_right(self, trace: RecordedTrace, probe: Probe) -> bool:
        """Whether the answer of this probe is right."""
        return self.right(probe.answer, probe.closed, trace.gold, trace.format)


@dataclass(frozen=True, eq=False)
class Columns:
    """One entry for each trace. Arrays of probes are (T, P), in ascending order of position, padded at the end.

    `question` and `seed` are indices into `questions` and `seeds`. `natural` is the length of the thinking, capped at the
    budget. `due`: the multiple of the interval that a probe was made for, if that lies inside a text which was appended to
    continue the thinking (the probe is then made at its end); else its position. `agrees`: the answer of a probe closed and
    equals the final one. `final_*`: the answer decoded at the end of thinking. `wrote` and `written_right`: the answer that
    the model wrote freely after that, which is never scored. `reference`: what `right` answers are equal to.
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
    agrees: Bools
    due: Ints
    reference: str = field(default=GOLD, kw_only=True)

    @classmethod
    def of(cls, traces: Iterable[RecordedTrace], info: RunInfo) -> Columns:
        """The arrays of these traces. The traces are read once and not kept."""
        checker, rows, counts = Checker(), {}, []
        probes: list[tuple[float, ...]] = []
        for trace in traces:
            name, seed = key = (trace.question_id, trace.seed)
            if key in rows:
                raise UsageError(f"Question {name!r} occurs twice with seed {seed}.", "Keep one trace for each of them.")
            rows[key] = _trace_row(trace, checker)
            kept = counted_probes(trace)
            counts.append(len(kept))
            probes.extend(_probe_row(trace, probe, checker, info.interval) for probe in kept)
        if not rows:
            raise UsageError(f"The run {info.name!r} has no traces yet.", "Make some with `cgr generate`.")
        questions = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in rows))}
        seeds = {seed: number for number, seed in enumerate(sorted({seed for _, seed in rows}))}
        numbered = [(questions[name], seeds[seed], *row) for (name, seed), row in rows.items()]
        return cls(info, tuple(questions), tuple(seeds), *as_arrays(cls, numbered), *_padded(probes, counts))

    def __len__(self) -> int:
        return len(self.natural)

    def by_agreement(self) -> Columns:
        """The same traces, graded by their final answers: an answer is right if it agrees with the final one of its trace,
        and the final one always is, also if it did not close."""
        every = np.ones(len(self), dtype=np.bool_)
        return replace(self, graded=every, final_right=every, right=self.agrees, reference=FINAL)

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
        """For each trace and position, the index of the probe that was due at exactly this position, or -1."""
        found = np.full((len(self), len(positions)), -1, dtype=np.int64)
        if not len(positions) or not self.at.size:
            return found
        column = np.searchsorted(positions, self.due)
        hits = self.present & (column < len(positions))
        hits &= positions[np.minimum(column, len(positions) - 1)] == self.due
        rows, probes = np.nonzero(hits)
        found[rows, column[rows, probes]] = probes
        return found


def as_arrays(cls: type, rows: Iterable[tuple[Any, ...]]) -> list[NDArray[Any]]:
    """One array for each column of these rows, which are values of the first array fields of a dataclass."""
    return [np.array(values, dtype=dtype) for values, dtype in zip(zip(*rows, strict=True), _dtypes(cls), strict=False)]


def _dtypes(cls: type) -> list[type]:
    return [DTYPES[one.type] for one in fields(cls) if one.type in DTYPES]


def boxed(text: str) -> str | None:
    """The content of the last `\\boxed{...}` in a text; None if there is none or it is not closed."""
    _, box, rest = text.rpartition("\\boxed{")
    span = answer_span([Token(0, rest, 0.0)]) if box else None
    return span.answer if span and span.closed else None


def counted_probes(trace: RecordedTrace) -> list[Probe]:
    """The probes inside the thinking, in ascending order of position."""
    return sorted((probe for probe in trace.probes if 0 < probe.at < trace.budget), key=lambda probe: probe.at)


def _trace_row(trace: RecordedTrace, checker: Checker) -> tuple[float, ...]:
    """The fields of `Columns` from `graded` on."""
    final, written = trace.final, boxed(trace.written)
    length, ended = min(trace.thinking_tokens, trace.budget), trace.ended == "end_of_thinking"
    valid = final.valid and is_valid(final.answer, trace.format)
    own = (written is not None, checker.right(written, True, trace.gold, trace.format))
    right = checker.probe_right(trace, final)
    return trace.gold is not None, length, ended, trace.budget, final.certainty, final.closed, valid, right, *own


def _probe_row(trace: RecordedTrace, probe: Probe, checker: Checker, interval: int) -> tuple[float, ...]:
    """The fields of `Columns` from `at` on."""
    right, suffix, due = checker.probe_right(trace, probe), len(probe.suffix_ids), _due(trace, probe.at, interval)
    return probe.at, probe.certainty, probe.closed, probe.bound, right, probe.decoded, suffix, agrees(trace, probe), due


def _due(trace: RecordedTrace, at: int, interval: int) -> int:
    """See `Columns.due`."""
    inside = (at - 1) // interval * interval if interval >= 1 else at
    return next((inside for start, count in trace.forced if start < inside < at == start + count), at)


def agrees(trace: RecordedTrace, probe: Probe) -> bool:
    """Whether the answer of a probe closed and equals the final one of its trace."""
    return agrees_with(probe.answer, probe.closed, trace.final)


def _padded(probes: Sequence[tuple[float, ...]], counts: Sequence[int]) -> Iterator[NDArray[Any]]:
    """The rows of probes as (T, P) arrays, one for each of their fields. `counts`: the number of probes of each trace."""
    there = np.arange(max(counts)) < np.array(counts)[:, None]
    flat = np.array(probes, dtype=np.float64).reshape(len(probes), PROBE_FIELDS)
    for column, dtype in enumerate(_dtypes(Columns)[-PROBE_FIELDS:]):
        padded: NDArray[Any] = np.full(there.shape, 0 if column else PAD, dtype=dtype)
        padded[there] = flat[:, column]
        yield padded
