"""`cgr doctor`."""

from __future__ import annotations

import json

import pytest

from cgr.doctor import Checkup
from cgr.doctor.terminal import checkup_lines
from tests.support import command


def test_the_embedded_model() -> None:
    """As JSON and as text."""
    done = command("doctor", "--tokens", "16", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"machine", "model", "integers", "noise", "cost"} == found.keys()
    assert found["model"]["name"] == "embedded"
    assert found["integers"]["needed"] <= found["integers"]["allowed"]
    assert found["noise"]["largest"] < 1e-4
    assert any("thread" in way["name"] for way in found["noise"]["ways"])
    assert found["cost"]["interval"] % 32 == 0
    lines = checkup_lines(Checkup.from_json(done.stdout))
    assert [line.split("  ")[0] for line in lines if not line.startswith(" ")] == [
        "versions", "machine", "model", "can", "cannot", "think tags", "template", "defaults", "dialect", "integers",
        "certainty", "a probe", "interval",
    ]  # fmt: skip
    assert "exact, stops are reproducible at any threshold" in "\n".join(lines)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--tokens", "3"], "3 tokens are too few for 8 cuts."),
        (["--share", "2"], "A share of 2 is not between 0 and 1."),
        (["--threshold", "7"], "A threshold of 7 is not a certainty."),
        (["--probe-model", "embedded"], "Nothing is probed here, so --probe-model has no use."),
        (["--model", "nowhere.gguf"], "There is no model 'nowhere.gguf'."),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], complaint: str) -> None:
    done = command("doctor", *arguments)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"error: {complaint}"
    assert done.stderr.splitlines()[1].startswith("hint:  ")
