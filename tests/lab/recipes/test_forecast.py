"""Forecasts: computed by hand, and printed by the command without loading anything."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cgr.engines.open import describe_file
from cgr.lab.questions import SOURCES
from cgr.lab.recipes.forecast import duration, forecast, in_lines
from cgr.lab.recipes.recipe import Recipe, read_recipe
from tests.lab.recipes.recipes import FILES, FOLDER, MODELS, cgr, modules_of


@pytest.mark.parametrize("name", MODELS)
def test_the_forecast_of_the_paper(name: str) -> None:
    code, out, err = cgr("run", FOLDER / f"{name}.toml", "--dry-run", "--json")
    assert (code, err) == (0, "")
    plan = json.loads(out)
    assert (plan["questions"], plan["seeds"], plan["traces"]) == (30, 64, 1920)
    assert plan["thinking_tokens"] == 1920 * 32_000
    assert plan["probes"] == 1920 * 31
    assert plan["probe_tokens"] == 1920 * 31 * 4
    assert plan["reread_tokens"] == 1920 * 31_000
    assert plan["requests"] == 1920 * (1 + 31 + 1 + 1)  # a server streams
    assert plan["seconds"] > 3600
    assert plan["run"] == f"runs/{name}"


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_forecast_as_a_table(path: Path) -> None:
    code, out, err = cgr("run", path, "--dry-run")
    assert (code, err) == (0, "")
    plan = forecast(read_recipe(path))
    for number in (plan.traces, plan.requests, plan.thinking_tokens, plan.probes, plan.probe_tokens):
        assert number is not None
        assert f" {number:,} " in out
    assert (f"server: {plan.server}\n" in out) is (path.stem.removeprefix("ablations-") in MODELS)
    assert re.search(r"^time .* at most, at [\d,]+ tokens a second$", out, re.MULTILINE)


@pytest.mark.parametrize("name", ["embedded", "phi-4-reasoning-plus"])
def test_a_forecast_loads_no_model_and_no_data_set(name: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    modules = modules_of("run", str(FOLDER / f"{name}.toml"), "--dry-run", "--out", str(out))
    assert "cgr.lab.recipes.forecast" in modules
    assert not modules & {"xllamacpp", "datasets", "huggingface_hub", "matplotlib.figure"}
    assert not out.exists()


def test_a_forecast_computed_by_hand() -> None:
    recipe = Recipe(
        name="x", questions="arithmetic", limit=5, seeds=3, budget=100, interval=30, written_tokens=0, tokens_per_second=10
    )
    plan = forecast(recipe)
    assert (plan.traces, plan.thinking_tokens, plan.probes, plan.probe_tokens) == (15, 1500, 45, 180)
    assert plan.requests == 15 * (4 + 3 + 1)
    assert plan.reread_tokens == 15 * 90
    assert plan.seconds == (1500 + 180 + 60) / 10
    assert forecast(replace(recipe, prefill_tokens_per_second=5)).seconds == (1500 + 180 + 60) / 10 + 1350 / 5
    assert forecast(replace(recipe, probe="on-the-way")).reread_tokens == 0
    assert forecast(replace(recipe, tokens_per_second=None)).seconds is None


@pytest.mark.parametrize(("budget", "interval", "probes"), [(96, 32, 2), (97, 32, 3), (32, 32, 0), (10, 32, 0)])
def test_forecast_probes_are_below_the_budget(budget: int, interval: int, probes: int) -> None:
    recipe = Recipe(name="x", questions="arithmetic", limit=1, seeds=1, budget=budget, interval=interval)
    assert forecast(recipe).probes == probes


def test_the_forecast_of_a_local_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"q": "What is 1/2 + 1/3?", "a": "\\\\frac{5}{6}"}\n{"q": "And 1/4 + 1/4?", "a": "\\\\frac{1}{2}"}\n')
    recipe = Recipe(
        name="x", questions=str(path), fields={"text": "q", "gold": "a"}, model="ORG/NAME", seeds=1, budget=64, interval=32
    )
    plan = forecast(recipe)
    assert (plan.questions, plan.probes, plan.probe_tokens) == (2, 2, 2 * 32)


def test_defaults_are_those_of_the_model_or_the_paper() -> None:
    embedded = forecast(Recipe(name="x", questions="arithmetic"))
    own = describe_file("embedded")
    assert (embedded.budget, embedded.interval, embedded.questions, embedded.seeds) == (own.budget, own.interval, 30, 64)
    unseen = forecast(Recipe(name="x", questions="math500", model="ORG/NAME"))
    assert (unseen.budget, unseen.interval, unseen.questions) == (32_000, 1000, 500)


def test_the_size_of_every_named_set_is_known() -> None:
    assert all(source.size for source in SOURCES.values())
    assert forecast(Recipe(name="x", questions="aime2025", limit=40, model="ORG/NAME")).questions == 30


def test_a_data_set_of_unknown_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its totals are unknown, unless a limit bounds them."""
    monkeypatch.setitem(SOURCES, "new", replace(SOURCES["aime2025"], name="new", size=None))
    recipe = Recipe(name="x", questions="new", model="ORG/NAME", seeds=2, budget=100, interval=30, tokens_per_second=10)
    plan = forecast(recipe)
    assert (plan.questions, plan.traces, plan.thinking_tokens, plan.probes, plan.seconds) == (None,) * 5
    lines = in_lines(plan)
    assert lines[-1] == "The number of questions in new is not known: set a limit."
    assert re.fullmatch(r"questions +unknown of new", lines[1])
    assert forecast(replace(recipe, limit=5)).traces == 10


def test_options_change_the_forecast() -> None:
    path = FOLDER / "phi-4-reasoning-plus.toml"
    more = ("--model", "embedded", "--seeds", "2", "--limit", "3", "--tokens-per-second", "640", "--out", "there")
    changed = ("run", path, "--dry-run", "--json", *more)
    code, out, err = cgr(*changed)
    assert code == 2, "a budget of 32000 does not fit the embedded model"
    assert "does not fit" in err
    code, out, err = cgr("run", FOLDER / "embedded.toml", "--dry-run", "--json", *more[2:])
    plan = json.loads(out)
    assert (plan["traces"], plan["tokens_per_second"], plan["run"]) == (6, 640, "there")
    assert plan["seconds"] > plan["thinking_tokens"] / 640


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "1 s"),
        (12, "12 s"),
        (240, "4 min"),
        (25_560, "7 h 6 min"),
        (86_400 * 2 + 10_800, "2 d 3 h"),
        (3599, "1 h 0 min"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said
