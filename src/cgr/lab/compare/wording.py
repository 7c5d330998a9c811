"""Tables and JSON of a comparison in the words of what it measures: accuracy, or without gold answers agreement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cgr.lab.decide.columns import FINAL
from cgr.lab.output import Table
from cgr.lab.score.agreement import worded

NOT_SHOWN = ("unsolved",)  # columns that say nothing about agreement: every final answer agrees with itself


def worded_table(table: Table, reference: str) -> Table:
    """The table with its caption, its headings and the names of its columns in these words."""
    if reference != FINAL:
        return table
    kept = [place for place, head in enumerate(table.heads) if head.name not in NOT_SHOWN]
    heads = [replace(one, name=worded(one.name, FINAL), label=worded(one.label, FINAL)) for one in table.heads]
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    return replace(table, caption=worded(table.caption, FINAL), heads=tuple(heads[place] for place in kept), rows=rows)


def renamed(data: Any, word: str, other: str) -> Any:
    """JSON data in which one word in the names of fields is replaced by another."""
    if isinstance(data, dict):
        return {name.replace(word, other): renamed(value, word, other) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(renamed(value, word, other) for value in data)
    return data
