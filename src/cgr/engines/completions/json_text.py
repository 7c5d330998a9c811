"""JSON as bytes, by orjson if it is installed."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

try:
    import orjson  # faster; part of the extra `server`
except ImportError:  # pragma: no cover - the core installs without it
    orjson = None  # type: ignore[assignment]


def dumps(value: Any) -> bytes:
    """The JSON of a value."""
    if orjson:
        with suppress(TypeError):  # what only Python writes: numbers beyond 64 bits, halves of surrogate pairs
            return orjson.dumps(value)
    return json.dumps(value, separators=(",", ":")).encode()


def loads(data: bytes) -> Any:
    """The value of a JSON document; `ValueError` if it is none."""
    try:
        return (orjson or json).loads(data)
    except ValueError:  # Python also reads NaN and halves of surrogate pairs
        return json.loads(data)
