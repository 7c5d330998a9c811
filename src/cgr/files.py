"""Writes files as a whole or not at all.

A regular file is written under another name in the same folder, synced, and renamed: whatever fails, the old file stays and
no half file is left. Devices and FIFOs are written directly, and a symbolic link keeps pointing where it did.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cgr.errors import UsageError, refused_by_system

DIRECT = ("/dev/", "/proc/")  # such as /dev/stdout, which may lead to a regular file that somebody else has open
MAX_SUFFIX = 16


def make_folder(folder: Path) -> None:
    """Create the folder and those above it, unless they exist."""
    _refuse_null(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise UsageError(f"The folder {folder} cannot be created: there is a file.", "Choose another path.") from error
    except OSError as error:
        raise refused_by_system(error, f"The folder {folder} cannot be created") from error


@contextmanager
def draft(path: Path) -> Iterator[Path]:
    """Where to write what shall be at `path`: it is there at the end of the block, unless the block fails.

    The folder is created if needed. A device or a FIFO is its own draft.
    """
    _refuse_null(path)
    make_folder(path.parent)
    try:
        target = _target(path)
        if target is None:
            yield path
            return
        temporary = _new_file(target)
        try:
            yield temporary
            _replace(target, temporary)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
    except OSError as error:
        raise refused_by_system(error, f"{path} cannot be written") from error


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file with this content."""
    with draft(path) as place, place.open("wb") as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """Write a file with this text, in UTF-8. Half of a surrogate pair, which UTF-8 cannot hold, is written as an escape."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def _target(path: Path) -> Path | None:
    """The regular file to replace, or to create; None for a device or a FIFO."""
    if str(path.absolute()).startswith(DIRECT):
        return None
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return target
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    return target if stat.S_ISREG(mode) else None


def _new_file(target: Path) -> Path:
    """A new, empty file in the folder of `target`, with the same ending and the permissions that `target` has."""
    suffix = target.suffix if len(target.suffix) <= MAX_SUFFIX else ""
    new = target.with_name(f".cgr-{secrets.token_hex(6)}{suffix}")
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return new


def _replace(target: Path, new: Path) -> None:
    with suppress(FileNotFoundError):
        new.chmod(stat.S_IMODE(target.stat().st_mode))
    descriptor = os.open(new, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.replace(target)


def _refuse_null(path: Path) -> None:
    if "\0" in str(path):
        raise UsageError(f"{str(path)!r} cannot be written: a name has no null characters.", "Choose another path.")
