"""Further probe sets and the forced run of a recipe: read, refused, forecast, and made with the embedded model."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from cgr.lab.recipes.forecast import forecast
from cgr.lab.recipes.recipe import ExtraProbes, read_recipe
from cgr.lab.recipes.run import Experiment
from cgr.lab.record.jobs import Progress
from cgr.lab.store import Store
from cgr.lab.store.config import OtherConfiguration
from tests.lab.recipes.recipes import FOLDER, MODELS, cgr
from tests.support import command

SMALL = """
questions = "arithmetic"
limit = 2
seeds = 1
budget = 64
interval = 16
written_tokens = 0
probe = "on-the-way"
thresholds = [0.9]
ablations = true
forced = true

[[further_probes]]
name = "every-8"
interval = 8

[[further_probes]]
name = "closed"
close_think = "always"

[[further_probes]]
name = "other"
model = "OTHER"
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "small.toml"
    other = path.parent / "other.gguf"
    embedded = Path(__file__).parents[3] / "src" / "cgr" / "model" / "embedded.gguf"
    other.write_bytes(embedded.read_bytes())
    path.write_text(SMALL.replace("OTHER", str(other)))
    return path


@pytest.mark.parametrize("name", ["ablations", *(f"ablations-{name}" for name in MODELS)])
def test_the_ablation_recipes_record_every_ablation(name: str) -> None:
    recipe = read_recipe(FOLDER / f"{name}.toml")
    assert recipe.ablations
    assert recipe.forced
    sets = recipe.further_probes
    assert any(one.interval and recipe.interval and one.interval < recipe.interval for one in sets)
    assert any(one.prefix for one in sets)
    assert any(one.close_think == "always" for one in sets)
    assert any(one.model for one in sets)
    plan = forecast(recipe)
    bare = forecast(replace(recipe, further_probes=(), forced=False))
    assert bare.thinking_tokens
    assert plan.thinking_tokens == bare.thinking_tokens * 2
    assert plan.probes
    assert bare.probes
    assert plan.probes > bare.probes * (1 + len(sets))
    assert (plan.further_sets, plan.forced, bare.further_sets, bare.forced) == (len(sets), True, 0, False)
    code, out, _ = cgr("run", FOLDER / f"{name}.toml", "--dry-run")
    assert code == 0
    assert f"further probes {len(sets)}" in " ".join(out.split())


@pytest.mark.parametrize("name", MODELS)
def test_the_ablation_recipes_of_the_paper_have_the_same_traces(name: str) -> None:
    ablated = read_recipe(FOLDER / f"ablations-{name}.toml")
    own = read_recipe(FOLDER / f"{name}.toml")
    same = replace(ablated, name=own.name, about=own.about, ablations=False, further_probes=(), forced=False)
    assert same == own


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("further_probes = 3", "further_probes must be a list of tables, not 3.", "[[further_probes]]"),
        ("further_probes = [3]", "further_probes must be a list of tables", "[[further_probes]]"),
        ("[[further_probes]]\ninterval = 8", "has no name.", 'name = "every-16"'),
        ('[[further_probes]]\nname = "x"\nintervall = 8', "There is no key in a [[further_probes]]", "'interval'"),
        ('[[further_probes]]\nname = "x"\ninterval = "8"', "interval must be a whole number", "interval = 64"),
        ('[[further_probes]]\nname = "x"\ninterval = 0', "The interval cannot be 0 tokens.", "1 token"),
        ('[[further_probes]]\nname = "default"', "Further probes cannot be called 'default'.", "every-16"),
        ('[[further_probes]]\nname = "x"\nbase_url = "http://a"', "The set 'x' has an address but no model.", "model ="),
        (
            '[[further_probes]]\nname = "x"\n[[further_probes]]\nname = "x"',
            "There are two further probe sets called 'x'.",
            "its own name",
        ),
        ("forced = 3", "forced must be true or false, not 3.", "forced = true"),
    ],
)
def test_invalid_further_probes_are_refused_by_name(text: str, said: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(f'questions = "arithmetic"\n{text}\n')
    code, out, err = cgr("run", path, "--dry-run")
    assert (code, out) == (2, "")
    complaint, advice = err.splitlines()
    assert said in complaint
    assert hint in advice


def test_probe_sets_on_a_server_are_dropped_with_another_model() -> None:
    recipe = read_recipe(FOLDER / "ablations-phi-4-reasoning-plus.toml")
    assert "prober" not in {one.name for one in recipe.with_model("embedded").further_probes}


@pytest.fixture(scope="module")
def made(small: Path) -> tuple[Path, dict[str, object]]:
    folder = small.parent / "run"
    done = command("run", str(small), "--out", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_every_set_is_recorded_and_the_ablations_are_made(made: tuple[Path, dict[str, object]]) -> None:
    folder, outcome = made
    with Store.open(folder) as store:
        sets = store.probe_sets()
        assert list(sets) == ["default", "every-8", "closed", "other"]
        assert all(len(store.probed(name)) == 2 for name in sets)
        assert (sets["every-8"].interval, sets["closed"].asking.close_think) == (8, "always")
        assert sets["other"].fingerprint == sets["default"].fingerprint
    with Store.open(folder / "forced") as store:
        assert (store.config.rule, len(store.probed("default"))) == ("budget-forcing", 2)
        assert all(trace.thinking_tokens == 64 for trace in store.recorded())
    assert outcome["ablations"] == str(folder / "ablations" / "index.html")
    assert isinstance(outcome["conclusions"], list)
    for title in ("Interval between probes: ", "Forcing: With budget-forcing "):
        assert any(said.startswith(title) for said in outcome["conclusions"])
    stored = json.loads((folder / "ablations" / "ablations.json").read_text())
    assert (stored["threshold"], stored["run"]["name"]) == (0.9, "run")


def test_a_second_call_loads_no_model(small: Path, made: tuple[Path, dict[str, object]]) -> None:
    folder, _ = made
    before = os.stat(folder / "run.sqlite").st_mtime_ns
    done = command("run", str(small), "--out", str(folder), "--json", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0
    assert os.stat(folder / "run.sqlite").st_mtime_ns == before
    assert "xllamacpp" not in done.stderr


def test_a_set_with_the_same_name_and_another_configuration_is_refused(
    small: Path, made: tuple[Path, dict[str, object]]
) -> None:
    folder, _ = made
    other = replace(read_recipe(small), further_probes=(ExtraProbes(name="closed", close_think="never"),))
    with pytest.raises(OtherConfiguration, match="close think is 'always' there and 'never' here"):
        Experiment(other, folder).make(Progress(quiet=True), Progress(quiet=True))
