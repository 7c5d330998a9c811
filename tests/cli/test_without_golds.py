"""Each command of the lab on a run without gold answers: it does what needs none, or says in one sentence what it needs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cgr.cli.main import run
from cgr.lab.score.agreement import NO_GOLDS
from tests.lab.report.test_report import written
from tests.lab.runs import plausible


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("golds")
    traces = [replace(one, gold=None) for one in plausible(20, 2, chance=5)[0] if one.final.closed]
    assert run(["import", str(written(place / "none.jsonl", traces)), str(place / "none")]) == 0
    return place / "none"


def test_fit_measures_agreement(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rule in ("cgr", "calibrated"):
        assert run(["fit", str(folder), "--rule", rule, "--out", str(tmp_path / f"{rule}.json")]) == 0
        said = capsys.readouterr().out
        assert "  agreement " in said
        assert "whether agreement is equal cannot be told" in said
        assert said.count(NO_GOLDS) == 1
        assert "accuracy" not in said
        assert json.loads((tmp_path / f"{rule}.json").read_text())["fitted"]["reference"] == "final"
    assert run(["fit", str(folder), "--rule", "cgr", "--out", str(tmp_path / "again.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [NO_GOLDS]


def test_a_rule_fitted_by_agreement_is_compared(folder: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "mine.json")
    assert run(["fit", str(folder), "--share", "0.5", "--out", file]) == 0
    assert run(["compare", str(folder), "--rules", f"cgr,{file}", "--out", str(tmp_path), "--quiet"]) == 0
    names = [one["rule"] for one in json.loads((tmp_path / "compare.json").read_text())["entries"]]
    assert sorted(names) == ["cgr", "mine"]


def test_a_promise_for_learned_weights(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights from one half of the questions, by agreement, the promise from the other."""
    out = str(tmp_path / "calibration.json")
    assert run(["calibrate", str(folder), "--rule", "calibrated", "--lose-at-most", "0.6", "--out", out]) == 0
    assert "Weights come from 10 questions, the promise from 10 others." in capsys.readouterr().out
    parameters = json.loads((tmp_path / "calibration.json").read_text())["parameters"]
    assert parameters["answered"] != [0.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fit", "{run}", "--rule", "give-up"), "'give-up' is fitted by its Grade, which needs known answers."),
        (("ablate", "{run}"), "has a known answer, and ablations measure accuracy."),
        (("calibrate", "{run}", "--risk", "lost"), "No question has a known answer, which the risk 'lost' needs."),
    ],
)
def test_what_needs_golds_is_refused_in_one_sentence(
    folder: Path, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([argument.format(run=folder) for argument in arguments]) == 2
    error, hint = capsys.readouterr().err.strip().split("\n")
    assert said in error
    assert hint.startswith("hint:  ")
