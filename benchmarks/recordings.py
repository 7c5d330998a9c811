"""The tables and figures of the recordings in `examples/`, written again.

    python -m benchmarks.recordings [NAME ...]        # all, or those whose name contains NAME

Each recording gets a folder in `docs/recordings/` with the tables of `cgr report` as CSV, and two of its figures. It takes
about a minute for each recording.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from cgr.cli.main import run

ROOT = Path(__file__).parent.parent
EXAMPLES, OUT = ROOT / "examples", ROOT / "docs" / "recordings"
THRESHOLDS = "0.9,0.95,0.99,0.999"
FIGURES = ("accuracy_against_tokens", "reliability")
SUFFIX = ".jsonl.gz"


def write(recording: Path, out: Path) -> None:
    """The tables and figures of one recording."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with TemporaryDirectory() as folder:
        if run(["report", str(recording), "--thresholds", THRESHOLDS, "--out", folder]):
            sys.exit(f"There is no report of {recording}.")
        for table in sorted(Path(folder, "tables").glob("*.csv")):
            shutil.copy(table, out)
        for name in FIGURES:
            shutil.copy(Path(folder, "figures", f"{name}.png"), out)


def main(names: Sequence[str]) -> None:
    """Write those whose name contains one of these; all, if there is none."""
    chosen = [one for one in sorted(EXAMPLES.glob(f"*{SUFFIX}")) if not names or any(name in one.name for name in names)]
    if not chosen:
        sys.exit(f"No recording in {EXAMPLES.name}/ has {' or '.join(names)} in its name.")
    for recording in chosen:
        write(recording, OUT / recording.name.removesuffix(SUFFIX))


if __name__ == "__main__":
    main(sys.argv[1:])
