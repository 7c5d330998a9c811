"""`cgr rules`."""

from __future__ import annotations

import json

import pytest

from tests.support import command


def test_one_line_per_rule() -> None:
    done = command("rules")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    names = [line.split()[0] for line in lines]
    assert {"fixed-budget", "no-thinking", "cgr", "budget-forcing", "cgr-forced"} <= set(names)
    assert names == sorted(names)
    assert all(len(line.split()) > 5 for line in lines)


def test_as_json() -> None:
    rules = {one["name"]: one for one in map(json.loads, command("rules", "--json").stdout.splitlines())}
    assert rules["cgr"]["parameters"] == {"threshold": 0.99, "interval": 1000}
    assert rules["no-thinking"]["parameters"] == {}
    assert rules["cgr"]["summary"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("agree=2.5", "agree of dynasor is a whole number"),
        ("agreed=2", "Did you mean 'agree'?"),
        ("agree", "Write it as in --set agree=5."),
    ],
)
def test_parameters_of_a_rule_are_checked_before_a_model_is_loaded(given: str, message: str) -> None:
    done = command("solve", "Why?", "--rule", "dynasor", "--set", given, "--model", "no-such-file.gguf")
    assert done.returncode == 2
    assert message in done.stderr
