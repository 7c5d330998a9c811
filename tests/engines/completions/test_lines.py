"""The parser of event streams, on anything that a server may send."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.engines.completions.http import Fault, read_event
from cgr.engines.completions.lines import Lines
from cgr.errors import CgrError

PARTS = st.sampled_from([b"data: {}", b"\n", b"\r\n", b": ping", b"x", b"\xff"])
STREAMS = st.binary(max_size=200) | st.lists(PARTS).map(b"".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), VALUES)
NAMES = st.sampled_from([b"data:", b"data: ", b" data: ", b"error:", b"event:", b":"])
AFTER_NAMES = st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode())


@given(STREAMS, st.lists(st.integers(0, 200), max_size=8))
def test_lines_do_not_depend_on_where_the_network_cuts(stream: bytes, places: list[int]) -> None:
    cuts = sorted(min(place, len(stream)) for place in places)
    lines, found = Lines(), list[bytes]()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += lines.feed(stream[start:end])
        assert lines.size == len(stream[:end].rpartition(b"\n")[2])
    assert found == stream.split(b"\n")[:-1]


@given(st.tuples(NAMES, AFTER_NAMES).map(b"".join) | st.binary(max_size=100))
def test_a_line_is_an_object_or_nothing_or_a_known_error(line: bytes) -> None:
    found = None
    with suppress(Fault, CgrError):
        found = read_event(line)
    assert found is None or (isinstance(found, dict) and line.strip().startswith(b"data:"))


@given(OBJECTS, st.sampled_from(["data:", "data: ", "  data:\t"]), st.sampled_from(["", " ", "\r"]))
def test_an_object_is_read_as_it_was_written(value: dict[str, Any], before: str, after: str) -> None:
    value.pop("error", None)
    assert _same(read_event(f"{before}{json.dumps(value)}{after}".encode()), value)


@given(st.text() | OBJECTS)
def test_an_error_is_raised_and_not_taken_for_an_event(error: object) -> None:
    line = b"data: " + json.dumps({"error": error, "choices": []}).encode()
    with pytest.raises((Fault, CgrError), match=r"."):
        read_event(line)


@pytest.mark.parametrize("field", ["type", "code"])
@pytest.mark.parametrize("value", [[1], {"a": 1}, None, 10**30])
def test_an_error_may_have_anything_as_its_type_and_its_code(field: str, value: object) -> None:
    for line in ("error: " + json.dumps({field: value}), "data: " + json.dumps({"error": {field: value}})):
        with pytest.raises((Fault, CgrError), match=r"."):
            read_event(line.encode())


def _same(found: object, value: object) -> bool:
    """Equal, where the two parsers may round the last bit of a number differently."""
    if isinstance(found, float) and isinstance(value, float):
        return math.isclose(found, value, rel_tol=1e-15)
    if isinstance(found, list) and isinstance(value, list):
        return len(found) == len(value) and all(map(_same, found, value))
    if isinstance(found, dict) and isinstance(value, dict):
        return found.keys() == value.keys() and all(_same(found[name], value[name]) for name in value)
    return found == value
