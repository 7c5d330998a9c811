"""Recipes: the values of the paper, refused files, and the embedded recipe run to its end."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.real_model import MODEL
from cgr.engines.base import Capabilities, ModelInfo
from cgr.engines.open import describe_file
from cgr.lab.recipes.forecast import forecast
from cgr.lab.recipes.recipe import Recipe, read_recipe
from cgr.lab.recipes.run import Experiment
from cgr.lab.record.jobs import Progress
from cgr.lab.store import Store
from cgr.lab.store.config import Asking, OtherConfiguration, ProbeSet
from cgr.lab.store.recorded import RecordedTrace
from cgr.prompts import Example
from cgr.records import Probe
from tests.lab.recipes.recipes import FILES, FOLDER, MODELS, cgr, modules_of
from tests.support import command

# The recipes of the repository


REAL = {"qwen2.5-coder-1.5b-gsm8k": "gsm8k", "qwen2.5-coder-1.5b-math500": "math500"}


def test_the_recipes_are_the_papers_three_the_embedded_one_and_the_real_ones() -> None:
    ablations = {"ablations", *(f"ablations-{name}" for name in MODELS)}
    assert {path.stem for path in FILES} == {*MODELS, "embedded", *ablations, *REAL}


@pytest.mark.parametrize("name", REAL)
def test_a_recipe_of_the_real_model_makes_the_recording_that_is_shipped(name: str) -> None:
    recipe = read_recipe(FOLDER / f"{name}.toml")
    assert (recipe.questions, recipe.seeds, recipe.temperature, recipe.interval) == (REAL[name], 1, 0.6, 48)
    assert (recipe.probe, recipe.forced, recipe.think_tags) == ("on-the-way", True, "<think>,</think>")
    assert Path(recipe.model).name == MODEL.file
    code, out, err = cgr("run", FOLDER / f"{name}.toml", "--dry-run", "--model", "none.gguf")  # needs no model
    assert (code, err) == (0, "")
    assert "forced run" in out


def test_worked_examples_are_beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "one.json").write_text('{"question": "1+1?", "reply": "2"}')
    (tmp_path / "recipes" / "a.toml").write_text(
        'questions = "arithmetic"\nsystem = "You count."\nexamples = ["one.json"]\nforced = true\n'
        'forcing = { at_most = 1, text = "\\nHm" }\nbudget = 64\ninterval = 32'
    )
    monkeypatch.chdir(tmp_path)
    recipe = read_recipe(Path("recipes/a.toml"))
    info = ModelInfo("m", "e", 1000, "", "")
    for plan, forced in ((recipe.plan(), ("\nWait", None)), (recipe.forced_plan(), ("\nHm", 1))):
        config = plan.config(info, Capabilities())
        assert (config.system, config.examples) == ("You count.", (Example("1+1?", "2"),))
        assert (config.forced_text, config.forced_at_most) == forced


def test_other_questions_for_a_recipe(tmp_path: Path) -> None:
    rows = [{"id": f"q{number}", "question": f"{number}+1?", "answer": f"#### {number + 1}"} for number in range(7)]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = FOLDER / "qwen2.5-coder-1.5b-gsm8k.toml"
    code, out, _ = cgr("run", recipe, "--dry-run", "--questions", f"gsm8k:{tmp_path / 'own.jsonl'}", "--json")
    plan = json.loads(out)
    assert (code, plan["questions"], plan["traces"]) == (0, 7, 7)


@pytest.mark.parametrize("name", MODELS)
def test_a_recipe_of_the_paper_has_the_values_of_the_paper(name: str) -> None:
    recipe = read_recipe(FOLDER / f"{name}.toml")
    assert (recipe.model, recipe.questions, recipe.limit, recipe.seeds) == (MODELS[name], "aime2025", None, 64)
    assert (recipe.budget, recipe.interval, recipe.temperature, recipe.top_p) == (32_000, 1000, 0.6, 1.0)
    assert (recipe.thresholds, recipe.penalties) == ((0.96, 0.97, 0.98, 0.99), (0, 0.25, 0.5, 1))
    assert (recipe.probe, recipe.prefix, recipe.max_answer_tokens) == ("afterwards", "Final Answer: \\boxed{", 4)
    assert recipe.instruction == "Please reason step by step, and put your final answer within \\boxed{}."
    assert recipe.base_url == "http://localhost:8000/v1"


@pytest.mark.parametrize("name", MODELS)
def test_the_line_that_starts_the_server_is_the_same_in_the_comment(name: str) -> None:
    path = FOLDER / f"{name}.toml"
    server = read_recipe(path).server
    assert server is not None
    assert server.startswith(f"python -m vllm.entrypoints.openai.api_server --model {MODELS[name]} ")
    assert server.endswith(" --enable-prefix-caching")
    commented = re.sub(r"\\\n#\s+", "", path.read_text())
    assert f"#   {server}\n" in commented


def test_the_server_has_room_for_the_budget() -> None:
    for name in MODELS:
        recipe = read_recipe(FOLDER / f"{name}.toml")
        room = int(re.findall(r"--max-model-len (\d+)", recipe.server or "")[0])
        assert room >= (recipe.budget or 0) + 512


def test_the_embedded_recipe_has_the_models_own_budget_and_interval() -> None:
    recipe, info = read_recipe(FOLDER / "embedded.toml"), describe_file("embedded")
    assert (recipe.model, recipe.budget, recipe.interval) == ("embedded", info.budget, info.interval)
    assert (recipe.base_url, recipe.server) == (None, None)


def test_every_key_is_documented() -> None:
    text = (FOLDER.parent / "docs" / "recipes.md").read_text()
    documented = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert documented == {field.name for field in fields(Recipe)} - {"name"}


# Refused files


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ('questions = "arithmetic"\nsedes = 3', "There is no key in PATH called 'sedes'.", "Did you mean 'seeds'?"),
        ('questions = "arithmetic"\nname = "x"', "There is no key in PATH called 'name'.", "Known: ablations, about, "),
        ("seeds = 3", "PATH has no questions.", 'questions = "aime2025"'),
        ("seeds 3", "PATH is not TOML: ", "seeds = 64"),
        ('questions = "a"\nquestions = "b"', "PATH is not TOML: ", "one key per line"),
        ('questions = "arithmetic"\nseeds = "many"', "seeds must be a whole number, not 'many'.", "seeds = 64"),
        ('questions = "arithmetic"\nseeds = true', "seeds must be a whole number, not True.", "seeds = 64"),
        ('questions = "arithmetic"\nbudget = 1e3', "budget must be a whole number, not 1000.0.", "budget = 64"),
        ('questions = "arithmetic"\nthresholds = 0.9', "thresholds must be a list of numbers, not 0.9.", "[0.96, 0.99]"),
        ('questions = "arithmetic"\nthresholds = ["a"]', "thresholds must be a list of numbers", "[0.96, 0.99]"),
        ('questions = "arithmetic"\nthresholds = [1.5]', "PATH: A threshold of 1.5 is not a certainty.", "0.99"),
        ('questions = "arithmetic"\nthresholds = []', "PATH: A report needs a threshold.", "0.99"),
        ('questions = "arithmetic"\npenalties = [-1]', "PATH: A penalty of -1 is not valid.", "0 or more"),
        ('questions = "arithmetic"\ntemperature = nan', "PATH: A temperature of nan is not possible.", "0 or more"),
        ('questions = "arithmetic"\nlogprobs = 1', "logprobs must be true or false, not 1.", "logprobs = true"),
        ("questions = 3", "questions must be text in quotes, not 3.", 'questions = "..."'),
        ('questions = "arithmetic"\n[fields]\ngold = 3', "fields must be a table of names", '{ gold = "answer" }'),
        ('questions = "arithmetic"\n[model]\nname = "x"', "model must be text in quotes", 'model = "..."'),
        (
            'questions = "arithmetic"\nprobe = "before"',
            "PATH: probe must be 'afterwards' or 'on-the-way', not 'before'.",
            "on-the-way",
        ),
        (
            'questions = "arithmetic"\nclose_think = "neve"',
            "PATH: close_think must be 'never', 'always' or 'auto', not 'neve'.",
            "Did you mean 'never'?",
        ),
        ('questions = "arithmetic"\nseeds = 0', "PATH: seeds cannot be 0.", "1 or more"),
        ('questions = "arithmetic"\nlimit = -1', "PATH: limit cannot be -1.", "1 or more"),
        ('questions = "arithmetic"\nwritten_tokens = -1', "PATH: written_tokens cannot be -1.", "0 or more"),
        ('questions = "arithmetic"\ntokens_per_second = 0', "PATH: 0 tokens per second is not a speed.", "1500"),
        (
            'questions = "arithmetic"\nprefill_tokens_per_second = inf',
            "PATH: inf tokens per second is not a speed.",
            "1500",
        ),
        ('questions = "arithmetik"', "There is no question source called 'arithmetik'.", "'arithmetic'"),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_a_bad_recipe_is_refused_by_name(text: str, said: str, hint: str, dry: bool, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    code, out, err = cgr("run", path, "--out", tmp_path / "run", *(["--dry-run"] if dry else []))
    assert (code, out) == (2, "")
    complaint, advice = err.splitlines()
    assert complaint.startswith("error: ")
    assert said.replace("PATH", str(path)) in complaint
    assert advice.startswith("hint:  ")
    assert hint in advice
    assert not (tmp_path / "run").exists()


def test_files_that_are_not_recipes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cgr("run", "nothing.toml")[::2] == (
        2,
        "error: There is no recipe 'nothing.toml'.\nhint:  Give a .toml file; its keys are in docs/recipes.md.\n",
    )
    Path("recipes").mkdir()
    assert cgr("run", "recipes")[::2] == (
        2,
        "error: recipes cannot be read: Is a directory.\nhint:  Give the file of a recipe.\n",
    )
    Path("recipes/embedded.toml").write_text('questions = "arithmetic"\n')
    for name in ("embedded", "embedded.toml"):
        code, _, err = cgr("run", name)
        assert (code, err.splitlines()[1]) == (2, "hint:  Did you mean 'recipes/embedded.toml'?")
    assert "Did you mean 'recipes/embedded.toml'?" in cgr("run", "recipes/embeded.toml")[2]
    Path("latin.toml").write_bytes('questions = "\xe9"'.encode("latin-1"))
    assert "latin.toml is not TOML: it is not UTF-8." in cgr("run", "latin.toml")[2]


@pytest.mark.parametrize("name", MODELS)
def test_an_unreachable_server_is_reported_before_a_run_is_created(name: str, tmp_path: Path) -> None:
    """The paper's recipes with other questions, because theirs are on the hub."""
    path = tmp_path / f"{name}.toml"
    text = (FOLDER / f"{name}.toml").read_text().replace("localhost:8000", "127.0.0.1:9")
    path.write_text(text.replace('questions = "aime2025"', 'questions = "arithmetic"'))
    code, _, err = cgr("run", path, "--out", tmp_path / "run")
    assert code == 2
    complaint, hint = err.splitlines()
    assert complaint.startswith("error: There is no server at http://127.0.0.1:9")
    assert hint == "hint:  Start it, or check --base-url and CGR_BASE_URL."
    assert not (tmp_path / "run").exists()


