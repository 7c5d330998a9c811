"""`cgr rules`."""

from __future__ import annotations

import json

import pytest

from cgr.cli.main import run
from cgr.rules import known_rules
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


def test_one_rule() -> None:
    told = command("rules", "dynasor")
    assert told.returncode == 0
    assert told.stdout.startswith("dynasor\n\nProbe every few tokens and stop")
    assert "  agree   whole number, at least 1  default 3; it trades tokens for accuracy\n" in told.stdout
    assert "Needs:    on a recording: probes (`cgr probe RUN --for dynasor`)\n" in told.stdout
    assert told.stdout.endswith("Example:  cgr solve --rule dynasor --set agree=3\n")


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("cgr", ("threshold  number, at least 0 and at most 1  default 0.99", "interval   whole number, at least 1")),
        ("no-thinking", ("It has no parameters.",)),
        ("fixed-budget", ("Needs:    nothing", "cgr solve --rule fixed-budget --budget 512")),
        ("deepconf", ("cgr generate --logprobs", "floor       number  ", "--set floor=14")),
        ("calibrated", ("which `cgr fit` learns", "cgr fit RUN --rule calibrated")),
        ("budget-forcing", ("replace or ban", "a forced run", "by default not set")),
        ("sure-twice", ("yes or no", "default false")),
        ("loop-breaker", ("the token ids of the thinking",)),
    ],
)
def test_what_is_said_of_a_rule(name: str, texts: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", name]) == 0
    told = capsys.readouterr().out
    assert [text for text in texts if text not in told] == []


def test_every_rule_can_be_described(capsys: pytest.CaptureFixture[str]) -> None:
    for name in known_rules():
        assert run(["rules", name]) == 0
        assert run(["rules", name, "--json"]) == 0
        described = capsys.readouterr().out
        entry = json.loads(described.splitlines()[-1])
        assert set(entry["limits"]) == set(entry["parameters"])
        assert entry["example"] in described


def test_an_unknown_rule() -> None:
    told = command("rules", "crg")
    assert told.returncode == 2
    assert "Did you mean 'cgr'?" in told.stderr
