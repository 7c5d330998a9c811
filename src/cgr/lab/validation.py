"""Turns pydantic's validation errors into one plain sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import ErrorDetails

UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
EXPECTED: Mapping[str, str] = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "dataclass_type": "an object",
    "literal_error": "{expected}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le:g}",
    "too_long": "a list of {max_length}",
}


def sentence(problem: ErrorDetails, field: str, expected: str | None = None) -> str:
    """What is wrong with a field, such as "seed must be a whole number, not 'x'."."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "missing":  # a field of an object, or an item of a list
        return f"the field {field!r} is missing." if isinstance(problem["loc"][-1], str) else f"{field} lacks a value."
    if kind in UNKNOWN:
        return f"there is no field {field!r}."
    if kind not in EXPECTED:
        return f"{field} is not valid: {problem['msg']}."
    return f"{field} must be {expected or EXPECTED[kind].format(**context)}, not {shown(problem['input'])}."


def shown(value: Any) -> str:
    """A value as it can be quoted in a message, shortened."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
