"""Every rule on the same traces: each reads the probes that were recorded for it, and says by name what is missing.

Whatever a rule's own way of asking, an answer at the end of the thinking is the run's own: rules differ in when they stop,
and are compared on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cgr.errors import NotRecorded
from cgr.lab.decide import arrays as levelled
from cgr.lab.decide import deepconf as confidence
from cgr.lab.decide.arrays import Levels
from cgr.lab.decide.replay import Decided, decide, replayed
from cgr.lab.decide.run import Run
from cgr.lab.store.config import NATURAL
from cgr.lab.store.needed_probes import forces
from cgr.lab.store.recorded import RecordedTrace
from cgr.probing import ProbeSpec
from cgr.rules import DeepConf, LevelRule, Rule


def groups_of(run: Run, window: int) -> confidence.Groups:
    """The confidence of every group of so many tokens, of every trace."""
    key = ("groups", window)
    if key not in run.cache:
        traces = run.rule_traces(whole=True)
        if any(len(trace.tops) != trace.thinking_tokens for trace in traces):
            raise NotRecorded(
                "The rule 'deepconf' needs the log-probabilities of the thinking, which were not recorded.",
                "Make the run with them: cgr generate --logprobs ...",
            )
        run.cache[key] = confidence.Groups.of([trace.tops for trace in traces], window)
    found: confidence.Groups = run.cache[key]
    return found


def levels_of(run: Run, probe_set: str, rule: LevelRule, spec: ProbeSpec) -> Levels:
    key = ("levels", probe_set, levelled.whatever_its_threshold(rule))
    if key not in run.cache:
        traces = run.rule_traces(probe_set, whole=rule.asks.reads == "text")
        run.cache[key] = levelled.levels(rule, run.rule_columns(probe_set), traces, spec)
    found: Levels = run.cache[key]
    return found


def decide_rule(run: Run, rule: Rule) -> Decided:
    """What this rule comes to on every trace of the run, from the set of probes that it asks for."""
    rule = rule.within(run.info.budget)
    _check_forcing(run, rule)
    if isinstance(rule, DeepConf):
        return _deepconf(run, rule)
    spec = ProbeSpec(aggregate=run.config.asking.aggregate)
    names = run.sets_for(rule)
    own = names[0] if names else run.main
    if isinstance(rule, LevelRule) and own is not None and _whole(run, own):
        answers = run.rule_columns(names[1]) if len(names) > 1 else None
        found = levels_of(run, own, rule, spec)
        return levelled.decide_levels(rule, run.rule_columns(own), found, answers)
    whole = "token_ids" in rule.needs or rule.asks.reads == "text"
    if len(names) > 1:
        return replayed(rule, traces_for(run, rule), spec, run.rule_traces(names[1]))
    return decide(rule, run.rule_columns(own), _Later(lambda: run.rule_traces(own, whole=whole)), spec)


def traces_for(run: Run, rule: Rule) -> Sequence[RecordedTrace]:
    """The traces with the probes that this rule reads; what is missing is said by name."""
    names = run.sets_for(rule)
    whole = "token_ids" in rule.needs or rule.asks.reads == "text" or bool(rule.inspect_every)
    return run.rule_traces(names[0] if names else run.main, whole=whole)


def warm_floor(run: Run, rule: DeepConf) -> float:
    """The floor that `deepconf` is given: a percentile of the lowest groups of warm-up traces, which are the first of each
    question. It needs no golds."""
    fitted = rule.within(run.info.budget)
    first = {trace.question_id: row for row, trace in reversed(list(enumerate(run.rule_traces(whole=True))))}
    lowest = groups_of(run, fitted.window or 1).lowest[sorted(first.values())]
    known = lowest[np.isfinite(lowest)]
    return float(np.percentile(known, rule.percentile)) if len(known) else -np.inf


def _deepconf(run: Run, rule: DeepConf) -> Decided:
    groups = groups_of(run, rule.window or 1)
    floor = warm_floor(run, rule) if rule.floor is None else rule.floor
    return confidence.decide(groups, run.rule_columns(), floor)


def calibrated_threshold(run: Run, rule: Rule, epsilon: float = 0.05, questions: Sequence[str] = ()) -> float:
    """The lowest value of a rule's main parameter that is safe by conformal risk control, from the cautious end down.

    The risk of a question is the share of its traces that would be right at the full budget and are wrong here; the unit is
    the question, since traces of one question are not exchangeable with those of another. Values are taken while
    (n R + 1) / (n + 1) <= epsilon. `questions`: those to calibrate on; by default, all.
    """
    grid, main = type(rule).grid, type(rule).main
    assert main is not None
    columns = run.rule_columns()
    kept = [number for number, name in enumerate(columns.questions) if not questions or name in questions]
    allowed = grid[-1]
    for value in reversed(grid):
        decided = decide_rule(run, replace(rule, **{main: type(rule.parameters()[main])(value)}))
        lost = columns.final_right & ~decided.right
        risks = [lost[columns.question == number].mean() for number in kept]
        if (sum(risks) + 1) / (len(risks) + 1) > epsilon:
            break
        allowed = value
    return allowed


class _Later(Sequence[RecordedTrace]):
    """Traces that are read only if somebody looks at them."""

    def __init__(self, read: Callable[[], Sequence[RecordedTrace]]) -> None:
        self._read = read

    def __getitem__(self, index: int | slice) -> RecordedTrace | Sequence[RecordedTrace]:  # type: ignore[override]
        return self._read()[index]

    def __len__(self) -> int:
        return len(self._read())


def _check_forcing(run: Run, rule: Rule) -> None:
    forced = run.config.rule != NATURAL
    if forces(rule) and not forced:
        raise NotRecorded(
            f"The rule {rule.name!r} forces the thinking on, which traces that ended by themselves cannot show.",
            "Record a forced run: cgr generate --rule budget-forcing --probe ...",
        )
    if forced and not forces(rule):
        raise NotRecorded(
            f"The rule {rule.name!r} lets the thinking end, and in {run.folder} it was forced on.",
            "Ask a run that was not forced.",
        )


def _whole(run: Run, name: str) -> bool:
    """Whether every place was asked, and every answer decoded to its end: if not, the loop says what is missing."""
    return run.sets[name].where != "anywhere" and not run.rule_columns(name).bound.any()
