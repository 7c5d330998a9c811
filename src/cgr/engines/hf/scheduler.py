"""Many sessions in one decode loop: a thread of its own that sessions join and leave between two forward passes.

Each pass takes whatever every job has to read next. A job begins by saying what its row holds, which is all the rewinding
that there is; after a probe the last token of the thinking is read again, by the pass that would have read it anyway.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import torch

from cgr.engines.hf.kv_cache import Rows
from cgr.engines.hf.requests import Alone, Distributions, Job, Manner, Opened, Probing, Released, Request, Row, Thinking
from cgr.errors import CgrError, EngineError

IDLE = 0.5  # seconds without work after which the thread ends; the next job starts another
LINGER = 0.002  # seconds to wait for those who have just been answered, so that a batch stays together
CHUNK = 512  # tokens of a row in one pass: enough to be efficient, few enough for a mask over any context
TOGETHER = 2048  # tokens of all rows in one pass


class Batch:
    """The thread and what it works on. Rows and jobs are touched by that thread alone; requests come through a queue."""

    def __init__(self, rows: Rows, sessions: int) -> None:
        self.rows = rows
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._jobs: list[Job] = []
        self._sessions, self._free = sessions, list(reversed(range(sessions)))
        self._waiting: deque[Opened] = deque()
        self._owed = 0  # answers that will soon be followed by another request
        self._manner: Manner | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, request: Request) -> None:
        with self._lock:
            self._requests.put(request)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="cgr-decode", daemon=True)
                self._thread.start()

    def forget(self) -> None:
        """Give the memory back, unless somebody still thinks: for that thread to do."""
        if len(self._free) == self._sessions:
            self.rows.forget()

    def _run(self) -> None:
        """Work until nothing comes for a while. However this ends, nobody is left waiting."""
        error = EngineError("The decode loop broke off.", "Start again.")
        try:
            with torch.inference_mode():
                while self._gather():
                    self._step()
        except (RuntimeError, ValueError, IndexError) as failure:
            error = EngineError(f"The model failed: {failure}.", "Use fewer sessions, or less context.")
        finally:
            self._leave(error)

    def _leave(self, error: CgrError) -> None:
        with self._lock:
            jobs, self._jobs, self._thread = self._jobs, [], None
            if not self._requests.empty():  # came while the last ones failed
                self._thread = threading.Thread(target=self._run, name="cgr-decode", daemon=True)
                self._thread.start()
        for job in jobs:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(error)

    def _gather(self) -> bool:
        """Take what has come, and wait a moment for what is sure to. False: there has been nothing to do for long."""
        deadline: float | None = None
        while self._owed or not self._jobs or not self._requests.empty():
            now = time.perf_counter()
            deadline = (deadline or now + LINGER) if self._jobs else None
            try:
                self._accept(self._requests.get(timeout=max(deadline - now, 0) if deadline else IDLE))
            except queue.Empty:
                self._owed = 0
                return bool(self._jobs)
        return True

    def _accept(self, request: Request) -> None:
        self._owed = max(self._owed - 1, 0)
        match request:
            case Opened():
                self._waiting.append(request)
                self._hand_out()
            case Released():  # what is left to do on it, nobody wants
                self._jobs = [job for job in self._jobs if job.row is not request.row]
                self._free.append(request.row.index)
                self._free.sort(reverse=True)
                self._hand_out()
            case Alone():
                self._answer(request.future, request.work)
            case _:
                request.begin()
                self._jobs.append(request)
                self._jobs.sort(key=lambda job: job.row.index)

    def _hand_out(self) -> None:
        while self._waiting and self._free:
            opened = self._waiting.popleft()
            if opened.future.set_running_or_notify_cancel():
                opened.future.set_result(Row(self._free.pop()))
                self._owed += 1

    def _answer(self, future: Future[Any], work: Callable[[], Any]) -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except (RuntimeError, ValueError, IndexError, CgrError) as error:
                future.set_exception(error)
            self._owed += 1

    def _step(self) -> None:
        """Everybody reads what he has to, and takes what comes of it."""
        self._jobs = [job for job in self._jobs if not job.future.cancelled()]
        self._settle()
        finished: list[Job] = []
        for group in together(self._jobs, lambda job: len(job.row.ids) - job.row.read):
            finished += self._advance(group)
        if finished:
            self._jobs = [job for job in self._jobs if job not in finished]
            for job in finished:
                self._answer(job.future, job.result)

    def _settle(self) -> None:
        """Read what comes before the last token, in pieces, so that what follows is the same however it was come by."""
        while behind := [job for job in self._jobs if job.row.read < job.settled]:
            for group in together(behind, lambda job: min(job.settled - job.row.read, CHUNK)):
                self._read(group, [min(job.settled, job.row.read + CHUNK) for job in group], 1)

    def _read(self, jobs: list[Job], ends: list[int], keep: int) -> torch.Tensor:
        """Logits of the last places, as [job, place, token]."""
        rows = [job.row for job in jobs]
        tokens = [row.ids[row.read : end] for row, end in zip(rows, ends, strict=True)]
        logits = self.rows.feed([row.index for row in rows], [row.read for row in rows], tokens, keep)
        for row, end in zip(rows, ends, strict=True):
            row.read = end
        return logits

    def _advance(self, jobs: list[Job]) -> list[Job]:
        """One pass, and the jobs that it finished."""
        keep = max(job.keep for job in jobs)
        logits = self._read(jobs, [len(job.row.ids) for job in jobs], keep).to(self.rows.exact)
        thinkers = [job for job in jobs if isinstance(job, Thinking)]
        finished: list[Job] = []
        if thinkers:
            chosen = logits[:, -1]
            if len(thinkers) < len(jobs):
                chosen = chosen[[number for number, job in enumerate(jobs) if isinstance(job, Thinking)]]
            finished += self._think(thinkers, chosen)
        for number, job in enumerate(jobs):
            if isinstance(job, Probing) and job.take(Distributions.of(logits[number, -job.keep :], job.top)):
                finished.append(job)
        return finished

    def _think(self, jobs: list[Thinking], logits: torch.Tensor) -> list[Thinking]:
        if self._manner is None or self._manner.jobs != jobs:
            self._manner = Manner.of(jobs, self.rows.exact)
        found = zip(jobs, *self._manner.sample(logits), strict=True)
        return [job for job, token, logprob, top in found if job.take(token, logprob, top)]


def together(jobs: Iterable[Job], width: Callable[[Job], int]) -> Iterator[list[Job]]:
    """Groups for one pass each: single tokens by themselves, and others with those of about their length."""
    group: list[Job] = []
    for job in sorted(jobs, key=width):
        least = width(group[0]) if group else 0
        fits = width(job) == least or (least > 1 and width(job) <= least + least // 4 + 2)
        if group and not (fits and (least == 1 or (len(group) + 1) * width(job) <= TOGETHER)):
            yield sorted(group, key=lambda job: job.row.index)
            group = []
        group.append(job)
    if group:
        yield sorted(group, key=lambda job: job.row.index)
