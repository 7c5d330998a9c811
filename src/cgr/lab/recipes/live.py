"""The results of the traces so far, while the others are made: a table on a terminal, else a line from time to time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.console import Console, RenderableType
from rich.text import Text

from cgr.lab.decide.columns import Columns
from cgr.lab.recipes.forecast import duration
from cgr.lab.record.jobs import Progress
from cgr.lab.report import numbers
from cgr.lab.report.tables import Headline, headline_lines, headlines
from cgr.lab.store import Key, Store
from cgr.lab.store.recorded import RecordedTrace, RunInfo

REFRESH_SECONDS = 1.0  # between two tables
LINE_SECONDS, MAX_LINE_SECONDS = 10.0, 60.0  # to the first line; between two later ones at most
COMPUTING_SHARE = 0.05  # of the time, at most, for results that are shown for a moment


class LiveResults(Progress):
    """Progress of traces that are probed while they are made, with the results so far at these thresholds and penalties.
    Traces that the run had before are included."""

    def __init__(
        self,
        thresholds: Sequence[float],
        penalties: Sequence[float],
        *,
        quiet: bool = False,
        console: Console | None = None,
    ) -> None:
        super().__init__(quiet=quiet, console=console)
        self.thresholds, self.penalties, self.quiet = thresholds, penalties, quiet
        self._traces: list[RecordedTrace] = []
        self._info: RunInfo | None = None
        self._table: Text | None = None
        self._due = 0.0
        self._wanted = 0

    def begin(self, store: Store, missing: Iterable[Key]) -> None:
        left = tuple(missing)
        super().begin(store, left)
        self._info, self._traces = store.info(), list(store.recorded())
        self._wanted = len(self._traces) + len(left)
        self._due = time.monotonic() + (0.0 if self.visible else LINE_SECONDS)

    def add_trace(self, trace: RecordedTrace) -> None:
        super().add_trace(trace)
        self._traces.append(replace(trace, ids=(), text="", logprobs=(), tops=()))
        began = time.monotonic()
        if self.quiet or self._info is None or began < self._due:
            return
        columns = Columns.of(self._traces, self._info)
        found = headlines(numbers.report(columns, self.thresholds, self.penalties))
        if self.visible:
            self._table, pause = Text("\n".join([*headline_lines(found), ""])), REFRESH_SECONDS
        else:
            self.console.print(self._line(found), markup=False, highlight=False, soft_wrap=True)
            pause = min(max(self.seconds, LINE_SECONDS), MAX_LINE_SECONDS)
        computed = time.monotonic() - began
        self._due = began + max(pause, computed / COMPUTING_SHARE)

    def above(self) -> RenderableType | None:
        return self._table

    def _line(self, found: Sequence[Headline]) -> str:
        """The progress, the time left and the results at the highest threshold, as one line."""
        base, *_, rule = found
        left = "" if self.seconds_left is None else f", about {duration(self.seconds_left)} left"
        fixed = "" if rule.fixed_accuracy is None else f"; a fixed budget of that cost {rule.fixed_accuracy:.1%}"
        saved = f"{rule.net_share:.1%} of the tokens saved" if rule.net_share is not None else "tokens unknown"
        accuracy = f"baseline {_share(base.accuracy)}; CGR {rule.threshold:g} {_share(rule.accuracy)} with {saved}{fixed}"
        return f"{len(self._traces)} of {self._wanted} traces{left}. Right so far: {accuracy}."


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"
