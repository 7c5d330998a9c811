from __future__ import annotations

import pytest

from release.licences import incompatible, is_compatible


@pytest.mark.parametrize(
    ("licence", "verdict"),
    [
        ("Apache-2.0", True),
        ("MIT", True),
        ("BSD-3-Clause AND MIT", True),
        ("GPL-3.0-or-later OR MIT", True),
        ("GPL-3.0-or-later", False),
        ("AGPL-3.0", False),
        ("", False),
        ("Submit to terms of our own", False),
    ],
)
def test_verdict(licence: str, verdict: bool) -> None:
    assert is_compatible(licence) is verdict


def test_no_dependency_has_an_incompatible_licence() -> None:
    assert list(incompatible()) == []
