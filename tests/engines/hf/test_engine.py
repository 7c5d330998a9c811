"""What the torch engine says where torch is not: the engine itself is tested in `tests/heavy`."""

from __future__ import annotations

import sys

import pytest

from cgr.engines.hf.engine import TransformersEngine
from cgr.errors import UsageError


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_what_is_not_installed_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=missing) as caught:
        TransformersEngine("anything")
    assert caught.value.hint == "pip install 'certainty-guided-reasoning[transformers]'"
