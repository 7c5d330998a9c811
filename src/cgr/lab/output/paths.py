"""Where output goes, and how JSON files are written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path


def beside(runs: Sequence[Path], name: str) -> Path:
    """The output folder `name`: inside a run, beside a file of traces, or beside the first of several runs."""
    first = runs[0]
    if len(runs) > 1:
        return first.parent / name
    return first / name if first.is_dir() else first.with_name(f"{first.stem}-{name}")


def unique_names(names: Sequence[str]) -> list[str]:
    """The same names, with a number added to each that occurs again (`six`, `six-2`)."""
    unique: list[str] = []
    for name in names:
        unique.append(next(one for n in count(1) if (one := name if n == 1 else f"{name}-{n}") not in unique))
    return unique


def write_json(path: Path, data: object) -> None:
    """Write `data` as indented JSON; the folder is created if needed. NaN is an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
