"""The configuration file and the environment: options beat the environment, and the environment beats the file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cgr.cli.shared.options import CONFIGURABLE, variable
from tests.support import CGR, QUESTION, command, environment

ASK = ("solve", QUESTION, "--budget", "32", "--json")


def written(folder: Path, text: str, name: str = "cgr.toml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def asked(folder: Path, *more: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`cgr solve` in this folder."""
    home = {"XDG_CONFIG_HOME": str(folder / "home")}
    call = [str(CGR), *ASK, *more]
    return subprocess.run(
        call, cwd=folder, capture_output=True, text=True, check=False, env=environment(home | (env or {}))
    )


def refusal(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 2
    return done.stderr.splitlines()


def test_the_order(tmp_path: Path) -> None:
    """The option, then the environment, then the file of the folder, then the user's file."""
    assert json.loads(asked(tmp_path).stdout)["model"] == "embedded"
    written(tmp_path / "home" / "cgr", 'model = "user.gguf"', "config.toml")
    assert "'user.gguf'" in refusal(asked(tmp_path))[0]
    written(tmp_path, 'model = "folder.gguf"')
    assert "'folder.gguf'" in refusal(asked(tmp_path))[0]
    assert "'environment.gguf'" in refusal(asked(tmp_path, env={"CGR_MODEL": "environment.gguf"}))[0]
    everywhere = asked(tmp_path, "--model", "option.gguf", env={"CGR_MODEL": "environment.gguf"})
    assert "'option.gguf'" in refusal(everywhere)[0]
    assert json.loads(asked(tmp_path, "--model", "embedded").stdout)["model"] == "embedded"


def test_other_keys(tmp_path: Path) -> None:
    path = written(tmp_path, 'threads = 0\nbase_url = ["http://127.0.0.1:9/v1"]\n')
    assert "0 threads" in refusal(asked(tmp_path))[0]
    path.write_text('base_url = ["http://127.0.0.1:9/v1"]\napi_key = "k"\n')
    assert "There is no server at http://127.0.0.1:9" in refusal(asked(tmp_path))[0]
    path.write_text('think_tags = "think"\n')
    assert "does not name think tags" in refusal(asked(tmp_path))[0]
    assert asked(tmp_path, "--model", "embedded").returncode == 0  # the tags are for another model


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('modle = "x"', "no key in cgr.toml called 'modle'", "Did you mean 'model'?"),
        ("threshold = 0.9", "no key in cgr.toml called 'threshold'", "Known: api_key"),
        ("model = ", "cgr.toml is not TOML", "one key per line"),
        ("model = true", "the value of model must be a text", "one key per line"),
        ("[model]\nname = 1", "the value of model must be a text", "one key per line"),
        ('threads = "many"', "CGR_THREADS is 'many', not a whole number", "CGR_THREADS=4"),
    ],
)
def test_what_is_refused(text: str, message: str, hint: str, tmp_path: Path) -> None:
    written(tmp_path, text)
    told = refusal(asked(tmp_path))
    assert message in told[0]
    assert hint in told[1]


def test_another_file(tmp_path: Path) -> None:
    path = written(tmp_path, 'model = "other.gguf"', "other.toml")
    assert "'other.gguf'" in refusal(asked(tmp_path, env={"CGR_CONFIG": str(path)}))[0]
    assert "cannot be read" in refusal(asked(tmp_path, env={"CGR_CONFIG": str(tmp_path / "none.toml")}))[0]


def test_a_run_keeps_its_own_model(tmp_path: Path) -> None:
    """CGR_MODEL is for commands that need a model; a recorded run and a recipe have one."""
    run = str(tmp_path / "run")
    made = (
        "generate",
        "--questions",
        "arithmetic",
        "--limit",
        "1",
        "--seeds",
        "1",
        "--budget",
        "64",
        "--quiet",
        "--out",
        run,
    )
    assert command(*made).returncode == 0
    assert command("probe", run, "--quiet", env={"CGR_MODEL": "other.gguf"}).returncode == 0
    assert command("doctor", env={"CGR_MODEL": "other.gguf"}).returncode == 2


def test_every_key_has_a_variable() -> None:
    assert {"model", "base_url", "api_key"} <= set(CONFIGURABLE)
    assert variable("base_url") == "CGR_BASE_URL"
