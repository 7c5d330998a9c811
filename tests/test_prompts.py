"""What stands around a question: worked examples, the messages of a prompt, and that live and recorded are alike."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr import Model, Settings
from cgr.calibration import NotCalibrated, read
from cgr.errors import UsageError
from cgr.lab.exchange import export_run, import_run
from cgr.lab.record.generate import Plan, generate
from cgr.lab.store import Store
from cgr.lab.store.config import OtherConfiguration, RunConfig
from cgr.lab.store.merge import merge
from cgr.prompts import MAX_BYTES, Example, examples_of, read_examples
from cgr.records import Message, Question
from cgr.rules import WAIT
from tests.support import QUESTION, command
from tests.test_calibration import PROMISE

SHIPPED = Path(__file__).parent.parent / "recipes" / "worked-examples" / "word-problems.toml"
ONE = Example("1+1?", "<think>\none and one\n</think>\n\\boxed{2}")
PAIR = {"question": ONE.question, "reply": ONE.reply}
TURNS = [{"role": "user", "content": ONE.question}, {"role": "assistant", "content": ONE.reply}]
OTHER = Example("2+2?", "4")


def file(folder: Path, name: str, text: str | bytes) -> Path:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / name


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("a.json", json.dumps(PAIR), 1),
        ("a.json", json.dumps([PAIR, PAIR]), 2),
        ("a.json", json.dumps({"messages": TURNS}), 1),
        ("a.json", json.dumps({"messages": [*TURNS, *TURNS]}), 2),
        ("a.jsonl", json.dumps(PAIR) + "\n\n" + json.dumps({"messages": TURNS}) + "\n", 2),
        ("a.jsonl", b"\xef\xbb\xbf" + json.dumps(PAIR).encode(), 1),
        ("a.toml", f"[[examples]]\nquestion = {json.dumps(ONE.question)}\nreply = {json.dumps(ONE.reply)}\n", 1),
    ],
)
def test_a_file_of_examples(tmp_path: Path, name: str, text: str | bytes, count: int) -> None:
    assert read_examples(file(tmp_path, name, text)) == (ONE,) * count


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "x", "no file of worked examples"),
        ("a.json", "{", "not JSON"),
        ("a.toml", "x", "not TOML"),
        ("a.json", "[" * 100_000, "not JSON"),
        ("a.json", "[]", "has no worked examples"),
        ("a.toml", "", "has no worked examples"),
        ("a.toml", "other = 1", "no key called 'other'"),
        ("a.toml", "examples = 1", "must be a list of tables"),
        ("a.json", "3", "must be an object, not 3"),
        ("a.json", '{"question": "x"}', "has no reply"),
        ("a.json", '{"question": "x", "reply": 4}', "must be text, not 4"),
        ("a.json", '{"question": " ", "reply": "x"}', "question of a worked example is empty"),
        ("a.json", '{"question": "x", "reply": "\\ud800"}', "not text in UTF-8"),
        ("a.json", '{"question": "x", "answer": "y"}', "no key of an example called 'answer'"),
        ("a.json", '{"messages": 3}', "a list of objects with role and content"),
        ("a.json", '{"messages": []}', "user and assistant in turn"),
        ("a.json", json.dumps({"messages": TURNS[:1]}), "user and assistant in turn"),
        ("a.json", json.dumps({"messages": [{"role": "system", "content": "x"}, *TURNS]}), "has a system message"),
        ("a.json", b"\xff", "not UTF-8"),
        ("a.json", b" " * (MAX_BYTES + 1), "more than 1,048,576 bytes"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    path = file(tmp_path, name, text)
    with pytest.raises(UsageError, match=message) as caught:
        Settings(examples=path)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_the_command_refuses_a_wrong_file(tmp_path: Path) -> None:
    done = command("solve", QUESTION, "--example", str(file(tmp_path, "a.json", '{"question": "x"}')))
    assert (done.returncode, done.stderr.startswith("error: "), "Traceback" in done.stderr) == (2, True, False)


def test_a_file_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match=r"none\.json: it cannot be read: No such file"):
        Settings(examples="none.json")


@pytest.mark.parametrize("given", [3, [3], {"question": "x"}])
def test_examples_are_files_or_examples(given: Any) -> None:
    with pytest.raises(UsageError, match="worked example"):
        Settings(examples=given)


def test_the_messages_of_a_prompt(tmp_path: Path) -> None:
    path = file(tmp_path, "a.json", json.dumps(PAIR))
    settings = Settings(system="Be brief.", examples=[path, OTHER], instruction="Box it.")
    assert settings.examples == examples_of([ONE, OTHER])
    before = (
        Message("system", "Be brief."),
        Message("user", "1+1?\nBox it."),
        Message("assistant", ONE.reply),
        Message("user", "2+2?\nBox it."),
        Message("assistant", "4"),
    )
    assert settings.prompt("3+3?") == (*before, Message("user", "3+3?\nBox it."))
    talk = (Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "3+3?"))
    assert settings.prompt(talk) == (*before, *talk[:2], Message("user", "3+3?\nBox it."))
    own = (Message("system", "Mine."), Message("user", "3+3?"))
    assert settings.prompt(own) == (own[0], Message("user", "3+3?\nBox it."))
    assert Settings(instruction="Box it.").prompt("3+3?") == "3+3?\nBox it."


def test_the_shipped_examples_think_check_and_answer() -> None:
    found = read_examples(SHIPPED)
    assert len(found) == 2
    for one in found:
        thinking, tag, answer = one.reply.strip().removeprefix("<think>\n").partition("</think>")
        assert tag
        assert "check" in thinking
        assert "\\boxed{" in answer


def recorded(folder: Path, model: Model, **options: Any) -> None:
    settings = Settings(budget=64, interval=32, **options)
    generate(folder, Plan((Question("q", QUESTION, "169", "integer"),), 1, settings, probe=True), model)


BEFORE: dict[str, Any] = {"system": "You count.", "examples": (ONE,)}


def test_a_recording_with_a_prompt_is_what_solve_thinks(tmp_path: Path, loaded: Model) -> None:
    recorded(tmp_path / "run", loaded, **BEFORE)
    with Store.open(tmp_path / "run") as store:
        (trace,) = store.recorded(None, whole=True)
        config = store.config
    assert (config.system, config.examples) == ("You count.", (ONE,))
    solved = loaded.solve(QUESTION, budget=64, interval=32, rule="fixed-budget", **BEFORE)
    plain = loaded.solve(QUESTION, budget=64, interval=32, rule="fixed-budget")
    assert solved.thinking == trace.text
    assert solved.thinking != plain.thinking
    assert (solved.in_domain, plain.in_domain) == (False, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"system": "Another."}, "system is 'You count.' there and 'Another.' here"),
        ({"system": ""}, "system is 'You count.' there and '' here"),
        ({"examples": (OTHER,)}, "the worked examples are others"),
        ({"examples": ()}, "the worked examples are others"),
    ],
)
def test_a_run_is_continued_and_joined_with_its_own_prompt_only(
    tmp_path: Path, loaded: Model, change: dict[str, Any], message: str
) -> None:
    recorded(tmp_path / "run", loaded, **BEFORE)
    recorded(tmp_path / "run", loaded, **BEFORE)
    with pytest.raises(OtherConfiguration, match=message):
        recorded(tmp_path / "run", loaded, **BEFORE | change)
    recorded(tmp_path / "other", loaded, **BEFORE | change)
    with pytest.raises(OtherConfiguration, match=message):
        merge([tmp_path / "run", tmp_path / "other"], tmp_path / "both")


def test_an_export_has_the_prompt(tmp_path: Path, loaded: Model) -> None:
    recorded(tmp_path / "run", loaded, **BEFORE)
    for name in ("a.jsonl", "a.parquet"):
        export_run(tmp_path / "run", tmp_path / name)
        import_run(tmp_path / name, tmp_path / f"{name}-run")
        with Store.open(tmp_path / "run") as store, Store.open(tmp_path / f"{name}-run") as again:
            assert again.config == store.config


def test_a_run_from_before_opens() -> None:
    old = RunConfig(model="m", budget=8).to_dict()
    for name in ("system", "examples", "forced_text", "forced_at_most"):
        del old[name]
    assert RunConfig.from_dict(old) == RunConfig(model="m", budget=8)
    assert RunConfig.from_dict(old).forced_text == WAIT


def test_a_promise_is_for_its_prompt(tmp_path: Path) -> None:
    found = replace(PROMISE, system="You count.", examples=(ONE,)).signed()
    found.write(tmp_path / "promise.json")
    settings = Settings(calibration=tmp_path / "promise.json")
    assert (settings.system, settings.examples) == ("You count.", (ONE,))
    assert Settings(calibration=tmp_path / "promise.json", **BEFORE) == settings
    with pytest.raises(NotCalibrated, match=r"for system 'You count\.', and this is 'No\.'"):
        Settings(calibration=found, system="No.")
    with pytest.raises(NotCalibrated, match="other worked examples"):
        Settings(calibration=found, examples=OTHER)
    with pytest.raises(NotCalibrated, match="for system ''"):
        Settings(calibration=PROMISE, system="No.")
    unknown = replace(PROMISE, system=None, prompt=None).signed()
    assert Settings(calibration=unknown, system="No.").system == "No."


def test_a_promise_from_before_is_read(tmp_path: Path) -> None:
    """A file without the two fields has the digest that it had when it was written."""
    data = PROMISE.to_dict()
    del data["system"], data["examples"]
    assert data["digest"] == "2d80efd7d94206aaf19a7a624c7341c51926e2ce4343be5e7840af0466f289ba"
    (tmp_path / "promise.json").write_text(json.dumps(data))
    assert read(tmp_path / "promise.json") == PROMISE


def test_the_command_says_which_prompt(tmp_path: Path) -> None:
    path = file(tmp_path, "a.json", json.dumps(PAIR))
    asked = ("solve", QUESTION, "--budget", "32", "--json")
    plain, given = command(*asked), command(*asked, "--system", "You count.", "--example", str(path))
    assert json.loads(plain.stdout)["thinking"] != json.loads(given.stdout)["thinking"]
    assert json.loads(given.stdout)["in_domain"] is False
