"""Hashes in place of answers.

The answers of one trace are compared with each other: two get the same hash exactly if they are the same answer, as texts
or as plain numbers. So a rule decides the same on hashes as on texts, and disagreement is the same number.
"""

from __future__ import annotations

from dataclasses import replace

from cgr.lab.store.recorded import HASHED, RecordedTrace
from cgr.records import Probe
from cgr.rules.same_answer import normalised, quantity, same_answer
from cgr.server.record.key import RecordingKey


class AnswerHashes:
    """The hashes of one trace. The final answer comes first: whether a probe agrees with it is what is counted."""

    def __init__(self, key: RecordingKey, question: str, final: str) -> None:
        self.key, self.question = key, question
        self._found: dict[str, str] = {}
        self.of(final)

    def of(self, answer: str) -> str:
        """The hash for an answer: that of the first answer which it equals, else a new one."""
        if not answer:
            return ""  # there was no answer
        known = next((text for text in self._found if same_answer(answer, text)), None)
        if known is None:
            known, self._found[answer] = answer, self._new(answer)
        return self._found[known]

    def _new(self, answer: str) -> str:
        """Equal in all traces of a question where possible; not equal to that of another answer of this trace."""
        text = common_form(answer)
        found = HASHED + self.key.hash("answer", f"{self.question}\0{text}")
        if found in self._found.values():
            found = HASHED + self.key.hash("answer", f"{self.question}\0{text}\0{len(self._found)}")
        return found


def common_form(answer: str) -> str:
    """One text for answers that are equal in most cases: the value of a plain number, else the normalised text."""
    text = normalised(answer)
    number = quantity(answer) or quantity(text)
    return f"{number.value}{'%' * number.percent}" if number else text


def without_text(trace: RecordedTrace, key: RecordingKey) -> RecordedTrace:
    """The trace with hashes in place of its answers, and without any other text or token ids. Of a probe there remain its
    position, certainty, probabilities, costs, and the suffix, which is the server's own."""
    hashes = AnswerHashes(key, trace.question_id, trace.final.answer)

    def hashed(probe: Probe) -> Probe:
        return replace(probe, answer=hashes.of(probe.answer), tokens=(), options=())

    probes = tuple(map(hashed, trace.probes))
    return replace(trace, final=hashed(trace.final), probes=probes, question="", ids=(), text="", written="")
