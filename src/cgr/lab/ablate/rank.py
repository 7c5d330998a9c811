"""Ranks variants of certainty on the same traces: at the usual threshold, each at its own best threshold, and by how well
each separates right from wrong. Only the last two are a fair comparison, because the scales of the variants differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgr.lab.ablate import figures
from cgr.lab.ablate.inputs import stopping
from cgr.lab.ablate.result import SCORE_HEADS, AblationResult, percent
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.output import Cell, Head, Table, style, with_interval
from cgr.lab.score.calibration import ProbeCalibration, probe_calibration
from cgr.lab.score.paired import Score, measure
from cgr.lab.store.config import in_words
from cgr.lab.types import Interval
from cgr.records import Record

MAX_THRESHOLDS = 96  # that are tried for each variant: quantiles of its own certainty
SELECTION_NOTE = (
    "The thresholds for equal accuracy are those with the largest net saving while the lower bound of the difference stays "
    "above −1 point; if no bound does, those with the highest bound. They are chosen on the same questions that they are "
    "shown on: expect slightly smaller savings on other questions."
)
TRUST_HEADS = (
    *with_interval("auroc", "AUROC", ".3f"),
    *with_interval("ece", "ECE", ".3f"),
    Head("closed", "Closed", ".1f", 100, "%"),
)
EQUAL_HEADS = (
    Head("equal_threshold", "θ at equal accuracy", ".4g"),
    *with_interval("equal_net_share", "Net at that θ", ".1f", 100, "%"),
    Head("ci95_behind", "Best minus this", ".1f", 100),
)


@dataclass(frozen=True, slots=True)
class RankedVariant(Record):
    """`score` is at the usual threshold. `equal` is at `equal_threshold`, where the net saving is largest while accuracy
    equals the baseline's; its verdict says whether that is shown or cannot be told. None: more than 1 point is lost at
    every threshold. `ci95_behind`: the best of these savings minus this one."""

    name: str
    score: Score
    trust: ProbeCalibration
    equal_threshold: float | None
    equal: Score | None
    ci95_behind: Interval | None


@dataclass(frozen=True, eq=False)
class Variant:
    """A variant of certainty: its name, the probes that give it, its row in ablations.json, and what `cgr` decides on the
    probes at a threshold."""

    name: str
    probes: Columns
    row: Callable[[RankedVariant], Record]
    decide: Callable[[Columns, float], Decisions] = stopping

    def at(self, threshold: float) -> Decisions:
        """The decisions at this threshold."""
        return self.decide(self.probes, threshold)

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Thresholds to try: quantiles of the certainty of the closed probes."""
        closed = self.probes.certainty[self.probes.present & self.probes.closed]
        if not closed.size:
            return ()
        levels = np.quantile(closed, np.linspace(0, 1, MAX_THRESHOLDS), method="higher")
        return tuple(float(level) for level in np.unique(levels))


def rank(columns: Columns, variants: Sequence[Variant], usual: float) -> tuple[RankedVariant, ...]:
    """Each variant against the baseline of the run. `usual`: the usual threshold."""
    chosen = [_at_equal_accuracy(columns, one) for one in variants]
    equal = {one.name: one.at(best) for one, (best, _) in zip(variants, chosen, strict=True) if best is not None}
    measured = measure(columns, list(equal.values()))
    behind = dict(zip(equal, measured.behind(measured.best_net()), strict=True)) if equal else {}
    scores = measure(columns, [one.at(usual) for one in variants]).scores
    return tuple(
        RankedVariant(one.name, score, probe_calibration(one.probes), *best, behind.get(one.name))
        for one, score, best in zip(variants, scores, chosen, strict=True)
    )


def _at_equal_accuracy(columns: Columns, variant: Variant) -> tuple[float | None, Score | None]:
    """The threshold with the largest net saving at equal accuracy, and the score there."""
    thresholds = variant.thresholds
    measured = measure(columns, [variant.at(one) for one in thresholds])
    place = measured.best_equal() if thresholds else None
    return (None, None) if place is None else (thresholds[place], measured.only([1 + place]).scores[0])


