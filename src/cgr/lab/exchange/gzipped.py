"""Files of traces that are compressed with gzip. A small file can unpack to an enormous one, so there are limits."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from cgr.errors import UsageError

SUFFIX = ".gz"
MAX_RATIO = 200  # traces shrink to between a third and a twentieth; zeros shrink to a thousandth
MIN_LIMIT = 64 << 20  # bytes that any file may unpack to
MAX_LINE = 256 << 20  # bytes of one line, all of which are in memory


def is_gzipped(path: Path) -> bool:
    """Whether a file is compressed, by its name."""
    return path.suffix == SUFFIX


def plain_name(path: Path) -> Path:
    """The path without the suffix of a compressed file."""
    return path.with_suffix("") if is_gzipped(path) else path


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a compressed file; `UsageError` if it is damaged, or unpacks to more than traces would."""
    limit = max(MIN_LIMIT, MAX_RATIO * path.stat().st_size)
    longest, count = min(MAX_LINE, limit), 0
    with gzip.open(path, "rb") as file:
        try:
            while line := file.readline(longest + 1):
                count += len(line)
                if count > limit or len(line) > longest:
                    most = longest if len(line) > longest else limit
                    raise UsageError(f"{path} unpacks to more than {most:,} bytes.", "If it is yours, unpack it first.")
                yield line
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UsageError(f"{path} is damaged, or not compressed with gzip: {error}.", "Get the file again.") from error


@contextmanager
def written(path: Path, *, compress: bool) -> Iterator[BinaryIO]:
    """A file to write, compressed or not. The same content gives the same bytes: neither a name nor a time is in them."""
    with path.open("wb") as plain:
        if not compress:
            yield plain
            return
        with gzip.GzipFile("", "wb", fileobj=plain, mtime=0) as file:
            yield cast(BinaryIO, file)
