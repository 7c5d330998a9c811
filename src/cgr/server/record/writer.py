"""Writes a recording to its run, in a thread of its own: a slow disk must not hold up a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from cgr.errors import UsageError
from cgr.lab.store import DEFAULT, OtherConfiguration, Store, StoreError
from cgr.lab.store.config import ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Question

T = TypeVar("T")
OTHER_FOLDER = "Choose another folder with --record, or repeat the options of that recording."


class RunWriter:
    """One run, written by one thread. `count`: its traces."""

    def __init__(self, folder: Path, config: RunConfig, probe_set: ProbeSet) -> None:
        self.folder, self.config, self.probe_set = folder, config, probe_set
        self.count = 0
        self._store: Store
        self._seeds: dict[str, int] = {}  # of each question, the next one
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cgr-record")

    async def open(self) -> None:
        """Create the run, or continue it if model and settings are the same."""
        try:
            await self._in_thread(self._open)
        except OtherConfiguration as error:
            raise OtherConfiguration(error.message, OTHER_FOLDER) from error
        except StoreError as error:
            raise UsageError(error.message, "Choose another folder with --record.") from error

    async def add(self, trace: RecordedTrace, prompt_ids: Sequence[int] = (), seconds: float = 0.0) -> None:
        """Add a trace under the next free seed of its question."""
        await self._in_thread(lambda: self._add(trace, prompt_ids, seconds))

    async def close(self) -> None:
        """Close the run, after everything that was added."""
        await self._in_thread(self._store.close)
        self._thread.shutdown()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # In the thread

    def _open(self) -> None:
        self._store = Store.create(self.folder, self.config)
        self._store.add_probe_set(self.probe_set, DEFAULT)
        for question, seed in self._store.made():
            self._seeds[question] = max(self._seeds.get(question, 0), seed + 1)
            self.count += 1

    def _add(self, trace: RecordedTrace, prompt_ids: Sequence[int], seconds: float) -> None:
        name = trace.question_id
        seed = self._seeds.get(name, 0)
        with self._store.at_once():
            if not seed:
                self._store.add_questions([Question(name, trace.question, None, trace.format)])
            kept = replace(trace, seed=seed)
            self._store.add_trace(kept, prompt_ids=prompt_ids, seconds=seconds, probe_set=DEFAULT)
        self._seeds[name] = seed + 1
        self.count += 1
