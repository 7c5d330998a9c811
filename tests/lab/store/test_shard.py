"""Runs in parts: which trace is in which part, and parts joined are the whole."""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cgr.errors import CgrError, UsageError
from cgr.lab.store import Store
from cgr.lab.store.checks import write_all
from cgr.lab.store.shard import Shard
from tests.support import command

TEXTS = some.text(max_size=20)
GENERATE = ("generate", "--questions", "arithmetic", "--limit", "5", "--budget", "128", "--quiet", "--sessions", "2")
COSTS = {"seconds", "prefilled", "cached"}  # may differ between two equal traces
JSON_COLUMNS = {"final", "tokens", "probabilities", "options", "suffix_ids", "forced", "spec", "config"}


@pytest.mark.parametrize("text", ["0/3", "4/3", "x", "1/0", "", "/", "1", "1/3/4", "-1/3", "1.0/3", "1/1000000", "²/3"])
def test_what_is_not_a_shard(text: str) -> None:
    with pytest.raises(UsageError, match="is not a shard"):
        Shard.parse(text)


@pytest.mark.parametrize("text", ["0/3", "x"])
def test_what_is_not_a_shard_is_refused_before_a_model_is_loaded(text: str, tmp_path: Path) -> None:
    done = command(*GENERATE, "--seeds", "1", "--out", str(tmp_path / "run"), f"--shard={text}")
    assert done.returncode == 2
    assert "is not a shard" in done.stderr
    assert "3/16" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_shard_as_text() -> None:
    assert str(Shard.parse("3/16")) == "3/16"
    assert Shard.parse(" 1/1 ") == Shard(1, 1)


@given(TEXTS, some.integers(0, 1000), some.integers(1, 50))
def test_every_trace_is_in_exactly_one_shard(question: str, seed: int, count: int) -> None:
    assert [Shard(count, number).holds(question, seed) for number in range(1, count + 1)].count(True) == 1


def test_a_trace_stays_in_its_shard_in_every_version() -> None:
    """Shards made on several machines, or continued next year, must agree."""
    assert [str(Shard.of("aime2025-1", seed, 16)) for seed in (0, 1, 2, 15, 16)] == [
        f"{n}/16" for n in (11, 12, 13, 10, 11)
    ]
    assert str(Shard.of("é", 0, 7)) == "6/7"


