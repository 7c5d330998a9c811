"""Memory of this process and of the servers that it started."""

from __future__ import annotations

import os
import re
import resource
import sys
from pathlib import Path


def peak() -> float:
    """The peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20)


def of_children() -> float:
    """The current memory of all descendants in MB, shared memory counted once; 0 if the system does not provide it."""
    return sum(map(_megabytes, descendants(os.getpid())))


def descendants(process: int) -> list[int]:
    """The ids of all child processes, and of their children."""
    parents = {int(path.name): _parent(path) for path in Path("/proc").glob("[0-9]*")}
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _parent(path: Path) -> int | None:
    found = re.search(r"^PPid:\s+(\d+)", _text(path / "status"), re.MULTILINE)
    return int(found[1]) if found else None


def _megabytes(process: int) -> float:
    found = re.search(r"^Pss:\s+(\d+) kB", _text(Path(f"/proc/{process}/smaps_rollup")), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # the process ended in the meantime
        return ""
