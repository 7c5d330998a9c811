"""Several probe sets of a run in one file: the same run comes back, and sets that contradict each other are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr.errors import UsageError
from cgr.lab.compare import compare_run
from cgr.lab.exchange import export_run, import_run
from cgr.lab.store import Store
from cgr.lab.store.config import Asking, ProbeSet
from cgr.records import Probe, Token
from tests.lab.exchange.test_exchange import SIX, Line, probe, written
from tests.lab.store.test_store import CONFIG, QUESTIONS, SET, trace

WAIT = ProbeSet("wait", 0, Asking(prefix="so: \\boxed{"), "scripted", "f")
ENTROPY = ProbeSet("paragraph", 0, Asking(close_think="always", reads="entropy"), "scripted", "f")
FINAL = Probe(90, "8", 0.5, True, (0.5,), decoded=2)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with three probe sets. One of them reads no answers, and one has final answers of its own."""
    with Store.create(tmp_path / "run", CONFIG) as store:
        store.add_questions(QUESTIONS)
        names = [store.add_probe_set(SET, "default"), store.add_probe_set(WAIT), store.add_probe_set(ENTROPY)]
        for number, question in enumerate(QUESTIONS):
            made = trace(question.id, number, gold=question.gold, format=question.format)
            store.add_trace(made, prompt_ids=(1, 2), probe_set="default")
            key = (question.id, number)
            store.add_probing(key, names[1], [Probe(7, "7", 0.25, True, (0.5, 0.25), decoded=3)], FINAL)
            store.add_probing(key, names[2], [Probe(9, "", 0.0, False, (0.9,), entropy=0.5, decoded=1)])
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_all_sets_come_back(run: Path, tmp_path: Path, name: str) -> None:
    export_run(run, tmp_path / name, all_probes=True)
    counts = import_run(tmp_path / name, tmp_path / "again")
    with Store.open(run) as first, Store.open(tmp_path / "again") as second:
        assert second.probe_sets() == first.probe_sets()
        for one in first.probe_sets():
            assert [*second.recorded(one, whole=True)] == [*first.recorded(one, whole=True)]
        assert counts.probes == sum(len(made.probes) for one in first.probe_sets() for made in first.recorded(one))
    export_run(tmp_path / "again", tmp_path / f"second-{name}", all_probes=True)
    assert (tmp_path / f"second-{name}").read_bytes() == (tmp_path / name).read_bytes()


def test_without_being_asked_for_there_is_one_set(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "a.jsonl")
    assert "more_probe_sets" not in (tmp_path / "a.jsonl").read_text()


def test_a_set_that_lacks_a_trace_is_left_out(run: Path, tmp_path: Path) -> None:
    with Store.open(run, write=True) as store:
        partial = store.add_probe_set(ProbeSet("start", 0, Asking(close_think="always"), "scripted", "f"))
        store.add_probing((QUESTIONS[0].id, 0), partial, [Probe(0, "1", 0.5, True, (0.5,), decoded=2)])
    export_run(run, tmp_path / "a.jsonl", all_probes=True)
    import_run(tmp_path / "a.jsonl", tmp_path / "again")
    with Store.open(tmp_path / "again") as store:
        assert [*store.probe_sets()] == ["default", "wait", "paragraph-entropy"]


def test_the_folders_of_paths_are_left_out_of_every_set(run: Path, tmp_path: Path) -> None:
    with Store.open(run, write=True) as store:
        name = store.add_probe_set(ProbeSet("wait", 0, Asking(prefix="x"), "/home/me/secret/m.gguf", "g"))
        for number, question in enumerate(QUESTIONS):
            store.add_probing((question.id, number), name, [])
    export_run(run, tmp_path / "a.jsonl", all_probes=True, text=False)
    assert "secret" not in (tmp_path / "a.jsonl").read_text()
    assert "m.gguf" in (tmp_path / "a.jsonl").read_text()


def test_without_alternatives_only_the_chosen_tokens_are_written(run: Path, tmp_path: Path) -> None:
    token = Token(7, "7", -0.5, ((7, -0.5), (8, -1.5)))
    probed = Probe(0, "7", 0.6, True, (0.6,), tokens=(token,), decoded=1)
    with Store.open(run, write=True) as store:
        name = store.add_probe_set(ProbeSet("start", 0, Asking(close_think="always"), "m", "g"))
        for number, question in enumerate(QUESTIONS):
            store.add_probing((question.id, number), name, [probed], replace(probed, at=4))
    sizes = []
    for alternatives in (True, False):
        export_run(run, tmp_path / "a.jsonl", all_probes=True, alternatives=alternatives)
        text = (tmp_path / "a.jsonl").read_text()
        found = json.loads(text.splitlines()[0])["more_probe_sets"][name]
        for one in (found["probes"][0], found["final"]):
            assert ("top" in one["tokens"][0]) is alternatives
            assert (one["tokens"][0]["id"], one["tokens"][0]["logprob"]) == (7, -0.5)
        assert ('"top"' in text) is alternatives
        sizes.append(len(text))
    assert sizes[1] < sizes[0]
    import_run(tmp_path / "a.jsonl", tmp_path / "again")


