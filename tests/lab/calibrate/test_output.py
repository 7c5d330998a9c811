"""A calibration in words, as a table, and as a figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr.calibration import SequenceStep, sentence
from cgr.lab.calibrate import output
from cgr.lab.output import Head, Table, style
from tests.test_calibration import PROMISE, STEPS

NONE = replace(PROMISE, parameter=None, bound=None, saved_share=None, needed_questions=1300, questions=1200)
CHOSEN = "Rule cgr with threshold 0.98: "


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, [f"{CHOSEN}1 loss in 500 questions; the bound is 0.95% (exact)."]),
        ({"losses": 0.0}, [f"{CHOSEN}0 losses in 500 questions; the bound is 0.95% (exact)."]),
        (
            {"losses": 12.34567, "questions": 1500, "kind": "betting"},
            [f"{CHOSEN}12.35 losses in 1,500 questions; the bound is 0.95% (betting)."],
        ),
        ({"bound": None}, [f"{CHOSEN}1 loss in 500 questions; the bound is 0% (exact)."]),
        (
            {"method": "crc"},
            [f"{CHOSEN}1 loss in 500 questions; the bound of the mean is 0.95%; it has no confidence."],
        ),
        (
            {"method": "crc", "bound": None},
            [f"{CHOSEN}1 loss in 500 questions; the bound of the mean is 0%; it has no confidence."],
        ),
        *(
            (
                {"saved_share": saved},
                [
                    f"{CHOSEN}1 loss in 500 questions; the bound is 0.95% (exact).",
                    "Nothing is saved at this value: a promise without a use.",
                ],
            )
            for saved in (0.0, -0.1, None)
        ),
        ({"saved_share": 0.001}, [f"{CHOSEN}1 loss in 500 questions; the bound is 0.95% (exact)."]),
    ],
)
def test_a_promise_in_words(changes: dict[str, Any], said: list[str]) -> None:
    found = replace(PROMISE, **changes)
    assert output.outcome(found) == [sentence(found), *said]


WHY = "Nothing can be promised: 1,200 questions do not show, {}, a loss of at most 1%."
CAUTIOUS = "the most cautious value that saves anything, has a loss of"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            [
                WHY.format("with 95% confidence"),
                "About 1,300 questions are needed at the rate seen.",
                "These questions can promise 0.6%, and no better.",
            ],
        ),
        (
            {"delta": None, "possible_epsilon": 1.0},
            [WHY.format("by conformal risk control"), "About 1,300 questions are needed at the rate seen."],
        ),
        (
            {"possible_epsilon": None},
            [WHY.format("with 95% confidence"), "About 1,300 questions are needed at the rate seen."],
        ),
        (
            {
                "needed_questions": None,
                "possible_epsilon": 1.0,
                "sequence": (replace(STEPS[0], saved_share=0.0), *STEPS[1:]),
            },
            [
                WHY.format("with 95% confidence"),
                f"More questions will not help at the rate seen: threshold 0.98, {CAUTIOUS} 0.2%.",
            ],
        ),
        (
            {
                "needed_questions": None,
                "possible_epsilon": 1.0,
                "sequence": tuple(replace(one, loss=one.loss + 0.1, saved_share=-0.1) for one in STEPS),
            },
            [
                WHY.format("with 95% confidence"),
                f"More questions will not help at the rate seen: threshold 0.999, {CAUTIOUS} 10%.",
            ],
        ),
    ],
)
def test_why_nothing_can_be_promised(changes: dict[str, Any], said: list[str]) -> None:
    assert output.outcome(replace(NONE, **changes)) == said


def test_prospects_in_words() -> None:
    sure = {"threshold": 0.99, "probes": 1200, "share": 0.25}
    found = replace(PROMISE, headroom=0.125, false_sure=sure, verdict="Nothing to save.")
    assert output.prospects(found) == [
        "Head room: 12.5% of the thinking comes after the last change of answer.",
        "False sureness at 0.99: 25.0% of 1,200 probes differ from the final answer.",
        "Nothing to save.",
    ]


@pytest.mark.parametrize(
    ("risk", "caption"),
    [
        ("disagreement", "Answers that change, at most 1%"),
        ("lost", "Answers that turn from right to wrong, at most 1%"),
        ("wrong", "Wrong answers among those given, at most 1%"),
        ("grade", "Grade lost a question, at most 1%"),
    ],
)
def test_the_sequence_as_a_table(risk: str, caption: str) -> None:
    assert output.table(replace(PROMISE, risk=risk)) == Table(
        "calibration",
        caption,
        (
            Head("parameter", "threshold", "g"),
            Head("loss", "Loss", ".2f", 100, "%"),
            Head("bound", "Bound", ".2f", 100, "%"),
            Head("p_value", "p", ".2g"),
            Head("passed", "Passed"),
            Head("saved_share", "Saved net", ".1f", 100, "%"),
        ),
        (
            (0.999, 0.0, 0.006, 0.001, "yes", 0.1),
            (0.98, 0.002, 0.0095, 0.04, "yes", 0.27),
            (0.9, 0.01, 0.02, 0.4, "no", 0.4),
        ),
    )


# The figure


def drawn(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[Any, style.SavedFigure]:
    """The figure, which is not saved, and the record of it."""
    kept: list[Any] = []

    def save(figure: Any, name: str, folder: Path) -> tuple[Path, ...]:
        kept.append(figure)
        return (folder / name,)

    monkeypatch.setattr(style, "save", save)
    made = output.draw(replace(PROMISE, **changes), Path("some") / "calibration.json")
    return kept[0], made


def lines(axes: Any) -> list[tuple[Any, ...]]:
    """What is drawn in each line: positions, colour, width, dashes, marker, its size and its colour."""
    return [
        (
            [*map(float, one.get_xdata())],
            [*map(float, one.get_ydata())],
            one.get_color(),
            one.get_linewidth(),
            one.get_linestyle(),
            (one.get_marker(), one.get_markersize(), one.get_markerfacecolor()) if one.get_marker() != "None" else None,
        )
        for one in axes.lines
    ]


def expected(heights: list[float], colour: str) -> list[tuple[Any, ...]]:
    """A line through the heights, a point at each (filled: passed), and a dashed line at the value that was chosen."""
    points = [([float(place)], [height], colour, 2.0, "None", ("o", 5.0, colour if place < 2 else "white"))
              for place, height in enumerate(heights)]  # fmt: skip
    line = ([0.0, 1.0, 2.0], heights, colour, 1.6, "-", None)
    return [line, *points, ([1.0, 1.0], [0.0, 1.0], style.INK, 1.0, "--", None)]


def test_what_the_figure_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    figure, made = drawn(monkeypatch)
    assert made == style.SavedFigure("calibration", output.CAPTION, (Path("some") / "calibration",))
    risk, saved = figure.axes
    assert lines(risk) == [
        *expected([0.006, 0.0095, 0.02], style.RED),
        ([0.0, 1.0, 2.0], [0.0, 0.002, 0.01], style.BASELINE, 1.0, ":", None),
        ([0.0, 1.0], [0.01, 0.01], style.INK, 0.8, "-", None),
    ]
    assert lines(saved) == expected([0.1, 0.27, 0.4], style.GREEN)
    assert (risk.get_ylabel(), saved.get_ylabel()) == ("Risk", "Saved, net of probes")
    assert saved.get_xlabel() == (
        "threshold of cgr, in the order tested\nfilled: passed; dashed: chosen; dotted: loss seen"
    )
    assert risk.get_title(loc="left") == "Upper bound of answers that change, from 500 questions"
    (allowed,) = risk.texts
    assert (allowed.get_text(), allowed.xy, allowed.get_position()) == ("allowed: 1%", (0, 0.01), (4, 3))
    assert (allowed.xycoords, allowed.get_fontsize()) == (("axes fraction", "data"), 8.5)


def test_the_axes_of_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    risk, saved = drawn(monkeypatch, questions=1500, risk="grade")[0].axes
    ticks = saved.get_xticklabels()
    assert [one.get_text() for one in ticks] == ["0.999", "0.98", "0.9"]
    assert {(one.get_rotation(), one.get_fontsize()) for one in ticks} == {(60.0, 8.5)}
    assert saved.get_xticks().tolist() == [0, 1, 2]
    assert {axes.yaxis.get_major_formatter()(0.5, 0) for axes in (risk, saved)} == {"50%"}
    assert tuple(risk.figure.get_size_inches()) == (7.2, 5.4)
    assert risk.get_subplotspec().get_gridspec().get_geometry() == (2, 1)
    assert risk.get_shared_x_axes().joined(risk, saved)
    assert risk.get_title(loc="left") == "Upper bound of Grade lost a question, from 1,500 questions"


@pytest.mark.parametrize(
    ("epsilon", "bounds", "losses", "limits"),
    [
        (0.01, [0.006, 0.5], [0.0, 0.1], (0, 0.04)),
        (0.01, [0.1, 0.5], [0.0, 0.1], (0, 0.13)),
        (0.01, [0.5, 0.1], [0.2, -0.3], (-0.3, 0.13)),
        (0.5, [0.1, 0.2], [0.2, 0.1], (0, 2.0)),
    ],
)
def test_the_axis_of_risks_ends_beyond_the_allowed_one(
    monkeypatch: pytest.MonkeyPatch, epsilon: float, bounds: list[float], losses: list[float], limits: tuple[float, float]
) -> None:
    steps = tuple(SequenceStep(0.9 - n / 10, loss, 0.1, False, 0.1, bound)
                  for n, (loss, bound) in enumerate(zip(losses, bounds, strict=True)))  # fmt: skip
    risk, _ = drawn(monkeypatch, sequence=steps, epsilon=epsilon)[0].axes
    assert risk.get_ylim() == pytest.approx(limits)
