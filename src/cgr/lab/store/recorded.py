"""What a run holds for one question and seed: the whole trace, its probes, and the final answer.

The store returns it, imports create it, scores read it, and `cgr export` writes it as one line of JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cgr.lab.store.config import RunConfig
from cgr.records import AnswerFormat, Ended, Probe, Record

SHADOW = "cgr serve --shadow"  # the source of a run that was recorded from requests, without their texts
SHADOW_TEXT = f"{SHADOW} --record-text"
HASHED = "hash:"  # how a hash in place of an answer begins


def is_shadow(source: str) -> bool:
    """Whether a run with this source was recorded from requests. A prompt that came several times has several seeds."""
    return source.startswith(SHADOW)


@dataclass(frozen=True, slots=True)
class RecordedTrace(Record):
    """One trace with its probes, in ascending order of position.

    `thinking_tokens` is the length, at most `budget`; `final` is the answer decoded after the thinking ended or at the
    budget (its `at` is `thinking_tokens`). `written` is the text that the model wrote after a natural end: stored and
    shown, never scored. `ids` and `text` are empty for traces imported without them. `logprobs`: the log-probability of
    each thinking token; `tops`: the mean of the 20 highest log-probabilities at each position; both are NaN for tokens
    that were not sampled. `forced`: (position, number of tokens) of each text that was appended to continue the thinking.
    """

    question_id: str
    seed: int
    gold: str | None
    thinking_tokens: int
    ended: Ended
    budget: int
    final: Probe
    probes: tuple[Probe, ...] = ()
    question: str = ""
    format: AnswerFormat = "integer"
    eos: bool = False
    ids: tuple[int, ...] = ()
    text: str = ""
    written: str = ""
    logprobs: tuple[float, ...] = ()
    tops: tuple[float, ...] = ()
    forced: tuple[tuple[int, int], ...] = ()

    def cut(self, at: int) -> int:
        """Where the trace is cut for a probe at this position: inside a text that was appended, at its end."""
        return next((start + count for start, count in self.forced if start < at < start + count), at)


@dataclass(frozen=True, slots=True)
class RunInfo(Record):
    """The name of a run, what produced it (None: unknown), and the interval of its probes."""

    name: str
    model: str
    engine: str
    budget: int
    interval: int
    temperature: float | None = None
    prefix: str | None = ""
    source: str = ""


class TraceSource(Protocol):
    """What probing reads of a run: a `Store`, or one trace that was sent to another process."""

    @property
    def config(self) -> RunConfig: ...

    def trace(self, key: tuple[str, int]) -> RecordedTrace:
        """One trace with all its fields, without probes."""

    def prompt_ids(self, key: tuple[str, int]) -> tuple[int, ...]:
        """The token ids of its prompt."""

    def made(self) -> tuple[tuple[str, int], ...]:
        """The question and seed of every trace, in order."""
