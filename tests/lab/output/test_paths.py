from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from cgr.lab.output.paths import beside, unique_names, write_json


def test_output_goes_into_a_run_beside_a_file_or_beside_the_first_of_several(tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "six.jsonl"
    run.mkdir()
    file.touch()
    assert beside([run], "report") == run / "report"
    assert beside([file], "report") == tmp_path / "six-report"
    assert beside([run, file], "report") == tmp_path / "report"


@pytest.mark.parametrize(
    ("names", "unique"),
    [(["a", "b"], ["a", "b"]), (["a", "a", "a"], ["a", "a-2", "a-3"]), (["a-2", "a", "a"], ["a-2", "a", "a-3"])],
)
def test_names_that_occur_again_get_a_number(names: list[str], unique: list[str]) -> None:
    assert unique_names(names) == unique


def test_json_is_written_into_a_new_folder_and_nan_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "new" / "a.json", {"θ": [0.5, None]})
    text = (tmp_path / "new" / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"θ": [0.5, None]}
    assert text.endswith("}\n")
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "b.json", {"x": math.nan})
