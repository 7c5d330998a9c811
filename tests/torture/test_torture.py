"""The knocks themselves: they count what is lost, can be repeated, and the table in the docs is what the figures give."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torture.__main__ import main
from torture.knocks import Skipped, Trial, Try, knock_of, tried
from torture.listing import known_knocks
from torture.processes import Done, refused
from torture.table import BEGIN, END, FIGURES, PAGE, table


@knock_of("example", "something", "nothing is lost", times=3, long=9)
@contextmanager
def example(folder: Path) -> Iterator[Try]:
    def one(trial: Trial) -> str:
        assert trial.number != 2, "the third fails"
        return str(trial.chance.random())

    yield one


@knock_of("impossible", "something", "nothing is lost", times=3, long=9)
@contextmanager
def impossible(folder: Path) -> Iterator[Try]:
    raise Skipped("no such machine")
    yield


def test_a_lost_trial_is_counted_and_can_be_repeated() -> None:
    told: list[str] = []
    outcome = tried(example, 7, range(4), told.append)
    assert (outcome.tried, len(outcome.lost), len(told)) == (4, 1, 1)
    assert outcome.lost[0].startswith(
        "python -m torture --only example --seed 7 --trial 2: AssertionError: the third fails"
    )
    again = tried(example, 7, range(3, 4), told.append)
    assert again.seen.keys() < outcome.seen.keys()
    assert tried(example, 8, range(3, 4), told.append).seen.keys() != again.seen.keys()


def test_ctrl_c_ends_a_knock_and_keeps_what_was_tried() -> None:
    checked = []

    @knock_of("interrupted", "something", "nothing is lost", times=3, long=9)
    @contextmanager
    def interrupted(folder: Path) -> Iterator[Try]:
        def one(trial: Trial) -> str:
            if trial.number == 2:
                raise KeyboardInterrupt
            return "fine"

        yield one
        checked.append(True)

    outcome = tried(interrupted, 1, range(9), pytest.fail)
    assert (outcome.tried, outcome.lost, outcome.seen["fine"], checked) == (2, [], 2, [True])


def test_a_knock_that_cannot_be_tried_says_why() -> None:
    outcome = tried(impossible, 1, range(3), pytest.fail)
    assert (outcome.tried, outcome.lost, outcome.skipped) == (0, [], "no such machine")


@pytest.mark.parametrize(
    ("code", "err", "verdict"),
    [
        (0, "", False),
        (2, "error: No.\nhint:  Yes.\n", True),
        (70, "error: cgr failed, which is a bug: x.\n", None),
        (-6, "GGML_ASSERT failed\n", None),
        (1, "Traceback (most recent call last):\n", None),
        (1, "error: \x1b[31m\n", None),
    ],
)
def test_what_counts_as_a_refusal(code: int, err: str, verdict: bool | None) -> None:
    done = Done(("x",), code, "", err)
    if verdict is None:
        with pytest.raises(AssertionError):
            refused(done)
    else:
        assert refused(done) is verdict


def test_a_knock_is_chosen_by_its_name_or_by_its_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    def chosen(*only: str) -> list[str]:
        assert main(["--list", *(word for name in only for word in ("--only", name))]) == 0
        return [line.split()[0] for line in capsys.readouterr().out.splitlines()]

    assert chosen("output") == ["output"]
    assert chosen("store") == ["store-cut", "store-flip", "store-newer"]
    assert chosen("output-", "kill") == ["kill", "output-page", "output-flood"]


@pytest.mark.parametrize("name", ["store-cut", "store-flip", "gguf-prefix"])
def test_a_few_trials_of_the_fast_ones(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", name, "--times", "5"]) == 0, capsys.readouterr().err


def test_the_table_is_what_the_figures_give() -> None:
    figures = json.loads(FIGURES.read_text())
    assert f"{BEGIN}\n{table(known_knocks(), figures)}\n{END}" in PAGE.read_text()
    assert all(not one["lost"] for one in figures.values())
    assert len({knock.name for knock in known_knocks()}) == len(known_knocks())
