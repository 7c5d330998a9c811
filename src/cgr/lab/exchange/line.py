"""One trace as one JSON object, and back: the schema of `cgr export` and `cgr import`, as docs/exchange.md has it.

What nobody recorded is absent from a line; what a line says wrongly, or what this does not know, is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args

from cgr import certainty
from cgr.errors import UsageError
from cgr.lab.exchange.fields import Fields, number, shown, whole
from cgr.lab.store.config import ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.probing import open_braces
from cgr.records import AnswerFormat, Ended, Probe, Record, Token

Line = dict[str, Any]
R = TypeVar("R", bound=Record)
REQUIRED = (
    *("question_id", "seed", "gold", "thinking_tokens", "ended", "budget"),
    *("final_answer", "final_certainty", "probes"),
)
OPTIONAL = (
    *("question", "format", "eos", "final_closed", "final_probabilities", "final_details", "written", "text"),
    *("prompt_ids", "ids", "logprobs", "tops", "forced", "run", "probe_set"),
)
PROBE = ("at", "answer", "probabilities", "closed")
DETAILS = ("decoded", "bound", "suffix", "suffix_ids", "entropy", "prefilled", "cached", "seconds", "tokens")
NEAR = 1e-6  # a certainty must be so near to what its probabilities come to
PLAIN = Probe(0, "", 0.0, False)


@dataclass(frozen=True, slots=True)
class Read:
    """What a line held; the last three are None where it did not say them."""

    trace: RecordedTrace
    prompt_ids: tuple[int, ...] = ()
    format: AnswerFormat | None = None
    run: RunConfig | None = None
    probe_set: ProbeSet | None = None


def to_line(
    trace: RecordedTrace, prompt_ids: Iterable[int] = (), run: RunConfig | None = None, probe_set: ProbeSet | None = None
) -> Line:
    final = trace.final
    optional = {
        "question": trace.question or None,
        "format": trace.format,
        "eos": trace.eos or None,
        "final_closed": final.closed,
        "final_probabilities": list(final.probabilities) if final.decoded else None,
        "final_details": _details(final, also_zero=False) or None,
        "written": trace.written or None,
        "text": trace.text or None,
        "prompt_ids": list(prompt_ids) or None,
        "ids": list(trace.ids) or None,
        "logprobs": list(trace.logprobs) or None,
        "tops": list(trace.tops) or None,
        "forced": [list(one) for one in trace.forced] or None,
        "run": _unusual(run) if run else None,
        "probe_set": _unusual(probe_set) if probe_set else None,
    }
    return {
        "question_id": trace.question_id,
        "seed": trace.seed,
        "gold": trace.gold,
        "thinking_tokens": trace.thinking_tokens,
        "ended": trace.ended,
        "budget": trace.budget,
        "final_answer": final.answer,
        "final_certainty": final.certainty,
        "probes": [_probe_line(probe) for probe in trace.probes],
    } | {name: value for name, value in optional.items() if value is not None}


def _unusual(record: Record) -> Line:
    """The fields that are not at their defaults."""
    default = type(record)()
    told = {name: getattr(record, name) for name in default.to_dict() if getattr(record, name) != getattr(default, name)}
    return {name: _unusual(value) if isinstance(value, Record) else value for name, value in told.items()}


def _probe_line(probe: Probe) -> Line:
    required = {name: getattr(probe, name) for name in PROBE} | {"probabilities": list(probe.probabilities)}
    return required | _details(probe)


def _details(probe: Probe, also_zero: bool = True) -> Line:
    """What a reader would not guess. `decoded` of 0 means that nobody counted, which only a final answer may say."""
    guess = replace(PLAIN, decoded=_guessed(probe.probabilities, probe.closed))
    told = {name: getattr(probe, name) for name in DETAILS if getattr(probe, name) != getattr(guess, name)}
    if not probe.decoded and not also_zero:
        told.pop("decoded", None)
    if "tokens" in told:
        told["tokens"] = [token.to_dict() for token in probe.tokens]
    if "suffix_ids" in told:
        told["suffix_ids"] = list(probe.suffix_ids)
    return told


def _guessed(probabilities: Iterable[float], closed: bool) -> int:
    """Tokens decoded where nobody said: one for each probability, and the closing brace."""
    return len(tuple(probabilities)) + closed


def from_line(value: Any) -> Read:
    """What is in this line; a UsageError says what is wrong with it."""
    line = Fields(value, "line", REQUIRED, OPTIONAL)
    run, probe_set = _record(RunConfig, line, "run"), _record(ProbeSet, line, "probe_set")
    source = probe_set or run
    aggregate = source.asking.aggregate if source else certainty.DEFAULT
    trace = RecordedTrace(
        question_id=line.text("question_id"),
        seed=line.whole("seed", least=None),
        gold=None if value["gold"] is None else line.text("gold"),
        thinking_tokens=line.whole("thinking_tokens"),
        ended=line.among("ended", get_args(Ended)),
        budget=line.whole("budget", least=1),
        final=_final(line, aggregate),
        probes=_probes(line, aggregate),
        question=line.text("question"),
        eos=line.truth("eos"),
        ids=line.ids("ids"),
        text=line.text("text"),
        written=line.text("written"),
        logprobs=line.numbers("logprobs"),
        tops=line.numbers("tops"),
        forced=tuple((whole(at, "forced", 0), whole(count, "forced", 1)) for at, count in line.many("forced")),
    )
    form = line.among("format", get_args(AnswerFormat)) if "format" in line else None
    _check(trace, run)
    return Read(trace, line.ids("prompt_ids"), form, run, probe_set)


def _check(trace: RecordedTrace, run: RunConfig | None) -> None:
    """What is said in two places must agree."""
    n, budget = trace.thinking_tokens, trace.budget
    if n > budget or (trace.ended == "budget" and n != budget):
        raise UsageError(f"thinking_tokens is {n}, ended is {trace.ended!r} and budget is {budget}: that cannot be.")
    for name in ("ids", "logprobs", "tops"):
        if (count := len(getattr(trace, name))) not in (0, n):
            raise UsageError(f"there are {count} {name} of {n} thinking_tokens.")
    if run and run.budget != budget:
        raise UsageError(f"budget is {budget}, and {run.budget} in run.")
    positions = [probe.at for probe in trace.probes]
    for at in positions:
        if not 0 < at <= n or at >= budget:
            raise UsageError(f"there is a probe at {at} in a trace of {n} tokens with a budget of {budget}.")
    if len(set(positions)) < len(positions):
        raise UsageError("there are two probes at one position.")


def _probes(line: Fields, aggregate: str) -> tuple[Probe, ...]:
    probes = []
    for index, probe in enumerate(line.many("probes"), 1):
        try:
            probes.append(_probe(Fields(probe, "probe", PROBE, DETAILS), aggregate))
        except UsageError as error:
            raise UsageError(f"in probe {index}, {error.message}", error.hint) from error
    return tuple(sorted(probes, key=lambda probe: probe.at))


def _probe(line: Fields, aggregate: str) -> Probe:
    answer, closed, given = line.text("answer"), line.truth("closed"), line.shares("probabilities")
    if answer and not given:
        raise UsageError(f"the answer {answer!r} has no probabilities.")
    kept = given if answer else ()
    return replace(
        _with_details(line, _guessed(given, closed)),
        at=line.whole("at"),
        answer=answer,
        certainty=certainty.aggregate(aggregate, kept),
        closed=closed,
        probabilities=kept,
    )


def _final(line: Fields, aggregate: str) -> Probe:
    """The answer at the end. Without probabilities its certainty stands for them, so that a replay comes to the same."""
    answer, value = line.text("final_answer"), line.share("final_certainty")
    closed = line.truth("final_closed", looks_closed(answer))
    given = line.shares("final_probabilities") if "final_probabilities" in line else None
    kept = () if not answer else (value,) if given is None else given
    if abs(certainty.aggregate(aggregate, kept) - value) > NEAR:
        raise UsageError(f"final_certainty is {value:g}, but the probabilities of {answer!r} do not come to that.")
    details = Fields(line.values.get("final_details", {}), "final_details", (), DETAILS)
    return replace(
        _with_details(details, 0 if given is None else _guessed(given, closed)),
        at=line.whole("thinking_tokens"),
        answer=answer,
        certainty=value,
        closed=closed,
        probabilities=kept,
    )


def looks_closed(answer: str) -> bool:
    """Where nobody said: an answer with an open brace was cut off, any other was not."""
    return not open_braces(answer)


def _with_details(line: Fields, decoded: int) -> Probe:
    return replace(
        PLAIN,
        tokens=tuple(map(_token, line.many("tokens"))),
        suffix=line.text("suffix"),
        suffix_ids=line.ids("suffix_ids"),
        bound=line.truth("bound"),
        entropy=line.number("entropy") if "entropy" in line else None,
        prefilled=line.whole("prefilled"),
        cached=line.whole("cached"),
        decoded=line.whole("decoded", decoded),
        seconds=line.number("seconds"),
    )


def _token(value: Any) -> Token:
    token = Fields(value, "token", ("id", "text", "logprob"), ("top",))
    top = tuple((whole(one, "top", 0), number(two, "top")) for one, two in token.many("top"))
    return Token(token.whole("id"), token.text("text"), token.number("logprob"), top)


def _record(kind: type[R], line: Fields, name: str) -> R | None:
    """What produced the line, if it says so; each field of the kind that its default is of."""
    if name not in line:
        return None
    default = kind()
    known = Fields(line.values[name], name, (), tuple(default.to_dict())).values
    for field, value in known.items():
        wanted = default.to_dict()[field]
        if wanted is not None and not isinstance(value, (int, float) if isinstance(wanted, float) else type(wanted)):
            raise UsageError(f"{field} of {name} cannot be {shown(value)}.")
    try:
        return kind.from_dict(known)
    except (ValueError, TypeError, UsageError) as error:
        raise UsageError(f"{name} cannot be read: {error}.") from error
