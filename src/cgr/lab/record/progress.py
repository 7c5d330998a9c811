"""Counts what a long piece of work has done, and shows it where somebody looks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress:
    """Traces, tokens and failures of one call, and the sets of probes that it makes, if it does. Shows nothing off a
    terminal, or when told to be quiet."""

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.visible = self.console.is_terminal and not quiet
        self.traces = self.failed = self.tokens = self.probes = self.decoded = self.prefilled = 0
        self.sets: list[str] = []
        self._began: float | None = None
        self._ended: float | None = None
        self._bar: Bar | None = None
        self._task = TaskID(0)

    @contextmanager
    def showing(self, what: str, total: int, done: int) -> Iterator[None]:
        """From here on time is counted; `done` of the `total` were there before."""
        self._began = self._began or time.monotonic()
        try:
            if not self.visible:
                yield
                return
            with _bar(self.console) as self._bar:
                self._task = self._bar.add_task(what, total=total, completed=done, rate="", failed="")
                yield
        finally:
            self._ended, self._bar = time.monotonic(), None

    def read(self, tokens: int) -> None:
        """So many tokens were thought, or gone through again."""
        self.tokens += tokens
        self._show()

    def finished(self) -> None:
        self.traces += 1
        self._show(advance=1)

    def fail(self) -> None:
        self.failed += 1
        self._show()

    @property
    def probe_set(self) -> str | None:
        """The one that is being made."""
        return self.sets[-1] if self.sets else None

    @probe_set.setter
    def probe_set(self, name: str) -> None:
        if name not in self.sets:
            self.sets.append(name)

    @property
    def seconds(self) -> float:
        if self._began is None:
            return 0.0
        return (self._ended or time.monotonic()) - self._began

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    def _show(self, advance: int = 0) -> None:
        if self._bar:
            failed = f"[red]{self.failed} failed" if self.failed else ""
            rate = f"{self.tokens_per_second:,.0f} tokens/s"
            self._bar.update(self._task, advance=advance, rate=rate, failed=failed)


def _bar(console: Console) -> Bar:
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]}"),
        console=console,
        transient=True,
    )