@dataclass(frozen=True, slots=True)
class Presentation:
    """How an ablation over variants is shown: the name of its table, the title and caption of its figure, and the columns
    that name a variant."""

    name: str
    title: str
    caption: str
    heads: tuple[Head, ...]

    def result(
        self, columns: Columns, variants: Sequence[Variant], threshold: float, notes: tuple[str, ...] = ()
    ) -> AblationResult:
        """The variants ranked on the traces of `columns`. `threshold`: the usual one."""
        ranked = rank(columns, variants, threshold)
        rows = tuple(one.row(found) for one, found in zip(variants, ranked, strict=True))
        cells = tuple((*self._first_cells(row), *_cells(found)) for row, found in zip(rows, ranked, strict=True))
        heads = (*self.heads, *SCORE_HEADS, *TRUST_HEADS, *EQUAL_HEADS)
        table = Table(self.name, f"{self.title}, at a threshold of {threshold:g}", heads, cells)
        notes = (*notes, SELECTION_NOTE)
        return AblationResult(conclude(ranked), rows, table, lambda: draw(ranked, self.title), self.caption, notes)

    def _first_cells(self, row: Record) -> tuple[Cell, ...]:
        values = [getattr(row, head.name) for head in self.heads]
        return tuple(("with" if one else "without") if isinstance(one, bool) else one for one in values)


def _cells(one: RankedVariant) -> tuple[Cell, ...]:
    equal = (one.equal.net_share, one.equal.ci95_net_share) if one.equal else (None, None)
    score = [getattr(one.score, head.name) for head in SCORE_HEADS]
    trust = [getattr(one.trust, head.name) for head in TRUST_HEADS]
    return *score, *trust, one.equal_threshold, *equal, one.ci95_behind


def conclude(ranked: Sequence[RankedVariant]) -> str:
    """The variant that saves most at equal accuracy, those that do not differ from it, and the range of AUROC."""
    equal = [(one, one.equal) for one in ranked if one.equal]
    if not equal:
        return f"Every variant loses more than 1 point at every threshold. {_auroc_range(ranked)}".strip()
    best, score = max(equal, key=lambda pair: pair[1].net_share)
    tied = [one.name for one, _ in equal if one is not best and one.ci95_behind and one.ci95_behind[0] <= 0]
    text = (
        f"{accuracy_kept(score)} “{best.name}” saves most: net {percent(score.net_share, score.ci95_net_share)} "
        f"at a threshold of {best.equal_threshold:.4g}; {_others(len(ranked) - 1, len(equal) - 1, tied)}"
    )
    return f"{text} {_auroc_range(ranked)}".strip()


def accuracy_kept(score: Score) -> str:
    """How a sentence about equal accuracy begins."""
    unproven = "Within 1 point of accuracy, as far as so few questions can tell,"
    return "At equal accuracy" if score.equal else unproven


def _others(others: int, with_equal: int, tied: Sequence[str]) -> str:
    """How the other variants compare: how many there are, how many reach equal accuracy, which are tied with the best."""
    if not others:
        return "there is no other variant."
    if not with_equal:
        return "every other variant loses more than 1 point at every threshold."
    if not tied:
        return "the others save less."
    if len(tied) == others > 1:
        return "the differences to the others are not significant."
    return f"the difference to {in_words([f'“{name}”' for name in tied])} is not significant."


def _auroc_range(ranked: Sequence[RankedVariant]) -> str:
    areas = [(one.trust.auroc, one.name) for one in ranked if one.trust.auroc is not None]
    if len(areas) < 2:
        return ""
    (low, worst), (high, best) = min(areas), max(areas)
    return f"AUROC is highest for “{best}” ({high:.3f}) and lowest for “{worst}” ({low:.3f})."


def draw(ranked: Sequence[RankedVariant], title: str) -> Any:
    """Net saving at equal accuracy, AUROC and ECE of each variant, side by side."""
    figure, (saving, area, error) = figures.panels_by_name([one.name for one in ranked], 3, title)
    equal = [(one.equal.net_share, one.equal.ci95_net_share) if one.equal else None for one in ranked]
    areas = [None if one.trust.auroc is None else (one.trust.auroc, one.trust.ci95_auroc) for one in ranked]
    errors = [None if one.trust.ece is None else (one.trust.ece, one.trust.ci95_ece) for one in ranked]
    figures.dots(saving, equal, style.RULE, 100)
    figures.dots(area, areas, style.BLUE)
    figures.dots(error, errors, style.RED)
    saving.xaxis.set_major_formatter(style.percent)
    saving.set_xlabel("Net saving at equal accuracy")
    area.set_xlabel("AUROC of probes\n(higher is better)")
    error.set_xlabel("ECE of probes\n(lower is better)")
    return figure
