"""What a run holds for one question and seed: the whole trace, its probes, and the final answer.

The store returns it, imports create it, scores read it, and `cgr export` writes it as one line of JSON.
"""

from __future__ import annotations

from dataclasses import dataclass

from cgr.records import AnswerFormat, Ended, Probe, Record


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
