"""The results as one figure: ratios compared with their limits, growth of costs, tokens per second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.rows import Results, Row
from cgr.lab.output.style import BLUE, GREEN, GREY, ORANGE, RED, paper, styled

MAX_SHARE = 2.0
PLACES = (200, 500, 1000, 2000, 4000)
SPEED = "tokens per second, "


def draw(results: Results, path: Path) -> None:
    """Write the figure to this path."""
    held = [row for row in results.in_order() if row.hold]
    with styled():
        figure, axes = paper(2, 2, (16, max(8, 0.36 * len(held) + 1)), width_ratios=(1.5, 1))
        for one in axes[:, 0]:
            one.remove()
        _ratios(figure.add_subplot(axes[0, 0].get_gridspec()[:, 0]), held)
        _growth(axes[0, 1], results.curves)
        _speeds(axes[1, 1], {name: found for name, found in results.curves.items() if name.startswith(SPEED)})
        figure.savefig(path)


def _ratios(axes: Any, rows: list[Row]) -> None:
    """Each value as a share of its limit: a bar that stays left of the line meets the limit."""
    for place, row in enumerate(reversed(rows)):
        share = row.value / row.hold if row.sense == "at most" else row.hold / row.value  # type: ignore[operator]
        axes.barh(place, min(share, MAX_SHARE), color=GREEN if row.held else RED, height=0.22)
        axes.text(0, place + 0.18, f"{row.engine}: {row.what}", va="bottom", fontsize=7.5)
        axes.text(MAX_SHARE, place, f"{row.value:.3g} ({row.sense} {row.hold:g})", va="center", ha="right", fontsize=7.5)
    axes.axvline(1, color=GREY)
    axes.set_yticks([])
    axes.set_xlim(0, MAX_SHARE)
    axes.set_ylim(-0.5, len(rows))
    axes.set_title("Measured value as a share of its limit")


def _growth(axes: Any, curves: dict[str, list[dict[str, float]]]) -> None:
    for name, points in curves.items():
        if not name.endswith(("a probe", "reading again")):
            continue
        colour = BLUE if name.endswith("a probe") else ORANGE
        style = "-" if "SmolLM2" in name else "--"
        places, seconds = [one["at"] for one in points], [one["seconds"] for one in points]
        axes.plot(places, seconds, style, color=colour, marker="o", markersize=4)
        axes.annotate(name, (places[-1], seconds[-1]), fontsize=7.5, ha="right", va="bottom")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(PLACES, [f"{place:,}" for place in PLACES])
    axes.yaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    axes.minorticks_off()
    axes.set_xlabel("thinking tokens before the probe")
    axes.set_ylabel("seconds")
    axes.set_title("Cost of a probe, and of reading everything again")


def _speeds(axes: Any, engines: dict[str, list[dict[str, float]]]) -> None:
    labels: list[str] = []
    for name, found in engines.items():
        for one in found:
            place = len(labels)
            axes.barh(place + 0.2, one["bare"], 0.38, color=GREY)
            axes.barh(place - 0.2, one["tokens_per_second"], 0.38, color=GREEN)
            axes.text(one["tokens_per_second"], place - 0.2, f" {one['ratio']:.2f}", va="center", fontsize=8)
            labels.append(f"{name.removeprefix(SPEED)}, {one['sessions']:.0f}")
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("by engine and number of sessions; grey: bare loop")
    axes.set_title("Tokens per second")
    axes.margins(x=0.12)
