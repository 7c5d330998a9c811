"""How often the watch of `cgr serve --audit` is wrong, and how soon it is right: `python -m benchmarks.audit`.

Many watches are simulated, each of them looked at after every audit. Without a shift, the share with an alarm must stay
below delta. Beside it stands the exact bound for a known number of audits, which is not made to be read again and again.
With a shift of the risk, the table has the number of audits from the shift to the alarm.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

from cgr.lab.output import Head, Table, style
from cgr.lab.score.bounds import binomial_lower
from cgr.lab.score.sequential import BLOCK, LARGEST, RATIOS, factors, unspent
from cgr.lab.types import Floats, Ints

EPSILON, DELTA, SHARE, REQUESTS = 0.01, 0.05, 0.02, 100_000
WATCHES, LONG_WATCHES = 10_000, 1_000
SHIFTS, BEFORE, USUAL = (2, 3, 5), (0, 2000), 0.5  # risks in units of epsilon; audits before the shift, at the usual risk
MOST = 12_000  # audits after a shift


@dataclass(frozen=True)
class Quiet:
    """Watches without a shift: the risk in units of epsilon, the audits of each, and the share with an alarm;
    `naive_alarmed`: the same for the exact bound."""

    risk: float
    audits: int
    watches: int
    alarmed: float
    naive_alarmed: float | None


@dataclass(frozen=True)
class Shift:
    """Watches with a shift to `risk` (in units of epsilon) after some audits, and how many audits the alarm takes then."""

    risk: float
    before: int
    watches: int
    median: float
    most: float
    missed: float


def alarms(rng: np.random.Generator, risks: Floats, watches: int, epsilon: float = EPSILON, delta: float = DELTA) -> Ints:
    """The audit at which each watch has its alarm, -1 for none. `risks`: of each audit. The money is that of
    `evidence_above`, for all watches and all audits of a block at once."""
    lost, kept = np.log([factors(epsilon, ratio) for ratio in RATIOS]).T
    money = np.zeros((watches, len(RATIOS)))
    found = np.full(watches, -1)
    for block in range(math.ceil(len(risks) / BLOCK)):
        here = risks[block * BLOCK : (block + 1) * BLOCK]
        losses = np.cumsum(rng.random((watches, len(here))) < here, axis=1)
        others = np.arange(1, len(here) + 1) - losses
        money += unspent(block) - unspent(block + 1)
        growing = money[:, None] * np.exp(losses[..., None] * lost + others[..., None] * kept)
        enough = growing.mean(axis=2) + unspent(block + 1) >= 1 / delta
        new = enough.any(axis=1) & (found < 0)
        found[new] = block * BLOCK + enough.argmax(axis=1)[new] + 1
        money = np.minimum(growing[:, -1], LARGEST)
    return found


def naive_share(rng: np.random.Generator, risk: float, audits: int, watches: int) -> float:
    """The share of watches in which the exact bound for a known number of audits passes epsilon at some time."""
    least = np.array([_least_losses(count) for count in range(1, audits + 1)])
    alarmed = 0
    for _ in range(watches):
        losses = np.cumsum(rng.random(audits) < risk)
        alarmed += bool((losses >= least).any())
    return alarmed / watches


def _least_losses(audits: int) -> int:
    """The fewest losses of so many audits with which the exact lower bound is above epsilon."""
    losses = max(int(audits * EPSILON), 1)
    while binomial_lower(losses, audits, DELTA) <= EPSILON:
        losses += 1
    return losses


def quiet(risk: float, audits: int, watches: int) -> Quiet:
    """Watches at a constant risk."""
    rng = np.random.default_rng(7)
    found = alarms(rng, np.full(audits, risk * EPSILON), watches)
    few = min(watches, LONG_WATCHES)
    naive = naive_share(rng, risk * EPSILON, audits, few) if audits <= REQUESTS * SHARE else None
    return Quiet(risk, audits, watches, float((found > 0).mean()), naive)


def delays(risk: float, before: int, watches: int) -> Ints:
    """Audits from a shift to the alarm; -1 for none. Alarms before the shift are left out."""
    risks = EPSILON * np.array([USUAL] * before + [risk] * MOST)
    found = alarms(np.random.default_rng(8), risks, watches)
    kept: Ints = found[(found < 0) | (found > before)]
    return np.where(kept < 0, -1, kept - before)


def shift(risk: float, before: int, found: Ints) -> Shift:
    """The numbers of one kind of shift."""
    late = np.where(found < 0, MOST, found)
    return Shift(
        risk,
        before,
        len(found),
        float(np.median(late)),
        float(np.quantile(late, 0.95)),
        float((found < 0).mean()),
    )


def draw_figure(found: dict[tuple[int, int], Ints], path: Path) -> None:
    """The share of watches with an alarm, against the audits since the shift."""
    colours = dict(zip(SHIFTS, (style.GREEN, style.ORANGE, style.RED), strict=True))
    with style.styled():
        figure, axes = style.paper(1, 1, (7, 4))
        for (risk, before), late in found.items():
            ended = np.sort(np.where(late < 0, np.inf, late))
            shares = np.arange(1, len(ended) + 1) / len(ended)
            after = f"after {before:,} audits without it" if before else "from the start on"
            line = "--" if before else "-"
            axes.step(ended, shares, where="post", color=colours[risk], linestyle=line, label=f"{risk} epsilon, {after}")
        axes.set_xlim(0, 3500)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(style.percent)
        axes.set_xlabel("audits since the shift")
        axes.set_ylabel("watches with an alarm")
        axes.legend(loc="lower right", fontsize=8)
        style.whole_title(figure, f"Time to the alarm: epsilon {EPSILON:.0%}, delta {DELTA:.0%}")
        figure.savefig(path, metadata={"Software": None})


def main() -> None:
    """Print the tables, and write them as JSON and as a figure on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--watches", type=int, default=WATCHES)
    parser.add_argument("--long-watches", type=int, default=LONG_WATCHES, help="watches in which every request is audited")
    parser.add_argument("--figure", type=Path, help="a PNG file to write")
    parser.add_argument("--json", type=Path, help="a JSON file to write")
    given = parser.parse_args()
    some = int(REQUESTS * SHARE)
    calm = [quiet(risk, some, given.watches) for risk in (USUAL, 1.0)]
    calm.append(quiet(1.0, REQUESTS, given.long_watches))
    found = {(risk, before): delays(risk, before, given.long_watches) for before in BEFORE for risk in SHIFTS}
    shifts = [shift(risk, before, late) for (risk, before), late in found.items()]
    click.echo("\n".join(_quiet_table(calm).lines()))
    click.echo("\n".join(_shift_table(shifts).lines()))
    if given.json:
        rows = {"quiet": [asdict(one) for one in calm], "shifts": [asdict(one) for one in shifts]}
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if given.figure:
        draw_figure(found, given.figure)


def _quiet_table(found: list[Quiet]) -> Table:
    heads = (
        Head("risk", "Risk in epsilon", ".1f"),
        Head("audits", "Audits", ",d"),
        Head("watches", "Watches", ",d"),
        Head("alarmed", "False alarms", ".1f", 100, "%"),
        Head("naive_alarmed", "Exact bound, looked at each time", ".1f", 100, "%"),
    )
    return Table.of_records("quiet", "Alarms without a shift", heads, found)


def _shift_table(found: list[Shift]) -> Table:
    heads = (
        Head("risk", "Risk in epsilon", ".1f"),
        Head("before", "Audits before", ",d"),
        Head("watches", "Watches", ",d"),
        Head("median", "Audits to the alarm", ",.0f"),
        Head("most", "95% within", ",.0f"),
        Head("missed", "No alarm", ".1f", 100, "%"),
    )
    return Table.of_records("shifts", "Audits from a shift to the alarm", heads, found)


if __name__ == "__main__":
    main()
