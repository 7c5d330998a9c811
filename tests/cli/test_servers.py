"""`cgr` with a server: the same commands, with an address."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engines.completions.upstream import KEY, address
from tests.support import JSON_KEYS, QUESTION, command

WITH_KEY = {"CGR_API_KEY": KEY}
SHORT = ("--budget", "48", "--interval", "16", "--max-answer-tokens", "4", "--json")


@pytest.mark.parametrize("by_environment", [False, True])
def test_a_question_on_a_server(by_environment: bool) -> None:
    where = () if by_environment else ("--base-url", f"{address()}/v1")
    env = WITH_KEY | ({"CGR_BASE_URL": address()} if by_environment else {})
    done = command("solve", QUESTION, *where, *SHORT, env=env)
    assert done.returncode == 0, done.stderr
    solution = json.loads(done.stdout)
    assert solution.keys() >= JSON_KEYS
    assert (solution["engine"], solution["budget"]) == ("completions", 48)
    assert KEY not in done.stdout + done.stderr


def test_a_local_model_is_used_even_if_the_environment_names_a_server() -> None:
    done = command("solve", QUESTION, "--model", "embedded", *SHORT, env={"CGR_BASE_URL": "http://127.0.0.1:9"})
    assert json.loads(done.stdout)["engine"] == "llama.cpp"


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("--base-url", "http://127.0.0.1:9/v1"), "There is no server at http://127.0.0.1:9: ", "Start it, or check"),
        (("--base-url", "localhost"), "'localhost' is not the address of a server.", "http://localhost:8000/v1"),
        (("--base-url", "ADDRESS", "--api-key", "wrong"), "The server refused the API key: ", "CGR_API_KEY"),
        (
            ("--base-url", "ADDRESS", "--dialect", "steam=no"),
            "There is no property of a dialect called 'steam'.",
            "'stream'",
        ),
        (("--base-url", "ADDRESS", "--chunk", "0"), "A chunk has at least one token.", "--chunk 32"),
        (("--base-url", "ADDRESS", "--model", "vllm:x"), "'vllm:x' runs here, not at", "Leave"),
        (("--chunk", "32"), "--chunk is not for this model.", "--base-url"),
        (("--dtype", "float32"), "--dtype is not for this model.", "hf:"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_wrong_arguments_give_one_sentence_and_a_hint(arguments: tuple[str, ...], message: str, hint: str) -> None:
    given = [address() if one == "ADDRESS" else one for one in arguments]
    done = command("solve", QUESTION, *given, env={} if "wrong" in arguments else WITH_KEY)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith(f"error: {message}")
    assert second.startswith("hint:  ")
    assert hint in second


def test_a_server_needs_a_question() -> None:
    done = command("solve", "--base-url", address(), env=WITH_KEY)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: There is no question.")


def test_an_experiment_on_a_server_continues_where_it_stopped(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    where = ("--base-url", address(), "--sessions", "2", "--json")
    options = ("--questions", "arithmetic", "--limit", "2", "--budget", "48", "--interval", "16", "--out", run, *where)
    for seeds, new in ((1, 2), (2, 2), (2, 0)):
        done = command("generate", *options, "--seeds", str(seeds), env=WITH_KEY)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["new"] == new
    done = command("probe", run, *where, env=WITH_KEY)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["probes"] > 0


def test_a_recipe_with_a_server(tmp_path: Path) -> None:
    """With its own address or another one; a finished run needs no server."""
    recipe = tmp_path / "served.toml"
    lines = ['questions = "arithmetic"', "limit = 2", "seeds = 1", "budget = 48", "interval = 16", "sessions = 2"]
    recipe.write_text("\n".join([*lines, 'model = "anything"', 'base_url = "http://127.0.0.1:9/v1"']))
    out = ("--out", str(tmp_path / "run"), "--json")
    refused = command("run", str(recipe), *out, env=WITH_KEY)
    assert (refused.returncode, refused.stderr.splitlines()[0][:26]) == (2, "error: There is no server ")
    done = command("run", str(recipe), *out, "--base-url", address(), env=WITH_KEY)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["thinking"]["traces"], outcome["probing"]["traces"]) == (2, 2)
    assert Path(outcome["page"]).is_file()
    again = command("run", str(recipe), *out)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["thinking"]["new"] == 0
