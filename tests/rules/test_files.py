"""A rule as a file: what is written, what is read, and what is said about a file that holds no rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cgr.errors import UnknownName, UsageError
from cgr.rules import Calibrated, CgrDrought, Rule
from cgr.rules.files import RuleFile, is_file, named, read

DROUGHT = CgrDrought(threshold=0.9, interval=50, drought=0.25, span=100)
PARAMETERS = {"threshold": 0.9, "drought": 0.25, "floor": 0.5, "span": 100}
WRITTEN = """{
  "rule": "cgr-drought",
  "parameters": {
    "threshold": 0.9,
    "drought": 0.25,
    "floor": 0.5,
    "span": 100
  },
  "fitted": {
    "run": "r"
  }
}
"""


def written(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_the_file_of_a_rule_has_all_but_its_interval() -> None:
    assert RuleFile.of(DROUGHT, run="r") == RuleFile("cgr-drought", PARAMETERS, {"run": "r"})


def test_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rule.json"
    RuleFile.of(DROUGHT, run="r").write(path)
    assert path.read_text(encoding="utf-8") == WRITTEN
    assert read(path) == read(str(path)) == RuleFile("cgr-drought", PARAMETERS, {"run": "r"})


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, CgrDrought(threshold=0.9, drought=0.25, span=100)),
        ({"interval": 50}, DROUGHT),
        ({"threshold": 0.8}, CgrDrought(threshold=0.8, drought=0.25, span=100)),
    ],
)
def test_the_rule_of_a_file(more: dict[str, Any], expected: Rule) -> None:
    assert RuleFile("cgr-drought", PARAMETERS).made(**more) == expected


def test_tuples_come_back_from_a_file(tmp_path: Path) -> None:
    rule = Calibrated(hopeless=((0.25, 0.5), (0.5, 0.9)), answered=(1, 2, 3, 4, 5))
    RuleFile.of(rule).write(tmp_path / "rule.json")
    assert read(tmp_path / "rule.json").made() == rule


@pytest.mark.parametrize(
    ("rule", "parameters", "fitted"), [(5, {}, {}), ("cgr", [], {}), ("cgr", {}, []), (None, [], []), ("cgr", [], [])]
)
def test_a_rule_file_of_other_types_is_refused(rule: Any, parameters: Any, fitted: Any) -> None:
    with pytest.raises(TypeError, match=r"^not a rule$"):
        RuleFile(rule, parameters, fitted)


@pytest.mark.parametrize(("name", "expected"), [("rule.json", True), ("a/b.json", True), ("cgr", False), ("json", False)])
def test_a_name_that_ends_in_json_is_a_file(name: str, expected: bool) -> None:
    assert is_file(name) == expected


def test_a_rule_by_its_name_or_by_its_file(tmp_path: Path) -> None:
    path = written(tmp_path / "rule.json", {"rule": "cgr", "parameters": {"threshold": 0.9}})
    assert named(str(path)) == ("cgr", {"threshold": 0.9})
    assert named("cgr") == ("cgr", {})


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    with pytest.raises(UsageError) as caught:
        read(path)
    assert caught.value.message == f"The rule in {str(path)!r} cannot be read: No such file or directory."
    assert caught.value.hint == "Write one with `cgr fit`."


@pytest.mark.parametrize("content", ["", "[", "[]", "5", {}, {"rules": "cgr"}, {"rule": 5}, {"rule": "cgr", "fitted": 1}])
def test_a_file_that_holds_no_rule(tmp_path: Path, content: object) -> None:
    path = written(tmp_path / "rule.json", content)
    with pytest.raises(UsageError) as caught:
        read(path)
    assert caught.value.message == f"{str(path)!r} holds no rule."
    assert caught.value.hint == 'It must look like {"rule": "calibrated", "parameters": {...}}, as `cgr fit` writes.'


def test_parameters_that_do_not_suit_the_rule(tmp_path: Path) -> None:
    path = written(tmp_path / "rule.json", {"rule": "calibrated", "parameters": {"hopeless": [1, 2]}})
    with pytest.raises(UsageError) as caught:
        read(path)
    assert caught.value.message == f"The parameters in {str(path)!r} do not suit the rule 'calibrated'."
    assert caught.value.hint == "Fit it again: cgr fit."


def test_a_rule_that_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="There is no rule called 'crg'"):
        read(written(tmp_path / "rule.json", {"rule": "crg"}))
