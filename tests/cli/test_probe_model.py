"""`--probe-model`: a second model that is probed instead of the first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import QUESTION, command


def test_the_same_model_as_probe_model_gives_the_same_result() -> None:
    arguments = ["solve", QUESTION, "--budget", "160", "--threshold", "0.5", "--json"]
    plain, both = [json.loads(command(*arguments, *more).stdout) for more in ([], ["--probe-model", "embedded"])]
    assert (plain["probe_model"], both["probe_model"]) == (None, "embedded")
    for name in ("answer", "stop_cause", "thinking_tokens", "thinking", "probe_tokens"):
        assert both[name] == plain[name]
    assert both["certainty"] == pytest.approx(plain["certainty"], abs=1e-4)


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "--questions", "arithmetic", "--limit", "1", "--seeds", "1", "--out", "run"],
        ["probe", "run"],
        ["run", "recipes/embedded.toml", "--dry-run"],
        ["doctor"],
    ],
)
def test_it_is_refused_where_nothing_is_probed(arguments: list[str]) -> None:
    done = command(*arguments, "--probe-model", "embedded")
    assert done.returncode == 2
    assert done.stderr.startswith("error: Nothing is probed here, so --probe-model has no use.")


def test_generating_with_probes(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    done = command(
        "generate", "--questions", "arithmetic", "--limit", "1", "--seeds", "1", "--budget", "64", "--probe",
        "--probe-model", "embedded", "--out", out, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["probes"] >= 1


def test_a_model_that_does_not_exist() -> None:
    done = command("solve", QUESTION, "--probe-model", "nowhere.gguf")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "error: There is no model 'nowhere.gguf'."
