"""What a rule decides on recorded traces: over arrays if it has an array form, else by the loop on a replay of each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import zip_longest
from typing import Any, TypeVar

from cgr.drive.driver import Driver
from cgr.engines.replay import ReplayEngine, ReplaySession
from cgr.errors import CgrError, NotRecorded
from cgr.lab.decide.arrays import Decisions, ProbeArrays, decide_arrays, first_sure, readable
from cgr.lab.decide.columns import Checker, Columns, as_arrays
from cgr.lab.store.needed_probes import rule_at_interval
from cgr.lab.store.recorded import RecordedTrace
from cgr.probing import ProbeSpec
from cgr.reason import Abstention
from cgr.records import Decision, Probe, Trace
from cgr.rules import WAIT, Rule
from cgr.rules.same_answer import agrees as agrees_with

T = TypeVar("T")
Decide = Callable[[float], Decisions]
Traces = Sequence[RecordedTrace]


def decide(rule: Rule, columns: Columns, traces: Traces = (), spec: ProbeSpec = ProbeSpec()) -> Decisions:
    """What this rule decides on these probes. `traces`: the records, for all rules that read more than the certainty."""
    return decide_probes(rule, ProbeArrays(columns, spec, lambda whole: traces))


def decide_probes(rule: Rule, probes: ProbeArrays, answers: Traces | None = None) -> Decisions:
    """The same for probes that are kept for several decisions. `answers`: see `replayed`."""
    if probes.irregular and rule.needs_grid:
        raise NotRecorded(
            f"The rule {rule.name!r} chooses where to probe; these probes are at irregular positions.",
            "Record probes on a grid with `cgr probe`, or use a rule that reads every probe, such as cgr.",
        )
    if rule.reads_stated and not probes.kept("stated", partial(_has_stated, probes)):
        raise NotRecorded(
            f"The rule {rule.name!r} was fitted with `stated`: where answers stand in the thinking. These probes lack it.",
            "Add it with `cgr probe RUN --stated`, or fit the rule to this run.",
        )
    if rule.has_array_form and (rule.answers or probes.answers is not None):
        return decide_arrays(rule, probes)
    return replayed(rule, probes.read(reads_whole(rule)), probes.spec, answers, irregular=probes.irregular)


def _has_stated(probes: ProbeArrays) -> bool:
    """Whether every closed answer inside the thinking says where it stands."""
    made = (probe for trace in probes.read(False) for probe in trace.probes if probe.closed and probe.at)
    return all(probe.stated is not None for probe in made)


def reads_whole(rule: Rule) -> bool:
    """Whether this rule reads token ids, log-probabilities of the thinking or the tokens of probes."""
    return "token_ids" in rule.needs or bool(rule.inspect_every) or rule.probe_style.reads == "text"


def deciding(
    columns: Columns,
    name: str = "cgr",
    traces: Traces = (),
    spec: ProbeSpec = ProbeSpec(),
    *,
    decide_rule: Callable[[Rule], Decisions] | None = None,
) -> Decide:
    """A function from a threshold to the decisions of this rule, each computed once. A rule without a threshold decides the
    same at all of them.

    `cgr` looks at every recorded probe, at any position; other rules look at the positions that they probe. `decide_rule`:
    what a rule decides, if not by these probes: `Run.decide` finds the probe set that was made for it.
    """
    if name == "cgr":
        return cache(lambda threshold: first_sure(columns, threshold))
    rule = rule_at_interval(name, columns.info.interval)
    made = decide_rule or partial(decide_probes, probes=ProbeArrays(columns, spec, lambda whole: traces))
    if "threshold" in rule.parameters():
        return cache(lambda threshold: made(replace(rule, **{"threshold": threshold})))
    always = cache(lambda: made(rule))
    return lambda threshold: always()


def replayed(
    rule: Rule,
    traces: Traces,
    spec: ProbeSpec = ProbeSpec(),
    answers: Traces | None = None,
    *,
    irregular: bool = False,
) -> Decisions:
    """The decisions of the loop on every trace. `answers`: the same traces, probed with the thinking closed, for a rule
    whose own probes hold no answer; the tokens of such an answer count as probe tokens. `irregular`: see `replay`."""
    checker, rows = Checker(), []
    for trace, answered in zip_longest(traces, answers or ()):
        made = replay(rule, trace, spec, answers=answered.probes if answered else (), irregular=irregular)
        right = made.answer is not None and checker.right(made.answer, made.closed, trace.gold, trace.format)
        sure, gave_up = made.stop_cause == "certainty", made.stop_cause == "gave_up"
        paid = (*made.probes, made.final) if sure and made.final else made.probes
        decoded, suffix = sum(probe.decoded for probe in paid), sum(len(probe.suffix_ids) for probe in paid)
        agrees = agrees_with(made.answer, made.closed, trace.final) if sure else not gave_up
        rows.append((made.thinking_tokens, sure, made.certainty, made.closed, right, decoded, suffix, gave_up, agrees))
    return Decisions(*as_arrays(Decisions, rows))


def replay(
    rule: Rule,
    trace: RecordedTrace,
    spec: ProbeSpec = ProbeSpec(),
    abstention: Abstention = Abstention(),
    budget: int | None = None,
    answers: Sequence[Probe] = (),
    *,
    irregular: bool = False,
) -> Decision:
    """What the loop decides with this rule on one recorded trace. `budget`: a smaller one than that of the recording. A
    rule that probes at marks finds them where the trace was probed. `answers`: probes with the thinking closed.
    `irregular`: every rule probes where the trace was probed, because that is on no grid."""
    if "token_ids" in rule.needs and trace.thinking_tokens and not trace.ids:
        raise NotRecorded(
            f"Question {trace.question_id!r}, seed {trace.seed}: the token ids of the thinking are missing.",
            f"The rule {rule.name!r} reads them. Runs of `cgr generate` have them, imports with `ids`, and recordings of "
            "`cgr serve --shadow --record-text`.",
        )
    ids = trace.ids or (0,) * trace.thinking_tokens
    engine = ReplayEngine(
        Trace(trace.question_id, trace.seed, ids, trace.text, trace.ended, trace.budget, trace.eos),
        map(readable, trace.probes),
        readable(trace.final),
        answers=map(readable, answers),
        tops=trace.tops,
        forced=trace.forced,
        forcing=getattr(rule, "text", WAIT),
    )
    marks = sorted(probe.at for probe in trace.probes) if rule.place or irregular else None
    driver = Driver(engine, ReplaySession(engine), spec, full=True, marks=marks)
    return _run_without_loop(driver.run(rule, budget or trace.budget, abstention)).decision


def _run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits. A replay needs no event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise CgrError("A replay waited for something.", "Replay only what was recorded.")
