"""Many sessions in one decode loop: a thread that sessions join and leave between two forward passes.

Each pass computes the next tokens of every job. A job starts by setting what its slot contains; rewinding copies nothing.
After a probe the last thinking token is computed again, by the pass that continues the thinking.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import torch

from cgr.engines.hf.jobs import DecodeJob, ProbeJob, Slot, ThinkJob, distributions_of
from cgr.engines.hf.kv_cache import KVCache
from cgr.engines.hf.sampler import SamplingBatch
from cgr.errors import CgrError, EngineError

T = TypeVar("T")
IDLE_SECONDS = 0.5  # the thread ends after this time without work; the next request starts another
LINGER_SECONDS = 0.002  # how long to wait for expected requests, so that the batch stays full
CHUNK = 512  # tokens of one slot in one pass: large enough to be efficient, small enough for a mask over any context
MAX_PASS_TOKENS = 2048  # tokens of all slots in one pass
MODEL_FAILURES = (RuntimeError, ValueError, IndexError)


class Scheduler:
    """The decode thread and its jobs. Only that thread touches slots and jobs; others `submit` calls to it."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._jobs: list[DecodeJob] = []
        self._used: set[int] = set()  # rows of the KV cache that belong to a session
        self._expected = 0  # sessions that have just begun or got a result, and will soon send their next request
        self._sampling: SamplingBatch | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, function: Callable[..., None], *arguments: Any) -> None:
        """Queue a call for the decode thread, which makes it between two passes; from any thread."""
        with self._lock:
            self._calls.put(partial(function, *arguments))
            if self._thread is None:
                self._start()

    async def complete(self, job: DecodeJob) -> Any:
        """Decode a job and wait for its result. When the caller is cancelled, the job is dropped at the next pass."""
        self.submit(self.begin, job)
        return await _result(job.future)

    async def run(self, work: Callable[[], T]) -> T:
        """Run this on the decode thread between two passes and wait for its result."""
        future: Future[T] = Future()
        self.submit(self._answer, future, work)
        return await _result(future)

    def begin(self, job: DecodeJob) -> None:
        """Add a job to those that are decoded. Must run on the decode thread."""
        self._expected = max(self._expected - 1, 0)
        job.begin()
        self._jobs.append(job)
        self._jobs.sort(key=lambda job: job.slot.index)

    def reserve(self, slot: Slot) -> None:
        """A session has begun: give its slot the first free row, as rows that lie together are read without a copy. Must
        run on the decode thread."""
        self._expected += 1
        slot.index = next(index for index in range(len(self._used) + 1) if index not in self._used)
        self._used.add(slot.index)

    def release(self, slot: Slot) -> None:
        """A session has ended: drop its jobs and free its row. Must run on the decode thread."""
        self._expected = max(self._expected - 1, 0)
        for job in self._jobs:
            if job.slot is slot:
                _fail(job.future, EngineError("The session was closed while it was used.", "Open another session."))
        self._jobs = [job for job in self._jobs if job.slot is not slot]
        self._used.discard(slot.index)

    async def clear(self) -> None:
        """Free the memory of the KV cache unless a session is open."""
        with self._lock:
            if idle := self._thread is None:  # a new thread cannot start while the process exits
                self._clear()
        if not idle:
            await self.run(self._clear)

    def _clear(self) -> None:
        if not self._used:
            self.cache.clear()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="cgr-decode", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Work until no request comes for a while. Every waiting job gets a result or an error, however this ends."""
        error = EngineError("The decode loop ended unexpectedly.", "Open the model again.")
        try:
            with torch.inference_mode():
                while self._gather():
                    self._step()
        except MODEL_FAILURES as failure:
            error = EngineError(f"The model failed: {failure}.", "Use fewer sessions, or less context.")
        finally:
            self._stop(error)

    def _stop(self, error: CgrError) -> None:
        with self._lock:
            jobs, self._jobs, self._thread = self._jobs, [], None
            if not self._calls.empty():  # they came after the last look at the queue
                self._start()
        for job in jobs:
            _fail(job.future, error)

    def _gather(self) -> bool:
        """Accept the requests that have come, and wait briefly for those that are expected. False: idle for too long."""
        deadline: float | None = None
        while self._expected or not self._jobs or not self._calls.empty():
            now = time.perf_counter()
            deadline = (deadline or now + LINGER_SECONDS) if self._jobs else None
            try:
                call = self._calls.get(timeout=max(deadline - now, 0) if deadline else IDLE_SECONDS)
            except queue.Empty:
                self._expected = 0
                return bool(self._jobs)
            call()
        return True

    def _answer(self, future: Future[Any], work: Callable[[], Any]) -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except (*MODEL_FAILURES, CgrError) as error:
                future.set_exception(error)

    def _step(self) -> None:
        """One token for every job, in as few passes as possible."""
        self._jobs = [job for job in self._jobs if not job.future.cancelled()]
        self._prefill()
        groups = pass_groups(self._jobs, lambda job: len(job.slot.ids) - job.slot.cached)
        finished = [job for group in groups for job in self._decode(group)]
        self._jobs = [job for job in self._jobs if job not in finished]
        self._expected += len(finished)
        for job in finished:
            self._answer(job.future, job.result)

    def _prefill(self) -> None:
        """Compute all but the last tokens in chunks, so that the last pass is the same however a slot got its tokens."""
        while behind := [job for job in self._jobs if job.slot.cached < job.prefilled]:
            for group in pass_groups(behind, lambda job: min(job.prefilled - job.slot.cached, CHUNK)):
                self._forward(group, [min(job.prefilled, job.slot.cached + CHUNK) for job in group], 1)

    def _forward(self, jobs: list[DecodeJob], ends: list[int], keep: int) -> torch.Tensor:
        """Compute each slot up to its end; the logits of the last `keep` positions as [job, position, token]."""
        slots = [job.slot for job in jobs]
        tokens = [slot.ids[slot.cached : end] for slot, end in zip(slots, ends, strict=True)]
        logits = self.cache.extend([slot.index for slot in slots], [slot.cached for slot in slots], tokens, keep)
        for slot, end in zip(slots, ends, strict=True):
            slot.cached = end
        return logits

    def _decode(self, jobs: list[DecodeJob]) -> list[DecodeJob]:
        """One pass; returns the jobs that it finished."""
        keep = max(job.keep for job in jobs)
        logits = self._forward(jobs, [len(job.slot.ids) for job in jobs], keep).to(self.cache.float64_device)
        thinking = {number: job for number, job in enumerate(jobs) if isinstance(job, ThinkJob)}
        finished: list[DecodeJob] = []
        if thinking:
            last = logits[:, -1] if len(thinking) == len(jobs) else logits[list(thinking), -1]
            finished += self._sample(list(thinking.values()), last)
        for number, job in enumerate(jobs):
            if isinstance(job, ProbeJob) and job.take(distributions_of(logits[number, -job.keep :], job.query.top)):
                finished.append(job)
        return finished

    def _sample(self, jobs: list[ThinkJob], logits: torch.Tensor) -> list[ThinkJob]:
        if self._sampling is None or self._sampling.jobs != jobs:
            self._sampling = SamplingBatch.of(jobs, self.cache.float64_device)
        sampled = zip(jobs, *self._sampling.sample(logits), strict=True)
        return [job for job, token, logprob, top in sampled if job.on_token(token, logprob, top)]


async def _result(future: Future[T]) -> T:
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.cancel()  # at once: `wrap_future` does it only in a later turn of the event loop
        raise


def _fail(future: Future[Any], error: CgrError) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)


def pass_groups(jobs: Iterable[DecodeJob], width: Callable[[DecodeJob], int]) -> list[list[DecodeJob]]:
    """Groups of jobs for one pass each: single tokens together, and longer inputs with others of about the same length."""
    groups: list[list[DecodeJob]] = []
    for job in sorted(jobs, key=width):
        least = width(groups[-1][0]) if groups else 0
        fits = width(job) == least or (least > 1 and width(job) <= least + least // 4 + 2)
        if groups and fits and (least == 1 or (len(groups[-1]) + 1) * width(job) <= MAX_PASS_TOKENS):
            groups[-1].append(job)
        else:
            groups.append([job])
    return [sorted(group, key=lambda job: job.slot.index) for group in groups]
