"""Rules fitted on one run and shown on another, on traces that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.evidence import evidence, solved_saving
from cgr.lab.decide.run import Run
from cgr.lab.exchange import import_run, write_jsonl
from cgr.lab.exchange.line import to_line
from cgr.rules import Cgr
from tests.lab.fit.test_fit import INTERVAL, OTHERS, SAMPLE


def stored(run: Run, folder: Path) -> Path:
    write_jsonl(folder.with_suffix(".jsonl"), map(to_line, run.traces()[:80]))
    import_run(folder.with_suffix(".jsonl"), folder)
    return folder


def test_the_table_adds_up(tmp_path: Path) -> None:
    table = evidence(stored(SAMPLE, tmp_path / "one"), stored(OTHERS, tmp_path / "two"), ("cgr-drought",), splits=2)
    assert table.caption.startswith("fitted on 80 questions, shown on 80, 0 texts in both; the oracle saves")
    names = [head.name for head in table.heads]
    rows: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in table.rows]
    plain, drought = rows
    oracle = float(table.caption.rpartition(" ")[2].rstrip("%")) / 100
    for row in rows:
        assert sum(row[name] for name in ("net", "unsolved", "late", "probes")) == pytest.approx(oracle, abs=1e-3)
        assert row["oracle"] == pytest.approx(row["net"] / oracle, abs=1e-2)
    assert drought["unsolved"] < plain["unsolved"]
    assert (plain["worst_net"], drought["worst_net"] is not None) == (None, True)


def test_the_saving_on_solved_traces_counts_no_others() -> None:
    columns, decided = OTHERS.columns(), OTHERS.decide(Cgr(interval=INTERVAL, threshold=0.9))
    gross, share = solved_saving(columns, decided)
    solved = columns.final_right
    assert gross == pytest.approx(1 - decided.at[solved].sum() / columns.natural[solved].sum())
    assert gross < share
