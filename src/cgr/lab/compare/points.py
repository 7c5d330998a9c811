"""Every setting on some questions, as numbers with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

from cgr.lab.compare.choose import Measured
from cgr.lab.compare.result import Point
from cgr.lab.decide.arrays import Decisions
from cgr.lab.score.paired import spans
from cgr.lab.types import Bools


def points(
    measured: Measured,
    decided: Sequence[Decisions],
    values: Sequence[float | None],
    here: Bools,
    penalties: Sequence[float],
) -> tuple[Point, ...]:
    """One for each setting, the baseline first. `here`: the traces that were measured."""
    total, draws = measured.total, measured.drawn
    accuracy, diff, gross, net = (one.tolist() for one in (total.accuracy, total.diff_points, total.gross, total.net))
    of_accuracy, of_diff, of_gross, of_net = map(spans, (draws.accuracy, draws.diff_points, draws.gross, draws.net))
    grades = [total.grade(penalty).tolist() for penalty in penalties]
    of_grades = [spans(draws.grade(penalty)) for penalty in penalties]
    return tuple(
        Point(
            value=value,
            accuracy=accuracy[place],
            ci95_accuracy=of_accuracy[place],
            diff_points=diff[place],
            ci95_diff_points=of_diff[place],
            thinking_tokens=float(one.at[here].mean()),
            probe_tokens=float(one.probe_tokens[here].mean()),
            suffix_tokens=float(one.suffix_tokens[here].mean()),
            net_tokens=float((one.at + one.probe_tokens)[here].mean()),
            gross_share=gross[place],
            ci95_gross_share=of_gross[place],
            net_share=net[place],
            ci95_net_share=of_net[place],
            grade=tuple(grade[place] for grade in grades),
            ci95_grade=tuple(of_grade[place] for of_grade in of_grades),
            stopped=float(one.sure[here].mean()),
            gave_up=float(one.gave_up[here].mean()),
        )
        for place, (value, one) in enumerate(zip(values, decided, strict=True))
    )
