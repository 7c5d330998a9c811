"""Runs asynchronous work from synchronous code, so that Ctrl-C ends it cleanly at any moment.

`asyncio.Runner` handles Ctrl-C only once its task exists. If it is pressed a moment earlier, a coroutine is never awaited
and a warning is printed. Here the handler is installed first.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]


def run(loop: asyncio.AbstractEventLoop, work: Work[T]) -> T:
    """The result of the work. After Ctrl-C the work is cancelled, cleans up, and KeyboardInterrupt is raised."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not ours or threading.current_thread() is not threading.main_thread():
        return loop.run_until_complete(work())
    return _Interruptible(loop).run(work)


class _Interruptible:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.presses = loop, 0
        self.task: asyncio.Task[Any] | None = None

    def run(self, work: Work[T]) -> T:
        signal.signal(signal.SIGINT, self._pressed)
        try:
            task: asyncio.Task[T] = self.loop.create_task(work())
            self.task = task
            if self.presses:
                task.cancel()
            return self.loop.run_until_complete(task)
        except asyncio.CancelledError:
            if self.presses:
                raise KeyboardInterrupt from None
            raise
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _pressed(self, _number: int, _frame: object) -> None:
        """The first Ctrl-C cancels the task, which also wakes the loop; the second raises at once."""
        self.presses += 1
        if self.presses > 1:
            raise KeyboardInterrupt
        if self.task:
            self.loop.call_soon_threadsafe(self.task.cancel)
