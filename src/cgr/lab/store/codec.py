"""Converts records to rows of the store and back."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, get_args

from cgr.lab.store.recorded import RecordedTrace
from cgr.records import AnswerFormat, Ended, OptionProbabilities, Probe, Question, Token, is_of

NUMBERS = (float, int)
INSERT_TRACE = (
    "INSERT INTO traces (question, seed, tokens, ended, eos, seconds, final, written, text, prompt_ids, ids, logprobs, "
    "tops, forced, question_text, gold) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
QUESTIONS = "SELECT id, text, gold, format FROM questions ORDER BY number"
KEYS = "SELECT q.id, t.seed FROM traces t JOIN questions q ON q.number = t.question ORDER BY t.question, t.seed"
KEYS_IN_SET = (
    "SELECT q.id, t.seed FROM probings p JOIN probe_sets s ON s.id = p.probe_set JOIN traces t ON t.id = p.trace "
    "JOIN questions q ON q.number = t.question WHERE s.name = ?"
)
FILLED_SETS = (
    "SELECT s.name FROM probe_sets s WHERE EXISTS "
    "(SELECT 1 FROM probings g JOIN probes p ON p.probing = g.id WHERE g.probe_set = s.id AND p.at > 0)"
)
UNREADABLE = (
    "SELECT q.id, t.seed FROM traces t JOIN questions q ON q.number = t.question "
    "WHERE length(t.ids) != 4 * t.tokens AND t.text = '' ORDER BY t.question, t.seed"
)
LONGEST_TEXT = "SELECT coalesce(max(length(text)), 0) FROM traces WHERE length(ids) != 4 * tokens"
TRACE_ID = "SELECT t.id FROM traces t JOIN questions q ON q.number = t.question WHERE q.id = ? AND t.seed = ?"
SECONDS = "SELECT t.seconds FROM traces t JOIN questions q ON q.number = t.question WHERE q.id = ? AND t.seed = ?"
IN_SET = (
    "SELECT t.id, p.id FROM probings p JOIN traces t ON t.id = p.trace WHERE p.probe_set = ? ORDER BY t.question, t.seed"
)
PROBING = (
    "SELECT p.probe_set, q.id, t.seed, p.final FROM probings p JOIN traces t ON t.id = p.trace "
    "JOIN questions q ON q.number = t.question WHERE p.id = ?"
)
FAILURES = (
    "SELECT q.id, f.seed, f.message, f.hint FROM failures f JOIN questions q ON q.number = f.question "
    "WHERE ? IS NULL OR f.stage = ? ORDER BY f.stage, q.number, f.seed"
)
INSERT_PROBE = (
    "INSERT INTO probes (probing, at, answer, certainty, closed, bound, probabilities, suffix, suffix_ids, entropy, "
    "prefilled, cached, decoded, seconds, tokens, options, stated) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def select_trace(whole: bool, version: int) -> str:
    """SQL for one trace by id, in the order of `RecordedTrace`; long columns only if `whole`. Older schemas have fewer."""
    forced, tops = ("'[]'", "x''") if version < 2 else ("t.forced", "t.tops")
    gold, text = ("q.gold", "q.text") if version < 3 else ("coalesce(t.gold, q.gold)", "coalesce(t.question_text, q.text)")
    ids, logprobs, tops = ("t.ids", "t.logprobs", tops) if whole else ("x''", "x''", "x''")
    return (
        f"SELECT q.id, t.seed, {gold}, t.tokens, t.ended, t.final, {text}, q.format, t.eos, {ids}, t.text, t.written, "
        f"{logprobs}, {tops}, {forced} FROM traces t JOIN questions q ON q.number = t.question WHERE t.id = ?"
    )


def select_probes(whole: bool, version: int) -> str:
    """SQL for the probes of one trace in one set, in the order of `Probe`; their tokens only if `whole`."""
    tokens, options = "tokens" if whole else "'[]'", "options" if version >= 4 else "'[]'"
    stated = "stated" if version >= 5 else "''"
    return (
        f"SELECT at, answer, certainty, closed, probabilities, {tokens}, suffix, suffix_ids, bound, entropy, prefilled, "
        f"cached, decoded, seconds, {options}, {stated} FROM probes WHERE probing = ? ORDER BY at"
    )


def trace_row(
    question: Question, number: int, trace: RecordedTrace, prompt_ids: Sequence[int], seconds: float
) -> tuple[Any, ...]:
    """The values for `INSERT_TRACE`. A text or gold of its own is kept if it differs from the question's."""
    start = (number, trace.seed, trace.thinking_tokens, trace.ended, trace.eos, seconds)
    texts = (final_text(trace.final), storable(trace.written), storable(trace.text))
    blobs = (pack("I", prompt_ids), pack("I", trace.ids), pack("f", trace.logprobs), pack("f", trace.tops))
    asked = storable(trace.question)
    own = (None if asked in ("", question.text) else asked, None if trace.gold == question.gold else trace.gold)
    return (*start, *texts, *blobs, json.dumps(trace.forced), *own)


def trace_of(row: Sequence[Any], budget: int, probes: tuple[Probe, ...], final: str | None, whole: bool) -> RecordedTrace:
    """The trace in a row of `select_trace`; `final`, if given, replaces its own final answer."""
    *start, own_final, question, form, eos, ids, text, written, logprobs, tops, forced = row
    answer = _final_of(final or own_final, whole)
    appended = tuple((at, count) for at, count in json.loads(forced)) if forced != "[]" else ()
    values = [*start, budget, answer, probes, question, form, bool(eos), unpack("I", ids), text, written]
    values += [unpack("f", logprobs), unpack("f", tops), appended]
    return _check_trace(RecordedTrace(*values))


