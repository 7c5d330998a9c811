from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from release.packages import FOR_DEMO, NEEDED, CheckFailed, check_sdist, check_wheel


def wheel(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


def sdist(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"cgr-1/{name}"))
    return path


def test_a_wheel_with_the_package_alone_passes(tmp_path: Path) -> None:
    assert "files" in check_wheel(wheel(tmp_path / "a.whl", *NEEDED, "cgr/solve.py", "cgr-1.dist-info/METADATA"))


@pytest.mark.parametrize("extra", ["tests/test_a.py", "cgr/run.sqlite"])
def test_a_wheel_with_more_is_refused(tmp_path: Path, extra: str) -> None:
    with pytest.raises(CheckFailed, match=extra):
        check_wheel(wheel(tmp_path / "a.whl", *NEEDED, extra))


def test_a_wheel_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match=r"embedded\.gguf"):
        check_wheel(wheel(tmp_path / "a.whl", "cgr/py.typed"))


def test_an_sdist_holds_what_the_demo_needs_and_no_run(tmp_path: Path) -> None:
    assert "files" in check_sdist(sdist(tmp_path / "a.tar.gz", *FOR_DEMO))
    with pytest.raises(CheckFailed, match="runs/a"):
        check_sdist(sdist(tmp_path / "b.tar.gz", *FOR_DEMO, "runs/a/run.sqlite"))
    with pytest.raises(CheckFailed, match="Makefile"):
        check_sdist(sdist(tmp_path / "c.tar.gz", *FOR_DEMO[1:]))
