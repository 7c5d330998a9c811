"""The rules beyond the paper, compared with plain cgr: `python benchmarks/beyond.py runs/NAME`. No model is used.

The questions are split into parts (default: two). Each part is decided by rules that were fitted on the other parts, so
that no question influences the parameters that it is scored with. "net" counts probe tokens as recorded, with whole
answers; "cut" counts them as in a live run, where a probe ends as soon as its other tokens cannot change the decision.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import click
import numpy as np

from cgr.lab import fit as fitting
from cgr.lab.decide import replay as decisions
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.run import Run
from cgr.lab.fit import FitScore
from cgr.lab.score.bounds import EQUAL, UNKNOWN, WORSE
from cgr.lab.types import Ints
from cgr.records import Probe
from cgr.rules import (
    Adaptive,
    AnswerConsistency,
    Calibrated,
    Cgr,
    FixedBudget,
    GiveUpEarly,
    LoopBreaker,
    Rule,
    Smoothed,
    SureTwice,
)

PLAIN = Cgr(threshold=0.99)
MARKS = {EQUAL: "  ", UNKNOWN: " ?", WORSE: " !"}
SHOWN = ("interval", "rare", "rising", "floor", "then", "patience")


@dataclass(frozen=True, eq=False)
class Parts:
    """A run, and the part of each question."""

    whole: Run
    part: Ints

    @cached_property
    def pairs(self) -> list[tuple[Run, Run]]:
        """For each part: the other questions, to fit on, and the part itself, to score on."""
        return [(self.whole.only(self.part != one), self.whole.only(self.part == one)) for one in np.unique(self.part)]

    @cached_property
    def order(self) -> Ints:
        """The position of each trace when the parts follow each other."""
        of_trace = self.part[self.whole.columns().question]
        return np.argsort(np.argsort(of_trace, kind="stable"), kind="stable")


@dataclass(frozen=True)
class Row:
    """The result of one rule: the fitted rule of each part, the figures on all questions, and the net savings with live
    probes (`cut`)."""

    label: str
    rules: tuple[Rule, ...]
    score: FitScore
    cut: float


def parts_of(names: Sequence[str], count: int) -> Ints:
    """The part of each question, by a hash of its name, so that the order does not matter."""
    ranked = sorted(range(len(names)), key=lambda place: blake2b(names[place].encode()).digest())
    part = np.zeros(len(names), dtype=np.int64)
    part[ranked] = np.arange(len(names)) * count // len(names)
    return part


def live_tokens(probe: Probe, cut_below: float | None) -> int:
    """The tokens of this probe in a live run: decoding ends at the first token below `cut_below`."""
    low = [place for place, value in enumerate(probe.probabilities, 1) if cut_below is not None and value < cut_below]
    return min([probe.decoded, *low])


def tokens_not_decoded(rule: Rule, sample: Run) -> int:
    """The probe tokens of the recording that a live run with this rule does not decode."""
    probes = (probe for trace in sample.traces(whole=True) for probe in decisions.replay(rule, trace, sample.spec()).probes)
    return sum(probe.decoded - live_tokens(probe, rule.sure_at) for probe in probes)


def fitted(rule: Rule, tune: Run) -> Rule:
    """The rule, fitted on these questions."""
    found: Rule = fitting.fit(rule, tune).rule
    return found


def not_fitted(rule: Rule, tune: Run) -> Rule:
    """The rule, unchanged."""
    return rule


def scored(label: str, rule: Rule, parts: Parts, fit: Callable[[Rule, Run], Rule] = fitted) -> Row:
    """Fit the rule for each part on the others and score it on all questions."""
    rules = [fit(rule, tune) for tune, _ in parts.pairs]
    made = [show.decide(one) for one, (_, show) in zip(rules, parts.pairs, strict=True)]
    found = fitting.score(parts.whole.columns(), joined(made, parts.order))
    cut = sum(tokens_not_decoded(one, show) for one, (_, show) in zip(rules, parts.pairs, strict=True))
    return Row(label, tuple(rules), found, found.net + cut / int(parts.whole.columns().natural.sum()))


def joined(parts: Sequence[Decisions], order: Ints) -> Decisions:
    """The decisions of several parts as one. `order`: the place of each trace in the joined parts."""
    names = Decisions.__dataclass_fields__
    return Decisions(**{name: np.concatenate([getattr(part, name) for part in parts])[order] for name in names})


def rows(parts: Parts, interval: int, rare: int) -> Iterator[Row]:
    """The rows of the table, plain cgr first."""
    yield scored("cgr, not fitted", replace(PLAIN, interval=interval), parts, not_fitted)
    yield scored("cgr", Cgr(interval=interval), parts)
    yield scored("cgr, probed rarely", Cgr(interval=rare * interval), parts)
    yield scored("answer-consistency", AnswerConsistency(interval=interval), parts)
    yield scored("adaptive", Adaptive(interval=interval, rare=rare), parts)
    yield scored("sure-twice", SureTwice(interval=interval), parts)
    yield scored("sure-twice, rising", SureTwice(interval=interval, rising=True), parts)
    yield scored("smoothed", Smoothed(interval=interval), parts)
    yield scored("give-up", GiveUpEarly(interval=interval), parts)
    yield scored("loop-breaker", LoopBreaker(interval=interval), parts)
    yield scored("calibrated, each interval", Calibrated(interval=interval, rare=1), parts)
    yield scored("calibrated", Calibrated(interval=interval, rare=rare), parts)
    yield scored("calibrated, price not fitted", Calibrated(interval=interval, rare=rare), parts, fitting.learn)


def line(row: Row, plain: Row) -> str:
    """The row as a line of the table, with its ratios to plain cgr."""
    found = row.score
    return (
        f"{row.label:<30}{_parameters(row.rules):<58}{found.accuracy:7.1%} {found.diff_points:+6.2f}"
        f" [{found.low:+5.2f}, {found.high:+5.2f}]{MARKS[found.verdict]} {found.gross:6.1%} {found.net:6.1%}"
        f" {row.cut:6.1%} {found.net / plain.score.net:6.2f} {row.cut / plain.cut:6.2f} {found.gave_up:8}"
    )


def _parameters(rules: Sequence[Rule]) -> str:
    first = rules[0]
    names = [name for name in (first.main, *SHOWN) if name and hasattr(first, name)]
    return ", ".join(f"{name} {'/'.join(_distinct(f'{getattr(one, name):g}' for one in rules))}" for name in names)


def _distinct(texts: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--set", dest="probe_set", help="name of the probe set")
    parser.add_argument("--parts", type=int, default=2, help="number of parts; each is scored with rules fitted on others")
    parser.add_argument("--rare", type=int, default=3, help="probe only every RARE-th interval while success is unlikely")
    options = parser.parse_args()
    sample = fitting.open_run(options.run, options.probe_set)
    parts = Parts(sample, parts_of(sample.columns().questions, options.parts))
    full = fitting.score(sample.columns(), sample.decide(FixedBudget())).accuracy
    click.echo(
        f"{len(sample.columns().questions)} questions, {len(sample.traces())} traces, {options.parts} parts; ", nl=False
    )
    click.echo(
        f"the full budget answers {full:.1%} right. '?': equal accuracy cannot be told, '!': worse. Ratios: to row 1."
    )
    click.echo(f"{'rule':<30}{'parameters':<58}accuracy points, interval       gross    net    cut  ratio  (cut)  gave up")
    made: list[Row] = []
    for row in rows(parts, sample.columns().info.interval, options.rare):
        made.append(row)
        click.echo(line(row, made[0]))


if __name__ == "__main__":
    main()
