"""Turns rows into questions: find the fields, read the cells, determine the answer format. Errors name the line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from cgr.errors import UnknownName, UsageError
from cgr.lab.grading import FORMATS, clean_gold
from cgr.lab.questions.source import FieldNames, SourceRow
from cgr.records import AnswerFormat, Question

GUESSES = {
    "text": ("problem", "question", "text", "prompt"),
    "gold": ("gold", "answer", "gold_answer", "final_answer", "expected_answer", "target", "solution"),
    "id": ("id", "question_id", "unique_id", "record_id"),
    "format": ("format", "answer_format"),
}
MAX_DIGITS = 400
BOX = "\\boxed{"
BETWEEN = re.compile(
    r"(?:[\s$,;~]|\\[,;! ]|\\[()]|\\q?quad|\\text\{\s*(?:and|or)\s*\}|\band\b|\bor\b)+"
)  # two boxes of one list
CHOICE = re.compile(r"[A-J]")  # golds of this form are choices if no format is given


@dataclass(frozen=True, slots=True)
class Draft:
    """A question whose answer format is not determined yet."""

    row: SourceRow
    id: str
    text: str
    gold: str | None
    format: AnswerFormat | None


def columns_of(rows: Iterable[SourceRow]) -> list[str]:
    """The names of all fields, in order of first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row.values))


def find_fields(rows: Sequence[SourceRow], named: Mapping[str, str]) -> FieldNames:
    """The fields in `named`; the others are guessed from the usual names."""
    columns = columns_of(rows)
    for role, column in named.items():
        if role not in GUESSES:
            raise UnknownName.among("question field", role, GUESSES)
        if column not in columns:
            raise UnknownName.among("field", column, columns)
    found = {role: named.get(role) or _guess(role, columns, rows) for role in GUESSES}
    text = found.pop("text")
    if text is None:
        raise UsageError(
            f"No field of {rows[0].where.split(',')[0]} looks like the text of a question.",
            f"Name it, as in text=FIELD. Its fields: {', '.join(columns)}.",
        )
    return FieldNames(text, **found)


def _guess(role: str, columns: Iterable[str], rows: Sequence[SourceRow]) -> str | None:
    by_name = {column.strip().lower().replace(" ", "_"): column for column in columns}
    for name in GUESSES[role]:
        column = by_name.get(name)
        if column is not None and any(_fits(role, row.values.get(column)) for row in rows):
            return column
    return None


def _fits(role: str, value: Any) -> bool:
    """Whether a value can have this role: in `problem: 7` the field holds a number, not the text of a problem."""
    if role == "text":
        return isinstance(value, str) and bool(value.strip())
    return value in FORMATS if role == "format" else value is not None


def to_questions(
    rows: Sequence[SourceRow], fields: FieldNames, name: str, format: AnswerFormat | None, allow_missing: bool
) -> tuple[Question, ...]:
    """Every row as a question. `format` overrides the rows' own formats; without either, it is guessed from the golds."""
    drafts = [_draft(row, fields, f"{name}-{number}") for number, row in enumerate(rows, start=1)]
    _refuse_duplicate_ids(drafts)
    if not allow_missing:
        _refuse_missing_golds(drafts)
    common = format or guess_format([draft.gold for draft in drafts if draft.gold is not None])
    return tuple(_finish(draft, format or draft.format or common) for draft in drafts)


def _draft(row: SourceRow, fields: FieldNames, number: str) -> Draft:
    cells = {role: _cell(row, column) for role, column in asdict(fields).items()}
    text, gold, form = cells["text"], cells["gold"], cells["format"]
    if text is None:
        raise row.error(f"the question ({fields.text!r}) is missing or empty.", "Every row needs a question.")
    if form is not None and form not in FORMATS:
        raise row.error(f"there is no answer format {form!r}.", f"Known: {', '.join(FORMATS)}.")
    known: AnswerFormat | None = next((one for one in FORMATS if one == form), None)
    return Draft(row, cells["id"] or number, text, None if gold is None else final_part(gold), known)


