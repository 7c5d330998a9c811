"""Several certainties held against each other on the same traces: at the usual threshold, each at its own best one, and by
how well they tell right from wrong. Their scales differ, so only the last two are a fair comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgr.lab.ablate import figures as drawing
from cgr.lab.ablate.result import listed, percent, percents
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.output import style
from cgr.lab.output.table import Cell, Head
from cgr.lab.score.measures import SCORE, Score, cells, measure
from cgr.lab.score.trust import Trust, trust
from cgr.lab.types import Interval
from cgr.records import Record

LEVELS = 96  # thresholds that each is tried at: levels of its own certainty
CHOSEN = (
    "Thresholds for equal accuracy (the largest net saving whose interval stays above −1 point) are chosen on the "
    "questions that they are shown on: expect a little less on others."
)


@dataclass(frozen=True, slots=True)
class Contender(Record):
    """`score` is at the usual threshold; `equal` at `equal_threshold`, where the net saving is largest while accuracy is
    still the baseline's, if there is such a one. `ci95_behind`: the best of these savings less this one."""

    name: str
    score: Score
    trust: Trust
    equal_threshold: float | None
    equal: Score | None
    ci95_behind: Interval | None


@dataclass(frozen=True, eq=False)
class Way:
    """A certainty by name: the probes that it is read from, and what stopping by it comes to at a threshold."""

    name: str
    seen: Columns
    decide: Callable[[float], Decisions]

    @property
    def levels(self) -> tuple[float, ...]:
        """Thresholds that this certainty reaches, evenly spread over its probes."""
        closed = self.seen.certainty[self.seen.present & self.seen.closed]
        if not closed.size:
            return ()
        return tuple(float(level) for level in np.unique(np.quantile(closed, np.linspace(0, 1, LEVELS), method="higher")))


def contend(columns: Columns, ways: Sequence[Way], usual: float) -> tuple[Contender, ...]:
    """Each way against the run's own ends."""
    chosen = [_equal(columns, way) for way in ways]
    having = [(way, level) for way, (level, _) in zip(ways, chosen, strict=True) if level is not None]
    behind = dict(zip((way.name for way, _ in having), _behind(columns, having), strict=True))
    scores = measure(columns, [way.decide(usual) for way in ways]).scores
    return tuple(
        Contender(way.name, score, trust(way.seen), level, equal, behind.get(way.name))
        for way, score, (level, equal) in zip(ways, scores, chosen, strict=True)
    )


def _equal(columns: Columns, way: Way) -> tuple[float | None, Score | None]:
    levels = way.levels
    if not levels:
        return None, None
    place = measure(columns, [way.decide(level) for level in levels]).best_equal()
    if place is None:
        return None, None
    return levels[place], measure(columns, [way.decide(levels[place])]).scores[0]


def _behind(columns: Columns, having: Sequence[tuple[Way, float]]) -> tuple[Interval, ...]:
    """How far each is behind the best, both at their own thresholds."""
    if not having:
        return ()
    measured = measure(columns, [way.decide(level) for way, level in having])
    return measured.behind(measured.best_net())


HEADS = (
    *SCORE,
    Head("auroc", "AUROC", ".3f"),
    Head("ci95_auroc", "95% interval", ".3f"),
    Head("ece", "ECE", ".3f"),
    Head("ci95_ece", "95% interval", ".3f"),
    Head("closed", "Closed", ".1f", 100, "%"),
    Head("equal_threshold", "θ at equal accuracy", ".4g"),
    Head("equal_net_share", "Net there", ".1f", 100, "%"),
    Head("ci95_equal_net_share", "95% interval", ".1f", 100),
    Head("ci95_behind", "Best less this", ".1f", 100),
)


def row(one: Contender) -> tuple[Cell, ...]:
    seen, equal = one.trust, one.equal
    told = (seen.auroc, seen.ci95_auroc, seen.ece, seen.ci95_ece, seen.closed, one.equal_threshold)
    saved = (equal.net_share, equal.ci95_net_share) if equal else (None, None)
    return *cells(one.score), *told, *saved, one.ci95_behind


def conclude(them: Sequence[Contender]) -> str:
    having = [(one, one.equal) for one in them if one.equal]
    if not having:
        return f"With none is accuracy equal (interval above −1 point) at any threshold. {_sharpest(them)}".strip()
    best, equal = max(having, key=lambda pair: pair[1].net_share)
    tied = [one.name for one, _ in having if one is not best and one.ci95_behind and one.ci95_behind[0] <= 0]
    said = (
        f"At equal accuracy “{best.name}” saves most, net {percent(equal.net_share)} {percents(equal.ci95_net_share)} at a "
        f"threshold of {best.equal_threshold:.4g}; {_others(them, having_count=len(having), tied=tied)}"
    )
    return f"{said} {_sharpest(them)}".strip()


def _others(them: Sequence[Contender], *, having_count: int, tied: Sequence[str]) -> str:
    if having_count == 1:
        return "with no other is accuracy equal at any threshold." if len(them) > 1 else "there is no other."
    if not tied:
        return "the others save less."
    if len(tied) == len(them) - 1:
        return "none of the others can be told from it." if len(tied) > 1 else f"“{tied[0]}” cannot be told from it."
    return f"{listed([f'“{name}”' for name in tied])} cannot be told from it."


def _sharpest(them: Sequence[Contender]) -> str:
    areas = [(one.trust.auroc, one.name) for one in them if one.trust.auroc is not None]
    if len(areas) < 2:
        return ""
    (low, worst), (high, best) = min(areas), max(areas)
    return f"AUROC is highest with “{best}” ({high:.3f}) and lowest with “{worst}” ({low:.3f})."


def draw(them: Sequence[Contender], title: str) -> Any:
    figure, (saved, told, errs) = drawing.lists([one.name for one in them], 3, title)
    equal = [(one.equal.net_share, one.equal.ci95_net_share) if one.equal else None for one in them]
    areas = [None if one.trust.auroc is None else (one.trust.auroc, one.trust.ci95_auroc) for one in them]
    drawing.dots(saved, equal, style.RULE, 100)
    drawing.dots(told, areas, style.BLUE)
    errors = [None if one.trust.ece is None else (one.trust.ece, one.trust.ci95_ece) for one in them]
    drawing.dots(errs, errors, style.RED)
    saved.xaxis.set_major_formatter(style.percent)
    saved.set_xlabel("Net saving at equal accuracy")
    told.set_xlabel("AUROC of probes\n(higher is better)")
    errs.set_xlabel("ECE of probes\n(lower is better)")
    return figure
