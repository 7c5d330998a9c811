"""Runs the missing traces of a run, many at once; counts and shows the progress, and summarises the call at its end.

Each trace is made and stored as a whole. A failure is recorded and does not stop the other traces.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from cgr.errors import CgrError, EngineError
from cgr.lab.store import GENERATE, Key, Store, probing_stage
from cgr.lab.store.config import Failure, in_words
from cgr.lab.store.schema import CONTINUES
from cgr.records import Probe, Record

T = TypeVar("T")
Execute = Callable[[Iterable[Key], Callable[[Key], Awaitable[None]], int], Awaitable[None]]
MAX_FAILURES = 3  # failures in a row, beyond the number of sessions, before the engine is given up
COUNTS = ("new", "thinking_tokens", "probes", "probe_tokens", "prefilled_tokens")  # of a call
MAX_LISTED = 5  # traces listed for one failure


class Progress:
    """Counts traces, tokens, probes and failures of one call, and shows them on a terminal unless `quiet`."""

    def __init__(
        self, *, quiet: bool = False, console: Console | None = None, on_note: Callable[[str], None] | None = None
    ) -> None:
        self.console, self.on_note = console or Console(stderr=True), on_note
        self.notes: list[str] = []
        self.visible = self.console.is_terminal and not quiet
        self.new = self.failed = self.thinking_tokens = self.probes = self.probe_tokens = self.prefilled_tokens = 0
        self.sets: list[str] = []
        self._start: float | None = None
        self._end: float | None = None
        self._bar: Bar | None = None
        self._task = TaskID(0)

    @contextmanager
    def showing(self, what: str, total: int, done: int) -> Iterator[None]:
        """Measure the time and show the bar; `done` of the `total` traces existed before."""
        self._start = self._start or time.monotonic()
        try:
            if not self.visible:
                yield
                return
            with _bar(self.console) as self._bar:
                self._task = self._bar.add_task(what, total=total, completed=done, rate="", failed="")
                yield
        finally:
            self._end, self._bar = time.monotonic(), None

    def note(self, text: str) -> None:
        """A sentence that the user should read; the same one is given once."""
        if text not in self.notes:
            self.notes.append(text)
            if self.on_note:
                self.on_note(text)

    def begin_set(self, name: str) -> None:
        """A probe set is being made."""
        if name not in self.sets:
            self.sets.append(name)

    def add_tokens(self, tokens: int) -> None:
        """Thinking tokens were generated or read again."""
        self.thinking_tokens += tokens
        self._show()

    def add_probes(self, probes: Sequence[Probe]) -> None:
        """The probes of a trace were made."""
        self.probes += len(probes)
        self.probe_tokens += sum(probe.decoded for probe in probes)
        self.prefilled_tokens += sum(probe.prefilled for probe in probes)

    def trace_done(self) -> None:
        """A trace was stored."""
        self.new += 1
        self._show(advance=1)

    def trace_failed(self) -> None:
        """A trace could not be made."""
        self.failed += 1
        self._show()

    @property
    def seconds(self) -> float:
        """From the start of the work to its end, or until now."""
        return 0.0 if self._start is None else (self._end or time.monotonic()) - self._start

    @property
    def tokens_per_second(self) -> float:
        """Thinking tokens per second."""
        return self.thinking_tokens / self.seconds if self.seconds else 0.0

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


async def in_tasks(keys: Iterable[Key], work: Callable[[Key], Awaitable[None]], limit: int) -> None:
    """Do the work for each key in asyncio tasks, at most `limit` at once. The first error ends all of them."""
    waiting = iter(keys)

    async def worker() -> None:
        for key in waiting:
            await work(key)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(limit):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


class Jobs:
    """The missing traces of one stage of a run. `execute` decides where and how many run at once.

    An error of the store ends the work, and so does an engine that fails every time.
    """

    def __init__(self, store: Store, stage: str, progress: Progress, sessions: int, *, execute: Execute = in_tasks) -> None:
        self.store, self.stage, self.progress, self.sessions, self.execute = store, stage, progress, sessions, execute
        self._failures_in_a_row = 0

    async def run(self, keys: Iterable[Key], make: Callable[[Key], Awaitable[T]], keep: Callable[[Key, T], None]) -> None:
        """Make each trace with `make` and store it with `keep`."""

        async def work(key: Key) -> None:
            try:
                made = await make(key)
            except CgrError as error:
                self._failed(key, error)
                return
            keep(key, made)
            self._failures_in_a_row = 0
            self.progress.trace_done()

        await self.execute(keys, work, self.sessions)

    def _failed(self, key: Key, error: CgrError) -> None:
        self.store.add_failure(key, self.stage, error)
        self.progress.trace_failed()
        self._failures_in_a_row += isinstance(error, EngineError)
        if self._failures_in_a_row >= self.sessions + MAX_FAILURES:
            raise EngineError(
                f"{self._failures_in_a_row} traces in a row failed. The last error: {error.message}",
                f"Check the engine. {CONTINUES}",
            ) from error


@dataclass(frozen=True, slots=True)
class Summary(Record):
    """The state of a run after a call, and what the call did.

    `traces` of the `wanted` ones are in the run (or probed, in every set that the call makes). `new`, tokens and seconds
    count this call, over all sets. `made_sets`: the sets that the call makes; `probe_set`: the last of them. `notes`:
    sentences that were given to the user.
    """

    run: str
    wanted: int
    traces: int
    new: int
    failed: int
    thinking_tokens: int
    probes: int
    probe_tokens: int
    prefilled_tokens: int
    seconds: float
    tokens_per_second: float
    ended_by_themselves: int
    at_budget: int
    probe_set: str | None = None
    probe_sets: tuple[str, ...] = ()
    made_sets: tuple[str, ...] = ()
    interrupted: bool = False
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()


def summarise(folder: Path, wanted: Collection[Key] | None, progress: Progress, *, interrupted: bool = False) -> Summary:
    """The summary of a call that should make the `wanted` traces (None: all traces of the run)."""
    with Store.open(folder) as store:
        keys = frozenset(store.made() if wanted is None else wanted)
        done = keys.intersection(*map(store.probed, progress.sets)) if progress.sets else keys & frozenset(store.made())
        stages = [probing_stage(name) for name in progress.sets] or [GENERATE]
        failures = [failure for stage in stages for failure in store.failures(stage)]
        natural, at_budget = store.endings()
        sets = tuple(store.probe_sets())
    failed = tuple(one for one in failures if (one.question_id, one.seed) in keys)
    return Summary(
        run=str(folder),
        wanted=len(keys),
        traces=len(done),
        failed=len(failed),
        seconds=round(progress.seconds, 3),
        tokens_per_second=round(progress.tokens_per_second, 1),
        ended_by_themselves=natural,
        at_budget=at_budget,
        probe_set=progress.sets[-1] if progress.sets else None,
        probe_sets=sets,
        made_sets=tuple(progress.sets),
        interrupted=interrupted,
        failures=failed,
        notes=tuple(progress.notes),
        **{name: getattr(progress, name) for name in COUNTS},
    )


def summary_lines(summary: Summary) -> list[str]:
    """The summary as a few lines of text."""
    done = f"{summary.traces} of {summary.wanted} traces are {_where(summary)}"
    if summary.interrupted:
        return [f"Interrupted: {done}. The same command continues from here."]
    lines = [f"{done}, {summary.new} of {'them' if len(summary.made_sets) < 2 else 'these probings'} new."]
    if summary.probe_set is None:
        lines.append(f"{summary.ended_by_themselves} ended naturally, {summary.at_budget} at the budget.")
    if summary.new:
        lines.append(_cost(summary))
    if summary.failed:
        return [*lines, f"{summary.failed} failed: the same command tries them again."]
    return [*lines, f"Next: cgr {'report' if summary.probe_sets else 'probe'} {summary.run}"]


def _where(summary: Summary) -> str:
    if not summary.made_sets:
        return f"in {summary.run}"
    names = in_words([repr(name) for name in summary.made_sets])
    return f"probed in the {'set' if len(summary.made_sets) == 1 else 'sets'} {names} of {summary.run}"


def _cost(summary: Summary) -> str:
    probes = f" {summary.probes:,} probes decoded {summary.probe_tokens:,} tokens." if summary.probes else ""
    speed = f"{summary.seconds:,.1f} s, {summary.tokens_per_second:,.0f} a second"
    return f"{summary.thinking_tokens:,} thinking tokens in {speed}.{probes}"


def failure_lines(failures: Sequence[Failure]) -> list[str]:
    """Failures grouped by reason, each with its traces."""
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in failures:
        reasons[one.message, one.hint].append(f"{one.question_id} (seed {one.seed})")
    lines = []
    for (message, hint), traces in reasons.items():
        more = f" and {len(traces) - MAX_LISTED} more" if len(traces) > MAX_LISTED else ""
        lines += [f"failed: {', '.join(traces[:MAX_LISTED])}{more}: {message}", *([f"hint:   {hint}"] if hint else [])]
    return lines
