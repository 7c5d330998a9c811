"""The schema of an exchange file: one trace as one JSON object (docs/exchange.md). Parquet columns derive from it too.

A field that is absent from a line has its default. A field that is unknown or has the wrong type is refused by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from cgr import certainty
from cgr.errors import UnknownName, UsageError
from cgr.lab.exchange.blocks import UNKNOWN_ASKING, ProbeSetBlock, RunBlock
from cgr.lab.exchange.options import options_of
from cgr.lab.store.codec import storable
from cgr.lab.store.config import Asking, ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.validation import UNKNOWN, sentence
from cgr.probing import open_braces
from cgr.records import AnswerFormat, Ended, OptionProbabilities, Probe, Token

ROUNDING = 1e-6  # rounding may lift a probability slightly above 1
CERTAINTY_TOLERANCE = 1e-6  # between a certainty and the aggregate of its probabilities


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
Logprobs = tuple[float | None, ...]  # null for tokens that were not sampled


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


class TraceLine(ExchangeModel):
    """One line: a trace with its probes."""

    question_id: Text
    seed: Integer
    gold: Text | None
    thinking_tokens: Count
    ended: Ended
    budget: Positive
    final_answer: Text
    final_certainty: Probability
    probes: tuple[ProbeLine, ...]
    question: Text = ""
    format: AnswerFormat | None = None
    eos: bool = False
    final_closed: bool | None = None
    final_probabilities: tuple[Probability, ...] | None = None
    final_details: ProbeDetails = ProbeDetails()
    final_alternatives: dict[str, Probability] = {}
    options: tuple[Letter, ...] = ()
    written: Text = ""
    text: Text = ""
    prompt_ids: tuple[TokenId, ...] = ()
    ids: tuple[TokenId, ...] = ()
    logprobs: Logprobs = ()
    tops: Logprobs = ()
    forced: tuple[tuple[Count, Positive], ...] = ()
    run: RunBlock | None = None
    probe_set: ProbeSetBlock | None = None

    def recorded(self) -> RecordedTrace:
        """The trace that this line describes; `UsageError` if its fields contradict each other."""
        stated = [one.asking for one in (self.probe_set, self.run) if one and one.asking != UNKNOWN_ASKING]
        aggregate = stated[0].aggregate if stated else certainty.OPTIONS  # without options, that is the minimum
        trace = RecordedTrace(
            final=_final(self, aggregate),
            probes=_probes(self, aggregate),
            logprobs=_with_nan(self.logprobs),
            tops=_with_nan(self.tops),
            **{name: getattr(self, name) for name in SAME},
        )
        _check(trace, self.run)
        return trace


SAME = (  # fields that a line and a recorded trace have in common
    *("question_id", "seed", "gold", "thinking_tokens", "ended", "budget", "question", "eos", "written"),
    *("text", "ids", "forced"),
)
PARTS: dict[str, type] = {"probes": ProbeLine, "final_details": ProbeDetails, "tokens": Token, "run": RunConfig}
PARTS |= {"probe_set": ProbeSet, "asking": Asking}


def field_names(part: type) -> list[str]:
    """The names of the fields of a model or dataclass."""
    return [one.name for one in fields(part)] if is_dataclass(part) else list(part.model_fields)  # type: ignore[attr-defined]


def to_line(
    trace: RecordedTrace, prompt_ids: Iterable[int] = (), run: RunConfig | None = None, probe_set: ProbeSet | None = None
) -> TraceLine:
    """A recorded trace as a line."""
    final = trace.final
    counted = final.decoded > 0  # 0 means that the tokens of the final answer were not counted
    details = _details_of(final)
    values: dict[str, Any] = {name: getattr(trace, name) for name in (*SAME, "format")}
    values |= {
        "final_answer": final.answer,
        "final_certainty": final.certainty,
        "final_closed": final.closed,
        "final_probabilities": final.probabilities if counted else None,
        "final_details": ProbeDetails.model_construct(**details if counted else details | {"decoded": None}),
        "probes": tuple(map(_probe_line, trace.probes)),
        "logprobs": _with_nulls(trace.logprobs),
        "tops": _with_nulls(trace.tops),
        "prompt_ids": tuple(prompt_ids),
        "run": run,
        "probe_set": probe_set,
    }
    return TraceLine.model_construct(**values)


def _probe_line(probe: Probe) -> ProbeLine:
    core = {name: getattr(probe, name) for name in ProbeCore.model_fields}
    return ProbeLine.model_construct(**core, **_details_of(probe))


def _details_of(probe: Probe) -> dict[str, Any]:
    """The optional fields; `decoded` is None if a reader computes the same number."""
    details = {name: getattr(probe, name) for name in ProbeDetails.model_fields}
    return details | {"decoded": None} if probe.decoded == _decoded(probe.probabilities, probe.closed) else details


def _decoded(probabilities: Sequence[float], closed: bool) -> int:
    """Tokens decoded if the line does not state it: one for each probability, and the closing brace."""
    return len(probabilities) + closed


def _with_nulls(values: Sequence[float]) -> Logprobs:
    return tuple(value if math.isfinite(value) else None for value in values)


def _with_nan(values: Logprobs) -> tuple[float, ...]:
    return tuple(math.nan if value is None else value for value in values)


def from_json(raw: bytes) -> TraceLine:
    """The line in this JSON text; a `UsageError` states what is wrong with it."""
    try:
        return TraceLine.model_validate_json(raw)
    except ValidationError as error:
        problem = error.errors()[0]
        if problem["type"] == "json_invalid":
            return _from_lenient_json(raw, problem["msg"])
        raise _error(problem) from error


def _from_lenient_json(raw: bytes, message: str) -> TraceLine:
    """Python's parser accepts lone surrogates; they are replaced, as in the store. `UsageError` if it is no JSON at all."""
    try:
        text = storable(json.dumps(json.loads(raw.decode()), ensure_ascii=False))
    except (ValueError, RecursionError):
        text = ""
    if text.encode() in (b"", raw):
        raise UsageError(
            f"this is not JSON: {message.removeprefix('Invalid JSON: ')}.",
            "Write each trace as one JSON object on one line.",
        )
    return from_json(text.encode())


