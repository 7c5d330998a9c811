"""JSON to and from bytes: by orjson where it is installed (extra `server`), which is faster, else by Python."""

from __future__ import annotations

import json
from typing import Any

try:
    import orjson
except ImportError:  # pragma: no cover - the core installs without it
    orjson = None  # type: ignore[assignment]


def dumps(value: Any) -> bytes:
    """The JSON of a value."""
    if orjson:
        try:
            return orjson.dumps(value)
        except TypeError:  # what only Python writes: numbers beyond 64 bits, halves of surrogate pairs
            pass
    return json.dumps(value, separators=(",", ":")).encode()


def loads(data: bytes) -> Any:
    """The value of a JSON document; `ValueError` if it is none."""
    if orjson:
        try:
            return orjson.loads(data)
        except ValueError:  # Python also reads NaN and halves of surrogate pairs
            pass
    return json.loads(data)
