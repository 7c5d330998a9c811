"""Types of a question source: a raw row, the names of its fields, and a named data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cgr.errors import UsageError
from cgr.records import AnswerFormat


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One raw row. `where` ("file.jsonl, line 3") is part of every error message about it."""

    where: str
    values: Mapping[str, Any]

    def error(self, message: str, hint: str) -> UsageError:
        """An error about this row."""
        return UsageError(f"{self.where}: {message}", hint)


@dataclass(frozen=True, slots=True)
class FieldNames:
    """The names of the fields for the text, gold answer, id and format. Without an id field, rows are numbered."""

    text: str
    gold: str | None = None
    id: str | None = None
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A named data set on the hub. `prepare(row, seed)`, if given, turns a raw row into one with the named fields.

    `size`: the number of its questions, for forecasts; None if unknown.
    """

    name: str
    repo: str
    format: AnswerFormat
    fields: FieldNames = FieldNames("problem", "answer", "id")
    split: str = "test"
    size: int | None = None
    config: str | None = None
    prepare: Callable[[SourceRow, int], SourceRow] | None = None
