"""What a rule comes to on every recorded trace.

There are two ways, and a property test holds them equal: the loop itself over a replay of each trace, which serves any rule
that is registered, and, where somebody wrote one, a form of the rule over whole arrays (`@vectorised("name")`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from cgr.drive.driver import Driver
from cgr.engines.replay import ReplayEngine, ReplaySession
from cgr.errors import CgrError, NotRecorded
from cgr.lab.decide.columns import Bools, Checker, Columns, Floats, Ints
from cgr.lab.store.recorded import RecordedTrace
from cgr.probing import ProbeSpec
from cgr.reason import Abstention
from cgr.records import Decision, Probe, Trace
from cgr.rules import WAIT, Cgr, DeepConf, FixedBudget, LevelRule, Rule, make_rule

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Decided:
    """One entry a trace: where the thinking stopped, whether a sure probe stopped it, and the answer that was given.

    Everything is answered here but what the rule gave up; who wants to abstain where `sure` is False and the certainty is
    low does so in `scores`.
    """

    at: Ints
    sure: Bools
    certainty: Floats
    closed: Bools
    right: Bools
    probe_tokens: Ints
    suffix_tokens: Ints
    gave_up: Bools

    @property
    def fired(self) -> int:
        """How many traces the rule stopped."""
        return int(self.sure.sum())


Decide = Callable[[float], Decided]
Vectorised = Callable[[Any, Columns], Decided]
_vectorised: dict[str, Vectorised] = {}


def vectorised(name: str) -> Callable[[Vectorised], Vectorised]:
    """Register the form of a rule that works on whole arrays, under the rule's name."""

    def register(form: Vectorised) -> Vectorised:
        _vectorised[name] = form
        return form

    return register


def over_arrays(rule: Rule) -> bool:
    """Whether all traces are decided at once, and not one by one."""
    return rule.name in _vectorised or isinstance(rule, LevelRule | DeepConf)


def decide(rule: Rule, columns: Columns, traces: Sequence[RecordedTrace] = (), spec: ProbeSpec = ProbeSpec()) -> Decided:
    """What this rule comes to. Without a form over arrays the traces themselves are replayed, one by one."""
    form = _vectorised.get(rule.name)
    return form(rule, columns) if form else replayed(rule, traces, spec)


def deciding(
    columns: Columns, name: str = "cgr", traces: Sequence[RecordedTrace] = (), spec: ProbeSpec = ProbeSpec()
) -> Decide:
    """From a threshold to what the rule comes to, each computed once. A rule without a threshold decides the same at all.

    `cgr` is held against every probe that was recorded, wherever it was made; other rules ask at their own places.
    """
    if name == "cgr":
        return cache(lambda threshold: first_sure(columns, threshold))
    known = type(make_rule(name)).parameters()
    fixed = {"interval": columns.info.interval} if "interval" in known else {}
    if "threshold" in known:
        return cache(lambda threshold: decide(make_rule(name, threshold=threshold, **fixed), columns, traces, spec))
    always = cache(lambda: decide(make_rule(name, **fixed), columns, traces, spec))
    return lambda threshold: always()


def first_sure(columns: Columns, threshold: float, asked: Bools | None = None) -> Decided:
    """The first probe whose answer closed and whose certainty is at least the threshold; else the final answer.

    Only probes in `asked` are looked at; by default, all that were recorded.
    """
    enough = (columns.certainty >= threshold) & columns.present
    if asked is not None:
        enough &= asked
    stop = first_true(enough & columns.closed)
    undecided = first_true(enough & columns.bound)
    if (undecided < stop).any():
        trace = int(np.argmax(undecided < stop))
        raise _cut_short(columns, trace, int(undecided[trace]))
    return stopped(columns, stop, asked)


def stopped(columns: Columns, stop: Ints, asked: Bools | None = None) -> Decided:
    """Each trace answered by the probe at this index, or, where there is none, by its final answer."""
    width = columns.at.shape[1]
    sure = stop < width
    if not width:
        return _final(columns)
    rows, probe = np.arange(len(columns)), np.minimum(stop, width - 1)
    made = (np.arange(width) <= stop[:, None]) & columns.present
    if asked is not None:
        made &= asked
    return Decided(
        at=np.where(sure, columns.at[rows, probe], columns.natural),
        sure=sure,
        certainty=np.where(sure, columns.certainty[rows, probe], columns.final_certainty),
        closed=np.where(sure, columns.closed[rows, probe], columns.final_closed),
        right=np.where(sure, columns.right[rows, probe], columns.final_right),
        probe_tokens=(columns.decoded * made).sum(axis=1),
        suffix_tokens=(columns.suffix * made).sum(axis=1),
        gave_up=np.zeros(len(columns), dtype=np.bool_),
    )


def first_true(flags: Bools) -> Ints:
    """The first column that is true in each row; the number of columns where none is."""
    width = flags.shape[1]
    if not width:
        return np.zeros(len(flags), dtype=np.int64)
    first: Ints = np.where(flags.any(axis=1), flags.argmax(axis=1), width)
    return first


@vectorised("cgr")
def _cgr(rule: Cgr, columns: Columns) -> Decided:
    """As the loop asks: at each multiple of the rule's interval, whether or not more was recorded in between."""
    wanted = np.arange(rule.interval, columns.limit, rule.interval, dtype=np.int64)
    found = columns.on_grid(wanted)
    decided = first_sure(columns, rule.threshold, columns.present & (columns.at % rule.interval == 0))
    asked = (wanted <= decided.at[:, None]) & (wanted < columns.budget[:, None])
    if (missing := asked & (found < 0)).any():
        trace, step = np.argwhere(missing)[0]
        raise _not_recorded(columns, int(trace), f"a probe at token {wanted[step]}")
    return decided


