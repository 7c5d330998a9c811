"""Rows, limits and output of the benchmarks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import figure, offline
from benchmarks.rows import Results, Row, Sense, line
from cgr.doctor.description import describe_machine


@pytest.mark.parametrize(
    ("value", "sense", "hold", "held"),
    [
        (1.05, "at most", 1.05, True),
        (1.06, "at most", 1.05, False),
        (0.9, "at least", 0.9, True),
        (0.89, "at least", 0.9, False),
        (7.0, "at most", None, None),
        (0.0, "at most", 0, True),
    ],
)
def test_a_value_meets_its_limit(value: float, sense: Sense, hold: float | None, held: bool | None) -> None:
    assert Row("what", "engine", value, sense=sense, hold=hold).held is held


def some() -> Results:
    results = Results(quick=True, rows=[Row("a", "x", 1.2, hold=1.1), Row("b", "y", 9.0, sense="at least", hold=8)])
    results.curves["SmolLM2, a probe"] = [{"at": 10.0, "seconds": 0.1}, {"at": 100.0, "seconds": 0.2}]
    results.curves["tokens per second, llama.cpp"] = [{"sessions": 1, "bare": 10.0, "tokens_per_second": 9.0, "ratio": 0.9}]
    return results


def test_the_json_file_and_the_table(tmp_path: Path) -> None:
    path = some().write(tmp_path)
    found = json.loads(path.read_text())
    assert [row["held"] for row in found["rows"]] == [False, True]
    assert found["machine"]["packages"]
    assert found["machine"]["cores"]
    assert path.with_suffix(".md").read_text().splitlines()[-1] == line(some().rows[1])
    assert "NOT HELD" in path.with_suffix(".md").read_text()


def test_rows_are_sorted_by_engine() -> None:
    engines = ["SmolLM2, vLLM", "embedded, llama.cpp", "none", "SmolLM2, llama.cpp", "embedded, vLLM"]
    results = Results(quick=True, rows=[Row("a", engine, 1.0) for engine in engines])
    assert [row.engine for row in results.in_order()] == [
        "none", "SmolLM2, llama.cpp", "embedded, llama.cpp", "SmolLM2, vLLM", "embedded, vLLM",
    ]  # fmt: skip


def test_a_part_that_is_measured_again_replaces_its_rows(tmp_path: Path) -> None:
    results = Results(quick=True)
    for name, value in (("one", 1.0), ("two", 2.0)):
        with results.part(name):
            results.rows.append(Row("a", "x", value))
    results.write(tmp_path)
    kept = Results.kept(tmp_path, quick=True)
    with kept.part("one"):
        kept.rows.append(Row("a", "x", 3.0))
    assert [(row.part, row.value) for row in kept.rows] == [("two", 2.0), ("one", 3.0)]
    assert Results.kept(tmp_path, quick=False).rows == []


def test_results_are_kept_when_other_packages_are_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = describe_machine()
    monkeypatch.setattr("benchmarks.rows.describe_machine", lambda: replace(here, packages=(("torch", "2.13.0"),)))
    results = Results(quick=True)
    with results.part("one"):
        results.rows.append(Row("a", "x", 1.0))
    results.write(tmp_path)
    monkeypatch.setattr("benchmarks.rows.describe_machine", lambda: replace(here, packages=(("numpy", "2.4.6"),)))
    kept = Results.kept(tmp_path, quick=True)
    assert [row.value for row in kept.rows] == [1.0]
    assert "numpy 2.4.6, torch 2.13.0" in kept.table().splitlines()[0]


def test_results_of_another_machine_are_refused_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = some().write(tmp_path)
    here = describe_machine()
    monkeypatch.setattr("benchmarks.rows.describe_machine", lambda: replace(here, cores=here.cores + 1))
    with pytest.raises(SystemExit, match="another machine"):
        Results.kept(tmp_path, quick=True)
    assert json.loads(path.read_text())["rows"]


def test_the_figure_is_written(tmp_path: Path) -> None:
    figure.draw(some(), tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_help_imports_nothing_heavy() -> None:
    results = Results(quick=True)
    offline.help_imports(results)
    assert [row.held for row in results.rows] == [True]
