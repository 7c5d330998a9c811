"""The committed tables of the recordings: how they are written, and that they are those of the shipped recordings."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from benchmarks.recordings import EXAMPLES, OUT, SUFFIX, write
from tests.lab.exchange.test_exchange import SIX


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_a_recording_gets_its_tables_and_figures(tmp_path: Path) -> None:
    recording = tmp_path / f"six{SUFFIX}"
    recording.write_bytes(gzip.compress("\n".join(map(json.dumps, SIX)).encode()))
    write(recording, tmp_path / "out")
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"thresholds.csv", "adaptive.csv", "headroom.csv", "reliability.png", "accuracy_against_tokens.png"} <= names
    assert not [name for name in names if not name.endswith((".csv", ".png"))]


@pytest.mark.parametrize("recording", sorted(EXAMPLES.glob(f"*{SUFFIX}")), ids=lambda recording: recording.name)
def test_each_shipped_recording_has_committed_tables(recording: Path) -> None:
    """They are of this file: they count its traces and its probes."""
    lines = [json.loads(line) for line in gzip.decompress(recording.read_bytes()).splitlines()]
    folder = OUT / recording.name.removesuffix(SUFFIX)
    final, probes = rows(folder / "selective.csv")[:2]
    assert (final["among"], int(final["count"])) == ("final answers", len(lines))
    assert (probes["among"], int(probes["count"])) == ("probes", sum(len(line["probes"]) for line in lines))
    assert [row["threshold"] for row in rows(folder / "adaptive.csv")] == ["0.9", "0.95", "0.99", "0.999"]