def test_another_model_needs_no_server() -> None:
    recipe = read_recipe(FOLDER / "phi-4-reasoning-plus.toml").with_model("embedded")
    assert (recipe.model, recipe.base_url, recipe.server, recipe.sessions) == ("embedded", None, None, None)
    assert (recipe.tokens_per_second, recipe.prefill_tokens_per_second) == (None, None)
    assert (recipe.budget, recipe.seeds) == (32_000, 64)


def test_a_speed_without_a_dry_run_is_refused() -> None:
    code, _, err = cgr("run", FOLDER / "embedded.toml", "--tokens-per-second", "5")
    assert (code, err.splitlines()[0]) == (2, "error: --tokens-per-second is only for --dry-run.")


# Running a recipe


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded recipe with a smaller budget."""
    path = tmp_path_factory.mktemp("recipes") / "embedded.toml"
    text = (FOLDER / "embedded.toml").read_text()
    assert text.count("budget = 2048\n") == text.count("interval = 48\n") == 1
    path.write_text(text.replace("budget = 2048\n", "budget = 64\n").replace("interval = 48\n", "interval = 16\n"))
    return path


@pytest.fixture(scope="module")
def finished(small: Path) -> tuple[Path, dict[str, Any]]:
    """The embedded recipe with 2 seeds, in a folder where the creation of a run was killed."""
    folder = small.parent / "run"
    folder.mkdir()
    (folder / "run.sqlite").touch()
    done = command("run", str(small), "--seeds", "2", "--limit", "2", "--out", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_the_embedded_recipe_thinks_probes_and_reports(small: Path, finished: tuple[Path, dict[str, Any]]) -> None:
    folder, outcome = finished
    plan = forecast(replace(read_recipe(small), seeds=2, limit=2))
    thinking, probing = outcome["thinking"], outcome["probing"]
    assert (thinking["traces"], thinking["new"], thinking["failed"]) == (plan.traces, plan.traces, 0)
    assert (probing["traces"], probing["new"], probing["probe_set"]) == (plan.traces, plan.traces, "default")
    assert 0 < thinking["thinking_tokens"] <= (plan.thinking_tokens or 0)
    assert 0 < probing["probes"] <= (plan.probes or 0)
    assert 0 < probing["probe_tokens"] <= (plan.probe_tokens or 0)
    with Store.open(folder) as store:
        assert store.config.probe is False
        assert all(probe.at % 16 == 0 for trace in store.recorded() for probe in trace.probes)
    report = json.loads(Path(outcome["report"]).read_text())
    assert [row["threshold"] for row in outcome["results"]] == [None, 0.96, 0.97, 0.98, 0.99]
    assert outcome["results"][0]["accuracy"] == report["baseline"]["accuracy"]
    assert outcome["results"][4]["saved_tokens"] == report["savings"][3]["total"]
    assert Path(outcome["page"]) == folder / "report" / "index.html"
    assert all(Path(outcome[name]).is_file() for name in ("report", "picture", "page"))


def test_another_temperature_is_refused_before_a_model_is_loaded(
    small: Path, finished: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    warmer = tmp_path / "warmer.toml"
    warmer.write_text(small.read_text().replace("temperature = 0.6", "temperature = 1"))
    code, _, err = cgr("run", warmer, "--seeds", "2", "--limit", "2", "--out", finished[0])
    assert code == 2
    assert "temperature is 0.6 there and 1.0 here" in err
    assert "hint:" in err
    assert "xllamacpp" not in modules_of("run", str(warmer), "--out", str(finished[0]))


def test_an_edited_report_is_written_again(small: Path, finished: tuple[Path, dict[str, Any]]) -> None:
    folder, outcome = finished
    experiment = Experiment(replace(read_recipe(small), seeds=2, limit=2), folder)
    numbers = Path(outcome["report"])
    before = numbers.read_bytes()
    numbers.write_bytes(before + b" ")
    written = experiment.report()
    assert numbers.read_bytes() == before
    stamped = (folder / "report" / "made.json").stat().st_mtime_ns
    assert experiment.report() == written
    assert (folder / "report" / "made.json").stat().st_mtime_ns == stamped


def test_probes_with_another_interval_are_refused(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    recipe = replace(read_recipe(small), seeds=1, limit=1)
    experiment = Experiment(recipe, folder)
    config = experiment.plan.config(ModelInfo("scripted", "scripted", 100_000, "", ""), Capabilities())
    trace = RecordedTrace(experiment.plan.questions[0].id, 0, "1", 4, "end_of_thinking", 64, Probe(4, "1", 0.5, True))
    with Store.create(
        folder, replace(config, model="embedded", engine="llama.cpp", asking=Asking(max_answer_tokens=4))
    ) as store:
        store.add_questions(experiment.plan.questions)
        name = store.add_probe_set(ProbeSet("interval", 8, store.config.asking, "embedded"), "default")
        store.add_trace(trace, probe_set=name)
    with pytest.raises(OtherConfiguration, match="interval is 8 there and 16 here"):
        experiment.make(Progress(quiet=True), Progress(quiet=True))


def test_without_any_trace_there_is_no_report(tmp_path: Path) -> None:
    questions, path = tmp_path / "q.jsonl", tmp_path / "long.toml"
    questions.write_text(json.dumps({"id": "long", "text": "Find x. " * 2000, "gold": "1"}) + "\n")
    path.write_text(f"questions = {json.dumps(str(questions))}\nseeds = 1\nbudget = 32\n")
    done = command("run", str(path), "--out", str(tmp_path / "run"))
    assert done.returncode == 1
    assert "0 of 1 traces are in" in done.stdout
    assert "failed: long (seed 0): The prompt has" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "report").exists()
