"""Rules past the paper against plain cgr: `python benchmarks/beyond.py runs/NAME`. Nothing touches a model.

The questions are split in parts (two, unless `--parts` says otherwise). Each part is decided by rules that were fitted on
the others, so that no question had a say in the parameters that it is shown at. Net counts probe tokens as recorded, whole
answers; "cut" counts what they cost live, where a probe ends as soon as the rest of it cannot matter.
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
from cgr.lab.decide.run import Run
from cgr.lab.fit import FitScore
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
SHOWN = ("interval", "rare", "rising", "floor", "hope", "patience")


@dataclass(frozen=True, eq=False)
class Parts:
    """A run, and which part each question is in."""

    whole: Run
    part: Ints

    @cached_property
    def pairs(self) -> list[tuple[Run, Run]]:
        """Of each part: all others, to fit on, and the part itself, to show."""
        return [(self.whole.only(self.part != one), self.whole.only(self.part == one)) for one in np.unique(self.part)]

    @cached_property
    def order(self) -> Ints:
        """Where each trace is when the parts come one after the other."""
        of_trace = self.part[self.whole.columns().question]
        return np.argsort(np.argsort(of_trace, kind="stable"), kind="stable")


@dataclass(frozen=True)
class Row:
    """What one way to fit comes to: the rule of each part, their figures on all questions, and what live probes cost."""

    label: str
    rules: tuple[Rule, ...]
    score: FitScore
    cut: float


def parts_of(names: Sequence[str], count: int) -> Ints:
    """By a hash of their names, so that their order does not matter."""
    ranked = sorted(range(len(names)), key=lambda place: blake2b(names[place].encode()).digest())
    part = np.zeros(len(names), dtype=np.int64)
    part[ranked] = np.arange(len(names)) * count // len(names)
    return part


def cut_short(probe: Probe, enough: float | None) -> int:
    """What this probe costs live: decoding ends at the first token that is below what matters."""
    low = [place for place, value in enumerate(probe.probabilities, 1) if enough is not None and value < enough]
    return min([probe.decoded, *low])


def spared(rule: Rule, sample: Run) -> int:
    asked = (probe for trace in sample.traces(whole=True) for probe in decisions.replay(rule, trace, sample.spec()).probes)
    return sum(probe.decoded - cut_short(probe, rule.sure_at) for probe in asked)


def fitted(rule: Rule, tune: Run) -> Rule:
    found: Rule = fitting.fit(rule, tune).rule
    return found


def as_it_is(rule: Rule, tune: Run) -> Rule:
    return rule


def shown(label: str, rule: Rule, parts: Parts, how: Callable[[Rule, Run], Rule] = fitted) -> Row:
    rules = [how(rule, tune) for tune, _ in parts.pairs]
    made = [show.decide(one) for one, (_, show) in zip(rules, parts.pairs, strict=True)]
    found = fitting.score(parts.whole.columns(), fitting.joined(made, parts.order))
    cut = sum(spared(one, show) for one, (_, show) in zip(rules, parts.pairs, strict=True))
    return Row(label, tuple(rules), found, found.net + cut / int(parts.whole.columns().natural.sum()))


def rows(parts: Parts, interval: int, rare: int) -> Iterator[Row]:
    yield shown("cgr, not fitted", replace(PLAIN, interval=interval), parts, as_it_is)
    yield shown("cgr", Cgr(interval=interval), parts)
    yield shown("cgr, asked seldom", Cgr(interval=rare * interval), parts)
    yield shown("answer-consistency", AnswerConsistency(interval=interval), parts)
    yield shown("adaptive", Adaptive(interval=interval, rare=rare), parts)
    yield shown("sure-twice", SureTwice(interval=interval), parts)
    yield shown("sure-twice, rising", SureTwice(interval=interval, rising=True), parts)
    yield shown("smoothed", Smoothed(interval=interval), parts)
    yield shown("give-up", GiveUpEarly(interval=interval), parts)
    yield shown("loop-breaker", LoopBreaker(interval=interval), parts)
    yield shown("calibrated, each interval", Calibrated(interval=interval, rare=1), parts)
    yield shown("calibrated", Calibrated(interval=interval, rare=rare), parts)
    yield shown("calibrated, price not fitted", Calibrated(interval=interval, rare=rare), parts, fitting.learned)


def told(row: Row, plain: Row) -> str:
    found = row.score
    return (
        f"{row.label:<30}{_parameters(row.rules):<58}{found.accuracy:7.1%} {found.diff_points:+6.2f}"
        f" [{found.low:+5.2f}, {found.high:+5.2f}]{'  ' if found.equal else ' !'} {found.gross:6.1%} {found.net:6.1%}"
        f" {row.cut:6.1%} {found.net / plain.score.net:6.2f} {row.cut / plain.cut:6.2f} {found.gave_up:8}"
    )


def _parameters(rules: Sequence[Rule]) -> str:
    first = rules[0]
    names = [name for name in (first.main, *SHOWN) if name and hasattr(first, name)]
    return ", ".join(f"{name} {'/'.join(_once(f'{getattr(one, name):g}' for one in rules))}" for name in names)


def _once(texts: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--set", dest="probe_set", help="the probes to read")
    parser.add_argument("--parts", type=int, default=2, help="each is shown by what was fitted on the others")
    parser.add_argument("--rare", type=int, default=3, help="one interval in so many is probed while there is no hope")
    wanted = parser.parse_args()
    sample = fitting.open_run(wanted.run, wanted.probe_set)
    parts = Parts(sample, parts_of(sample.columns().questions, wanted.parts))
    full = fitting.score(sample.columns(), sample.decide(FixedBudget())).accuracy
    click.echo(
        f"{len(sample.columns().questions)} questions, {len(sample.traces())} traces, {wanted.parts} parts; ", nl=False
    )
    click.echo(f"the full budget answers {full:.1%} right. '!': not equal accuracy. Ratios are to the first row.")
    click.echo(f"{'rule':<30}{'parameters':<58}accuracy points, interval       gross    net    cut  ratio  (cut)  gave up")
    made: list[Row] = []
    for row in rows(parts, sample.columns().info.interval, wanted.rare):
        made.append(row)
        click.echo(told(row, made[0]))


if __name__ == "__main__":
    main()
