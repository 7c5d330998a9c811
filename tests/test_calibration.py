"""The file of a promise: written, read, refused, and obeyed by `cgr.solve`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr import Model
from cgr.calibration import Calibration, NotCalibrated, SequenceStep, read, sentence
from cgr.engines.base import ModelInfo
from cgr.errors import CgrError, UsageError
from cgr.settings import INSTRUCTION, Settings
from tests.support import QUESTION, python

STEPS = (
    SequenceStep(0.999, 0.0, 0.001, True, 0.1, 0.006),
    SequenceStep(0.98, 0.002, 0.04, True, 0.27, 0.0095),
    SequenceStep(0.9, 0.01, 0.4, False, 0.4, 0.02),
)
PROMISE = Calibration(
    rule="cgr",
    parameter=0.98,
    risk="disagreement",
    epsilon=0.01,
    delta=0.05,
    method="ltt",
    questions=500,
    losses=1.0,
    bound=0.0095,
    sequence=STEPS,
    saved_share=0.27,
    saved_share_ci95=(0.25, 0.29),
    needed_questions=None,
    possible_epsilon=0.006,
    model="m",
    fingerprint="abc",
    prompt="{question}\n" + INSTRUCTION,
    prefix="Final Answer: \\boxed{",
    interval=32,
    budget=256,
    sampling={"temperature": 0.8, "top_p": 1.0},
    run="0" * 64,
    created="2025-01-01T00:00:00+00:00",
    version="1.0",
    main="threshold",
    parameters={},
    probe={"close_think": "never", "max_answer_tokens": 4, "aggregate": "min"},
    kind="exact",
).signed()
INFO = ModelInfo("m", "e", 1000, "<think>", "</think>", fingerprint="abc")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    PROMISE.write(tmp_path / "calibration.json")
    return tmp_path / "calibration.json"


def test_a_file_is_read_as_it_was_written(path: Path) -> None:
    assert read(path) == PROMISE


def test_the_names_in_the_file(path: Path) -> None:
    names = {
        *("rule", "parameter", "risk", "epsilon", "delta", "method", "questions", "losses", "bound", "sequence"),
        *("saved_share", "saved_share_ci95", "needed_questions", "possible_epsilon", "model", "fingerprint", "prompt"),
        *("prefix", "interval", "budget", "sampling", "run", "created", "version"),
    }
    data = json.loads(path.read_text())
    assert names <= data.keys()
    assert {"parameter", "loss", "p_value", "passed", "saved_share"} <= data["sequence"][0].keys()


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        data = json.loads(text)
        change(data)
        return json.dumps(data)

    return edit


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[: len(text) // 2], "not a complete JSON file"),
        (lambda text: "", "not a complete JSON file"),
        (lambda text: "[1, 2]", "not a calibration"),
        (lambda text: '{"rule": "cgr"}', "not a calibration"),
        (edited(lambda data: data.update(parameter=0.5)), "was changed"),
        (edited(lambda data: data.update(epsilon=0.001)), "was changed"),
        (edited(lambda data: data["sequence"][2].update(passed=True)), "was changed"),
        (edited(lambda data: data.pop("digest")), "was changed"),
        (edited(lambda data: data.pop("model")), "not a complete calibration"),
        (edited(lambda data: data.update(more=1)), "not a complete calibration"),
        (edited(lambda data: data.update(sequence=7)), "not a complete calibration"),
        (edited(lambda data: data.update(schema=2, version="9.9")), "made by cgr 9.9, which is newer"),
    ],
)
def test_other_files_are_refused(path: Path, change: Callable[[str], str], words: str) -> None:
    path.write_text(change(path.read_text()))
    with pytest.raises(NotCalibrated, match=words) as caught:
        read(path)
    assert caught.value.hint


def test_a_missing_file_and_a_file_without_a_promise(tmp_path: Path) -> None:
    with pytest.raises(NotCalibrated, match="cannot be read"):
        read(tmp_path / "none.json")
    outside = replace(PROMISE, parameter=0.97).signed()
    outside.write(tmp_path / "outside.json")
    with pytest.raises(NotCalibrated, match="promises nothing"):
        read(tmp_path / "outside.json")


def test_settings_take_what_the_promise_fixes(path: Path) -> None:
    settings = Settings.of(calibration=str(path))
    assert (settings.rule, settings.threshold, settings.interval, settings.budget) == ("cgr", 0.98, 32, 256)
    assert (settings.temperature, settings.max_answer_tokens) == (0.8, 4)
    resolved = settings.resolve(INFO)
    assert resolved.threshold == 0.98
    assert resolved.rule.sure_at == 0.98
    assert Settings.of(calibration=PROMISE) == settings
    assert Settings.of(calibration=path) == settings


def test_a_more_cautious_value_of_the_sequence_is_covered() -> None:
    assert Settings.of(calibration=PROMISE, threshold=0.999).resolve(INFO).threshold == 0.999
    assert replace(Settings.of(calibration=PROMISE), threshold=0.999).resolve(INFO).threshold == 0.999


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threshold": 0.9}, "does not cover threshold 0.9"),
        ({"threshold": 0.97}, "does not cover threshold 0.97"),
        ({"interval": 64}, "interval 32, and this is 64"),
        ({"rule": "dynasor"}, "rule 'cgr'"),
        ({"budget": 300}, "budget 256"),
        ({"prefix": "Answer: \\boxed{"}, "prefix"),
        ({"instruction": ""}, "instruction"),
        ({"temperature": 0.1}, "temperature 0.8"),
        ({"aggregate": "mean"}, "aggregate"),
        ({"parameters": {"interval": 8}}, "fixes the parameters"),
    ],
)
def test_what_is_outside_the_promise_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(NotCalibrated, match=words) as caught:
        Settings.of(calibration=PROMISE, **options)
    assert caught.value.hint


def test_another_model_is_refused() -> None:
    settings = Settings.of(calibration=PROMISE)
    with pytest.raises(NotCalibrated, match="other weights"):
        settings.resolve(replace(INFO, fingerprint="other"))
    with pytest.raises(NotCalibrated, match="this is 'another'"):
        settings.resolve(replace(INFO, name="another", fingerprint=""))
    assert settings.resolve(replace(INFO, name="a copy")).threshold == 0.98
    with pytest.raises(NotCalibrated, match="is probed"):
        settings.check_prober(INFO)
    with pytest.raises(UsageError, match="must be a file"):
        Settings.of(calibration=3)


def test_a_promise_about_wrong_answers_abstains() -> None:
    settings = Settings.of(calibration=replace(PROMISE, abstains=True).signed())
    assert (settings.at_budget, settings.at_end_of_thinking) == ("abstain", "abstain")
    assert settings.abstention().threshold == 0.98


def test_a_rule_with_other_parameters() -> None:
    steps = (SequenceStep(0.02, 0.0, 0.01, True, 0.1, 0.006),)
    promise = replace(
        PROMISE, rule="calibrated", main="price", parameter=0.02, sequence=steps, parameters={"rare": 1, "hope": 0.4}
    ).signed()
    rule = Settings.of(calibration=promise).resolve(INFO).rule
    assert (rule.name, getattr(rule, "price"), getattr(rule, "rare")) == ("calibrated", 0.02, 1)  # noqa: B009
    with pytest.raises(NotCalibrated, match="price"):
        Settings.of(calibration=promise, parameters={"price": 0.4})


def test_irregular_positions_cannot_be_probed_live() -> None:
    with pytest.raises(NotCalibrated, match="irregular"):
        Settings.of(calibration=replace(PROMISE, interval=0).signed())


def test_the_sentence() -> None:
    said = "With 95% confidence at most 1% of answers change; 27% of the thinking tokens are saved, net of probes."
    assert sentence(PROMISE) == said
    assert sentence(replace(PROMISE, parameter=None)) == "Nothing can be promised."


def test_solve_obeys_a_promise_for_the_embedded_model(loaded: Model) -> None:
    info = loaded.engine.info
    own = replace(PROMISE, model=info.name, fingerprint=info.fingerprint).signed()
    solved = loaded.solve(QUESTION, calibration=own)
    assert (solved.threshold, solved.interval, solved.budget) == (0.98, 32, 256)
    with pytest.raises(CgrError, match="The calibration is for the model"):
        loaded.solve(QUESTION, calibration=PROMISE)


def test_no_numpy_is_needed(path: Path) -> None:
    done = python(f"import sys, cgr; cgr.Settings(calibration={str(path)!r}); print('numpy' in sys.modules)")
    assert done.stdout == "False\n", done.stderr
