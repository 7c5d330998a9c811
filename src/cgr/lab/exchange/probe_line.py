"""Probes in an exchange file: their fields, and the same as records. A line has one set of probes, and may have more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from cgr import certainty
from cgr.errors import UsageError
from cgr.lab.exchange.blocks import ProbeSetBlock
from cgr.lab.exchange.options import ChoiceLine, options_of
from cgr.lab.store.config import ProbeSet
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import OptionProbabilities, Probe, Token

ROUNDING = 1e-6  # rounding may lift a probability slightly above 1


def _digits(value: Any) -> Any:
    """Text for a whole number: many files write their answers as numbers."""
    return str(value) if type(value) is int else value


Text = Annotated[str, BeforeValidator(_digits)]
Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # the integers of SQLite
Count = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(ge=1, lt=2**63)]
TokenId = Annotated[int, Field(ge=0, lt=2**32)]
Probability = Annotated[float, Field(ge=0, le=1 + ROUNDING)]
Letter = Annotated[str, Field(pattern="^[A-Z]$")]
SetName = Annotated[str, Field(min_length=1, max_length=200)]


class ExchangeModel(BaseModel):
    """Settings of every part of a line: types are not converted, and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class ProbeCore(ExchangeModel):
    """The required fields of a probe."""

    at: Count
    answer: Text
    probabilities: tuple[Probability, ...]
    closed: bool


class ProbeDetails(ExchangeModel):
    """The optional fields of a probe. `decoded` None: one token for each probability, and one for the closing brace."""

    decoded: Count | None = None
    bound: bool = False
    suffix: Text = ""
    suffix_ids: tuple[TokenId, ...] = ()
    entropy: float | None = None
    prefilled: Count = 0
    cached: Count = 0
    seconds: float = 0.0
    tokens: tuple[Token, ...] = ()
    options: tuple[tuple[Letter, Probability], ...] = ()
    stated: tuple[Count, Count] | None = None


class ProbeLine(ProbeDetails, ProbeCore):
    """A probe in a line. `alternatives` to the first answer token, for choice questions: they are read as `options`."""

    alternatives: dict[str, Probability] = {}


class MoreProbes(ExchangeModel):
    """Another probe set of the same trace. `final`: its final answer, if that is another than the trace's."""

    probe_set: ProbeSetBlock
    probes: tuple[ProbeLine, ...]
    final: ProbeLine | None = None

    def recorded(self, line: ChoiceLine) -> tuple[tuple[Probe, ...], Probe | None]:
        """The probes in order of position, and the final answer."""
        asking = self.probe_set.asking
        final = read_probes(line, (self.final,), asking.aggregate)[0] if self.final else None
        return read_probes(line, self.probes, asking.aggregate, all_tokens=asking.reads != "answer"), final


def more_probes(trace: RecordedTrace, probe_set: ProbeSet, final: Probe) -> MoreProbes:
    """The probes of another set of a trace, for its line. `final`: the final answer that the line has already."""
    own = None if trace.final == final else probe_line(trace.final)
    return MoreProbes.model_construct(probe_set=probe_set, probes=tuple(map(probe_line, trace.probes)), final=own)


def probe_line(probe: Probe) -> ProbeLine:
    """A probe as part of a line."""
    core = {name: getattr(probe, name) for name in ProbeCore.model_fields}
    return ProbeLine.model_construct(**core, **details_of(probe))


def details_of(probe: Probe) -> dict[str, Any]:
    """The optional fields; `decoded` is None if a reader computes the same number."""
    details = {name: getattr(probe, name) for name in ProbeDetails.model_fields}
    return details | {"decoded": None} if probe.decoded == decoded(probe.probabilities, probe.closed) else details


def decoded(probabilities: Sequence[float], closed: bool) -> int:
    """Tokens decoded if the line does not state it: one for each probability, and the closing brace."""
    return len(probabilities) + closed


def read_probes(
    line: ChoiceLine, probes: Sequence[ProbeLine], aggregate: str, *, all_tokens: bool = False
) -> tuple[Probe, ...]:
    """The probes in order of position. `all_tokens`: their probabilities are not only those of an answer."""
    for number, one in enumerate(probes, 1):
        if one.answer and not one.probabilities:
            raise UsageError(f"in probe {number}, the answer {one.answer!r} has no probabilities.")
    read = (_probe(one, options_of(line, one.options, one.alternatives), aggregate, all_tokens) for one in probes)
    return tuple(sorted(read, key=lambda probe: probe.at))


def _probe(line: ProbeLine, options: OptionProbabilities, aggregate: str, all_tokens: bool) -> Probe:
    kept = tuple(min(value, 1.0) for value in line.probabilities) if line.answer or all_tokens else ()
    details = read_details(line, decoded(line.probabilities, line.closed), options)
    probe = Probe(line.at, line.answer, 0.0, line.closed, kept, **details)
    return replace(probe, certainty=certainty.of_probe(aggregate, probe) if line.answer else 0.0)


def read_details(line: ProbeDetails, count: int, options: OptionProbabilities) -> dict[str, Any]:
    """The optional fields of a line as those of a probe. `count`: tokens decoded if the line does not state it."""
    details = {name: getattr(line, name) for name in ProbeDetails.model_fields} | {"options": options}
    return details | {"decoded": count} if line.decoded is None else details


def check_positions(probes: Sequence[Probe], length: int, budget: int, where: str = "") -> None:
    """Raise `UsageError` for a probe outside of the trace, or two at one position. `where`: the set, for the message."""
    positions = [probe.at for probe in probes]
    for at in positions:
        if at > length or at >= budget:
            raise UsageError(f"there is a probe at {at}{where} in a trace of {length} tokens with a budget of {budget}.")
    if len(set(positions)) < len(positions):
        raise UsageError(f"there are two probes at one position{where}.")
