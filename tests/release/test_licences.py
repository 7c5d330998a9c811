from __future__ import annotations

from importlib.metadata import Distribution
from pathlib import Path

import pytest

from release.licences import incompatible, is_compatible, licence_of


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


def test_a_licence_may_stand_in_a_file_alone(tmp_path: Path) -> None:
    folder = tmp_path / "some-1.dist-info"
    (folder / "licenses").mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.4\nName: some\nVersion: 1\nLicense-File: LICENSE\n")
    assert licence_of(Distribution.at(folder)) == ""
    (folder / "licenses" / "LICENSE").write_text("\n                 Apache License\n  Version 2.0\n")
    assert licence_of(Distribution.at(folder)) == "Apache License"


def test_no_dependency_has_an_incompatible_licence() -> None:
    assert list(incompatible()) == []
