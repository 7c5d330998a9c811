"""A calibration in words, as a table, and as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cgr.calibration import Calibration, percent, sentence
from cgr.lab.output import Head, Table, style
from cgr.lab.score.adaptive import FalseSureRow, prospect_sentences

CAPTION = "The upper bound of the risk, and the thinking saved net of probes, at each value of the sequence."
NOUNS = {
    "disagreement": "answers that change",
    "lost": "answers that turn from right to wrong",
    "wrong": "wrong answers among those given",
    "grade": "Grade lost a question",
}


def prospects(found: Calibration) -> list[str]:
    """Head room and false sureness in words: what there is to save, and whether certainty can be trusted."""
    return list(prospect_sentences(found.headroom, FalseSureRow(**found.false_sure), found.verdict))


def outcome(found: Calibration) -> list[str]:
    """The promise and what it rests on; or why there is none, what is needed, and what can be promised instead."""
    if found.parameter is None:
        return [_why_not(found), *_instead(found)]
    losses = f"{found.losses:.4g} {'loss' if found.losses == 1 else 'losses'} in {found.questions:,} questions"
    bound = f"the bound is {percent(found.bound or 0.0)} ({found.kind})"
    if found.method == "crc":
        bound = f"the bound of the mean is {percent(found.bound or 0.0)}; it has no confidence"
    chosen = f"Rule {found.rule} with {found.main} {found.parameter:g}: {losses}; {bound}."
    nothing = ["Nothing is saved at this value: a promise without a use."] if (found.saved_share or 0) <= 0 else []
    return [sentence(found), chosen, *nothing]


def _why_not(found: Calibration) -> str:
    how = f"with {percent(1 - found.delta)} confidence" if found.delta is not None else "by conformal risk control"
    size = f"{found.questions:,} questions"
    return f"Nothing can be promised: {size} do not show, {how}, a loss of at most {percent(found.epsilon)}."


def _instead(found: Calibration) -> list[str]:
    if found.needed_questions is not None:
        first = f"About {found.needed_questions:,} questions are needed at the rate seen."
    else:
        useful = next((step for step in found.sequence if step.saved_share > 0), found.sequence[0])
        first = (
            f"More questions will not help at the rate seen: {found.main} {useful.parameter:g}, the most cautious value "
            f"that saves anything, has a loss of {percent(useful.loss)}."
        )
    possible = found.possible_epsilon or 1.0
    return [first, f"These questions can promise {percent(possible)}, and no better."] if possible < 1 else [first]


def table(found: Calibration) -> Table:
    """The sequence."""
    heads = (
        Head("parameter", found.main, "g"),
        Head("loss", "Loss", ".2f", 100, "%"),
        Head("bound", "Bound", ".2f", 100, "%"),
        Head("p_value", "p", ".2g"),
        Head("passed", "Passed"),
        Head("saved_share", "Saved net", ".1f", 100, "%"),
    )
    rows = tuple(
        (step.parameter, step.loss, step.bound, step.p_value, "yes" if step.passed else "no", step.saved_share)
        for step in found.sequence
    )
    what = f"{NOUNS[found.risk].capitalize()}, at most {percent(found.epsilon)}"
    return Table("calibration", what, heads, rows)


def draw(found: Calibration, path: Path) -> style.SavedFigure:
    """Write the figure beside the file of the calibration."""
    return style.write(path.stem, CAPTION, lambda: _figure(found), path.parent)


def _figure(found: Calibration) -> Any:
    figure, (risk, saved) = style.paper(2, 1, (7.2, 5.4), sharex=True)
    places = range(len(found.sequence))
    values = [f"{step.parameter:g}" for step in found.sequence]
    passed = [step.passed for step in found.sequence]
    chosen = [place for place in places if found.sequence[place].parameter == found.parameter]
    for axes, heights, colour in (
        (risk, [step.bound for step in found.sequence], style.RED),
        (saved, [step.saved_share for step in found.sequence], style.GREEN),
    ):
        axes.plot(places, heights, color=colour, linewidth=1.6)
        for place, height, ok in zip(places, heights, passed, strict=True):
            axes.plot(place, height, "o", color=colour, markerfacecolor=colour if ok else "white", markersize=5)
        axes.yaxis.set_major_formatter(style.percent)
        for place in chosen:
            axes.axvline(place, color=style.INK, linewidth=1, linestyle="--")
    risk.plot(places, [step.loss for step in found.sequence], color=style.BASELINE, linewidth=1, linestyle=":")
    risk.axhline(found.epsilon, color=style.INK, linewidth=0.8)
    style.beside_axis(risk, 0, found.epsilon, f"allowed: {percent(found.epsilon)}", (4, 3), fontsize=8.5)
    risk.set_ylim(min(0, *(step.loss for step in found.sequence)), _top(found))
    risk.set_ylabel("Risk")
    saved.set_ylabel("Saved, net of probes")
    saved.set_xticks(places, values, rotation=60, fontsize=8.5)
    key = "filled: passed; dashed: chosen; dotted: loss seen"
    saved.set_xlabel(f"{found.main} of {found.rule}, in the order tested\n{key}")
    style.title(risk, f"Upper bound of {NOUNS[found.risk]}, from {found.questions:,} questions")
    return figure


def _top(found: Calibration) -> float:
    """The end of the axis of risks: beyond the allowed one, and not so far that it cannot be seen."""
    return max(4 * found.epsilon, 1.3 * min(step.bound for step in found.sequence))
