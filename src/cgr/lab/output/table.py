"""A table as CSV (all digits), Markdown, LaTeX (booktabs) and lines for a terminal."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from cgr.lab.types import Interval

Cell = str | int | float | Interval | None
NO_VALUE = "–"
MINUS = "−"
GAP = "  "  # between the columns of a terminal table


@dataclass(frozen=True, slots=True)
class Head:
    """One column: its name in the CSV, its heading, and how its numbers are formatted (`scale` 100 gives percent)."""

    name: str
    label: str
    style: str = ""
    scale: float = 1
    unit: str = ""

    def text(self, cell: Cell) -> str:
        """A cell as text: intervals in brackets, a dash for None."""
        if cell is None:
            return NO_VALUE
        if isinstance(cell, str):
            return cell
        if isinstance(cell, tuple):
            return f"[{', '.join(self._number(end) for end in cell)}]"
        return self._number(cell) + self.unit

    def _number(self, value: float) -> str:
        return signed(format(value * self.scale if self.scale != 1 else value, self.style))


def signed(text: str) -> str:
    """A formatted number with a typographic minus; zero has no sign (neither +0.00 nor -0.00)."""
    digits = text.lstrip("+-")
    return text.replace("-", MINUS) if digits.strip("0.,") else digits


def plural(count: int, noun: str) -> str:
    """`1 trace`, `1,200 traces`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


@dataclass(frozen=True, slots=True)
class Table:
    """A named table with a caption; each row has one cell for each head."""

    name: str
    caption: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @classmethod
    def of_records(cls, name: str, caption: str, heads: tuple[Head, ...], records: tuple[object, ...]) -> Table:
        """A table whose cells are the attributes of `records`, named as the heads are."""
        return cls(name, caption, heads, tuple(tuple(getattr(one, head.name) for head in heads) for one in records))

    def texts(self) -> list[list[str]]:
        """The rows as text, without the headings."""
        return [[head.text(cell) for head, cell in zip(self.heads, row, strict=True)] for row in self.rows]

    def csv(self) -> str:
        """CSV with unrounded numbers; an interval takes two columns, `_low` and `_high`."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([name for head in self.heads for name in _csv_names(head)])
        for row in self.rows:
            writer.writerow([value for head, cell in zip(self.heads, row, strict=True) for value in _csv_cells(head, cell)])
        return out.getvalue()

    def markdown(self) -> str:
        """A Markdown table under its caption."""
        align = ["---" if number == 0 else "---:" for number in range(len(self.heads))]
        lines = [[head.label for head in self.heads], align, *self.texts()]
        body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"**{self.caption}**\n\n{body}\n"

    def latex(self) -> str:
        """A LaTeX table with booktabs rules."""
        rows = "\n".join(" & ".join(map(_tex, row)) + r" \\" for row in self.texts())
        heads = " & ".join(_tex(head.label) for head in self.heads)
        return (
            "\\begin{table}[th]\n\\centering\n"
            f"\\caption{{{_tex(self.caption)}}}\n\\label{{tab:{self.name.replace('_', '-')}}}\n"
            f"\\begin{{tabular}}{{l{'r' * (len(self.heads) - 1)}}}\n\\toprule\n{heads} \\\\\n\\midrule\n{rows}\n"
            "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
        )

    def lines(self, *, left: int = 1) -> list[str]:
        """Padded lines for a terminal, headings first; the first `left` columns are left-aligned, the others right."""
        texts = [[head.label for head in self.heads], *self.texts()]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        return [GAP.join(_padded(row, widths, left)).rstrip() for row in texts]


def _padded(row: list[str], widths: list[int], left: int) -> list[str]:
    pairs = zip(row, widths, strict=True)
    return [cell.ljust(width) if place < left else cell.rjust(width) for place, (cell, width) in enumerate(pairs)]


def _is_interval(head: Head) -> bool:
    return head.name.startswith("ci95")


def _csv_names(head: Head) -> tuple[str, ...]:
    return (f"{head.name}_low", f"{head.name}_high") if _is_interval(head) else (head.name,)


def _csv_cells(head: Head, cell: Cell) -> tuple[str | float | None, ...]:
    if _is_interval(head):
        return cell if isinstance(cell, tuple) else (None, None)
    return (None,) if cell is None or isinstance(cell, tuple) else (cell,)


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", MINUS: "$-$", NO_VALUE: "--"}
_TEX |= {char: f"\\{char}" for char in "&%$#_{}"} | {"θ": r"$\theta$", "Δ": r"$\Delta$", "±": r"$\pm$"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(char, char) for char in text)


def write_table(table: Table, folder: Path) -> tuple[Path, ...]:
    """Write the table as CSV, Markdown and LaTeX into `folder`; the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {"csv": table.csv(), "md": table.markdown(), "tex": table.latex()}
    paths = tuple(folder / f"{table.name}.{ending}" for ending in written)
    for path, text in zip(paths, written.values(), strict=True):
        path.write_text(text, encoding="utf-8", newline="\n")
    return paths
