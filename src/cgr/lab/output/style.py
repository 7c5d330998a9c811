"""How figures look: a palette that colour-blind readers can tell apart, labels on the lines, nothing else on the paper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Okabe and Ito's colours, each with one meaning in every figure.
BLUE, ORANGE, GREEN, RED, SKY, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#6b6b6b"
RIGHT, WRONG, RULE, BASELINE, SAVED, PROBES = BLUE, RED, GREEN, GREY, "#b5dfd0", ORANGE
LINES = (BLUE, RED, GREEN, "#CC79A7", ORANGE, SKY, "#222222")
INK, FAINT = "#222222", "#e4e4e4"
SCALE = "cividis"
SIZE = (7.2, 4.2)

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#9a9a9a",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "lines.linewidth": 2,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.dpi": 150,
    "svg.hashsalt": "cgr",
}


@contextmanager
def styled() -> Iterator[None]:
    """The style for a while: whoever uses matplotlib for something else keeps theirs."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


def paper(rows: int = 1, columns: int = 1, size: tuple[float, float] = SIZE, **options: Any) -> tuple[Any, Any]:
    """A figure and its axes, without any global state or window."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def shades(count: int) -> list[Any]:
    """From light to dark, for things that have an order."""
    import matplotlib

    scale = matplotlib.colormaps["cividis_r"]
    return [scale(0.25 + 0.75 * place / max(count - 1, 1)) for place in range(count)]


def tokens(value: float, _: object = None) -> str:
    """12k rather than 12000, 3.2M rather than 3,200,000."""
    if abs(value) >= 999_500:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1e3:.3g}k" if abs(value) >= 1000 else f"{value:.0f}"


def percent(value: float, _: object = None) -> str:
    return f"{100 * value:.3g}%"


def token_axis(axis: Any, label: str) -> None:
    axis.set_major_formatter(tokens)
    axis.set_label_text(label)


def label(axes: Any, x: float, y: float, text: str, colour: Any, *, dx: float = 5, dy: float = 0, **options: Any) -> None:
    """Words beside a point, in the colour of what they name. The point's place counts, not the words' width."""
    defaults = {"ha": "left", "va": "center", "fontsize": 9.5, "fontweight": "bold"}
    axes.annotate(
        text,
        (x, y),
        xytext=(dx, dy),
        textcoords="offset points",
        color=colour,
        annotation_clip=False,
        **(defaults | options),
    )


def end_labels(axes: Any, ends: list[tuple[float, float, str, Any]]) -> None:
    """Labels at the ends of lines, moved apart as little as will do where lines end together."""
    low, high = axes.get_ylim()
    height = axes.figure.get_size_inches()[1] * axes.get_position().height * 72
    ends = sorted(ends, key=lambda end: end[1])
    places = spread_out([y for _, y, _, _ in ends], gap=13 * (high - low) / height)
    for (x, y, text, colour), place in zip(ends, places, strict=True):
        label(axes, x, y, text, colour, dx=7, dy=(place - y) / (high - low) * height)


def spread_out(values: list[float], gap: float) -> list[float]:
    """Rising values at least a gap apart, each crowd kept around its own middle."""
    crowds: list[list[float]] = []  # of values less the room below them: equal ones just touch
    for place, value in enumerate(values):
        crowds.append([value - place * gap])
        while len(crowds) > 1 and _middle(crowds[-2]) > _middle(crowds[-1]):
            crowds[-2:] = [crowds[-2] + crowds[-1]]
    flat = [_middle(crowd) for crowd in crowds for _ in crowd]
    return [value + place * gap for place, value in enumerate(flat)]


def _middle(values: list[float]) -> float:
    return sum(values) / len(values)
