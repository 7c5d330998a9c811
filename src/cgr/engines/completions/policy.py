"""How long to wait for a server, and how often to try again."""

from __future__ import annotations

import email.utils
import random
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait, in seconds, and how often to try again without progress in between.

    `first` is the time limit for the first token, which may have to queue, `stall` the limit for each one after it; None
    is no limit. `start` is the limit for each of the first requests, which find out what the server can do; those that
    make it compute may take several times as long. `at_once`: retries without a pause after a disconnection, since a
    server may close an idle connection just as it is used again. `drain`: read replies to their end, for servers that do
    not survive a connection closed early.
    """

    tries: int = 6
    pause: float = 0.5
    longest: float = 30.0
    connect: float = 10.0
    first: float | None = 600.0
    stall: float | None = 60.0
    start: float | None = 10.0
    at_once: int = 2
    drain: bool = False

    def delay(self, attempt: int, wait: float | None = None) -> float:
        """Seconds before the next attempt: exponential with jitter, at least what the server asked for, at most
        `longest`."""
        backed_off = self.pause * 2**attempt * (1 + random.random() / 2)
        return float(min(max(backed_off, wait or 0.0), self.longest))


def retry_after(headers: Any) -> float | None:
    """Seconds to wait according to the Retry-After header, which holds a number or a date."""
    value = headers.get("Retry-After", "")
    if value.replace(".", "", 1).isdigit():
        return float(value)
    try:
        return max(email.utils.parsedate_to_datetime(value).timestamp() - time.time(), 0.0) if value else None
    except ValueError:
        return None
