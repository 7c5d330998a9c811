"""`cgr ablate`, called as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab.ablate.ablated import run, traces
from tests.lab.recipes.recipes import cgr
from tests.support import command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("runs") / "plausible", traces(4, 2))


def test_conclusions_missing_probes_and_the_path_of_the_page_are_printed(folder: Path) -> None:
    code, out, err = cgr("ablate", folder, "--only", "interval,prober")
    assert (code, err) == (0, "")
    found, missing, page = out.strip().split("\n\n")
    assert found.startswith("Interval between probes: Best net saving at an interval of ")
    assert missing.splitlines() == [
        "A separate probing model: not recorded. No other model was probed on these traces.",
        f"  cgr probe {folder} --model embedded-prober --probes prober",
    ]
    assert page == str(folder / "ablations" / "index.html")


def test_json_is_one_object_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    code, out, err = cgr("ablate", folder, "--only", "threshold", "--threshold", "0.9", "--out", tmp_path / "a", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found == json.loads((tmp_path / "a" / "ablations.json").read_text())
    assert (found["threshold"], [one["name"] for one in found["ablations"]]) == (0.9, ["threshold"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "intervals"), "There is no ablation called 'intervals'."),
        (("--only", ""), "No ablation was named."),
        (("--threshold", "2"), "A threshold of 2 is not a certainty."),
        (("--forced", "nowhere"), "There is no run 'nowhere'."),
    ],
)
def test_wrong_arguments_are_refused(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = cgr("ablate", folder, *arguments)
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == f"error: {message}"
    assert err.splitlines()[1].startswith("hint:  ")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    code, _, err = cgr("ablate", tmp_path)
    assert code == 2
    assert "There is no run in" in err


def test_the_command_is_listed_and_its_help_imports_nothing_heavy() -> None:
    done = command("ablate", "--help", env={"PYTHONPROFILEIMPORTTIME": "1"})
    modules = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "--forced" in done.stdout
    assert not modules & {"numpy", "matplotlib", "xllamacpp"}
    assert "\n  ablate " in command("--help").stdout
