"""Types of a question source: a raw row, the names of its fields, and a named data set on the Hugging Face hub."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cgr.engines.hub import http_errors, hub_access
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

    def fetch(self) -> tuple[SourceRow, ...]:
        """Every row, from the Hugging Face hub or its local cache, read with the `datasets` library."""
        try:
            datasets = importlib.import_module("datasets")
        except ImportError as error:
            raise UsageError(
                "Questions from the hub need the package datasets.",
                f"pip install 'certainty-guided-reasoning[hub]', or give a local copy: {self.name}:FILE.",
            ) from error
        online = True
        try:
            with hub_access() as online:
                rows = datasets.load_dataset(self.repo, self.config, split=self.split)
        except (datasets.exceptions.DatasetsError, OSError, ValueError, *http_errors()) as error:
            reason = str(error).split("\n", maxsplit=1)[0].rstrip(".")
            reason = reason if online else "it cannot be reached, and there is no copy in its cache"
            raise UsageError(
                f"The data set {self.repo} cannot be loaded from the hub: {reason}.",
                "Check the connection. If the set has terms, accept them on its page and log in with `hf auth login`. "
                f"Or give a local copy: {self.name}:FILE.",
            ) from error
        if not len(rows):
            raise UsageError(f"The data set {self.repo} holds no questions.", f"Give a local copy: {self.name}:FILE.")
        return tuple(SourceRow(f"{self.name}, row {number}", values) for number, values in enumerate(rows, start=1))
