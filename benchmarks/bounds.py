"""The bounds of `lab/score/bounds.py` on synthetic populations: `python -m benchmarks.bounds`. No model and no run is used.

Four tables: the smallest number of questions for a risk; how often a risk of at most 1% is proved, when it is lower and
when it is not; how often a bound covers a true difference where changes are rare; how often a true loss is called equal
accuracy. The bootstrap that decided before is shown beside the bounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import click
import numpy as np

from cgr.lab.output import Cell, Head, Table
from cgr.lab.score import bootstrap
from cgr.lab.score.bounds import (
    BETTING,
    EXACT,
    Kind,
    kind_of,
    lower_changes,
    questions_for_risk,
    risk_p_value,
    upper_changes,
)
from cgr.lab.types import Bools, Floats

DRAWS = 1000
LOSES = 0.25  # the chance that a question that can change changes on one seed
EPSILONS, LOSSES = (0.005, 0.01, 0.02, 0.05), (0, 1, 2, 3, 5)
SHAPES = ((30, 8), (75, 10), (198, 1))
SMALL = ((15, 8), (37, 1), (99, 1), (400, 1))


def changes(rng: np.random.Generator, draws: int, questions: int, seeds: int, lost: float, gained: float = 0.0) -> Floats:
    """(draws, questions): mean changes. In the mean this share of answers is lost, and this share gained; with several
    seeds, a question that can change does so on some of them."""
    chance = 1.0 if seeds == 1 else LOSES
    drawn = rng.random((draws, questions))
    down, up = drawn < lost / chance, drawn > 1 - gained / chance
    each: Floats = rng.binomial(seeds, chance, drawn.shape) / seeds
    return np.where(up, each, np.where(down, -each, 0.0))


def spans_of_bootstrap(rows: Floats) -> tuple[Floats, Floats]:
    """The ends of the bootstrap interval of the mean of each row."""
    means = np.concatenate([rows @ counts.T for counts in bootstrap.resampled(rows.shape[1], 2000)], axis=1) / rows.shape[1]
    low, high = zip(*bootstrap.intervals(means), strict=True)
    return np.array(low), np.array(high)


def smallest() -> Table:
    """The smallest number of questions that proves a risk, by the losses seen."""
    heads = (Head("epsilon", "Risk at most", ".1f", 100, "%"), *(Head(f"n{k}", f"{k} lost", ",d") for k in LOSSES))
    rows = tuple((epsilon, *(questions_for_risk(epsilon, k) for k in LOSSES)) for epsilon in EPSILONS)
    return Table("smallest", "Questions needed to prove a risk with 95% confidence", heads, rows)


def power(rng: np.random.Generator, draws: int) -> Table:
    """How often a risk of at most 1% is proved with 500 questions."""
    heads = (Head("seeds", "Seeds"), Head("bound", "Bound"), *(_share(f"at{risk:g}", f"risk {risk:.2%}") for risk in RISKS))
    shapes: tuple[tuple[int, Kind], ...] = ((1, EXACT), (1, BETTING), (8, BETTING))
    rows: list[tuple[Cell, ...]] = [
        (str(seeds), kind, *(_proved(rng, draws, seeds, kind, risk) for risk in RISKS)) for seeds, kind in shapes
    ]
    return Table("power", "500 questions: share of draws that prove a risk of at most 1%", heads, tuple(rows))


RISKS = (0.0, 0.0025, 0.005, 0.01)


def _proved(rng: np.random.Generator, draws: int, seeds: int, kind: Kind, risk: float) -> float:
    losses = -changes(rng, draws, 500, seeds, risk)
    return float(np.mean([risk_p_value(row, 0.01, kind) <= 0.05 for row in losses]))


def coverage(rng: np.random.Generator, draws: int) -> Table:
    """How often a 95% bound covers the true difference, where one answer in 400 is lost and one in 2,000 gained."""
    lost, gained = 0.0025, 0.0005
    rows: list[tuple[Cell, ...]] = []
    for questions, seeds in SHAPES:
        made, truth = changes(rng, draws, questions, seeds, lost, gained), gained - lost
        kind = kind_of(np.full(questions, float(seeds)))
        low, high = lower_changes(made, kind), upper_changes(made, kind)
        covered = [_covers(*spans, truth) for spans in ((low, high), spans_of_bootstrap(made))]
        rows.append((f"{questions} x {seeds}", kind, *covered, 100 * float(np.median(high - low))))
    heads = (*SHAPE, _share("bound", "Bound"), _share("bootstrap", "Bootstrap"), Head("width", "Width (points)", ".1f"))
    return Table("coverage", "Rare changes: share of draws in which the 95% interval covers the truth", heads, tuple(rows))


def _covers(low: Floats, high: Floats, truth: float) -> float:
    inside: Bools = (low <= truth) & (truth <= high)
    return float(inside.mean())


def called_equal(rng: np.random.Generator, draws: int) -> Table:
    """How often accuracy is called equal within 1 point although 2 points are lost; and although nothing is lost."""
    rows: list[tuple[Cell, ...]] = []
    for questions, seeds in (*SMALL, (800, 1), (400, 4)):
        kind, found = kind_of(np.full(questions, float(seeds))), []
        for lost, gained in ((0.02, 0.0), (0.002, 0.002), (0.0, 0.0)):
            made = changes(rng, draws, questions, seeds, lost, gained)
            lows = lower_changes(made, kind), spans_of_bootstrap(made)[0]
            found += [float((100 * low > -1).mean()) for low in lows]
        rows.append((f"{questions} x {seeds}", kind, *found))
    names = ("2 points lost", ".2 lost, .2 gained", "nothing changes")
    shares = [_share(f"{name}{end}", f"{name}{end}") for name in names for end in ("", ", bootstrap")]
    return Table("equal", "Share of draws in which accuracy is called equal", (*SHAPE, *shares), tuple(rows))


SHAPE = (Head("shape", "Questions x seeds"), Head("kind", "Bound by"))


def _share(name: str, label: str) -> Head:
    return Head(name, label, ".1f", 100, "%")


def tables(draws: int = DRAWS, seed: int = 0) -> Sequence[Table]:
    """All tables."""
    rng = np.random.default_rng(seed)
    return smallest(), power(rng, draws), coverage(rng, draws), called_equal(rng, draws)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=DRAWS, help="draws of each population")
    for table in tables(parser.parse_args().draws):
        click.echo(table.markdown())


if __name__ == "__main__":
    main()
