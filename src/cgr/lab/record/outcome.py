"""What one call of `cgr generate` or `cgr probe` came to: for a person, and as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from cgr.lab.record.progress import Progress
from cgr.lab.store import GENERATE, Key, Store, probing_stage
from cgr.lab.store.config import in_words
from cgr.records import Record

SHOWN = 5  # questions named for one reason to fail


@dataclass(frozen=True, slots=True)
class Failed(Record):
    """One trace that could not be made."""

    question_id: str
    seed: int
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Summary(Record):
    """`traces` of the `wanted` ones are in the run (or probed, in every set that was to be made); `new`, tokens and seconds
    are of this call, over all sets. `probe_set` is the one set that was made, or the last of them."""

    run: str
    wanted: int
    traces: int
    new: int
    failed: int
    thinking_tokens: int
    probes: int
    probe_tokens: int
    prefilled_tokens: int
    seconds: float
    tokens_per_second: float
    ended_by_themselves: int
    at_budget: int
    probe_set: str | None = None
    probe_sets: tuple[str, ...] = ()
    made_sets: tuple[str, ...] = ()
    interrupted: bool = False
    failures: tuple[Failed, ...] = ()


def summarise(folder: Path, wanted: Collection[Key] | None, progress: Progress, *, interrupted: bool = False) -> Summary:
    """What is there of the wanted traces (None: all of the run), and what this call did. Of a call that probed, it is the
    sets of probes that are told of."""
    with Store.open(folder) as store:
        asked = frozenset(store.made() if wanted is None else wanted)
        there = asked.intersection(*map(store.probed, progress.sets)) if progress.sets else asked & frozenset(store.made())
        stages = [probing_stage(name) for name in progress.sets] or [GENERATE]
        failures = [failure for stage in stages for failure in store.failures(stage)]
        natural, spent = store.endings()
        sets = tuple(store.probe_sets())
    failed = tuple(
        Failed(one.question_id, one.seed, one.message, one.hint) for one in failures if (one.question_id, one.seed) in asked
    )
    return Summary(
        run=str(folder),
        wanted=len(asked),
        traces=len(there),
        new=progress.traces,
        failed=len(failed),
        thinking_tokens=progress.tokens,
        probes=progress.probes,
        probe_tokens=progress.decoded,
        prefilled_tokens=progress.prefilled,
        seconds=round(progress.seconds, 3),
        tokens_per_second=round(progress.tokens_per_second, 1),
        ended_by_themselves=natural,
        at_budget=spent,
        probe_set=progress.probe_set,
        probe_sets=sets,
        made_sets=tuple(progress.sets),
        interrupted=interrupted,
        failures=failed,
    )


def said(summary: Summary) -> list[str]:
    """A few lines for a person."""
    if summary.interrupted:
        rest = f"{summary.traces} of {summary.wanted} traces are {_where(summary)}."
        return [f"Interrupted: {rest} The same command goes on from here."]
    new = f"{summary.new} of them new" if len(summary.made_sets) < 2 else f"{summary.new} of these probings new"
    lines = [f"{summary.traces} of {summary.wanted} traces are {_where(summary)}, {new}."]
    if summary.probe_set is None:
        lines.append(f"{summary.ended_by_themselves} ended by themselves, {summary.at_budget} at the budget.")
    if summary.new:
        lines.append(_cost(summary))
    if summary.failed:
        return [*lines, f"{summary.failed} failed: the same command tries them again."]
    return [*lines, f"Next: cgr {'report' if summary.probe_sets else 'probe'} {summary.run}"]


def _where(summary: Summary) -> str:
    if not summary.made_sets:
        return f"in {summary.run}"
    named = in_words([repr(name) for name in summary.made_sets])
    return f"probed in the {'set' if len(summary.made_sets) == 1 else 'sets'} {named} of {summary.run}"


def _cost(summary: Summary) -> str:
    probes = f" {summary.probes:,} probes decoded {summary.probe_tokens:,} tokens." if summary.probes else ""
    speed = f"{summary.seconds:,.1f} s, {summary.tokens_per_second:,.0f} a second"
    return f"{summary.thinking_tokens:,} thinking tokens in {speed}.{probes}"


def in_lines(failures: Sequence[Failed]) -> list[str]:
    """Failures by reason, each with the traces it befell."""
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in failures:
        reasons[one.message, one.hint].append(f"{one.question_id} (seed {one.seed})")
    lines = []
    for (message, hint), where in reasons.items():
        more = f" and {len(where) - SHOWN} more" if len(where) > SHOWN else ""
        lines += [f"failed: {', '.join(where[:SHOWN])}{more}: {message}", *([f"hint:   {hint}"] if hint else [])]
    return lines
