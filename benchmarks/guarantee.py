"""How often a promise of `cgr calibrate` fails: `python -m benchmarks.guarantee [--run FOLDER ...] [--figure FILE]`.

From populations with known risk, many calibration sets are drawn. Each is calibrated by the fixed sequence, and the promise
fails if the true risk at the promised value is above epsilon. That must happen in at most delta of the draws. Beside it
stand two naive choices: the cheapest value without a loss in the calibration set, and the cheapest value whose loss there
is at most epsilon. Populations are synthetic, or the questions of recorded runs (`--run`), drawn with replacement.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

from cgr.lab.calibrate.losses import CalibrationQuestions, MeanLosses
from cgr.lab.calibrate.walk import Goal, measure, sequence
from cgr.lab.decide.run import Run
from cgr.lab.output import Head, Table, style
from cgr.lab.score.bounds import BETTING, EXACT, Kind
from cgr.lab.types import Floats
from cgr.rules import Cgr

DRAWS, SIZES, STEPS = 1000, (50, 150, 500), 20
EPSILON, DELTA = 0.02, 0.05
Draw = Callable[[np.random.Generator, int], Floats]


@dataclass(frozen=True)
class Population:
    """A name, the true risk at each value of the sequence, and how the losses of some questions are drawn: an array
    (values, questions)."""

    name: str
    risks: Floats
    draw: Draw
    kind: Kind


@dataclass(frozen=True)
class Outcome:
    """Over the draws: the share in which the promise fails, in which there is none, and the mean risk at the promised
    value; and the shares in which the naive choices fail."""

    population: str
    draws: int
    questions: int
    failed: float
    without: float
    risk: float
    naive_failed: float
    plug_in_failed: float


def binary(name: str, risks: Floats) -> Population:
    """Losses of 0 or 1. A question that loses at one value loses at every value that is riskier."""

    def draw(rng: np.random.Generator, count: int) -> Floats:
        return (rng.random(count) < risks[:, None]).astype(np.float64)

    return Population(name, risks, draw, EXACT)


def independent(name: str, risks: Floats) -> Population:
    """Losses of 0 or 1 on other questions at each value."""

    def draw(rng: np.random.Generator, count: int) -> Floats:
        return (rng.random((len(risks), count)) < risks[:, None]).astype(np.float64)

    return Population(name, risks, draw, EXACT)


def seed_means(name: str, risks: Floats, seeds: int = 8, spread: float = 0.25) -> Population:
    """Means over seeds: a question that can lose does so with the chance `spread` on each of them."""

    def draw(rng: np.random.Generator, count: int) -> Floats:
        can = rng.random(count) < np.minimum(risks / spread, 1)[:, None]
        each: Floats = rng.binomial(seeds, spread, count) / seeds
        return can * each

    return Population(name, risks, draw, BETTING)


def recorded(folder: Path, goal: Goal) -> Population:
    """The questions of a run as a population; each draw takes questions with replacement."""
    run = Run.open(folder)
    columns = run.rule_columns()
    questions = CalibrationQuestions.of(columns, np.ones(len(columns.questions), dtype=np.bool_), goal.risk)
    rules = sequence(Cgr(interval=run.interval))
    found = [measure(questions, run.decide(rule), rule, goal).losses for rule in rules]
    rows = np.stack([one.values for one in found if isinstance(one, MeanLosses)])
    seeds = len(columns.seeds)
    name = f"recorded: {len(questions):,} questions × {seeds} {'seed' if seeds == 1 else 'seeds'}"
    return Population(
        name, rows.mean(axis=1), lambda rng, count: rows[:, rng.integers(rows.shape[1], size=count)], questions.kind
    )


def shapes(epsilon: float = EPSILON, steps: int = STEPS) -> list[Population]:
    """Synthetic populations, with risks in units of epsilon."""
    rising = epsilon * np.linspace(0, 3, steps)
    ties = epsilon * np.repeat([0.2, 0.8, 1.1, 2.0], steps // 4)
    wave = epsilon * np.array([0.4, 1.3, 0.2, 0.3, *np.linspace(0.5, 2, steps - 4)])
    return [
        binary("0 or 1, rising", rising),
        binary("0 or 1, just above epsilon", np.full(steps, 1.0001 * epsilon)),
        binary("0 or 1, heavy ties", ties),
        binary("0 or 1, not monotone", wave),
        independent("0 or 1, other questions at each value", epsilon * np.linspace(0.2, 2, steps)),
        seed_means("means of 8 seeds, rising", rising),
        seed_means("means of 8 seeds, just above epsilon", np.full(steps, 1.0001 * epsilon)),
        seed_means("means of 8 seeds, heavy ties", ties),
    ]


def chosen(losses: Floats, kind: Kind, epsilon: float, delta: float) -> int:
    """The last value that passes in the fixed sequence; -1 if none does."""
    for place, row in enumerate(losses):
        if MeanLosses(row, kind).p_value(epsilon, delta) > delta:
            return place - 1
    return len(losses) - 1


def cheapest(losses: Floats, most: float) -> int:
    """The cheapest value whose mean loss is at most this; -1 if there is none."""
    good = np.flatnonzero(losses.mean(axis=1) <= most)
    return int(good[-1]) if len(good) else -1


def simulate(
    population: Population, questions: int, draws: int = DRAWS, epsilon: float = EPSILON, delta: float = DELTA
) -> Outcome:
    """Calibrate on many draws, and compare with the true risks."""
    rng = np.random.default_rng(7)
    promised, naive, plug_in = [], [], []
    for _ in range(draws):
        losses = population.draw(rng, questions)
        promised.append(chosen(losses, population.kind, epsilon, delta))
        naive.append(cheapest(losses, 0.0))
        plug_in.append(cheapest(losses, epsilon))
    risks = np.append(population.risks, 0.0)  # nothing is promised: nothing is lost
    return Outcome(
        population.name,
        draws,
        questions,
        float((risks[promised] > epsilon).mean()),
        float((np.array(promised) < 0).mean()),
        float(risks[promised].mean()),
        float((risks[naive] > epsilon).mean()),
        float((risks[plug_in] > epsilon).mean()),
    )


def allowance(draws: int, delta: float = DELTA) -> float:
    """The largest share of failures that is within binomial error (three standard deviations) of delta."""
    return delta + 3 * float(np.sqrt(delta * (1 - delta) / draws))


def table(outcomes: list[Outcome]) -> Table:
    """The outcomes as a table."""
    heads = (
        Head("population", "Population"),
        Head("questions", "Questions", ",d"),
        Head("failed", "Promise fails", ".1f", 100, "%"),
        Head("without", "No promise", ".1f", 100, "%"),
        Head("risk", "Mean true risk", ".2f", 100, "%"),
        Head("naive_failed", "No loss seen: fails", ".1f", 100, "%"),
        Head("plug_in_failed", "Loss seen ≤ epsilon: fails", ".1f", 100, "%"),
    )
    return Table.of_records("guarantee", "Promises that fail", heads, outcomes)


def draw_figure(outcomes: list[Outcome], delta: float, path: Path) -> None:
    """The shares of failures, with the one that is allowed; a panel for each number of questions."""
    sizes = sorted({one.questions for one in outcomes})
    ways = [("failed", "cgr calibrate", style.GREEN), ("naive_failed", "no loss seen", style.ORANGE)]
    ways.append(("plug_in_failed", "loss seen at most epsilon", style.RED))
    with style.styled():
        names = [one.population for one in outcomes if one.questions == sizes[0]]
        figure, panels = style.paper(1, len(sizes), (11, 1.5 + 0.42 * len(names)), sharey=True, sharex=True)
        places = np.arange(len(names))[::-1]
        for axes, size in zip(panels, sizes, strict=True):
            here = [one for one in outcomes if one.questions == size]
            for number, (field, label, colour) in enumerate(ways):
                heights = [getattr(one, field) for one in here]
                axes.barh(places + 0.26 * (1 - number), heights, 0.26, color=colour, label=label)
            axes.axvline(delta, color=style.INK, linewidth=1, linestyle="--")
            axes.xaxis.set_major_formatter(style.percent)
            axes.grid(visible=False, axis="y")
            axes.set_title(f"{size} questions", fontsize=10)
        panels[0].set_yticks(places, names)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(ways))
        style.whole_title(figure, f"Calibrations that fail, of {outcomes[0].draws:,} each; dashed: {delta:.0%} are allowed")
        figure.savefig(path, metadata={"Software": None})


def main() -> None:
    """Print the table, and write it as JSON and as a figure on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--run", type=Path, action="append", default=[], help="a recorded run as a population")
    parser.add_argument("--figure", type=Path, help="a PNG file to write")
    parser.add_argument("--json", type=Path, help="a JSON file to write")
    given = parser.parse_args()
    goal = Goal(EPSILON, DELTA)
    populations = [*shapes(), *(recorded(folder, goal) for folder in given.run)]
    outcomes = [simulate(one, size, given.draws) for size in SIZES for one in populations]
    click.echo("\n".join(table(outcomes).lines()))
    click.echo(f"Allowed: {allowance(given.draws):.1%} ({DELTA:.0%} and three standard deviations).")
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1) + "\n", encoding="utf-8")
    if given.figure:
        draw_figure(outcomes, DELTA, given.figure)


if __name__ == "__main__":
    main()
