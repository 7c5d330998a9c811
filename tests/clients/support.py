"""Runs programs of clients in the environments that `make test-clients` makes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.server.support import Served
from tests.support import QUESTION

FOLDER = Path(__file__).parent
PROGRAMS, NODE = FOLDER / "programs", FOLDER / "node"
LONG = 600.0  # seconds that no program takes, unless it hangs
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "127.0.0.1",
}
THRESHOLD = 0.9


def environment_of(name: str) -> Path:
    """The folder with the programs of an environment; the test is skipped if there is none."""
    python = os.environ.get(name)
    if not python:
        pytest.skip(f"{name} is not set; `make test-clients` sets it")
    return Path(python).parent


def run(call: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """What a program prints. Its errors fail the test."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CGR_", "PYTHONPATH"))}
    done = subprocess.run(
        call, env=clean | OFFLINE | (env or {}), cwd=cwd, capture_output=True, text=True, timeout=LONG, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    return done.stdout


def model_of(server: Served) -> str:
    return str(server.get("/v1/models").json()["data"][0]["id"])


def python(
    program: str, server: Served, *more: str, name: str = "CGR_CLIENTS_PYTHON", env: dict[str, str] | None = None
) -> dict[str, Any]:
    """The JSON that a Python program of a client prints."""
    call = [
        str(environment_of(name) / "python"),
        str(PROGRAMS / program),
        server.address,
        QUESTION,
        model_of(server),
        *more,
    ]
    found: dict[str, Any] = json.loads(run(call, env).splitlines()[-1])
    return found


def node(program: str, server: Served) -> dict[str, Any]:
    """The JSON that a node program of a client prints."""
    found = shutil.which("node")
    if not found or not (NODE / "node_modules").exists():
        pytest.skip("no node, or its packages are not installed; `make test-clients` installs them")
    printed: dict[str, Any] = json.loads(run([found, str(NODE / program), server.address, QUESTION, model_of(server)]))
    return printed


def check(found: dict[str, Any], *, result: bool = True) -> None:
    """A client saw the answer, the thinking, and (`result`) the result object."""
    assert "\\boxed{169}" in found["text"]
    assert found["thinking"].startswith("1:864*8=")
    assert "<think>" not in found["text"]
    if result:
        assert found["cgr"]["object"] == "cgr.result"
        assert (found["cgr"]["answer"], found["cgr"]["stop_cause"]) == ("169", "certain")
        assert found["cgr"]["certainty"] >= found["cgr"]["threshold"] >= THRESHOLD
