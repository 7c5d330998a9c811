"""What the lab keeps of one (question, seed): the whole trace, every probe made on it, and the answer at its end.

This is the noun that travels: the store yields it, imports make it, scores read it, and `cgr export` writes it as one line
of JSON. Fields of the line that nobody recorded are simply absent.
"""

from __future__ import annotations

from dataclasses import dataclass

from cgr.records import AnswerFormat, Ended, Probe, Record


@dataclass(frozen=True, slots=True)
class RecordedTrace(Record):
    """One trace with its probes, in ascending order of position.

    `thinking_tokens` is the length, capped at `budget`; `final` is the answer decoded after the thinking ended or at the
    budget (its `at` is `thinking_tokens`). `written` is what the model wrote by itself after a natural end: stored and
    shown, never scored. `ids` and `text` are empty for traces imported without them. `tops`: of each token the mean of the
    20 highest log-probabilities there. `forced`: where the thinking was kept from ending, and by how many tokens.
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


@dataclass(frozen=True, slots=True)
class RunInfo(Record):
    """What a run is: its name, what produced it, and the grid that its probes lie on."""

    name: str
    model: str
    engine: str
    budget: int
    interval: int
    temperature: float = 0.6
    prefix: str = ""
    source: str = ""
