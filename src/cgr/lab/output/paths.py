"""Where runs are read from, and where what is said about them goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from cgr.errors import UsageError
from cgr.lab.exchange import import_run

FILES = (".jsonl", ".parquet")


@contextmanager
def folder_of(run: str | Path) -> Iterator[Path]:
    """The folder of a run; a file of traces, as `cgr export` writes it, is one for a while."""
    path = Path(run)
    if path.is_file() and path.suffix in FILES:
        with TemporaryDirectory() as scratch:
            import_run(path, Path(scratch) / path.stem)
            yield Path(scratch) / path.stem
    elif path.exists():
        yield path
    else:
        raise UsageError(
            f"There is no run {str(path)!r}.", "Give the folder that `cgr generate --out` or `cgr import` made."
        )


def beside(runs: Sequence[Path], name: str) -> Path:
    """A folder of this name inside a run; beside a file; for several, beside the first."""
    first = runs[0]
    if len(runs) > 1:
        return first.parent / name
    return first / name if first.is_dir() else first.with_name(f"{first.stem}-{name}")


def told_apart(names: Sequence[str]) -> list[str]:
    """Runs of one name in different folders get numbers: each has a place of its own."""
    apart: list[str] = []
    for name in names:
        apart.append(next(one for n in count(1) if (one := name if n == 1 else f"{name}-{n}") not in apart))
    return apart
