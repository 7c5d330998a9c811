"""Discrete events, and a server of sequences that are computed together: what benchmarks/scale.py simulates with."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

Then = Callable[[], None]


@dataclass(frozen=True)
class Speed:
    """The speed of one server, in seconds and tokens; and how many sequences it computes at once."""

    step: float = 0.020
    per_sequence: float = 0.0001
    prefill: float = 10_000.0
    sequences: int = 64

    def decoding(self, sequences: int) -> float:
        """Tokens a second of this many sequences together."""
        return sequences / (self.step + self.per_sequence * sequences)


class Clock:
    """Events in the order of their time."""

    def __init__(self) -> None:
        self.now, self._number = 0.0, itertools.count()
        self._events: list[tuple[float, int, Then]] = []

    def after(self, seconds: float, then: Then) -> None:
        """Call this in so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, next(self._number), then))

    def run(self, until: float = float("inf")) -> None:
        """Handle the events up to this time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, then = heapq.heappop(self._events)
            then()


class Server:
    """Sequences that share the steps, and prompts that are read before them. `thought` counts tokens that each sequence
    would have got since the start, so that a sequence ends when it reaches its own mark."""

    def __init__(self, clock: Clock, speed: Speed) -> None:
        self.clock, self.speed, self.thought, self._at = clock, speed, 0.0, 0.0
        self._sequences: list[tuple[float, int, Then]] = []
        self._waiting: deque[tuple[float, Then]] = deque()
        self._prompts: deque[tuple[float, Then]] = deque()
        self._number, self._plan = itertools.count(), 0
        self.reading = 0.0  # seconds spent on prompts

    def read(self, tokens: float, then: Then) -> None:
        """Read a prompt of so many tokens that are not in the cache."""
        self._advance()
        self._prompts.append((tokens / self.speed.prefill, then))
        if len(self._prompts) == 1:
            self._next_prompt()
        self._replan()

    def decode(self, tokens: float, then: Then, *, waits: bool = True) -> None:
        """Decode so many tokens, together with the other sequences. `waits`: for a place among them."""
        self._advance()
        if waits and len(self._sequences) >= self.speed.sequences:
            self._waiting.append((tokens, then))
        else:
            heapq.heappush(self._sequences, (self.thought + tokens, next(self._number), then))
        self._replan()

    @property
    def _pace(self) -> float:
        """Tokens a second of each sequence."""
        return self.speed.decoding(len(self._sequences)) / len(self._sequences)

    def _next_prompt(self) -> None:
        seconds, _ = self._prompts[0]
        self.reading += seconds
        self.clock.after(seconds, self._read)

    def _read(self) -> None:
        self._at = self.clock.now  # the sequences waited
        _, then = self._prompts.popleft()
        if self._prompts:
            self._next_prompt()
        then()
        self._replan()

    def _advance(self) -> None:
        if self._sequences and not self._prompts:
            self.thought += (self.clock.now - self._at) * self._pace
        self._at = self.clock.now

    def _replan(self) -> None:
        """Plan the end of the sequence that ends first; a plan that was made before is void."""
        self._plan += 1
        if self._sequences and not self._prompts:
            left = max(self._sequences[0][0] - self.thought, 0.0)
            plan = self._plan
            self.clock.after(left / self._pace, lambda: self._ended(plan))

    def _ended(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._advance()
        mark, _, then = heapq.heappop(self._sequences)
        self.thought = max(self.thought, mark)
        if self._waiting:
            tokens, other = self._waiting.popleft()
            heapq.heappush(self._sequences, (self.thought + tokens, next(self._number), other))
        then()
        self._replan()
