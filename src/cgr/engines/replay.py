"""A recording as an engine: the same loop reads it and nothing is computed. Anything that was not recorded is an error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from cgr.engines.base import (
    Answered,
    Capabilities,
    Done,
    Engine,
    ModelInfo,
    OnText,
    Prompt,
    Reader,
    Sampling,
    Stretch,
    Written,
)
from cgr.errors import NotRecorded
from cgr.records import Conversation, Probe, Trace

CLOSED = -1  # stands for the end tag before a prefix
HINT = "Record it with `cgr probe`, or ask for what the recording holds."


class ReplayEngine:
    """One trace, the probes made on it (by position), and the answer that was decoded at its end.

    `answers`: answers with the thinking closed, for rules whose probes hold no answer: at one position, the first request
    is for a probe, and the second for the answer. `tops`: for each token the mean of the highest log-probabilities.
    `forced`: positions where the end was replaced, and by how many tokens of the text `forcing`.
    """

    notes: tuple[str, ...] = ()
    prober: Engine | None = None

    def __init__(
        self,
        trace: Trace,
        probes: Iterable[Probe],
        final: Probe | None = None,
        info: ModelInfo | None = None,
        *,
        answers: Iterable[Probe] = (),
        tops: Sequence[float] = (),
        forced: Sequence[tuple[int, int]] = (),
        forcing: str = "",
    ) -> None:
        self.trace, self.final, self.tops = trace, final, tuple(tops)
        self.forced, self.forcing = dict(forced), forcing
        self.probes: Mapping[int, Probe] = {probe.at: probe for probe in probes}
        self.answers: Mapping[int, Probe] = {probe.at: probe for probe in answers}
        self.info = info or ModelInfo("recorded", "replay", 1 << 30, "<think>", "</think>")
        self.capabilities = Capabilities("full", True, True, False, overlap=True, thinking_logprobs=bool(tops))

    async def connect(self) -> None:
        return None

    async def encode(self, text: str) -> tuple[int, ...]:
        """Only the end tag and the forced text have ids: nothing else can be appended to a recording."""
        if text == self.info.close_tag:
            return (CLOSED,)
        if text != self.forcing or not self.forced:
            return ()
        at, count = max(self.forced.items(), key=lambda pair: pair[1])
        return self.trace.ids[at : at + count]

    async def decode(self, ids: Sequence[int]) -> str:
        """The recorded text of the whole trace; a part of it is not known."""
        return self.trace.text if len(ids) == len(self.trace.ids) else ""

    async def prompt(self, conversation: Conversation) -> tuple[int, ...]:
        return self.trace.prompt_ids

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int = 0, overlap: bool = False, wait: float | None = None
    ) -> ReplaySession:
        return ReplaySession(self)

    async def close(self) -> None:
        return None


class ReplaySession:
    """One pass over the recorded trace."""

    reader: Reader | None = None

    def __init__(self, engine: ReplayEngine) -> None:
        self.engine, self.at, self.wasted = engine, 0, 0
        self.over = False
        self.asked: int | None = None

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        trace = self.engine.trace
        if ban_end:
            raise self._missing("thinking with the end tag banned")
        wall = min((at for at in self.engine.forced if at >= self.at), default=None)
        end = self.at + tokens if wall is None else min(self.at + tokens, wall)
        ids, tops = trace.ids[self.at : end], self.engine.tops[self.at : end]
        self.at += len(ids)
        if len(ids) < tokens and self.at == wall:
            return Stretch(ids, ended=True, tops=tops)
        if len(ids) == tokens:
            return Stretch(ids, tops=tops)
        if trace.ended == "budget":
            raise self._missing(f"thinking past token {len(trace.ids)}")
        self.over = True
        return Stretch(ids, ended=True, eos=trace.eos, tops=tops)

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        return None

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        at_end = self.over or self.at == self.engine.trace.budget
        again, self.asked = self.at == self.asked, self.at
        if self.at in self.engine.forced and tuple(suffix[:1]) == (CLOSED,):
            probe, what = None, f"an end after {self.at} tokens, where it was forced on,"
        elif again and not at_end:
            probe, what = self.engine.answers.get(self.at), f"the answer after {self.at} tokens, with the thinking closed,"
        elif at_end and not self._before_the_tag(suffix):
            probe, what = self.engine.final, "the final answer"
        else:
            probe, what = self.engine.probes.get(self.at), f"a probe at token {self.at}"
        if probe is None:
            raise self._missing(what)
        return Answered(recorded=probe)

    def _before_the_tag(self, suffix: Sequence[int]) -> bool:
        """Whether this asks for the probe at a natural end, which is made before the end tag is appended."""
        return self.over and tuple(suffix[:1]) != (CLOSED,) and self.at in self.engine.probes

    async def append(self, ids: Sequence[int]) -> None:
        if self.engine.forced.get(self.at) != len(ids):
            raise self._missing("thinking that was forced on")
        self.at += len(ids)

    async def write(self, limit: int) -> AsyncIterator[Written]:
        raise self._missing("the answer that the model wrote")
        yield Written("")

    async def close(self) -> None:
        return None

    def _missing(self, what: str) -> NotRecorded:
        trace = self.engine.trace
        return NotRecorded(f"Question {trace.question_id!r}, seed {trace.seed}: {what} was not recorded.", HINT)
