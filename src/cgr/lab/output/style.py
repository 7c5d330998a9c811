"""The style of figures (colours that colour-blind readers can tell apart, labels at the lines), and how they are saved."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

from cgr.files import draft, write_text

FORMATS = ("png", "svg")
LIST = "figures.md"
# Okabe and Ito's colours; each has the same meaning in every figure.
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
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}


def styled() -> AbstractContextManager[None]:
    """Apply the style inside a `with` block; matplotlib's global settings stay as they were."""
    import matplotlib

    return matplotlib.rc_context(STYLE)


def paper(rows: int = 1, columns: int = 1, size: tuple[float, float] = SIZE, **options: Any) -> tuple[Any, Any]:
    """A new figure and its axes, without global state or a window."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


@dataclass(frozen=True, slots=True)
class SavedFigure:
    """One figure: its files, or the reason why it was left out."""

    name: str
    caption: str
    files: tuple[Path, ...] = ()
    why_not: str = ""


def write(name: str, caption: str, draw: Callable[[], Any], folder: Path, why_not: str = "") -> SavedFigure:
    """Draw a figure and write it; if there is a reason why not, delete the files of an earlier one."""
    if why_not:
        remove(name, folder)
        return SavedFigure(name, caption, why_not=why_not)
    with styled():
        return SavedFigure(name, caption, save(draw(), name, folder))


def save(figure: Any, name: str, folder: Path) -> tuple[Path, ...]:
    """Write a figure as PNG and SVG. The same figure gives the same bytes: no date is written into the files."""
    paths = tuple(folder / f"{name}.{ending}" for ending in FORMATS)
    for path, metadata in zip(paths, ({"Software": None}, {"Date": None, "Creator": None}), strict=True):
        with draft(path) as place, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph", UserWarning)  # a character that the font lacks is drawn as a box
            figure.savefig(place, metadata=metadata)
        figure.set_layout_engine("none")  # the layout is computed once, for the first file
    return paths


def remove(name: str, folder: Path) -> None:
    """Delete the files of a figure that an earlier report may have written."""
    for ending in FORMATS:
        (folder / f"{name}.{ending}").unlink(missing_ok=True)


def write_list(figures: Sequence[SavedFigure], folder: Path) -> None:
    """Write `figures.md`: every figure with its caption, or why it was left out."""
    lines = [f"- `{one.name}`: {one.caption}" + (f" **Left out: {one.why_not}**" * bool(one.why_not)) for one in figures]
    write_text(folder / LIST, "\n".join(("# Figures", "", *lines, "")))


def shades(count: int) -> list[Any]:
    """`count` colours from light to dark, for ordered series."""
    import matplotlib

    scale = matplotlib.colormaps["cividis_r"]
    return [scale(0.25 + 0.75 * place / max(count - 1, 1)) for place in range(count)]


def tokens(value: float, _: object = None) -> str:
    """A short token count: 12k for 12000, 3.2M for 3,200,000. (The second argument is the position, from matplotlib.)"""
    if abs(value) >= 999_500:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1e3:.3g}k" if abs(value) >= 1000 else f"{value:.0f}"


def percent(value: float, _: object = None) -> str:
    """A fraction as a percentage with at most four digits, so that ticks of 2.5% are in equal steps."""
    return f"{100 * value:.4g}%".replace("-", "−")


def token_axis(axis: Any, label: str) -> None:
    """Give an axis whole token counts, all in the same unit, and a label."""
    axis.set_major_formatter(lambda value, _: tick(value, max(map(abs, axis.get_view_interval()))))
    axis.get_major_locator().set_params(integer=True)
    axis.set_label_text(label)


def tick(value: float, most: float) -> str:
    """A token count on an axis that ends at `most`: 12.5k of 20k, 1,250 of 5,000."""
    unit, name = (1e6, "M") if most >= 1e6 else (1e3, "k") if most >= 1e4 else (1, "")
    return f"{value / unit:,.6g}{name if value else ''}".replace("-", "−")


def title(axes: Any, text: str) -> None:
    """Give axes a title in as many lines as it needs to stay inside the figure."""
    axes.set_title(_lines(text, axes.figure.get_size_inches()[0] - 0.9))


def whole_title(figure: Any, text: str) -> None:
    """Give a figure a title at its left edge, in as many lines as it needs. For figures with long tick labels."""
    text = _lines(text, figure.get_size_inches()[0] - 0.2)
    figure.suptitle(text, x=0.01, ha="left", fontweight="bold", fontsize=STYLE["axes.titlesize"])


def _lines(text: str, inches: float) -> str:
    """The text in lines that are at most this wide; a bold letter is about 0.6 times as wide as the font is high."""
    return fill(text, int(inches * 72 / (STYLE["axes.titlesize"] * 0.6)))


def label(axes: Any, x: float, y: float, text: str, colour: Any, *, dx: float = 5, dy: float = 0, **options: Any) -> None:
    """Write `text` beside the point (x, y), moved by (dx, dy) printer's points, with a white edge over lines."""
    from matplotlib.patheffects import withStroke

    defaults = {"ha": "left", "va": "center", "fontsize": 9.5, "fontweight": "bold"}
    offset = {"xytext": (dx, dy), "textcoords": "offset points", "annotation_clip": False}
    written = axes.annotate(text, (x, y), color=colour, **offset, **(defaults | options))
    written.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


def beside_axis(axes: Any, x: float, y: float, text: str, offset: tuple[float, float], **options: Any) -> None:
    """Write `text` at the height `y` of the data and at the share `x` of the width, moved by `offset` printer's points."""
    axes.annotate(text, (x, y), offset, ("axes fraction", "data"), "offset points", **options)


def end_labels(axes: Any, ends: list[tuple[float, float, str, Any]]) -> None:
    """Labels (x, y, text, colour) at the ends of lines; labels that would overlap are moved apart."""
    low, high = axes.get_ylim()
    height = axes.figure.get_size_inches()[1] * axes.get_position().height * 72
    ends = sorted(ends, key=lambda end: end[1])
    places = spread_out([y for _, y, _, _ in ends], gap=13 * (high - low) / height)
    for (x, y, text, colour), place in zip(ends, places, strict=True):
        label(axes, x, y, text, colour, dx=7, dy=(place - y) / (high - low) * height)


def spread_out(values: list[float], gap: float) -> list[float]:
    """Move sorted values so that neighbours are at least `gap` apart; each group keeps its mean."""
    groups: list[list[float]] = []  # values minus the space below them: equal values just touch
    for place, value in enumerate(values):
        groups.append([value - place * gap])
        while len(groups) > 1 and fmean(groups[-2]) > fmean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    flat = [fmean(group) for group in groups for _ in group]
    return [value + place * gap for place, value in enumerate(flat)]
