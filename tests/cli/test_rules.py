"""`cgr rules`."""

from __future__ import annotations

import json

from tests.support import command


def test_one_line_each() -> None:
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
