"""Runs of several processes or machines in one."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from cgr.errors import CgrError
from cgr.lab.store import NotARun, Store
from cgr.lab.store.checks import write_all
from cgr.lab.store.config import Asking, ProbeSet
from cgr.lab.store.listing import holds_traces
from cgr.lab.store.merge import merge
from cgr.lab.store.recorded import SHADOW
from cgr.lab.store.schema import FILE
from tests.lab.calibrate.promised import CONFIG, SET, probe, stored, trace, traces
from tests.support import command


def test_runs_are_joined(tmp_path: Path) -> None:
    found = traces(6, seeds=2, wrong=[(1, 0.9)])
    a, b = stored(tmp_path / "a", found[:7]), stored(tmp_path / "b", found[5:])
    made = merge([a, b], tmp_path / "both")
    assert (made.runs, made.questions, made.traces, made.repeated) == (2, 6, 12, 2)
    with Store.open(tmp_path / "both") as store:
        assert list(store.recorded(whole=True)) == found
        assert store.config == CONFIG
        assert store.probe_sets() == {"default": SET}
        assert store.prompt_ids(("q0", 0)) == (1, 2)
        assert store._one("SELECT min(seconds) FROM traces") == 1.5


def test_requests_of_a_recording_are_numbered_anew(tmp_path: Path) -> None:
    """There, a seed is only the number of a request: other requests with the same prompt are other traces."""
    config = replace(CONFIG, source=SHADOW)
    first, other = trace("q", 0, ("7", 0.9)), trace("q", 0, ("7", 0.9), final="8")
    a, b = (stored(tmp_path / name, [one], config) for name, one in (("a", first), ("b", other)))
    made = merge([a, b, a], tmp_path / "all")
    assert (made.questions, made.traces, made.repeated) == (1, 2, 1)
    with Store.open(tmp_path / "all") as store:
        assert list(store.recorded(whole=True)) == [first, replace(other, seed=1)]
    again = merge([tmp_path / "all", b], tmp_path / "again")
    assert (again.traces, again.repeated) == (2, 1)


def test_equal_requests_that_took_other_times_are_two(tmp_path: Path) -> None:
    """Two workers can record the same reply to the same prompt; a copy of a recording has the same times."""
    folders = [stored(tmp_path / name, [trace("q", 0, ("7", 0.9))], replace(CONFIG, source=SHADOW)) for name in "ab"]
    with Store.open(folders[1], write=True) as store:
        store._db.execute("UPDATE traces SET seconds = 0.25")
        write_all(store._db)
    made = merge([*folders, folders[0]], tmp_path / "all")
    assert (made.traces, made.repeated) == (2, 1)


def test_costs_of_the_same_trace_may_differ(tmp_path: Path) -> None:
    one = trace("q", 0, ("7", 0.9))
    slower = replace(one, probes=tuple(replace(p, seconds=3.0, cached=9) for p in one.probes))
    assert merge([stored(tmp_path / "a", [one]), stored(tmp_path / "b", [slower])], tmp_path / "both").traces == 1


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (trace("q", 0, ("7", 0.9), final="8"), "Question 'q', seed 0, has other thinking in .*b than in .*a"),
        (trace("q", 0, ("3", 0.9)), "Question 'q', seed 0, has other probes in the set 'default' in .*b than in .*a"),
        (replace(trace("q", 1, ("7", 0.9)), gold="8"), "Question 'q' is different in .*b and in .*a"),
    ],
)
def test_conflicts_are_refused_by_name(tmp_path: Path, other: object, words: str) -> None:
    a, b = stored(tmp_path / "a", [trace("q", 0, ("7", 0.9))]), stored(tmp_path / "b", [other])  # type: ignore[list-item]
    with pytest.raises(CgrError, match=words):
        merge([a, b], tmp_path / "both")
    if (tmp_path / "both" / "run.sqlite").exists():
        with Store.open(tmp_path / "both") as store:
            assert store.made() == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "another", "fingerprint": "x"}, "model is 'a model' there and 'another' here"),
        ({"budget": 500}, "budget is 400 there and 500 here"),
        ({"temperature": 1.0}, "temperature"),
        ({"instruction": "Think."}, "instruction"),
    ],
)
def test_other_configurations_are_refused(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    other = replace(CONFIG, **changes)  # type: ignore[arg-type]
    a, b = stored(tmp_path / "a", traces(2)), stored(tmp_path / "b", [trace("z", 0, ("7", 0.9))], other)
    with pytest.raises(CgrError, match=words):
        merge([a, b], tmp_path / "both")
    assert not (tmp_path / "both").exists()


def test_the_source_of_questions_may_differ(tmp_path: Path) -> None:
    a = stored(tmp_path / "a", traces(2), replace(CONFIG, source="a.jsonl"))
    b = stored(tmp_path / "b", [trace("z", 0, ("7", 0.9))], replace(CONFIG, source="b.jsonl"))
    merge([a, b], tmp_path / "both")
    with Store.open(tmp_path / "both") as store:
        assert store.config.source == "a.jsonl, b.jsonl"


def test_probe_sets_are_matched_by_what_made_them(tmp_path: Path) -> None:
    one, two = traces(2)
    coarse = replace(SET, interval=200)
    a, b = stored(tmp_path / "a", [one]), stored(tmp_path / "b", [two], CONFIG, coarse)
    with Store.open(b, write=True) as store:
        assert store.add_probe_set(SET) == "every-100"
        store.add_probing(("q1", 0), "every-100", two.probes)
    made = merge([a, b], tmp_path / "both")
    assert made.probe_sets == ("default", "every-200")
    with Store.open(tmp_path / "both") as store:
        assert store.probed("default") == {("q0", 0), ("q1", 0)}
        assert store.probed("every-200") == {("q1", 0)}


def test_a_set_with_another_final_answer_keeps_it(tmp_path: Path) -> None:
    one = trace("q", 0, ("7", 0.9))
    folder = stored(tmp_path / "a", [one])
    with Store.open(folder, write=True) as store:
        name = store.add_probe_set(ProbeSet("interval", 100, Asking(prefix="So: \\boxed{"), "a model", "abc"))
        store.add_probing(("q", 0), name, one.probes, probe(400, "5", 0.5))
    merge([folder], tmp_path / "copy")
    with Store.open(tmp_path / "copy") as store:
        (found,) = store.recorded(name)
        assert found.final.answer == "5"
        (usual,) = store.recorded()
        assert usual.final.answer == "7"


def test_a_run_that_is_being_written_can_be_copied(tmp_path: Path) -> None:
    folder = stored(tmp_path / "a", traces(3))
    with Store.open(folder, write=True):
        assert merge([folder], tmp_path / "copy").traces == 3


def test_the_command(tmp_path: Path) -> None:
    a, b = stored(tmp_path / "a", traces(3)[:2]), stored(tmp_path / "b", traces(3)[1:])
    out = tmp_path / "both"
    done = command("merge", str(a), str(b), "--out", str(out))
    said = f"2 runs are in {out}: 3 traces of 3 questions. 1 of them was in more than one run.\n"
    assert done.stdout == said, done.stderr
    for arguments, words in (
        ((str(a), "--out", str(out)), "There is already a run in"),
        ((str(a), "--out", str(a)), "is one of the runs to join"),
        ((str(tmp_path / "none"), "--out", str(tmp_path / "new")), "There is no run in"),
    ):
        failed = command("merge", *arguments)
        assert (failed.returncode, failed.stderr.count("\n")) == (2, 2)
        assert words in failed.stderr
    assert not (tmp_path / "new").exists()


def test_an_empty_file_is_filled(tmp_path: Path) -> None:
    """A command that is killed while it creates a run leaves a file without tables."""
    for folder in (tmp_path / "out", tmp_path / "new"):
        folder.mkdir()
        db = sqlite3.connect(folder / FILE)
        db.execute("PRAGMA journal_mode=WAL")
        db.close()
    assert not holds_traces(tmp_path / "out")
    assert Store.stored_config(tmp_path / "new") is None
    with pytest.raises(NotARun, match="There is no run"):
        Store.open(tmp_path / "new")
    run = stored(tmp_path / "run", traces(1, seeds=1))
    assert merge([run], tmp_path / "out").traces == 1
    assert holds_traces(tmp_path / "out")