@given(TEXTS, some.integers(1, 16))
def test_the_seeds_of_a_question_are_spread_evenly(question: str, count: int) -> None:
    held = [sum(Shard(count, number).holds(question, seed) for seed in range(32)) for number in range(1, count + 1)]
    assert max(held) - min(held) <= 1


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run, probed; three shards of the same, probed; a whole run without probes."""
    folder = tmp_path_factory.mktemp("runs")
    _made(*GENERATE, "--seeds", "3", "--out", folder / "whole")
    _made("merge", folder / "whole", "--out", folder / "unprobed")
    _made("probe", folder / "whole", "--quiet")
    for number in (1, 2, 3):
        shard = ("--shard", f"{number}/3")
        _made(*GENERATE, "--seeds", "3", *shard, "--out", folder / f"part{number}")
        _made("probe", folder / f"part{number}", "--quiet", *shard)
    return folder


def _made(*arguments: str | Path) -> None:
    done = command(*map(str, arguments))
    assert done.returncode == 0, done.stderr


def rows(run: Path) -> dict[str, list[Any]]:
    """Every row of every table, with the ids of questions, traces and sets in place of row numbers, and without costs."""
    db = sqlite3.connect(run / "run.sqlite")
    db.row_factory = sqlite3.Row
    tables = ("run", "questions", "traces", "probe_sets", "probings", "probes", "failures")
    found = {table: [dict(row) for row in db.execute(f"SELECT * FROM {table}")] for table in tables}
    db.close()
    questions = {row["number"]: row["id"] for row in found["questions"]}
    traces = {row["id"]: (questions[row["question"]], row["seed"]) for row in found["traces"]}
    sets = {row["id"]: row["name"] for row in found["probe_sets"]}
    probings = {row["id"]: (sets[row["probe_set"]], traces[row["trace"]]) for row in found["probings"]}
    known = {"question": questions, "trace": traces, "probe_set": sets, "probing": probings}
    return {table: sorted((_plain(row, table, known) for row in found[table]), key=_order) for table in tables}


def _plain(row: dict[str, Any], table: str, known: dict[str, dict[int, Any]]) -> dict[str, Any]:
    left_out = COSTS | ({"id"} if table != "questions" else set()) | {"created"}
    plain = {name: known[name][value] if name in known else value for name, value in row.items() if name not in left_out}
    for name in JSON_COLUMNS & plain.keys():
        plain[name] = json.loads(plain[name]) if isinstance(plain[name], str) else plain[name]
        if isinstance(plain[name], dict):
            plain[name] = {key: value for key, value in plain[name].items() if key not in COSTS}
    return plain


def _order(row: dict[str, Any]) -> str:
    return repr([row.get(name) for name in ("id", "name", "question", "seed", "trace", "probe_set", "probing", "at")])


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal; probabilities to what an engine repeats."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, abs_tol=1e-4)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_joined_shards_equal_the_whole_run(runs: Path, tmp_path: Path) -> None:
    done = command("merge", *(str(runs / f"part{number}") for number in (2, 3, 1)), "--out", str(tmp_path / "all"))
    assert (done.returncode, done.stderr) == (0, "")
    joined, whole = rows(tmp_path / "all"), rows(runs / "whole")
    assert {table: len(all_) for table, all_ in whole.items() if table != "failures"} == {
        "run": 1, "questions": 5, "traces": 15, "probe_sets": 1, "probings": 15, "probes": len(whole["probes"])
    }  # fmt: skip
    assert len(whole["probes"]) > 15
    assert same(joined, whole)


def test_shards_of_a_whole_run_are_probed_in_folders_of_their_own(runs: Path, tmp_path: Path) -> None:
    parts = [str(tmp_path / f"part{number}") for number in (1, 2, 3, 4)]
    for number, part in enumerate(parts, 1):
        _made("probe", runs / "unprobed", "--quiet", "--shard", f"{number}/4", "--out", part)
    assert command("probe", str(runs / "unprobed"), "--shard", "1/4", "--out", parts[0]).returncode == 0  # again
    _made("merge", *parts, "--out", tmp_path / "all")
    assert same(rows(tmp_path / "all"), rows(runs / "whole"))
    with Store.open(runs / "unprobed") as store:
        assert store.probe_sets() == {}


def test_missing_shards_are_named(runs: Path, tmp_path: Path) -> None:
    done = command("merge", str(runs / "part1"), str(runs / "part3"), "--out", str(tmp_path / "some"))
    assert done.returncode == 1
    assert done.stderr == "note:  Shard 2/3 is missing.\n"
    later = command("merge", str(tmp_path / "some"), str(runs / "part2"), "--out", str(tmp_path / "all"), "--json")
    assert same(rows(tmp_path / "all"), rows(runs / "whole"))
    assert (later.returncode, json.loads(later.stdout)["notes"]) == (0, [])


def test_a_shard_that_is_not_complete_is_named(runs: Path, tmp_path: Path) -> None:
    _made("merge", runs / "part2", "--out", tmp_path / "cut")  # a copy of a shard is that shard
    db = sqlite3.connect(tmp_path / "cut" / "run.sqlite")
    (trace,) = db.execute("SELECT min(id) FROM traces").fetchone()
    for statement in (
        "DELETE FROM probes WHERE probing IN (SELECT id FROM probings WHERE trace = ?)",
        "DELETE FROM probings WHERE trace = ?",
        "DELETE FROM traces WHERE id = ?",
        "DELETE FROM probes WHERE probing = ? + 1",
        "DELETE FROM probings WHERE trace = ? + 1",
    ):
        db.execute(statement, (trace,))
    write_all(db)
    db.commit()
    db.close()
    done = command("merge", *map(str, (runs / "part1", tmp_path / "cut", runs / "part3")), "--out", str(tmp_path / "all"))
    assert done.returncode == 1
    notes = ["Shard 2/3 is not complete; missing traces: 1.", "1 of 14 traces is not probed in the set 'default'."]
    assert done.stderr == "".join(f"note:  {note}\n" for note in notes)


def test_the_same_shard_twice_is_taken_once(runs: Path, tmp_path: Path) -> None:
    parts = [str(runs / f"part{number}") for number in (1, 2, 2, 3)]
    done = command("merge", *parts, "--out", str(tmp_path / "all"))
    assert done.returncode == 0
    assert "were in more than one run" in done.stdout
    assert same(rows(tmp_path / "all"), rows(runs / "whole"))


def test_shards_of_another_division_are_refused(runs: Path, tmp_path: Path) -> None:
    _made(*GENERATE, "--seeds", "3", "--shard", "2/4", "--out", tmp_path / "quarter")
    done = command("merge", str(runs / "part1"), str(tmp_path / "quarter"), "--out", str(tmp_path / "all"))
    assert done.returncode == 2
    assert "is shard 2/4, but another is shard 1/3" in done.stderr
    assert not (tmp_path / "all").exists()


def test_a_trace_in_the_wrong_shard_is_refused(runs: Path, tmp_path: Path) -> None:
    _made("merge", runs / "part1", "--out", tmp_path / "wrong")
    db = sqlite3.connect(tmp_path / "wrong" / "run.sqlite")
    db.execute("UPDATE run SET config = json_set(config, '$.shard', '2/3')")
    write_all(db)
    db.commit()
    db.close()
    done = command("merge", str(tmp_path / "wrong"), str(runs / "part3"), "--out", str(tmp_path / "all"))
    assert done.returncode == 2
    assert "is not of shard 2/3" in done.stderr


@pytest.mark.parametrize("shard", [("--shard", "2/3"), ("--shard", "1/4"), ()])
def test_a_shard_is_not_continued_as_another(runs: Path, tmp_path: Path, shard: tuple[str, ...]) -> None:
    done = command(*GENERATE, "--seeds", "3", *shard, "--out", str(runs / "part1"))
    assert done.returncode == 2
    assert "shard is '1/3' there" in done.stderr
    if shard:
        done = command("probe", str(runs / "part1"), *shard)
        assert (done.returncode, "is shard 1/3, not" in done.stderr) == (2, True)
        done = command("probe", str(runs / "part1"), *shard, "--out", str(tmp_path / "x"))
        assert (done.returncode, "not a whole run" in done.stderr) == (2, True)


def test_a_whole_run_is_not_probed_in_part(runs: Path) -> None:
    done = command("probe", str(runs / "unprobed"), "--shard", "1/3")
    assert (done.returncode, "Add --out" in done.stderr) == (2, True)
    done = command("probe", str(runs / "unprobed"), "--out", "x")
    assert (done.returncode, "Add --shard" in done.stderr) == (2, True)
    done = command("probe", str(runs / "unprobed"), "--shard", "1/3", "--out", str(runs / "unprobed"))
    assert (done.returncode, "is the whole run" in done.stderr) == (2, True)


def test_a_shard_without_traces_is_no_error(tmp_path: Path) -> None:
    run = tmp_path / "run"
    empty = next(number for number in range(1, 99) if not any(Shard(99, number).holds(q, 0) for q in _ids()))
    shard = ("--shard", f"{empty}/99")
    _made(*GENERATE, "--seeds", "1", *shard, "--out", run)
    _made("probe", run, *shard)
    with Store.open(run) as store:
        assert (store.made(), len(store.questions())) == ((), 5)


def _ids() -> list[str]:
    from cgr.lab.questions import load_questions

    return [question.id for question in load_questions("arithmetic", limit=5)]


def test_runs_without_a_shard_have_no_such_field(runs: Path) -> None:
    """So that versions before shards can read them."""
    assert "shard" not in rows(runs / "whole")["run"][0]["config"]
    assert rows(runs / "part1")["run"][0]["config"]["shard"] == "1/3"
    with pytest.raises(CgrError, match="is not a shard"):
        Shard.parse("1/2/3")