@vectorised("fixed-budget")
def _fixed_budget(rule: FixedBudget, columns: Columns) -> Decided:
    return _final(columns)


def _final(columns: Columns) -> Decided:
    nothing = np.zeros(len(columns), dtype=np.int64)
    return Decided(
        at=columns.natural,
        sure=np.zeros(len(columns), dtype=np.bool_),
        certainty=columns.final_certainty,
        closed=columns.final_closed,
        right=columns.final_right,
        probe_tokens=nothing,
        suffix_tokens=nothing,
        gave_up=np.zeros(len(columns), dtype=np.bool_),
    )


def at_budget(columns: Columns, budget: int) -> Decided:
    """The baseline under a smaller budget: the probe at its end, or the final answer where the thinking ended before."""
    if budget >= columns.limit:
        return _final(columns)
    here = columns.on_grid(np.array([budget], dtype=np.int64))[:, 0]
    over = columns.natural < budget
    if (missing := ~over & (here < 0)).any():
        raise _not_recorded(columns, int(np.argmax(missing)), f"a probe at token {budget}")
    cut = np.flatnonzero(~over)
    if len(bound := cut[columns.bound[cut, here[cut]]]):  # the answer at the budget's end is not whole
        raise _cut_short(columns, int(bound[0]), int(here[bound[0]]))
    answered = stopped(columns, np.where(over, columns.at.shape[1], here))
    nothing = np.zeros(len(columns), dtype=np.int64)
    return replace(answered, sure=np.zeros(len(columns), dtype=np.bool_), probe_tokens=nothing, suffix_tokens=nothing)


def replayed(
    rule: Rule,
    traces: Iterable[RecordedTrace],
    spec: ProbeSpec = ProbeSpec(),
    answers: Iterable[RecordedTrace] | None = None,
) -> Decided:
    """The loop itself over every trace. `answers`: the same traces, probed with the thinking closed, for a rule whose own
    probes hold no answer; what it costs to ask for one is then part of the rule's probes."""
    checker = Checker()
    rows = []
    for trace, answered in zip(traces, itertools.repeat(None) if answers is None else answers, strict=False):
        made = replay(rule, trace, spec, answers=answered.probes if answered else ())
        right = made.answer is not None and checker.right(made.answer, made.closed, trace.gold, trace.format)
        sure, gave_up = made.stop_cause == "certainty", made.stop_cause == "gave_up"
        asked = (*made.probes, made.final) if sure and made.final else made.probes
        decoded, suffix = sum(probe.decoded for probe in asked), sum(len(probe.suffix_ids) for probe in asked)
        rows.append((made.thinking_tokens, sure, made.certainty, made.closed, right, decoded, suffix, gave_up))
    at, sures, certainty, closed, rights, tokens, suffixes, given_up = zip(*rows, strict=True)
    return Decided(
        at=np.array(at, dtype=np.int64),
        sure=np.array(sures, dtype=np.bool_),
        certainty=np.array(certainty, dtype=np.float64),
        closed=np.array(closed, dtype=np.bool_),
        right=np.array(rights, dtype=np.bool_),
        probe_tokens=np.array(tokens, dtype=np.int64),
        suffix_tokens=np.array(suffixes, dtype=np.int64),
        gave_up=np.array(given_up, dtype=np.bool_),
    )


def replay(
    rule: Rule,
    trace: RecordedTrace,
    spec: ProbeSpec = ProbeSpec(),
    abstention: Abstention = Abstention(),
    budget: int | None = None,
    answers: Sequence[Probe] = (),
) -> Decision:
    """What this rule decides on one recorded trace, by the one loop; `budget` cuts it shorter than it was recorded. A rule
    that asks at marks of its own finds them where the trace was probed."""
    if "token_ids" in rule.needs and trace.thinking_tokens and not trace.ids:
        raise NotRecorded(
            f"Question {trace.question_id!r}, seed {trace.seed}: the tokens of the thinking are not at hand.",
            f"The rule {rule.name!r} reads them: replay whole traces (`Store.recorded(whole=True)`).",
        )
    ids = trace.ids or (0,) * trace.thinking_tokens
    thought = Trace(trace.question_id, trace.seed, ids, trace.text, trace.ended, trace.budget, trace.eos)
    engine = ReplayEngine(
        thought,
        map(readable, trace.probes),
        readable(trace.final),
        answers=map(readable, answers),
        tops=trace.tops,
        forced=trace.forced,
        forcing=WAIT,
    )
    marks = [probe.at for probe in trace.probes] if rule.place else None
    driver = Driver(engine, ReplaySession(engine), spec, full=True, marks=marks)
    return _finished(driver.run(rule, budget or trace.budget, abstention)).decision


def readable(probe: Probe) -> Probe:
    """With its certainty as its one probability, where a recording came with no more than that."""
    return probe if probe.probabilities or not probe.certainty else replace(probe, probabilities=(probe.certainty,))


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits for anything: a replay needs no event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise CgrError("A replay waited for something.", "Replay only what was recorded.")


def _cut_short(columns: Columns, trace: int, probe: int) -> NotRecorded:
    certainty = columns.certainty[trace, probe]
    where = f"the end of the probe at token {columns.at[trace, probe]} (its certainty is at most {certainty:.3g})"
    return _not_recorded(columns, trace, where)


def _not_recorded(columns: Columns, trace: int, what: str) -> NotRecorded:
    question, seed = columns.questions[columns.question[trace]], columns.seeds[columns.seed[trace]]
    return NotRecorded(
        f"Question {question!r}, seed {seed}: {what} was not recorded.",
        "Record it with `cgr probe`, or ask for what the recording holds.",
    )