def _error(problem: ErrorDetails) -> UsageError:
    """A validation error as one sentence that names the field, with the known names as a hint."""
    location = problem["loc"]
    names = [str(one) for one in location if isinstance(one, str)]
    if not names:
        return UsageError("a line must be a JSON object.")
    message = sentence(problem, ".".join(names[1:] if names[0] == "probes" and len(names) > 1 else names))
    if names[0] == "probes" and len(location) > 1:
        message = f"in probe {int(location[1]) + 1}, {message}"
    part = PARTS[names[-2]] if len(names) > 1 else TraceLine
    unknown = problem["type"] in UNKNOWN
    return UsageError(message, UnknownName.among("field", names[-1], field_names(part)).hint if unknown else "")


def _probes(line: TraceLine, aggregate: str) -> tuple[Probe, ...]:
    """The probes in order of position."""
    for number, one in enumerate(line.probes, 1):
        if one.answer and not one.probabilities:
            raise UsageError(f"in probe {number}, the answer {one.answer!r} has no probabilities.")
    probes = (_probe(one, options_of(line, one.options, one.alternatives), aggregate) for one in line.probes)
    return tuple(sorted(probes, key=lambda probe: probe.at))


def _probe(line: ProbeLine, options: OptionProbabilities, aggregate: str) -> Probe:
    kept = tuple(min(value, 1.0) for value in line.probabilities) if line.answer else ()
    details = _details(line, _decoded(line.probabilities, line.closed), options)
    probe = Probe(line.at, line.answer, 0.0, line.closed, kept, **details)
    return replace(probe, certainty=certainty.of_probe(aggregate, probe))


def _final(line: TraceLine, aggregate: str) -> Probe:
    """The final answer. If its probabilities are absent, its certainty replaces them, so that a replay gives the same."""
    answer, value, given = line.final_answer, min(line.final_certainty, 1.0), line.final_probabilities
    closed = not open_braces(answer) if line.final_closed is None else line.final_closed
    kept = () if not answer else (value,) if given is None else tuple(min(one, 1.0) for one in given)
    options = options_of(line, line.final_details.options, line.final_alternatives)
    details = _details(line.final_details, 0 if given is None else _decoded(given, closed), options)
    final = Probe(line.thinking_tokens, answer, value, closed, kept, **details)
    over_options, stated = certainty.of_probe(aggregate, final), certainty.aggregate(aggregate, kept)
    if min(abs(over_options - value), abs(stated - value)) > CERTAINTY_TOLERANCE:
        raise UsageError(f"final_certainty is {value:g}, which is not the certainty of the probabilities of {answer!r}.")
    return replace(final, certainty=over_options if final.options else value)


def _details(line: ProbeDetails, decoded: int, options: OptionProbabilities) -> dict[str, Any]:
    details = {name: getattr(line, name) for name in ProbeDetails.model_fields} | {"options": options}
    return details | {"decoded": decoded} if line.decoded is None else details


def _check(trace: RecordedTrace, run: RunConfig | None) -> None:
    """Raise `UsageError` if two fields contradict each other."""
    length, budget = trace.thinking_tokens, trace.budget
    if length > budget or (trace.ended == "budget" and length != budget):
        raise UsageError(f"thinking_tokens {length}, ended {trace.ended!r} and budget {budget} contradict each other.")
    for name in ("ids", "logprobs", "tops"):
        if (count := len(getattr(trace, name))) not in (0, length):
            raise UsageError(f"there are {count} {name} for {length} thinking_tokens.")
    if run and run.budget not in (0, budget):
        raise UsageError(f"budget is {budget}, but {run.budget} in run.")
    positions = [probe.at for probe in trace.probes]
    for at in positions:
        if at > length or at >= budget:
            raise UsageError(f"there is a probe at {at} in a trace of {length} tokens with a budget of {budget}.")
    if len(set(positions)) < len(positions):
        raise UsageError("there are two probes at one position.")
