"""What a source of questions is made of: rows, the fields that matter in them, and where a named set lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cgr.errors import UsageError
from cgr.records import AnswerFormat


@dataclass(frozen=True, slots=True)
class Row:
    """One record as it was found; `where` ("file.jsonl, line 3") goes into every complaint about it."""

    where: str
    values: Mapping[str, Any]

    def refuse(self, what: str, hint: str) -> UsageError:
        return UsageError(f"{self.where}: {what}", hint)


@dataclass(frozen=True, slots=True)
class Fields:
    """Which field of a row says what. Without a field for the id, questions are numbered."""

    text: str
    gold: str | None = None
    id: str | None = None
    format: str | None = None


def as_is(row: Row, seed: int) -> Row:
    return row


@dataclass(frozen=True, slots=True)
class Source:
    """A named data set: its place on the hub, its fields, and what has to be done to a row before they can be read."""

    name: str
    repo: str
    split: str
    format: AnswerFormat
    fields: Fields
    config: str | None = None
    prepare: Callable[[Row, int], Row] = as_is
