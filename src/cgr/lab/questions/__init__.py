"""Questions from named public data sets, local files, or the generator of arithmetic problems.

A source is `aime2025` (a name), `arithmetic` (problems generated from a seed), `my.jsonl` (a file), or `gpqa:my.csv` (a
local copy of a named data set).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from cgr.errors import UnknownName, UsageError
from cgr.lab.questions import aime2024, aime2025, amc23, arithmetic, files, gpqa, gsm8k, math500, reading
from cgr.lab.questions.source import FieldNames, Source, SourceRow
from cgr.records import AnswerFormat, Question

SOURCES = {module.SOURCE.name: module.SOURCE for module in (aime2025, aime2024, amc23, math500, gsm8k, gpqa)}
MAX_QUESTIONS = 1_000_000  # all of them are in memory, and arithmetic has no end
NAMES = (*SOURCES, arithmetic.NAME)


def load_questions(
    source: str,
    *,
    limit: int | None = None,
    fields: Mapping[str, str] = {},
    seed: int = 0,
    format: AnswerFormat | None = None,
    allow_missing_golds: bool = False,
) -> tuple[Question, ...]:
    """The questions of a source, in its order; with `limit`, only the first ones.

    `fields` names the fields of a local file: `{"text": ..., "gold": ..., "id": ..., "format": ...}`, each optional.
    `seed` generates the arithmetic problems and shuffles the choices of GPQA. Every row is checked, also beyond the limit.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"A limit of {limit} leaves no questions.", "Use 1 or more.")
    if limit is not None and limit > MAX_QUESTIONS:
        raise UsageError(f"A limit of {limit} is too large.", f"Use at most {MAX_QUESTIONS}.")
    name, colon, path = source.partition(":")
    if (fields or format) and name in NAMES:
        raise UsageError(
            f"The fields and the format of {name} cannot be changed.", "Leave them out; they apply only to your own files."
        )
    if source == arithmetic.NAME:
        return arithmetic.make(limit, seed)
    if name in SOURCES:
        known = SOURCES[name]
        rows = files.read(Path(path).expanduser()) if colon else known.fetch()
        return named_questions(known, rows, seed, local=bool(colon))[:limit]
    if not files.looks_like_a_path(source):
        raise UnknownName.among("question source", source, (*NAMES, *(f"FILE{kind}" for kind in files.READERS)))
    rows = files.read(Path(source).expanduser())
    found = reading.find_fields(rows, fields)
    return reading.to_questions(rows, found, Path(source).stem, format, allow_missing_golds)[:limit]


def named_questions(source: Source, rows: Sequence[SourceRow], seed: int = 0, local: bool = False) -> tuple[Question, ...]:
    """The rows of a named data set as questions. In a `local` copy, fields with other names are guessed."""
    prepared = [source.prepare(row, seed) for row in rows] if source.prepare else rows
    fields = source.fields
    if local:
        columns = reading.columns_of(prepared)
        fields = reading.find_fields(prepared, {role: name for role, name in asdict(fields).items() if name in columns})
    questions = reading.to_questions(prepared, fields, source.name, source.format, allow_missing=False)
    if questions[0].gold is None:
        raise prepared[0].error("there is no gold answer.", f"Check that this is {source.name}.")
    return questions


__all__ = ["NAMES", "SOURCES", "FieldNames", "Question", "Source", "SourceRow", "load_questions", "named_questions"]
