"""JSON by orjson or by Python: the same values either way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cgr.engines.completions import json_text
from cgr.engines.completions.json_text import dumps, loads


@pytest.fixture(params=["orjson", "Python"])
def _either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Python":
        monkeypatch.setattr(json_text, "orjson", None)


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, True]}, {"é": "\ud800"}, {"n": 1 << 70}, [], "x"])
def test_what_is_written_is_read_again(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert json.loads(dumps(value)) == value


@pytest.mark.usefixtures("_either")
def test_what_only_python_reads() -> None:
    assert loads(b'{"logprob": -Infinity, "text": "\\ud83d"}') == {"logprob": float("-inf"), "text": "\ud83d"}


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize("data", [b"{", b"", b"\xff", b"{'a': 1}"])
def test_what_is_not_json(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any will do
        loads(data)
