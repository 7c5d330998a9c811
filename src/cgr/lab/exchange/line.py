"""The schema of an exchange file: one trace as one JSON object (docs/exchange.md). Parquet columns derive from it too.

A field that is absent from a line has its default. A field that is unknown or has the wrong type is refused by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails, to_json

from cgr import certainty
from cgr.errors import UnknownName, UsageError
from cgr.lab.exchange.blocks import UNKNOWN_ASKING, ProbeSetBlock, RunBlock
from cgr.lab.exchange.options import options_of
from cgr.lab.exchange.probe_line import (
    Count,
    ExchangeModel,
    Integer,
    Letter,
    MoreProbes,
    Positive,
    Probability,
    ProbeDetails,
    ProbeLine,
    SetName,
    Text,
    TokenId,
    check_positions,
    decoded,
    details_of,
    probe_line,
    read_details,
    read_probes,
)
from cgr.lab.store.codec import storable
from cgr.lab.store.config import Asking, ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.validation import UNKNOWN, sentence
from cgr.probing import open_braces
from cgr.records import AnswerFormat, Ended, Probe, Token

CERTAINTY_TOLERANCE = 1e-6  # between a certainty and the aggregate of its probabilities
Logprobs = tuple[float | None, ...]  # null for tokens that were not sampled


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
    final_alternatives: dict[str, Probability] = Field(default_factory=dict)
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
    more_probe_sets: dict[SetName, MoreProbes] = Field(default_factory=dict)

    def recorded(self) -> RecordedTrace:
        """The trace that this line describes; `UsageError` if its fields contradict each other."""
        stated = [one.asking for one in (self.probe_set, self.run) if one and one.asking != UNKNOWN_ASKING]
        aggregate = stated[0].aggregate if stated else certainty.OPTIONS  # without options, that is the minimum
        trace = RecordedTrace(
            final=_final(self, aggregate),
            probes=read_probes(self, self.probes, aggregate),
            logprobs=_with_nan(self.logprobs),
            tops=_with_nan(self.tops),
            **{name: getattr(self, name) for name in SAME},
        )
        _check(trace, self.run)
        return trace

    def recorded_more(self) -> dict[str, tuple[tuple[Probe, ...], Probe | None]]:
        """The probes of the other sets by name, each with its final answer if that is another than the trace's."""
        found = {name: one.recorded(self) for name, one in self.more_probe_sets.items()}
        for name, (probes, _) in found.items():
            check_positions(probes, self.thinking_tokens, self.budget, f" of the set {name!r}")
        return found


SAME = (  # fields that a line and a recorded trace have in common
    *("question_id", "seed", "gold", "thinking_tokens", "ended", "budget", "question", "eos", "written"),
    *("text", "ids", "forced"),
)
PARTS: dict[str, type] = {"probes": ProbeLine, "final_details": ProbeDetails, "tokens": Token, "run": RunConfig}
PARTS |= {"probe_set": ProbeSet, "asking": Asking, "final": ProbeLine}


def field_names(part: type) -> list[str]:
    """The names of the fields of a model or dataclass."""
    return [one.name for one in fields(part)] if is_dataclass(part) else list(part.model_fields)  # type: ignore[attr-defined]


def to_line(
    trace: RecordedTrace,
    prompt_ids: Iterable[int] = (),
    run: RunConfig | None = None,
    probe_set: ProbeSet | None = None,
    more: Mapping[str, MoreProbes] | None = None,
) -> TraceLine:
    """A recorded trace as a line; `more`: its probes in other sets."""
    final = trace.final
    counted = final.decoded > 0  # 0 means that the tokens of the final answer were not counted
    details = details_of(final)
    values: dict[str, Any] = {name: getattr(trace, name) for name in (*SAME, "format")}
    values |= {
        "final_answer": final.answer,
        "final_certainty": final.certainty,
        "final_closed": final.closed,
        "final_probabilities": final.probabilities if counted else None,
        "final_details": ProbeDetails.model_construct(**details if counted else details | {"decoded": None}),
        "probes": tuple(map(probe_line, trace.probes)),
        "logprobs": _with_nulls(trace.logprobs),
        "tops": _with_nulls(trace.tops),
        "prompt_ids": tuple(prompt_ids),
        "run": run,
        "probe_set": probe_set,
        "more_probe_sets": dict(more or {}),
    }
    return TraceLine.model_construct(**values)


def as_json(line: TraceLine, digits: int | None = None) -> bytes:
    """A line as JSON, with its numbers rounded to so many significant digits."""
    if digits is None:
        return line.model_dump_json(exclude_defaults=True).encode()
    exact = {"final_certainty": line.final_certainty}  # it must agree with the final probabilities
    return to_json(_rounded(line.model_dump(exclude_defaults=True), digits) | exact)


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {name: _rounded(one, digits) for name, one in value.items()}
    return [_rounded(one, digits) for one in value] if isinstance(value, list | tuple) else value


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
    part = PARTS.get(names[-2], MoreProbes) if len(names) > 1 else TraceLine
    unknown = problem["type"] in UNKNOWN
    return UsageError(message, UnknownName.among("field", names[-1], field_names(part)).hint if unknown else "")


def _final(line: TraceLine, aggregate: str) -> Probe:
    """The final answer. If its probabilities are absent, its certainty replaces them, so that a replay gives the same."""
    answer, value, given = line.final_answer, min(line.final_certainty, 1.0), line.final_probabilities
    closed = not open_braces(answer) if line.final_closed is None else line.final_closed
    kept = () if not answer else (value,) if given is None else tuple(min(one, 1.0) for one in given)
    options = options_of(line, line.final_details.options, line.final_alternatives)
    details = read_details(line.final_details, 0 if given is None else decoded(given, closed), options)
    final = Probe(line.thinking_tokens, answer, value, closed, kept, **details)
    over_options, stated = certainty.of_probe(aggregate, final), certainty.aggregate(aggregate, kept)
    if min(abs(over_options - value), abs(stated - value)) > CERTAINTY_TOLERANCE:
        raise UsageError(f"final_certainty is {value:g}, which is not the certainty of the probabilities of {answer!r}.")
    return replace(final, certainty=over_options if final.options else value)


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
    check_positions(trace.probes, length, budget)
