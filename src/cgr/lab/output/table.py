"""A table, and how it is written: CSV with every digit, Markdown, and LaTeX (booktabs)."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from cgr.lab.types import Interval

Cell = str | int | float | Interval | None
NOTHING = "–"
MINUS = "−"


@dataclass(frozen=True, slots=True)
class Head:
    """A column: its name in the CSV, its heading, and how its numbers are written. `scale` turns fractions into percent."""

    name: str
    label: str
    style: str = ""
    scale: float = 1
    unit: str = ""

    def text(self, cell: Cell) -> str:
        if cell is None:
            return NOTHING
        if isinstance(cell, str):
            return cell
        if isinstance(cell, tuple):
            return f"[{', '.join(self._number(end) for end in cell)}]"
        return self._number(cell) + self.unit

    def _number(self, value: float) -> str:
        written = format(value * self.scale if self.scale != 1 else value, self.style)
        plain = written.lstrip("+-")
        if not plain.strip("0.,"):  # neither +0.00 nor -0.00
            return plain
        return written.replace("-", MINUS)


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    caption: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([name for head in self.heads for name in _csv_names(head, self._has_ends(head))])
        for row in self.rows:
            pairs = zip(self.heads, row, strict=True)
            writer.writerow([value for head, cell in pairs for value in _csv_cells(cell, self._has_ends(head))])
        return out.getvalue()

    def _has_ends(self, head: Head) -> bool:
        return head.name.startswith("ci95")

    def markdown(self) -> str:
        align = ["---" if number == 0 else "---:" for number in range(len(self.heads))]
        lines = [[head.label for head in self.heads], align, *self._texts()]
        body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"**{self.caption}**\n\n{body}\n"

    def latex(self) -> str:
        rows = "\n".join(" & ".join(map(_tex, row)) + r" \\" for row in self._texts())
        heads = " & ".join(_tex(head.label) for head in self.heads)
        return (
            "\\begin{table}[th]\n\\centering\n"
            f"\\caption{{{_tex(self.caption)}}}\n\\label{{tab:{self.name.replace('_', '-')}}}\n"
            f"\\begin{{tabular}}{{l{'r' * (len(self.heads) - 1)}}}\n\\toprule\n{heads} \\\\\n\\midrule\n{rows}\n"
            "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
        )

    def _texts(self) -> list[list[str]]:
        return [[head.text(cell) for head, cell in zip(self.heads, row, strict=True)] for row in self.rows]


def _csv_names(head: Head, ends: bool) -> tuple[str, ...]:
    return (f"{head.name}_low", f"{head.name}_high") if ends else (head.name,)


def _csv_cells(cell: Cell, ends: bool) -> tuple[str | float | None, ...]:
    if ends:
        return cell if isinstance(cell, tuple) else (None, None)
    return (None,) if cell is None or isinstance(cell, tuple) else (cell,)


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", MINUS: "$-$", NOTHING: "--"}
_TEX |= {char: f"\\{char}" for char in "&%$#_{}"} | {"θ": r"$\theta$", "Δ": r"$\Delta$", "±": r"$\pm$"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(char, char) for char in text)


def write_table(table: Table, folder: Path) -> tuple[Path, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    written = {"csv": table.csv(), "md": table.markdown(), "tex": table.latex()}
    paths = []
    for ending, text in written.items():
        path = folder / f"{table.name}.{ending}"
        path.write_text(text, encoding="utf-8", newline="\n")
        paths.append(path)
    return tuple(paths)