def test_probes_at_0_in_a_set_of_their_own(tmp_path: Path) -> None:
    start = {"probe_set": {"where": "start", "asking": {"close_think": "always"}}, "probes": [probe(0, "70", 0.3)]}
    lines = [one | {"more_probe_sets": {"start": start}} for one in SIX]
    import_run(written(tmp_path / "in.jsonl", *lines), tmp_path / "run")
    compared = compare_run(tmp_path / "run")
    assert "no-thinking" in {entry.rule for entry in compared.entries}


def more(where: str, *probes: Line, **others: Any) -> Line:
    return {"probe_set": {"where": where, **others}, "probes": list(probes)}


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"x": more("wait")}, {}, "more_probe_sets differ from those of the first line"),
        ({"x": more("wait")}, {"x": more("paragraph")}, "more_probe_sets differ from those of the first line"),
        ({"default": more("wait")}, {"default": more("wait")}, "cannot be called 'default'"),
        ({"x": more("interval", interval=3000)}, {"x": more("interval", interval=3000)}, "'x' at 3000"),
        ({"x": more("interval")}, {}, "the interval of a probe set must be at least 1"),
        ({"x": more("wait", probe(9000, "1", 0.5))}, {}, "there is a probe at 9000 of the set 'x'"),
        ({"x": more("wait", probe(9, "1", 0.5), probe(9, "1", 0.5))}, {}, "two probes at one position of the set 'x'"),
        ({"x": more("wait", probe(9, "1"))}, {}, "the answer '1' has no probabilities"),
        ({"x": {"probes": []}}, {}, "more_probe_sets.x.probe_set"),
        ({"x": more("wait") | {"colour": 1}}, {}, "more_probe_sets.x.colour"),
        ({"": more("wait")}, {}, "more_probe_sets"),
    ],
)
def test_what_is_refused(first: Line, second: Line, message: str, tmp_path: Path) -> None:
    lines = [SIX[0] | {"more_probe_sets": first}, SIX[1] | {"more_probe_sets": second}]
    with pytest.raises(UsageError, match=message):
        import_run(written(tmp_path / "in.jsonl", *lines), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_rounded_numbers_make_a_smaller_file_of_the_same_run(run: Path, tmp_path: Path) -> None:
    with Store.open(run, write=True) as store:
        name = store.add_probe_set(ProbeSet("wait", 0, Asking(prefix="y"), "scripted", "f"))
        for number, question in enumerate(QUESTIONS):
            store.add_probing((question.id, number), name, [Probe(7, "7", 1 / 3, True, (1 / 3,), decoded=2, seconds=2 / 3)])
    for digits in (None, 6):
        export_run(run, tmp_path / f"{digits}.jsonl", all_probes=True, digits=digits)
        import_run(tmp_path / f"{digits}.jsonl", tmp_path / f"{digits}")
    assert (tmp_path / "6.jsonl").stat().st_size < (tmp_path / "None.jsonl").stat().st_size
    with Store.open(tmp_path / "6") as rounded, Store.open(tmp_path / "None") as exact:
        for one in exact.probe_sets():
            pairs = zip(rounded.recorded(one), exact.recorded(one), strict=True)
            assert all([p.answer for p in a.probes] == [p.answer for p in b.probes] for a, b in pairs)
        found = [probe for made in rounded.recorded(name) for probe in made.probes]
        assert {(probe.certainty, probe.seconds) for probe in found} == {(0.333333, 0.666667)}


def test_parquet_is_not_rounded(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not rounded"):
        export_run(run, tmp_path / "a.parquet", digits=6)
    assert not (tmp_path / "a.parquet").exists()


@pytest.mark.parametrize("error", [NotImplementedError, ValueError, KeyError, TypeError])
def test_what_is_raised_for_a_damaged_parquet_file_is_one_sentence(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """A flipped bit in its head made pyarrow raise NotImplementedError."""
    export_run(run, tmp_path / "a.parquet")

    def broken(path: Path) -> None:
        raise error("Integers with more than 64 bits")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile", broken)
    with pytest.raises(UsageError, match="is not a Parquet file, or it is damaged"):
        import_run(tmp_path / "a.parquet", tmp_path / "again")


def test_a_parquet_file_that_is_cut_inside_is_one_sentence(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "a.parquet")
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    data[40:400] = bytes(360)
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(UsageError):
        import_run(tmp_path / "a.parquet", tmp_path / "again")
    assert not (tmp_path / "again").exists()
