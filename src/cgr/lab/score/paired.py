"""Totals over questions, as they are and over questions drawn anew.

One set of draws serves every rule and value, so the difference of any two is paired: both are asked the same questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgr.lab.decide.columns import Bools, Columns, Floats
from cgr.lab.decide.replay import Decided
from cgr.lab.score import accuracy as scores
from cgr.lab.score.bootstrap import LEVEL, Interval

DRAWS = 10_000
_CELLS = 4_000_000  # of a block of drawn counts


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums over graded traces; `traces` counts them.

    The first axis has the settings, the baseline first; a second, if there is one, has questions or draws of them.
    """

    traces: Floats
    right: Floats
    wrong: Floats
    thinking: Floats
    probing: Floats

    @property
    def accuracy(self) -> Floats:
        return self.right / self.traces

    @property
    def diff_points(self) -> Floats:
        """Accuracy against the baseline's."""
        return (self.right - self.right[:1]) * (100 / self.traces)

    @property
    def gross(self) -> Floats:
        return 1 - self.thinking / self._natural

    @property
    def cost(self) -> Floats:
        """Tokens thought and decoded by probes, as a share of what the baseline thinks."""
        return (self.thinking + self.probing) / self._natural

    @property
    def net(self) -> Floats:
        return 1 - self.cost

    @property
    def _natural(self) -> Floats:
        return np.maximum(self.thinking[:1], 1.0)

    def grade(self, penalty: float) -> Floats:
        """Right answers less the penalty for wrong ones; what was given up costs and earns nothing."""
        return (self.right - penalty * self.wrong) / self.traces

    def only(self, settings: Sequence[int]) -> Totals:
        """These settings, after the baseline."""
        rows = [0, *settings]
        return Totals(self.traces, *(getattr(self, name)[rows] for name in NAMES))


NAMES = tuple(field.name for field in fields(Totals))[1:]


def by_question(columns: Columns, decided: Sequence[Decided]) -> Totals:
    """(settings, questions); questions without a gold answer are left out."""
    here = scores.graded_questions(columns)

    def summed(values: NDArray[Any]) -> Floats:
        return scores.by_question(columns, values * columns.graded)[here]

    def each(values: Sequence[NDArray[Any]]) -> Floats:
        return np.stack([summed(one) for one in values])

    return Totals(
        traces=summed(columns.graded)[None],
        right=each([one.right & ~one.gave_up for one in decided]),
        wrong=each([~one.right & ~one.gave_up for one in decided]),
        thinking=each([one.at for one in decided]),
        probing=each([one.probe_tokens for one in decided]),
    )


def among(questions: Totals, which: Bools) -> Totals:
    return Totals(*(getattr(questions, name)[:, which] for name in ("traces", *NAMES)))


def total(questions: Totals) -> Totals:
    return Totals(*(getattr(questions, name).sum(axis=1) for name in ("traces", *NAMES)))


def drawn(questions: Totals, draws: int = DRAWS, seed: int = 0) -> Totals:
    """(settings, draws): totals over as many questions as there are, drawn with replacement, the same for every setting."""
    units = questions.traces.shape[1]
    rng = np.random.default_rng(seed)
    values = [getattr(questions, name) for name in ("traces", *NAMES)]
    stacked = np.concatenate(values)
    block = max(1, _CELLS // units)
    parts = []
    for begin in range(0, draws, block):
        counts = rng.multinomial(units, np.full(units, 1 / units), size=min(block, draws - begin))
        parts.append(stacked @ counts.T.astype(np.float64))
    ends = np.cumsum([len(value) for value in values])[:-1]
    return Totals(*np.split(np.concatenate(parts, axis=1), ends))


def spans(values: Floats) -> list[Interval]:
    """The middle 95% of each row of draws."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
    return list(zip(low.tolist(), high.tolist(), strict=True))