def _cell(row: SourceRow, column: str | None) -> str | None:
    """A cell as text; None if it is empty."""
    value = None if column is None else row.values.get(column)
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise row.error(
            f"the field {column!r} contains {type(value).__name__}, not text or a number.", "Name another field."
        )
    text = value.strip() if isinstance(value, str) else _number(row, value)
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise row.error(f"the field {column!r} contains an incomplete character (a lone surrogate).", "Correct the file.")
    return text or None


def _number(row: SourceRow, value: float | Decimal) -> str:
    """A number without an exponent and without a zero fraction: some files write 27 as `27.0`."""
    exact = Decimal(str(value))
    if not exact.is_finite() or abs(exact.adjusted()) > MAX_DIGITS:
        raise row.error(f"the number {value} is out of range.", "Check the file.")
    return str(int(exact)) if exact == exact.to_integral_value() else format(exact, "f")


def final_part(gold: str) -> str:
    """The final answer of a worked solution: after `####`, or in the last box; otherwise the whole text. Boxes with nothing
    but a comma, "and" or "or" between them (`\\boxed{1}, \\boxed{2}`) are one list."""
    if "####" in gold:
        return gold.rpartition("####")[2].strip()
    boxes = _boxes(gold)
    if not boxes or boxes[-1][1] is None:
        return gold
    first = len(boxes) - 1
    while first > 0 and (end := boxes[first - 1][1]) is not None and BETWEEN.fullmatch(gold[end + 1 : boxes[first][0]]):
        first -= 1
    return ", ".join(gold[start + len(BOX) : end].strip() for start, end in boxes[first:])


def _boxes(text: str) -> list[tuple[int, int | None]]:
    """Where each box begins, and where its closing brace is; None: it is not closed."""
    found: list[tuple[int, int | None]] = []
    start = text.find(BOX)
    while start >= 0:
        end = _closing_brace(text, start + len(BOX))
        found.append((start, end))
        start = text.find(BOX, start + len(BOX))
    return found


def _closing_brace(text: str, start: int) -> int | None:
    depth = 1
    for index in range(start, len(text)):
        depth += (text[index] == "{") - (text[index] == "}")
        if depth == 0:
            return index
    return None


def _refuse_duplicate_ids(drafts: Iterable[Draft]) -> None:
    seen: dict[str, Draft] = {}
    for draft in drafts:
        if first := seen.get(draft.id):
            raise draft.row.error(f"the id {draft.id!r} is also the id of {first.row.where}.", "Use each id once.")
        seen[draft.id] = draft


def _refuse_missing_golds(drafts: Sequence[Draft]) -> None:
    """Refuse a file in which only some golds are missing; a file without any golds is accepted."""
    gaps = [draft for draft in drafts if draft.gold is None]
    if gaps and len(gaps) < len(drafts):
        raise gaps[0].row.error(
            f"there is no gold answer (the same is true of {len(gaps)} of {len(drafts)} rows).",
            "Fill it in, remove all golds, or allow missing golds.",
        )


def guess_format(golds: Sequence[str]) -> AnswerFormat:
    """The narrowest format that all golds have."""
    if not golds:
        return "math"
    if all(_is_0_to_999(clean_gold(gold, "integer")) for gold in golds):
        return "integer"
    if all(clean_gold(gold, "number") for gold in golds):
        return "number"
    return "choice" if all(CHOICE.fullmatch(gold) for gold in golds) else "math"


def _is_0_to_999(whole: str | None) -> bool:
    return whole is not None and 0 <= int(whole) <= 999


def _finish(draft: Draft, format: AnswerFormat) -> Question:
    if draft.gold is None:
        return Question(draft.id, draft.text, None, format)
    gold = clean_gold(draft.gold, format)
    if gold is None or (format == "integer" and not _is_0_to_999(gold)):
        expected = "an integer 0..999" if format == "integer" else f"of the format {format!r}"
        raise draft.row.error(f"the gold {draft.gold!r} is not {expected}.", "Correct it, or choose another answer format.")
    return Question(draft.id, draft.text, gold, format)
