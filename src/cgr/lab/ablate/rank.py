"""Ranks variants of certainty on the same traces: at the usual threshold, each at its own best threshold, and by how well
each separates right from wrong. Only the last two are a fair comparison, because the scales of the variants differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgr.lab.ablate import figures
from cgr.lab.ablate.result import SCORE_HEADS, AblationResult, percent, score_cells
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.output import Cell, Head, Table, style
from cgr.lab.score.calibration import ProbeCalibration, probe_calibration
from cgr.lab.score.paired import Score, measure
from cgr.lab.store.config import in_words
from cgr.lab.types import Interval
from cgr.records import Record

MAX_THRESHOLDS = 96  # that are tried for each variant: quantiles of its own certainty
SELECTION_NOTE = (
    "The thresholds for equal accuracy (the largest net saving whose interval stays above −1 point) are chosen on the same "
    "questions that they are shown on: expect slightly smaller savings on other questions."
)
HEADS = (
    *SCORE_HEADS,
    Head("auroc", "AUROC", ".3f"),
    Head("ci95_auroc", "95% interval", ".3f"),
    Head("ece", "ECE", ".3f"),
    Head("ci95_ece", "95% interval", ".3f"),
    Head("closed", "Closed", ".1f", 100, "%"),
    Head("equal_threshold", "θ at equal accuracy", ".4g"),
    Head("equal_net_share", "Net at that θ", ".1f", 100, "%"),
    Head("ci95_equal_net_share", "95% interval", ".1f", 100),
    Head("ci95_behind", "Best minus this", ".1f", 100),
)


@dataclass(frozen=True, slots=True)
class RankedVariant(Record):
    """`score` is at the usual threshold. `equal` is at `equal_threshold`, where the net saving is largest while accuracy
    equals the baseline's (None if there is no such threshold). `ci95_behind`: the best of these savings minus this one."""

    name: str
    score: Score
    trust: ProbeCalibration
    equal_threshold: float | None
    equal: Score | None
    ci95_behind: Interval | None


@dataclass(frozen=True, eq=False)
class Variant:
    """A variant of certainty: its name, the probes that give it, and the decisions of `cgr` with it at a threshold."""

    name: str
    probes: Columns
    decide: Callable[[float], Decisions]

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
    equal = [(one, threshold) for one, (threshold, _) in zip(variants, chosen, strict=True) if threshold is not None]
    behind = dict(zip((one.name for one, _ in equal), _behind(columns, equal), strict=True))
    scores = measure(columns, [one.decide(usual) for one in variants]).scores
    return tuple(
        RankedVariant(one.name, score, probe_calibration(one.probes), *best, behind.get(one.name))
        for one, score, best in zip(variants, scores, chosen, strict=True)
    )


def _at_equal_accuracy(columns: Columns, variant: Variant) -> tuple[float | None, Score | None]:
    """The threshold with the largest net saving at equal accuracy, and the score there."""
    thresholds = variant.thresholds
    if not thresholds:
        return None, None
    place = measure(columns, [variant.decide(one) for one in thresholds]).best_equal()
    if place is None:
        return None, None
    return thresholds[place], measure(columns, [variant.decide(thresholds[place])]).scores[0]


def _behind(columns: Columns, equal: Sequence[tuple[Variant, float]]) -> tuple[Interval, ...]:
    """The interval of the best net saving minus each one's, all at their own thresholds."""
    if not equal:
        return ()
    measured = measure(columns, [variant.decide(threshold) for variant, threshold in equal])
    return measured.behind(measured.best_net())


@dataclass(frozen=True, slots=True)
class Presentation:
    """How an ablation over variants is shown: the name of its table, the title and caption of its figure, and the columns
    that name a variant."""

    name: str
    title: str
    caption: str
    heads: tuple[Head, ...]

    def result(
        self, rows: Sequence[tuple[Record, RankedVariant]], threshold: float, notes: tuple[str, ...] = ()
    ) -> AblationResult:
        """The result: each row is a record of ablations.json and its variant; `threshold`: the usual one."""
        ranked = [variant for _, variant in rows]
        cells = tuple((*self._first_cells(record), *_cells(variant)) for record, variant in rows)
        table = Table(self.name, f"{self.title}, at a threshold of {threshold:g}", (*self.heads, *HEADS), cells)
        records, notes = tuple(record for record, _ in rows), (*notes, SELECTION_NOTE)
        return AblationResult(conclude(ranked), records, table, lambda: draw(ranked, self.title), self.caption, notes)

    def _first_cells(self, record: Record) -> tuple[Cell, ...]:
        return tuple(_cell(getattr(record, head.name)) for head in self.heads)


def _cell(value: Cell) -> Cell:
    """Flags in words."""
    return ("with" if value else "without") if isinstance(value, bool) else value


def _cells(one: RankedVariant) -> tuple[Cell, ...]:
    seen, equal = one.trust, one.equal
    trusted = (seen.auroc, seen.ci95_auroc, seen.ece, seen.ci95_ece, seen.closed, one.equal_threshold)
    saved = (equal.net_share, equal.ci95_net_share) if equal else (None, None)
    return *score_cells(one.score), *trusted, *saved, one.ci95_behind


def conclude(ranked: Sequence[RankedVariant]) -> str:
    """The variant that saves most at equal accuracy, those that do not differ from it, and the range of AUROC."""
    equal = [(one, one.equal) for one in ranked if one.equal]
    if not equal:
        return f"No variant has equal accuracy (interval above −1 point) at any threshold. {_auroc_range(ranked)}".strip()
    best, score = max(equal, key=lambda pair: pair[1].net_share)
    tied = [one.name for one, _ in equal if one is not best and one.ci95_behind and one.ci95_behind[0] <= 0]
    text = (
        f"At equal accuracy “{best.name}” saves most: net {percent(score.net_share, score.ci95_net_share)} "
        f"at a threshold of {best.equal_threshold:.4g}; "
        f"{_others(len(ranked) - 1, len(equal) - 1, tied)}"
    )
    return f"{text} {_auroc_range(ranked)}".strip()


def _others(others: int, with_equal: int, tied: Sequence[str]) -> str:
    """How the other variants compare: how many there are, how many reach equal accuracy, which are tied with the best."""
    if not others:
        return "there is no other variant."
    if not with_equal:
        return "no other variant has equal accuracy at any threshold."
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
