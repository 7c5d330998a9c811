"""Records as rows of the store and back."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Probe, Token

T = TypeVar("T", int, float)

_TRACE = "SELECT q.id, t.seed, q.gold, t.tokens, t.ended, t.eos, q.text, q.format, t.final, t.written, t.text"
_OF_TRACE = " FROM traces t JOIN questions q ON q.number = t.question WHERE t.id = ?"
INSERT_TRACE = (
    "INSERT INTO traces (question, seed, tokens, ended, eos, seconds, final, written, text, prompt_ids, ids, logprobs, "
    "tops, forced) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_PROBE = (
    "SELECT at, answer, certainty, closed, bound, probabilities, suffix, suffix_ids, entropy, prefilled, cached, decoded, "
    "seconds"
)
_OF_PROBING = " FROM probes WHERE probing = ? ORDER BY at"
SELECT_PROBES = f"{_PROBE}, '[]'{_OF_PROBING}"
SELECT_WHOLE_PROBES = f"{_PROBE}, tokens{_OF_PROBING}"
KEYS = "SELECT q.id, t.seed FROM traces t JOIN questions q ON q.number = t.question ORDER BY t.question, t.seed"
KEYS_IN_SET = (
    "SELECT q.id, t.seed FROM probings p JOIN probe_sets s ON s.id = p.probe_set JOIN traces t ON t.id = p.trace "
    "JOIN questions q ON q.number = t.question WHERE s.name = ?"
)
TRACE_ID = "SELECT t.id FROM traces t JOIN questions q ON q.number = t.question WHERE q.id = ? AND t.seed = ?"
IN_SET = (
    "SELECT t.id, p.id FROM probings p JOIN traces t ON t.id = p.trace WHERE p.probe_set = ? ORDER BY t.question, t.seed"
)
FAILURES = (
    "SELECT q.id, f.seed, f.stage, f.message, f.hint FROM failures f JOIN questions q ON q.number = f.question "
    "WHERE ? IS NULL OR f.stage = ? ORDER BY f.stage, q.number, f.seed"
)
INSERT_PROBE = "INSERT INTO probes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def select_trace(whole: bool, version: int) -> str:
    """One trace by its id. The first schema knew nothing of `tops` and `forced`."""
    forced, tops = ("'[]'", "x''") if version < 2 else ("t.forced", "t.tops")
    long = f"t.ids, t.logprobs, {tops}" if whole else "x'', x'', x''"
    return f"{_TRACE}, {forced}, {long}{_OF_TRACE}"


def trace_row(question: int, trace: RecordedTrace, prompt_ids: Sequence[int], seconds: float) -> tuple[Any, ...]:
    return (
        question,
        trace.seed,
        trace.thinking_tokens,
        trace.ended,
        trace.eos,
        seconds,
        final_text(trace.final),
        storable(trace.written),
        storable(trace.text),
        pack_ids(prompt_ids),
        pack_ids(trace.ids),
        pack_floats(trace.logprobs),
        pack_floats(trace.tops),
        json.dumps(trace.forced),
    )


def trace_of(row: Sequence[Any], budget: int, probes: tuple[Probe, ...], final: str | None, whole: bool) -> RecordedTrace:
    question, seed, gold, tokens, ended, eos, asked, form, own_final, written, text, forced, ids, logprobs, tops = row
    return RecordedTrace(
        question_id=question,
        seed=seed,
        gold=gold,
        thinking_tokens=tokens,
        ended=ended,
        budget=budget,
        final=_final_of(final or own_final, whole),
        probes=probes,
        question=asked,
        format=form,
        eos=bool(eos),
        ids=unpack_ids(ids),
        text=text,
        written=written,
        logprobs=unpack_floats(logprobs),
        tops=unpack_floats(tops),
        forced=tuple((at, count) for at, count in json.loads(forced)) if forced != "[]" else (),
    )


def probe_row(probing: int, probe: Probe) -> tuple[Any, ...]:
    return (
        probing,
        probe.at,
        storable(probe.answer),
        probe.certainty,
        probe.closed,
        probe.bound,
        json.dumps(probe.probabilities),
        storable(probe.suffix),
        json.dumps(probe.suffix_ids),
        probe.entropy,
        probe.prefilled,
        probe.cached,
        probe.decoded,
        probe.seconds,
        storable(json.dumps(_plain(probe.tokens), ensure_ascii=False)),
    )


def probe_of(row: Sequence[Any]) -> Probe:
    at, answer, certainty, closed, bound, probabilities, suffix, suffix_ids, entropy, *costs, tokens = row
    prefilled, cached, decoded, seconds = costs
    return Probe(
        at=at,
        answer=answer,
        certainty=certainty,
        closed=bool(closed),
        probabilities=tuple(json.loads(probabilities)),
        tokens=_tokens(json.loads(tokens)) if tokens != "[]" else (),
        suffix=suffix,
        suffix_ids=_suffix_ids(suffix_ids),
        bound=bool(bound),
        entropy=entropy,
        prefilled=prefilled,
        cached=cached,
        decoded=decoded,
        seconds=seconds,
    )


def final_text(final: Probe) -> str:
    """A final answer as JSON: the fields of a probe."""
    fields = {name: getattr(final, name) for name in final.__slots__} | {"tokens": _plain(final.tokens)}
    return storable(json.dumps(fields, ensure_ascii=False))


def _final_of(text: str, whole: bool) -> Probe:
    fields = json.loads(text)
    tuples = {name: tuple(fields[name]) for name in ("probabilities", "suffix_ids")}
    return Probe(**fields | tuples | {"tokens": _tokens(fields["tokens"]) if whole else ()})


def _plain(tokens: Sequence[Token]) -> list[list[Any]]:
    """Each token as its id, text, log-probability and alternatives (id and log-probability each)."""
    return [[token.id, token.text, token.logprob, token.top] for token in tokens]


def _tokens(plain: Sequence[Sequence[Any]]) -> tuple[Token, ...]:
    return tuple(Token(id, text, logprob, tuple(map(tuple, top))) for id, text, logprob, top in plain)


@lru_cache(maxsize=64)
def _suffix_ids(text: str) -> tuple[int, ...]:
    """The same few, probe after probe."""
    return tuple(json.loads(text))


def pack_ids(ids: Sequence[int]) -> bytes:
    """32 bits each, little-endian."""
    return _packed(array("I", ids))


def unpack_ids(blob: bytes) -> tuple[int, ...]:
    return tuple(_unpacked(array("I"), blob))


def pack_floats(values: Sequence[float]) -> bytes:
    """32 bits each, little-endian: what engines compute in."""
    return _packed(array("f", values))


def unpack_floats(blob: bytes) -> tuple[float, ...]:
    return tuple(_unpacked(array("f"), blob))


def _packed(values: array[T]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _unpacked(values: array[T], blob: bytes) -> array[T]:
    values.frombytes(blob)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def storable(text: str) -> str:
    """Half a surrogate pair is not text, and SQLite will not have it."""
    return text.encode("utf-8", "replace").decode("utf-8")
