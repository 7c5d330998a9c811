"""What report, compare and ablate share: tables (CSV, Markdown, LaTeX, terminal), JSON files, and where output goes.

The style of figures is in `style`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from cgr.files import write_text
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


PERCENT = Head("share", "", ".1f", 100, "%")  # a share or its interval in a sentence


def with_interval(name: str, label: str, style: str = "", scale: float = 1, unit: str = "") -> tuple[Head, Head]:
    """The column of a number, and beside it that of its interval, which is called `ci95_` and the name."""
    return Head(name, label, style, scale, unit), Head(f"ci95_{name}", "95% interval", style, scale)


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
    def of_records(cls, name: str, caption: str, heads: tuple[Head, ...], records: Iterable[object]) -> Table:
        """A table whose cells are the attributes of `records`, named as the heads are. A record may be a tuple of several
        records, each with some of the attributes; if the last is None, its cells are empty."""
        return cls(name, caption, heads, tuple(tuple(_attribute(one, head.name) for head in heads) for one in records))

    def texts(self) -> list[list[str]]:
        """The rows as text, without the headings. A line break in a cell is shown as `\\n`: a row stays one line."""
        return [[_one_line(head.text(cell)) for head, cell in zip(self.heads, row, strict=True)] for row in self.rows]

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


def _attribute(record: object, name: str) -> Any:
    parts = record if isinstance(record, tuple) else (record,)
    part = next((part for part in parts if hasattr(part, name)), parts[-1])
    return None if part is None else getattr(part, name)


def _csv_names(head: Head) -> tuple[str, ...]:
    return (f"{head.name}_low", f"{head.name}_high") if head.name.startswith("ci95") else (head.name,)


def _csv_cells(head: Head, cell: Cell) -> tuple[Cell, ...]:
    if cell is None:
        return (None,) * len(_csv_names(head))
    return cell if isinstance(cell, tuple) else (cell,)


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", MINUS: "$-$", NO_VALUE: "--"}
_TEX |= {char: f"\\{char}" for char in "&%$#_{}"} | {"θ": r"$\theta$", "Δ": r"$\Delta$", "±": r"$\pm$"}


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n")


def _tex(text: str) -> str:
    return "".join(_TEX.get(char, char) for char in text)


def write_table(table: Table, folder: Path) -> tuple[Path, ...]:
    """Write the table as CSV, Markdown and LaTeX into `folder`; the paths."""
    written = {"csv": table.csv(), "md": table.markdown(), "tex": table.latex()}
    paths = tuple(folder / f"{table.name}.{ending}" for ending in written)
    for path, text in zip(paths, written.values(), strict=True):
        write_text(path, text)
    return paths


def beside(runs: Sequence[Path], name: str) -> Path:
    """The output folder `name`: inside a run, beside a file of traces, or beside the first of several runs."""
    first = runs[0]
    if len(runs) > 1:
        return first.parent / name
    return first / name if first.is_dir() else first.with_name(f"{Path(first.name.removesuffix('.gz')).stem}-{name}")


def unique_names(names: Sequence[str]) -> list[str]:
    """The same names, with a number added to each that occurs again (`six`, `six-2`)."""
    unique: list[str] = []
    for name in names:
        unique.append(next(one for n in count(1) if (one := name if n == 1 else f"{name}-{n}") not in unique))
    return unique


def as_json(results: Sequence[Any]) -> dict[str, Any]:
    """The content of a JSON file about runs: the only result, or a list of several."""
    data = [one.to_dict() for one in results]
    return data[0] if len(data) == 1 else {"schema": results[0].schema, "runs": data}


def write_json(path: Path, data: object) -> None:
    """Write `data` as indented JSON; the folder is created if needed. NaN is an error."""
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
