"""Runs asynchronous work from synchronous code: from any thread, also where an event loop is running, as in a notebook.

All of it runs on one event loop in a thread of its own. Threads that use one model therefore share its sessions and its
connections. After Ctrl-C, or any other exception in the thread that waits, the work is cancelled and cleans up first.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from cgr.errors import UsageError

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]
LAST_SECONDS = 2.0  # for work that is still running when the process ends


class BackgroundLoop:
    """An event loop in a daemon thread. It ends when the process ends, after the finalizers that were made later."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.loop, self._ended = self.runner.get_loop(), asyncio.Event()
        self._unattended: set[asyncio.Task[object]] = set()
        self.thread = threading.Thread(target=self._serve, name="cgr", daemon=True)
        self.thread.start()
        weakref.finalize(self, _end, os.getpid(), self.loop, self._ended, self.thread)

    def _serve(self) -> None:
        with self.runner:
            self.runner.run(self._until_ended())

    async def _until_ended(self) -> None:
        await self._ended.wait()
        if self._unattended:
            await asyncio.wait(self._unattended, timeout=LAST_SECONDS)

    def start(self, work: Work[object]) -> None:
        """Begin the work and do not wait for it. For finalizers, which may be called anywhere."""
        self.loop.call_soon_threadsafe(self._start, work)

    def _start(self, work: Work[object]) -> None:
        task = self.loop.create_task(work())
        self._unattended.add(task)
        task.add_done_callback(self._unattended.discard)


def _end(process: int, loop: asyncio.AbstractEventLoop, ended: asyncio.Event, thread: threading.Thread) -> None:
    if os.getpid() == process and thread.is_alive():
        loop.call_soon_threadsafe(ended.set)
        thread.join()


class _OfProcess:
    """The event loop of this process, and the objects that forked children must not destroy."""

    def __init__(self) -> None:
        self.background: BackgroundLoop | None = None
        self.starting = threading.Lock()
        self.owners: weakref.WeakSet[Any] = weakref.WeakSet()

    def after_fork(self) -> None:
        """A child process has no thread but the one that forked, and shares the descriptors of its parent. An event loop
        that is destroyed here would stop the parent's, and native code would wait for threads that do not exist."""
        kept = [*self.owners, *([self.background] if self.background else [])]
        self.background, self.starting = None, threading.Lock()
        if kept:
            import ctypes

            for one in kept:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


_of_process = _OfProcess()
os.register_at_fork(after_in_child=_of_process.after_fork)


def not_for_children(owner: object) -> None:
    """Forked child processes never destroy this object: it owns threads or connections of this process."""
    with suppress(TypeError):  # an engine of somebody else that has no weak references
        _of_process.owners.add(owner)


def background_loop() -> BackgroundLoop:
    """The event loop of this process, started when it is first needed."""
    with _of_process.starting:
        if _of_process.background is None or not _of_process.background.thread.is_alive():
            _of_process.background = BackgroundLoop()
        return _of_process.background


def run(work: Work[T]) -> T:
    """The result of the work. After Ctrl-C the work is cancelled, cleans up, and KeyboardInterrupt is raised."""
    return Call(work).result()


def in_event_loop() -> bool:
    """Whether an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Call(Generic[T]):
    """One piece of work, which can call functions in the thread that waits for its result."""

    def __init__(self, work: Work[T]) -> None:
        background = background_loop()
        if threading.current_thread() is background.thread:
            raise UsageError(
                "This code runs inside a model's work and cannot wait for a model.", "Use `await model.asolve(...)`."
            )
        self._work, self._loop = work, background.loop
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()  # None: the task is done
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False

    def result(self) -> T:
        """Do the work and wait for it."""
        try:
            self._loop.call_soon_threadsafe(self._start, context=contextvars.copy_context())
            while (function := self._inbox.get()) is not None:
                function()
        except BaseException:
            self._loop.call_soon_threadsafe(self._cancel)
            while self._inbox.get() is not None:
                pass
            raise
        assert self._task is not None
        return self._task.result()

    async def in_caller(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the thread that waits. If it raises, the work is cancelled."""
        done: asyncio.Future[None] = self._loop.create_future()

        def call() -> None:
            function(*arguments)
            self._loop.call_soon_threadsafe(_settle, done)

        self._inbox.put(call)
        await done

    def _start(self) -> None:
        if not self._cancelled:
            self._task = self._loop.create_task(self._work())
            self._task.add_done_callback(lambda _: self._inbox.put(None))

    def _cancel(self) -> None:
        self._cancelled = True
        if self._task is None or self._task.done():
            self._inbox.put(None)
        else:
            self._task.cancel()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
