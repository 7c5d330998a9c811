"""Where answers stand in the thinking: noted when probes are made, and afterwards for older runs; exported and imported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cgr.errors import NotRecorded, UsageError
from cgr.lab.exchange import export_run, import_run
from cgr.lab.record.probe import aprobe
from cgr.lab.record.stated import anote_stated
from cgr.lab.store import Store
from cgr.lab.store.config import ProbeRequest
from cgr.lab.store.updates import set_stated
from cgr.records import Probe
from cgr.rules.stated import stated
from cgr.solve import Model
from tests.lab.store.test_store import downgrade
from tests.support import command, scripted

OPTIONS = ("--questions", "arithmetic", "--limit", "2", "--seeds", "1", "--written-tokens", "0", "--quiet")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two problems of the embedded model, probed while they were thought about."""
    folder = tmp_path_factory.mktemp("stated") / "run"
    done = command("generate", *OPTIONS, "--probe", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def probes(folder: Path, probe_set: str = "default") -> list[tuple[Probe, ...]]:
    with Store.open(folder) as store:
        return [trace.probes for trace in store.recorded(probe_set)]


async def test_a_recording_says_where_its_answers_stand(run: Path, model: Model) -> None:
    with Store.open(run) as store:
        traces = list(store.recorded(whole=True))
    made = [(trace, probe) for trace in traces for probe in trace.probes]
    assert any(probe.stated and probe.stated[0] for _, probe in made)
    for trace, probe in made:
        text = await model.engine.decode(trace.ids[: probe.at])
        assert probe.stated == (stated(probe.answer, text) if probe.closed else None)


async def test_probes_made_afterwards_say_the_same(run: Path, model: Model, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "again")
    name = await aprobe(tmp_path / "again", ProbeRequest(name="again"), model.engine)
    there, here = ([[one.stated for one in made] for made in probes(tmp_path / "again", one)] for one in ("default", name))
    assert there == here


def test_an_older_run_gets_it_from_the_command(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "old")
    downgrade(tmp_path / "old", 4)
    assert not any(probe.stated for made in probes(tmp_path / "old") for probe in made)
    done = command("probe", str(tmp_path / "old"), "--stated", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["noted"] == sum(probe.closed for made in probes(run) for probe in made)
    assert probes(tmp_path / "old") == probes(run)
    refused = command("probe", str(tmp_path / "old"), "--stated", "--for", "deer")
    assert (refused.returncode, "makes no probes" in refused.stderr) == (2, True)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_it_is_exported_and_imported(run: Path, tmp_path: Path, ending: str) -> None:
    export_run(run, tmp_path / f"traces.{ending}")
    import_run(tmp_path / f"traces.{ending}", tmp_path / "run")
    assert [[one.stated for one in made] for made in probes(tmp_path / "run")] == [
        [one.stated for one in made] for made in probes(run)
    ]


async def test_other_tokens_are_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    with pytest.raises(UsageError, match="has another vocabulary"):
        await anote_stated(tmp_path / "run", scripted("a b c"))
    export_run(run, tmp_path / "traces.jsonl")
    lines = [json.loads(line) | {"ids": []} for line in (tmp_path / "traces.jsonl").read_text().splitlines()]
    (tmp_path / "bare.jsonl").write_text("\n".join(map(json.dumps, lines)))
    import_run(tmp_path / "bare.jsonl", tmp_path / "bare")
    with pytest.raises(NotRecorded, match="token ids of the thinking are missing"):
        await anote_stated(tmp_path / "bare", scripted("a b c"))


def test_only_the_named_probes_change(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    before = probes(tmp_path / "run")
    with Store.open(tmp_path / "run", write=True) as store:
        set_stated(store, store.made()[0], "default", {before[0][0].at: (9, 99)})
    after = probes(tmp_path / "run")
    assert after[0][0].stated == (9, 99)
    assert (after[0][1:], after[1]) == (before[0][1:], before[1])
