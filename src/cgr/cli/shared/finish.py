"""What `cgr generate` and `cgr probe` share: the model, here or on a cluster, and the end: done, with failures, or
interrupted; as text or as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cgr.cli.main import say, say_json
from cgr.cli.shared.options import connected, open_given
from cgr.engines.open import ModelOptions, sessions_of
from cgr.errors import UsageError
from cgr.lab.record.jobs import Progress, Summary, summarise
from cgr.lab.store import Key
from cgr.lab.store.config import Failure, in_words
from cgr.lab.store.schema import FILE

if TYPE_CHECKING:
    from cgr.solve import Model

SESSIONS_PER_SERVER = 16
INTERRUPTED = 130  # exit code after Ctrl-C
MAX_LISTED = 5  # traces listed for one failure


def sessions_for(given: int | None, model: ModelOptions) -> int:
    """The number of traces in flight: the given one, or 16 per server, or what is fastest for a GGUF file; else 1."""
    if given is not None:
        return given
    if model.addresses:
        return SESSIONS_PER_SERVER * len(model.addresses)
    return sessions_of(model.model)


def open_for(
    given: ModelOptions, sessions: int | None, budget: int | None, ray: str | None, engines: int | None, gpus: float | None
) -> tuple[Model, int]:
    """The chosen model, here or on a Ray cluster, and the number of traces in flight."""
    count = sessions_for(sessions, given)
    if ray is None:
        for option, value in (("--engines", engines), ("--gpus-per-engine", gpus)):
            if value is not None:
                raise UsageError(f"{option} is for a cluster.", f"Add --ray, or leave out {option}.")
        return open_given(given, sessions=count, budget=budget), count
    from cgr.lab.record.cluster import ClusterEngine
    from cgr.lab.record.ray_cluster import Placement

    cluster = ClusterEngine(replace(given, sessions=count, budget=budget), Placement(ray, engines, gpus))
    return connected(cluster, given.addresses), count * cluster.engines


def finish(work: Callable[..., Any], folder: Path, wanted: Collection[Key] | None, quiet: bool, as_json: bool) -> int:
    """Do the work, print a summary, and return the exit code. Failures are printed even if `quiet`."""
    progress, interrupted = Progress(quiet=quiet or as_json, on_note=echo_note), False
    try:
        work(progress=progress)
    except KeyboardInterrupt:
        interrupted = True
        if not (folder / FILE).is_file():
            return nothing_recorded()
    summary = summarise(folder, wanted, progress, interrupted=interrupted)
    if as_json:
        say_json(summary.to_json())
    else:
        print_summary(summary, quiet=quiet and not interrupted)
    return INTERRUPTED if interrupted else 1 if summary.failed else 0


def echo_note(text: str) -> None:
    """Print a note on standard error."""
    say(f"note:  {text}", err=True)


def nothing_recorded() -> int:
    """Say that the run was interrupted before its first trace; return the exit code."""
    say("Interrupted before anything was recorded.", err=True)
    return INTERRUPTED


def print_summary(summary: Summary, *, quiet: bool = False, then: bool = True) -> None:
    """Print what a run has and what failed. Failures, and all of an interrupted run, go to standard error. `then`: with the
    next command."""
    for line in [] if quiet else summary_lines(summary, then=then):
        say(line, err=summary.interrupted)
    for line in failure_lines(summary.failures):
        say(line, err=True)


def summary_lines(summary: Summary, *, then: bool = True) -> list[str]:
    """The summary as a few lines of text. `then`: with the next command."""
    done = f"{summary.traces} of {summary.wanted} traces are {_where(summary)}"
    if summary.interrupted:
        return [f"Interrupted: {done}. The same command continues from here."]
    lines = [f"{done}, {summary.new} of {'them' if len(summary.made_sets) < 2 else 'these probings'} new."]
    if summary.probe_set is None:
        lines.append(f"{summary.ended_by_themselves} ended naturally, {summary.at_budget} at the budget.")
    if summary.new:
        lines.append(_cost(summary))
    if summary.failed:
        return [*lines, f"{summary.failed} failed: the same command tries them again."]
    return [*lines, *([f"Next: cgr {'report' if summary.probe_sets else 'probe'} {summary.run}"] if then else [])]


def _where(summary: Summary) -> str:
    if not summary.made_sets:
        return f"in {summary.run}"
    names = in_words([repr(name) for name in summary.made_sets])
    return f"probed in the {'set' if len(summary.made_sets) == 1 else 'sets'} {names} of {summary.run}"


def _cost(summary: Summary) -> str:
    probe = "probe" if summary.probes == 1 else "probes"
    probes = f" {summary.probes:,} {probe} decoded {summary.probe_tokens:,} tokens." if summary.probes else ""
    speed = f"{summary.seconds:,.1f} s, {summary.tokens_per_second:,.0f} a second"
    return f"{summary.thinking_tokens:,} thinking tokens in {speed}.{probes}"


def failure_lines(failures: Sequence[Failure]) -> list[str]:
    """Failures grouped by reason, each with its traces."""
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in failures:
        reasons[one.message, one.hint].append(f"{one.question_id} (seed {one.seed})")
    lines = []
    for (message, hint), traces in reasons.items():
        more = f" and {len(traces) - MAX_LISTED} more" if len(traces) > MAX_LISTED else ""
        lines += [f"failed: {', '.join(traces[:MAX_LISTED])}{more}: {message}", *([f"hint:   {hint}"] if hint else [])]
    return lines
