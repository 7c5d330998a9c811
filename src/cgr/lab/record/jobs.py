"""Runs the missing traces of a run, many at once; counts and shows the progress, and summarises the call at its end.

Each trace is made and stored as a whole. A failure is recorded and does not stop the other traces.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as ProgressBar

from cgr.engines.base import Engine
from cgr.errors import CgrError, EngineError
from cgr.lab.record.cluster import ClusterEngine
from cgr.lab.store import GENERATE, Key, Store, probing_stage
from cgr.lab.store.config import Failure
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.store.schema import CONTINUES
from cgr.records import Probe, Record

T = TypeVar("T")
Execute = Callable[[Iterable[Key], Callable[[Key], Awaitable[None]], int], Awaitable[None]]
MAX_FAILURES = 3  # failures in a row, beyond the number of sessions, before the engine is given up
COUNTS = ("new", "thinking_tokens", "probes", "probe_tokens", "prefilled_tokens")  # of a call
ENOUGH_TRACES = 50  # for an estimate of the time left, unless each question was thought about once before


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
        self._bar: _Bar | None = None
        self._task = TaskID(0)
        self._cluster: ClusterEngine | None = None
        self._missing: Counter[str] = Counter()  # traces to generate, by question
        self._lengths: dict[str, list[int]] = defaultdict(list)  # of the new traces, by question

    @contextmanager
    def showing(self, what: str, total: int, done: int) -> Iterator[None]:
        """Measure the time and show the bar; `done` of the `total` traces existed before."""
        self._start = self._start or time.monotonic()
        try:
            if not self.visible:
                yield
                return
            with _Bar(self.console, self.above) as self._bar:
                self._task = self._bar.add_task(what, total=total, completed=done, rate="", left="", failed="")
                yield
        finally:
            self._end, self._bar = time.monotonic(), None

    def above(self) -> RenderableType | None:
        """What is shown above the bar: the state of a cluster, if one works."""
        return self._cluster.status() if self._cluster else None

    def follow(self, engine: Engine) -> None:
        """Show the state of this engine, if it is a cluster, and note when one of its engines is replaced."""
        if isinstance(engine, ClusterEngine):
            self._cluster, engine.on_lost = engine, self.note

    def begin(self, store: Store, missing: Iterable[Key]) -> None:
        """These traces of a run are generated now."""
        self._missing = Counter(question for question, _ in missing)

    def add_trace(self, trace: RecordedTrace) -> None:
        """A trace was generated."""
        self.add_probes(trace.probes)
        self._missing[trace.question_id] -= 1
        self._lengths[trace.question_id].append(trace.thinking_tokens)

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

    @property
    def seconds_left(self) -> float | None:
        """An estimate for the traces that are generated, from what each question took before; None while it would be a
        guess, because the questions that come first may be the easy ones."""
        made = [length for lengths in self._lengths.values() for length in lengths]
        new = [question for question, count in self._missing.items() if count and not self._lengths[question]]
        if not made or not self.tokens_per_second or (new and len(made) < ENOUGH_TRACES):
            return None
        means = {question: sum(lengths) / len(lengths) for question, lengths in self._lengths.items() if lengths}
        expected = sum(count * means.get(question, sum(made) / len(made)) for question, count in self._missing.items())
        unfinished = self.thinking_tokens - sum(made)  # tokens of the traces that are being made
        return max(expected - unfinished, 0.0) / self.tokens_per_second

    def _show(self, advance: int = 0) -> None:
        if self._bar:
            failed = f"[red]{self.failed} failed" if self.failed else ""
            rate, seconds = f"{self.tokens_per_second:,.0f} tokens/s", self._rest()
            left = "" if seconds is None else f"{seconds // 60:.0f}:{seconds % 60:02.0f} left"
            self._bar.update(self._task, advance=advance, rate=rate, left=left, failed=failed)

    def _rest(self) -> float | None:
        """Seconds left: as estimated for new traces, else at the rate of the traces so far."""
        if self._missing or not self._bar or not self.new:
            return self.seconds_left
        task = self._bar.tasks[self._task]
        return self.seconds / self.new * ((task.total or 0) - task.completed)


class _Bar(ProgressBar):
    """A progress bar below something else, if there is anything."""

    def __init__(self, console: Console, above: Callable[[], RenderableType | None]) -> None:
        self._above = above
        fields = ("rate", "left", "failed")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        texts = (TextColumn(f"{{task.fields[{name}]}}") for name in fields)
        super().__init__(*columns, *texts, console=console, transient=True)

    def get_renderables(self) -> Iterable[RenderableType]:
        if (above := self._above()) is not None:
            yield above
        yield from super().get_renderables()


async def in_tasks(keys: Iterable[T], work: Callable[[T], Awaitable[None]], limit: int) -> None:
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
    """The missing traces of a run. `stages`: what is made of a trace, for the list of failures. `execute` decides where and
    how many run at once.

    An error of the store ends the work, and so does an engine that fails every time.
    """

    def __init__(
        self,
        store: Store,
        stages: Callable[[Key], Iterable[str]],
        progress: Progress,
        sessions: int,
        *,
        execute: Execute = in_tasks,
    ) -> None:
        self.store, self.stages, self.progress, self.sessions, self.execute = store, stages, progress, sessions, execute
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
        for stage in self.stages(key):
            self.store.add_failure(key, stage, error)
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

    `traces` of the `wanted` ones are in the run (or probed, in every set that the call makes). `new` traces, tokens and
    seconds count this call; thinking that is read once for several sets is counted once. `made_sets`: the sets that the
    call makes; `probe_set`: the last of them. `notes`: sentences that were given to the user.
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
