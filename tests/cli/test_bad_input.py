"""Wrong input of every kind: one sentence, a hint, exit code 2, and never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from cgr.cli.main import run
from cgr.solve import find_model
from tests.support import QUESTION, command

BAD: list[tuple[str, tuple[str, ...], str]] = [
    ("unknown model", (QUESTION, "--model", "nothing"), "There is no model 'nothing'"),
    ("not on the hub", (QUESTION, "--model", "no-org/no-name"), "The hub has no model"),
    ("threshold above 1", (QUESTION, "--threshold", "1.5"), "threshold of 1.5"),
    ("threshold below 0", (QUESTION, "--threshold", "-0.1"), "threshold of -0.1"),
    ("interval below 1", (QUESTION, "--interval", "0"), "interval cannot be 0"),
    ("budget below 1", (QUESTION, "--budget", "0"), "budget cannot be 0"),
    ("budget larger than the context", (QUESTION, "--budget", "1000000"), "does not fit"),
    ("empty question", ("",), "question is empty"),
    ("nothing on standard input", ("-",), "question is empty"),
    ("unknown rule", (QUESTION, "--rule", "crg"), "no rule called 'crg'"),
    ("unknown aggregate", (QUESTION, "--aggregate", "minimum"), "no aggregate called 'minimum'"),
    ("a prefix that cannot be closed", (QUESTION, "--prefix", "The answer is "), "could never be closed"),
    ("unknown option", (QUESTION, "--treshold", "0.9"), "--treshold"),
]
MORE_BAD: list[tuple[str, tuple[str, ...], str]] = [
    ("no such file", (QUESTION, "--model", "./none.gguf"), "There is no model"),
    ("no such file above", (QUESTION, "--model", "../none"), "There is no model"),
    ("a name too long for a file", (QUESTION, "--model", "x" * 3000), "There is no model"),
    ("a model and no question", ("--model", "some.gguf"), "There is no question"),
    ("threshold nan", (QUESTION, "--threshold", "nan"), "threshold of nan"),
    ("threshold not a number", (QUESTION, "--threshold", "high"), "'high'"),
    ("interval below 0", (QUESTION, "--interval", "-5"), "interval cannot be -5"),
    ("answers of no tokens", (QUESTION, "--max-answer-tokens", "0"), "at least one token"),
    ("blank question", (" \n",), "question is empty"),
    ("a prefix that is already closed", (QUESTION, "--prefix", "\\boxed{}"), "could never be closed"),
    ("temperature below 0", (QUESTION, "--temperature", "-1"), "temperature of -1"),
    ("temperature nan", (QUESTION, "--temperature", "nan"), "temperature of nan"),
    ("top-p 0", (QUESTION, "--top-p", "0"), "top-p of 0"),
    ("unknown policy", (QUESTION, "--at-budget", "guess"), "'guess'"),
    ("unknown value of --close-think", (QUESTION, "--close-think", "maybe"), "'maybe'"),
    ("no tags", (QUESTION, "--think-tags", "think"), "does not name think tags"),
    ("no threads", (QUESTION, "--threads", "0"), "0 threads"),
    ("two questions", (QUESTION, QUESTION), "unexpected extra argument"),
    ("requests of no tokens", (QUESTION, "--chunk", "0"), "A chunk has at least one token"),
    (
        "a negative number of answers",
        (QUESTION, "--rule", "dynasor", "--set", "agree=-1"),
        "'agree' of 'dynasor' cannot be -1",
    ),
    ("options that are not there", (QUESTION, "--aggregate", "options"), "lists no options"),
]


def complaint(code: int, out: str, errors: str) -> tuple[str, str]:
    """The error and the hint: two lines, nothing else, exit code 2."""
    assert code == 2, errors
    assert out == ""
    lines = errors.splitlines()
    assert len(lines) == 2, errors
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("hint:  ")
    return lines[0], lines[1]


def refused(*arguments: str) -> tuple[str, str]:
    done = command("solve", *arguments)
    return complaint(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(("arguments", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_input(arguments: tuple[str, ...], message: str) -> None:
    error, hint = refused(*arguments)
    assert message in error
    if "crg" in arguments:
        assert "Did you mean 'cgr'?" in hint
    if "minimum" in arguments:
        assert "Did you mean 'min'?" in hint


@pytest.mark.parametrize(("arguments", "message"), [row[1:] for row in MORE_BAD], ids=[row[0] for row in MORE_BAD])
def test_more_bad_input(arguments: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The same in this process, which is faster than a new process for each case."""
    code = run(["solve", *arguments])
    assert message in complaint(code, *capfd.readouterr())[0]


def files(folder: Path) -> dict[str, Path]:
    whole = find_model(None).read_bytes()
    contents = {
        "text.gguf": b"hello",
        "empty.gguf": b"",
        "head.gguf": whole[:2000],
        "weights.gguf": whole[:-100_000],
        "plain.gguf": whole.replace(b"think>", b"thank>"),
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return {name: folder / name for name in contents} | {"folder": folder}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text.gguf", "is not a GGUF file"),
        ("empty.gguf", "is not a GGUF file"),
        ("head.gguf", "is incomplete or damaged: its metadata cannot be read"),
        ("weights.gguf", "llama.cpp cannot load"),
        ("plain.gguf", "has no think tags"),
        ("folder", "cannot be read"),
    ],
)
def test_files_that_are_not_models(tmp_path: Path, name: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    code = run(["solve", QUESTION, "--model", str(files(tmp_path)[name])])
    assert message in complaint(code, *capfd.readouterr())[0]


def test_a_file_that_is_not_gguf(tmp_path: Path) -> None:
    error, _ = refused(QUESTION, "--model", str(files(tmp_path)["text.gguf"]))
    assert "is not a GGUF file" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("generate", "--questions", "aime2025", "--out", "{new}"),
            "it cannot be reached, and there is no copy in its cache",
        ),
        (("solve", QUESTION, "--model", "some-org/some-name"), "The hub has no model 'some-org/some-name', or cannot be"),
    ],
)
def test_without_a_connection_to_the_hub(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    """One sentence and a hint: none of the library's retries."""
    offline = {
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "0",
        "no_proxy": "*",
    }
    done = command(*(one.replace("{new}", str(tmp_path / "run")) for one in arguments), env=offline)
    assert message in complaint(done.returncode, done.stdout, done.stderr)[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "--questions", "arithmetic", "--out", ""), "A path cannot be empty"),
        (("report", "somewhere", "--out", ""), "A path cannot be empty"),
        (("report", ""), "A path cannot be empty"),
        (("demo", "--out", ""), "A path cannot be empty"),
        (("fit", "somewhere", "--penalty", "nan"), "A penalty of nan"),
    ],
)
def test_paths_and_penalties(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(list(arguments))
    told = capsys.readouterr()
    assert message in complaint(code, told.out, told.err)[0]