def question_of(row: Sequence[Any]) -> Question:
    """The question in a row: id, text, gold and format."""
    return Question.from_dict(dict(zip(("id", "text", "gold", "format"), row, strict=True)))


def _check_trace(trace: RecordedTrace) -> RecordedTrace:
    """The trace; `ValueError` for values that no run has."""
    texts = (trace.question_id, trace.question, trace.text, trace.written, trace.gold or "")
    if not all(isinstance(one, str) for one in texts):
        raise ValueError("something that is not text")
    if not (
        is_of(trace.seed, [int]) and is_of(trace.thinking_tokens, [int]) and 0 <= trace.thinking_tokens <= trace.budget
    ):
        raise ValueError(f"the seed is {trace.seed!r}, and there are {trace.thinking_tokens!r} tokens")
    if trace.ended not in get_args(Ended) or trace.format not in get_args(AnswerFormat):
        raise ValueError(f"it ended by {trace.ended!r}, and the format is {trace.format!r}")
    if trace.probes and trace.probes[-1].at > trace.thinking_tokens:
        raise ValueError(f"a probe at {trace.probes[-1].at}, after the end")
    return trace


def _check_probe(probe: Probe) -> Probe:
    """The probe; `ValueError` for values that no probe has. It runs for every stored probe: it has to be fast."""
    for count in (probe.at, probe.prefilled, probe.cached, probe.decoded):
        if type(count) is not int or count < 0:
            raise ValueError(f"a count of {count!r:.40}")
    for share in (probe.certainty, *probe.probabilities):
        if type(share) not in NUMBERS or not 0 <= share <= 1:
            raise ValueError(f"a certainty or probability of {share!r:.40}")
    if type(probe.answer) is not str or type(probe.seconds) not in NUMBERS:
        raise ValueError(f"the answer {probe.answer!r:.40} after {probe.seconds!r:.40} seconds")
    if probe.stated is not None and [type(count) for count in probe.stated] != [int, int]:
        raise ValueError(f"an answer stated {probe.stated!r:.40}")
    if probe.entropy is not None and type(probe.entropy) not in NUMBERS:
        raise ValueError(f"an entropy of {probe.entropy!r:.40}")
    return probe


def probe_row(probing: int, probe: Probe) -> tuple[Any, ...]:
    """The values for `INSERT_PROBE`, in the order of the table."""
    answered = (probe.at, storable(probe.answer), probe.certainty, probe.closed, probe.bound)
    suffix = (storable(probe.suffix), json.dumps(probe.suffix_ids))
    costs = (probe.entropy, probe.prefilled, probe.cached, probe.decoded, probe.seconds)
    tokens = storable(json.dumps(_token_lists(probe.tokens), ensure_ascii=False))
    stated = "" if probe.stated is None else json.dumps(probe.stated)
    return (probing, *answered, json.dumps(probe.probabilities), *suffix, *costs, tokens, json.dumps(probe.options), stated)


def probe_of(row: Sequence[Any]) -> Probe:
    """The probe in a row of `select_probes`."""
    at, answer, certainty, closed, probabilities, tokens, suffix, suffix_ids, bound, *costs, options, stated = row
    decoded = _tokens(json.loads(tokens)) if tokens != "[]" else ()
    answered = (at, answer, certainty, bool(closed), tuple(json.loads(probabilities)), decoded)
    more = [*costs, _pairs(options), tuple(json.loads(stated)) if stated else None]
    return _check_probe(Probe(*answered, suffix, _suffix_ids(suffix_ids), bool(bound), *more))


def final_text(final: Probe) -> str:
    """A final answer as JSON with the fields of `Probe`, except `stated`; `options` only if there are some."""
    fields = {name: getattr(final, name) for name in final.__slots__ if name != "stated"}
    fields |= {"tokens": _token_lists(final.tokens)}
    if not final.options:
        del fields["options"]
    return storable(json.dumps(fields, ensure_ascii=False))


def _final_of(text: str, whole: bool) -> Probe:
    fields = json.loads(text)
    tuples = {name: tuple(fields[name]) for name in ("probabilities", "suffix_ids")}
    tuples["options"] = tuple(map(tuple, fields.get("options", ())))
    return _check_probe(Probe(**fields | tuples | {"tokens": _tokens(fields["tokens"]) if whole else ()}))


def _token_lists(tokens: Sequence[Token]) -> list[list[Any]]:
    """Each token as [id, text, log-probability, alternatives]; an alternative is [id, log-probability]."""
    return [[token.id, token.text, token.logprob, token.top] for token in tokens]


def _tokens(lists: Sequence[Sequence[Any]]) -> tuple[Token, ...]:
    return tuple(Token(id, text, logprob, tuple(map(tuple, top))) for id, text, logprob, top in lists)


def _pairs(text: str) -> OptionProbabilities:
    return tuple((letter, chance) for letter, chance in json.loads(text)) if text != "[]" else ()


@lru_cache(maxsize=64)
def _suffix_ids(text: str) -> tuple[int, ...]:
    """Cached, because most probes of a run have the same suffix."""
    return tuple(json.loads(text))


def pack(kind: str, values: Sequence[float]) -> bytes:
    """Numbers as 32-bit little-endian values: `kind` is "I" for token ids, "f" for log-probabilities."""
    return _little_endian(array(kind, values)).tobytes()


def unpack(kind: str, blob: bytes) -> tuple[Any, ...]:
    """The inverse of `pack`."""
    values = array(kind)
    values.frombytes(blob)
    return tuple(_little_endian(values))


def _little_endian(values: array[Any]) -> array[Any]:
    if sys.byteorder == "big":
        values.byteswap()
    return values


def storable(text: str) -> str:
    """The text with lone surrogates replaced: SQLite refuses them."""
    return text.encode("utf-8", "replace").decode("utf-8")
