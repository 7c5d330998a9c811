"""Compressed files and files without texts: the same run again, the same bytes, and limits for what a file unpacks to."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from cgr.errors import UsageError
from cgr.lab.compare import compare_run
from cgr.lab.decide.run import Run
from cgr.lab.exchange import export_run, import_run
from cgr.lab.exchange.gzipped import MIN_LIMIT
from cgr.lab.record.generate import agenerate
from cgr.lab.report import load
from cgr.lab.store import Store
from tests.lab.exchange.test_exchange import SIX, written
from tests.lab.record.test_generate import ASKED, plan
from tests.lab.store.test_store import CONFIG, QUESTIONS, SET, trace
from tests.support import command, scripted

SECRET = "a text of somebody else"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose texts are all the same, so that they can be searched for."""
    with Store.create(tmp_path / "run", CONFIG) as store:
        store.add_questions(replace(one, text=SECRET) for one in QUESTIONS)
        store.add_probe_set(SET, "default")
        for number, question in enumerate(QUESTIONS):
            made = trace(question.id, number, gold=question.gold, format=question.format)
            made = replace(made, question=SECRET, text=SECRET, written=SECRET)
            store.add_trace(made, prompt_ids=(1, 2), probe_set="default")
    return tmp_path / "run"


def test_a_compressed_export_is_the_same_run(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "a.jsonl")
    export_run(run, tmp_path / "a.jsonl.gz")
    export_run(run, tmp_path / "b.jsonl.gz")
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == (tmp_path / "a.jsonl").read_bytes()
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    import_run(tmp_path / "a.jsonl.gz", tmp_path / "again")
    export_run(tmp_path / "again", tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()


async def test_a_forced_run_comes_back(tmp_path: Path) -> None:
    """At 4 there is an appended text: the probe is at its end."""
    wanted = plan(ASKED[:1], budget=20, interval=4, rule="budget-forcing", probe=True)
    await agenerate(tmp_path / "run", wanted, scripted("a b c </think> d e f g </think> h i j k l m n o p q r s t"))
    export_run(tmp_path / "run", tmp_path / "a.jsonl.gz", text=False)
    import_run(tmp_path / "a.jsonl.gz", tmp_path / "again")
    (made,), (again,) = (Run.open(tmp_path / name).traces() for name in ("run", "again"))
    assert [probe.at for probe in made.probes] == [3, 5, 8, 9, 12, 16]
    assert (again.probes, again.forced) == (made.probes, made.forced)
    lines = gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()).replace(b'"at":5,', b'"at":6,')
    (tmp_path / "b.jsonl").write_bytes(lines)
    with pytest.raises(UsageError, match="line 1 has no probe at 5"):
        import_run(tmp_path / "b.jsonl", tmp_path / "b")


def test_without_text_everything_else_is_there(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "a.jsonl.gz", text=False)
    content = gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes())
    assert SECRET.encode() not in content
    for line in map(json.loads, content.splitlines()):
        assert not {"question", "text", "ids", "prompt_ids", "written", "logprobs"} & line.keys()
    import_run(tmp_path / "a.jsonl.gz", tmp_path / "again")
    with Store.open(run) as store, Store.open(tmp_path / "again") as again:
        assert again.config == store.config
        assert again.probe_sets() == store.probe_sets()
        kept = [replace(one, question="", text="", written="", ids=(), logprobs=()) for one in store.recorded(whole=True)]
        assert list(again.recorded(whole=True)) == kept
        assert [one.gold for one in again.questions()] == [one.gold for one in store.questions()]


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("/home/me/models/a.gguf", "a.gguf"),
        ("gsm8k:/data/test.jsonl", "gsm8k:test.jsonl"),
        ("~/a.gguf", "a.gguf"),
        ("hf:org/name", "hf:org/name"),
        ("org/name", "org/name"),
        ("embedded", "embedded"),
    ],
)
def test_without_text_paths_have_no_folders(tmp_path: Path, where: str, name: str) -> None:
    with Store.create(tmp_path / "run", replace(CONFIG, model=where, source=where)) as store:
        store.add_questions(QUESTIONS[:1])
        store.add_probe_set(replace(SET, model=where), "default")
        made = trace(QUESTIONS[0].id, 0, gold=QUESTIONS[0].gold, format=QUESTIONS[0].format)
        store.add_trace(made, prompt_ids=(1, 2), probe_set="default")
    for text, kept in ((True, where), (False, name)):
        export_run(tmp_path / "run", tmp_path / "a.jsonl", text=text)
        line = json.loads((tmp_path / "a.jsonl").read_text())
        assert [line["run"]["model"], line["run"]["source"], line["probe_set"]["model"]] == [kept] * 3


def test_no_text_on_the_command_line(run: Path, tmp_path: Path) -> None:
    done = command("export", str(run), str(tmp_path / "a.jsonl.gz"), "--no-text")
    assert done.returncode == 0
    assert SECRET.encode() not in gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes())
    done = command("report", str(tmp_path / "a.jsonl.gz"), "--json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a-report" / "report.json").is_file()


def test_report_and_compare_read_a_compressed_file(tmp_path: Path) -> None:
    plain = written(tmp_path / "six.jsonl", *SIX)
    (tmp_path / "six.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    packed, unpacked = load(tmp_path / "six.jsonl.gz")[0], load(plain)[0]
    assert (packed.info.name, packed.traces()) == (unpacked.info.name, unpacked.traces())
    assert compare_run(tmp_path / "six.jsonl.gz", ["cgr"]).entries == compare_run(plain, ["cgr"]).entries


def test_a_compressed_parquet_file_is_refused(run: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "a.parquet.gz", tmp_path / "a.gz"):
        with pytest.raises(UsageError, match="Parquet"):
            export_run(run, path, "parquet")


@pytest.mark.parametrize("end", [b" ", b"\n"], ids=["one line", "blank lines"])
def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(MIN_LIMIT // (64 << 10) + 1):
            file.write(b" " * ((64 << 10) - 1) + end)
    assert path.stat().st_size < MIN_LIMIT // 200
    with pytest.raises(UsageError, match="unpacks to more than 67,108,864 bytes"):
        import_run(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("damage", ["cut", "changed", "plain"])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, damage: str) -> None:
    plain = written(tmp_path / "six.jsonl", *SIX).read_bytes()
    packed = gzip.compress(plain)
    broken = {"cut": packed[:-20], "changed": packed[:-8] + b"\0" * 8, "plain": plain}[damage]
    (tmp_path / "six.jsonl.gz").write_bytes(broken)
    with pytest.raises(UsageError, match=r"six\.jsonl\.gz is damaged, or not compressed with gzip"):
        import_run(tmp_path / "six.jsonl.gz", tmp_path / "run")
