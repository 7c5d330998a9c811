"""Ways of stopping on the same traces, against the run as it was. All see the same draws: differences are paired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgr.errors import UsageError
from cgr.lab.decide.columns import Columns, Floats
from cgr.lab.decide.replay import Decided, at_budget
from cgr.lab.output.table import Cell, Head
from cgr.lab.score import accuracy as scores
from cgr.lab.score import bootstrap as intervals
from cgr.lab.score.bootstrap import Interval
from cgr.records import Record

MARGIN = -1.0  # points of accuracy that may be lost and still be called equal
LEAST = 2  # questions: from one no interval can be told
SHARES = ("accuracy", "diff_points", "gross_share", "net_share")


@dataclass(frozen=True, slots=True)
class Score(Record):
    """One way. Tokens are means over traces; shares are of what the baseline thinks; net is less what probes decoded."""

    accuracy: float
    ci95_accuracy: Interval
    diff_points: float
    ci95_diff_points: Interval
    gross_share: float
    ci95_gross_share: Interval
    net_share: float
    ci95_net_share: Interval
    thinking_tokens: float
    probe_tokens: float
    suffix_tokens: float
    stopped: float

    @property
    def equal(self) -> bool:
        """As accurate as the baseline, as far as the interval goes."""
        return self.ci95_diff_points[0] > MARGIN


@dataclass(frozen=True, eq=False)
class Measured:
    """Several ways, the baseline before them: sums over the traces of each question, (questions, ways)."""

    traces: Floats
    right: Floats
    thinking: Floats
    probing: Floats
    suffixes: Floats
    stopped: Floats
    _kept: dict[str, list[Interval]] = field(default_factory=dict)

    @cached_property
    def all(self) -> tuple[Score, ...]:
        """The baseline, then each way."""
        return tuple(map(self._score, range(self.right.shape[1])))

    def _score(self, place: int) -> Score:
        shares = {name: float(self._value(name)[place]) for name in SHARES}
        ends = {f"ci95_{name}": self._spans(name)[place] for name in SHARES}
        means = {name: float(sums[:, place].sum() / self.traces.sum()) for name, sums in self._sums.items()}
        return Score(**shares, **ends, **means)  # type: ignore[arg-type]

    def _value(self, name: str) -> Floats:
        """Over all questions, each once."""
        values: Floats = getattr(self, f"_{name}")(np.ones((1, len(self.traces))))[0]
        return values

    def _spans(self, name: str) -> list[Interval]:
        if name not in self._kept:
            self._kept[name] = intervals.of_each(len(self.traces), getattr(self, f"_{name}"))
        return self._kept[name]

    @property
    def _sums(self) -> dict[str, Floats]:
        return {
            "thinking_tokens": self.thinking,
            "probe_tokens": self.probing,
            "suffix_tokens": self.suffixes,
            "stopped": self.stopped,
        }

    # Each from how often every question counts: (draws, questions) to (draws, ways).

    def _accuracy(self, counts: Floats) -> Floats:
        return (counts @ self.right) / (counts @ self.traces)[:, None]

    def _diff_points(self, counts: Floats) -> Floats:
        return 100 * (counts @ (self.right - self.right[:, :1])) / (counts @ self.traces)[:, None]

    def _gross_share(self, counts: Floats) -> Floats:
        return 1 - self._spent(counts, self.thinking)

    def _net_share(self, counts: Floats) -> Floats:
        return 1 - self._spent(counts, self.thinking + self.probing)

    def _spent(self, counts: Floats, tokens: Floats) -> Floats:
        """As a share of what the baseline thinks."""
        spent: Floats = (counts @ tokens) / np.maximum(counts @ self.thinking[:, :1], 1)
        return spent

    @property
    def baseline(self) -> Score:
        return self.all[0]

    @property
    def scores(self) -> tuple[Score, ...]:
        return self.all[1:]

    def behind(self, best: int) -> tuple[Interval, ...]:
        """For each way, the interval of this one's net saving less that way's."""

        def apart(counts: Floats) -> Floats:
            net = self._net_share(counts)[:, 1:]
            return net[:, [best]] - net

        return tuple(intervals.of_each(len(self.traces), apart))

    def tied_with(self, best: int) -> tuple[int, ...]:
        """The other ways whose net saving cannot be told from this one's."""
        return tuple(place for place, (low, high) in enumerate(self.behind(best)) if place != best and low <= 0 <= high)

    def best_net(self) -> int:
        """The largest net saving; among equals the first."""
        return int(np.argmax(self._value("net_share")[1:]))

    def best_equal(self) -> int | None:
        """The largest net saving among the ways that are as accurate as the baseline."""
        net = self._value("net_share")[1:]
        allowed = [place for place, (low, _) in enumerate(self._spans("diff_points")[1:]) if low > MARGIN]
        return max(allowed, key=lambda place: float(net[place])) if allowed else None


def measure(columns: Columns, ways: Sequence[Decided]) -> Measured:
    """These ways on the graded questions of a run, whose own ends are the baseline."""
    here = scores.graded_questions(columns)
    if here.sum() < LEAST:
        raise UsageError(
            f"The run {columns.info.name!r} has fewer than two questions with a known answer.",
            "Two are the least for an interval; dozens tell something.",
        )
    every = (at_budget(columns, columns.limit), *ways)

    def summed(values: Sequence[NDArray[Any]]) -> Floats:
        return np.stack([scores.by_question(columns, one * columns.graded)[here] for one in values], axis=1)

    return Measured(
        traces=scores.by_question(columns, columns.graded)[here],
        right=summed([one.right & ~one.gave_up for one in every]),
        thinking=summed([one.at for one in every]),
        probing=summed([one.probe_tokens for one in every]),
        suffixes=summed([one.suffix_tokens for one in every]),
        stopped=summed([one.sure for one in every]),
    )


SCORE = (
    Head("accuracy", "Accuracy", ".1f", 100, "%"),
    Head("diff_points", "Diff. (points)", "+.2f"),
    Head("ci95_diff_points", "95% interval", "+.2f"),
    Head("gross_share", "Saved", ".1f", 100, "%"),
    Head("ci95_gross_share", "95% interval", ".1f", 100),
    Head("net_share", "Net", ".1f", 100, "%"),
    Head("ci95_net_share", "95% interval", ".1f", 100),
    Head("probe_tokens", "Probe tokens", ".1f"),
)


def cells(score: Score) -> tuple[Cell, ...]:
    """A score as cells of a table, under the heads of `SCORE`."""
    return tuple(getattr(score, head.name) for head in SCORE)
