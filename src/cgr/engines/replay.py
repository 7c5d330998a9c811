"""A recording as an engine: the same loop reads it, nothing is computed, and what was not recorded is said by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cgr.engines.base import Answered, Capabilities, Done, ModelInfo, OnText, Sampling, Stretch
from cgr.errors import NotRecorded
from cgr.records import Probe, Trace

HINT = "Record it with `cgr probe`, or ask for what the recording holds."


class ReplayEngine:
    """One trace, the probes made on it (by position), and the answer that was decoded at its end."""

    def __init__(
        self, trace: Trace, probes: Iterable[Probe], final: Probe | None = None, info: ModelInfo | None = None
    ) -> None:
        self.trace, self.final = trace, final
        self.probes: Mapping[int, Probe] = {probe.at: probe for probe in probes}
        self.info = info or ModelInfo("recorded", "replay", 1 << 30, "<think>", "</think>")
        self.capabilities = Capabilities("full", True, True, False, overlap=True)

    async def encode(self, text: str) -> tuple[int, ...]:
        """Nothing can be appended to a recording, so no text needs ids."""
        return ()

    async def decode(self, ids: Sequence[int]) -> str:
        """The recorded text, as far as it can be told apart."""
        return self.trace.text if len(ids) == len(self.trace.ids) else ""

    async def prompt(self, question: str) -> tuple[int, ...]:
        return self.trace.prompt_ids

    async def open(
        self, question: str | Sequence[int], sampling: Sampling, *, room: int = 0, overlap: bool = False
    ) -> ReplaySession:
        return ReplaySession(self)

    async def close(self) -> None:
        return None


class ReplaySession:
    def __init__(self, engine: ReplayEngine) -> None:
        self.engine, self.at, self.wasted = engine, 0, 0
        self.over = False

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        trace = self.engine.trace
        if ban_end:
            raise self._missing("thinking with the end tag banned")
        ids = trace.ids[self.at : self.at + tokens]
        self.at += len(ids)
        if len(ids) == tokens:
            return Stretch(ids)
        if trace.ended == "budget":
            raise self._missing(f"thinking past token {len(trace.ids)}")
        self.over = True
        return Stretch(ids, ended=True, eos=trace.eos)

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        return None

    async def probe(self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = ()) -> Answered:
        at_end = self.over or self.at == self.engine.trace.budget
        probe = self.engine.final if at_end else self.engine.probes.get(self.at)
        if probe is None:
            what = "the final answer" if at_end else f"a probe at token {self.at}"
            raise self._missing(what)
        return Answered(recorded=probe)

    async def append(self, ids: Sequence[int]) -> None:
        raise self._missing("thinking that was forced on")

    async def write(self, limit: int) -> str:
        raise self._missing("what the model wrote by itself")

    async def close(self) -> None:
        return None

    def _missing(self, what: str) -> NotRecorded:
        trace = self.engine.trace
        return NotRecorded(f"Question {trace.question_id!r}, seed {trace.seed}: {what} was not recorded.", HINT)
