"""Traces without token ids are probed by their text, and long ones as far as they fit into the context."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr import Model
from cgr.engines.base import Prompt, Sampling, check_fits, prompt_ids
from cgr.engines.scripted import ScriptedEngine, ScriptedSession
from cgr.errors import DoesNotFit, ModelNotFound, NotRecorded
from cgr.lab.decide.run import Run
from cgr.lab.exchange import export_run, import_run
from cgr.lab.record.generate import agenerate
from cgr.lab.record.jobs import Progress, summarise
from cgr.lab.record.probe import aprobe, room_for
from cgr.lab.record.retrace import changed_characters
from cgr.lab.store import Store
from cgr.lab.store.config import IMPORTED, ProbeRequest
from cgr.rules import make_rule
from tests.lab.record.test_generate import ASKED, OWN, kept, plan
from tests.lab.record.test_packed import SamePacking
from tests.lab.record.test_probe import same
from tests.support import SURE, UNSURE, command

TEXT = "a b c d e f"


class Reads(ScriptedEngine):
    """A model that keeps what it is given, with a context of its own."""

    def __init__(self, context: int = 100_000, name: str = "reads") -> None:
        super().__init__((), lambda at, suffix: SURE if at >= 4 else UNSURE, context)
        self.info = replace(self.info, name=name)
        self.given: list[int] = []
        self.opened = 0

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int = 0, overlap: bool = False, wait: float | None = None
    ) -> ScriptedSession:
        check_fits(await prompt_ids(prompt, self), room, self.info.context)
        self.opened += 1
        given = self.given

        class Given(ScriptedSession):
            async def append(self, ids: Sequence[int]) -> None:
                given.extend(ids)
                await super().append(ids)

        return Given(self)

    async def words(self) -> list[str]:
        return (await self.decode(self.given)).split()


def line(number: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "question_id": f"q{number}",
        "seed": 0,
        "gold": "7",
        "question": "One?",
        "thinking_tokens": 6,
        "ended": "end_of_thinking",
        "budget": 8,
        "final_answer": "5",
        "final_certainty": 0.5,
        "probes": [],
        "text": TEXT,
        **changes,
    }


def imported(folder: Path, *lines: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    import_run(path, folder / "run")
    return folder / "run"


def only_text(run: Path) -> Path:
    """The same run as another program might have it: without token ids, probes and configuration."""
    path, left_out = run / "out.jsonl", ("ids", "prompt_ids", "run", "probe_set")
    export_run(run, path)
    lines = [json.loads(one) for one in path.read_text().splitlines()]
    bare = [{name: value for name, value in one.items() if name not in left_out} | {"probes": []} for one in lines]
    return imported(run / "text", *bare)


async def probed(run: Path, engine: ScriptedEngine, **request: Any) -> tuple[str, Progress]:
    progress = Progress(quiet=True)
    name = await aprobe(run, ProbeRequest(**{"interval": 2} | request), engine, progress=progress)
    return name, progress


def positions(run: Path, name: str) -> list[list[int]]:
    return [[probe.at for probe in trace.probes] for trace in kept(run, name)]


async def test_text_is_encoded_with_the_tokenizer_of_the_probed_model(tmp_path: Path) -> None:
    run, engine = imported(tmp_path, line(), line(1)), Reads()
    name, progress = await probed(run, engine)
    assert (name, positions(run, name)) == ("default", [[2, 4, 6], [2, 4, 6]])
    assert await engine.words() == TEXT.split() * 2
    assert [(probe.answer, trace.final.answer) for trace in kept(run, name)[:1] for probe in trace.probes] == [
        ("3", "5"),
        ("7", "5"),
        ("7", "5"),
    ]
    (note,) = progress.notes
    assert note == (
        "2 traces are encoded from text with the tokenizer of reads: 12 recorded tokens are 12 of its own, and 9.1% of the "
        "text came back changed."  # the scripted model adds a space at the end
    )
    assert summarise(run, None, progress).notes == (note,)


async def test_positions_stay_in_recorded_tokens(tmp_path: Path) -> None:
    """The run counts twice as many tokens as the model that is probed: a cut at 4 is after 2 of them."""
    run, engine = imported(tmp_path, line(thinking_tokens=12, budget=16)), Reads()
    name, progress = await probed(run, engine, interval=4)
    assert positions(run, name) == [[4, 8, 12]]
    assert [probe.cached for probe in kept(run, name)[0].probes] == [2, 4, 6]
    assert "12 recorded tokens are 6 of its own" in progress.notes[0]
    assert progress.notes[0].endswith("Positions are converted in proportion.")


@pytest.mark.parametrize(("tokens", "expected"), [(6, [1, 4]), (12, [2, 8]), (3, [1, 2])])
async def test_marks_are_found_in_text(tmp_path: Path, tokens: int, expected: list[int]) -> None:
    run = imported(tmp_path, line(text="so Wait no x Alternatively y", thinking_tokens=tokens, budget=16))
    name, _ = await probed(run, Reads(), where="wait", interval=None)
    assert (name, positions(run, name)) == ("wait", [expected])
    assert [probe.cached for probe in kept(run, name)[0].probes] == [1, 4]


async def test_all_cuts_of_a_text_are_probed_in_one_pass(tmp_path: Path) -> None:
    run, engine = imported(tmp_path, line(thinking_tokens=12, budget=16)), SamePacking()
    name, _ = await probed(run, engine, interval=3)
    assert [cuts for cuts, _ in engine.calls] == [(1, 3, 4, 6)]
    assert [(probe.at, probe.answer) for probe in kept(run, name)[0].probes] == [(3, "3"), (6, "3"), (9, "7"), (12, "7")]


async def test_a_run_of_the_embedded_model_gives_the_same_probes_by_its_text(model: Model, tmp_path: Path) -> None:
    await agenerate(tmp_path / "ids", plan(OWN[:2], budget=96, interval=16), model.engine, sessions=2)
    await aprobe(tmp_path / "ids", ProbeRequest(), model.engine, sessions=2)
    run, progress = only_text(tmp_path / "ids"), Progress(quiet=True)
    await aprobe(run, ProbeRequest(interval=16, max_answer_tokens=4), model.engine, sessions=2, progress=progress)
    assert "none of the text came back changed" in progress.notes[0]
    for there, here in zip(kept(tmp_path / "ids", "default"), kept(run, "default"), strict=True):
        same(there.probes, here.probes)


async def test_a_trace_is_probed_as_far_as_it_fits(tmp_path: Path) -> None:
    """The short trace fits. Of the long one the cuts up to the end of the context are probed; its final answer stays."""
    lines = line(0, text="a b", thinking_tokens=2, budget=40), line(1, text="w " * 30, thinking_tokens=30, budget=40)
    run, engine = imported(tmp_path, *lines), Reads(context=44)
    name, progress = await probed(run, engine)
    short, long = positions(run, name)
    assert (short, long) == ([2], list(range(2, max(long) + 1, 2)))
    assert 2 < max(long) < 26
    assert progress.notes[1] == (
        "1 trace is longer than the context of reads (44 tokens) and probed as far as possible: "
        f"{15 - len(long)} of 15 positions are left out."
    )
    assert [trace.final.answer for trace in kept(run, name)] == ["5", "5"]
    with Store.open(run) as store:
        assert (store.probe_sets()[name].where, store.probe_sets()[name].interval) == ("anywhere", 2)
    opened = engine.opened
    assert (await probed(run, engine))[0] == name
    assert engine.opened == opened  # the same set again: nothing is left to do
    assert Run.open(run).columns().at.shape == (2, len(long))


async def test_a_long_trace_with_ids_is_probed_as_far_as_it_fits(tmp_path: Path) -> None:
    engine = ScriptedEngine(["w"] * 40, lambda at, suffix: SURE if suffix.startswith("</think>") else UNSURE)
    await agenerate(tmp_path, plan(ASKED[:1], budget=30, interval=5), engine)
    engine.info = replace(engine.info, context=70)
    whole, notes = await probed(tmp_path, engine, interval=5)
    assert (positions(tmp_path, whole)[0], notes.notes) == ([5, 10, 15, 20, 25], [])
    engine.info = replace(engine.info, context=35)
    part, notes = await probed(tmp_path, engine, interval=5, close_think="always")
    assert positions(tmp_path, part)[0] in ([5], [5, 10], [5, 10, 15])
    assert len(notes.notes) == 1
    assert kept(tmp_path, part)[0].final == kept(tmp_path)[0].final  # its end does not fit either


async def test_a_context_without_room_for_any_cut_is_refused_with_a_hint_that_works(tmp_path: Path) -> None:
    run = imported(tmp_path, line())
    with pytest.raises(DoesNotFit, match="not even up to its first cut") as refused:
        await probed(run, Reads(context=10))
    assert "budget" not in refused.value.hint
    assert "--model" in refused.value.hint
    with Store.open(run) as store:
        assert not store.probe_sets()


async def test_ids_of_an_unknown_model_are_replaced_by_the_text(tmp_path: Path) -> None:
    run, engine = imported(tmp_path, line(ids=[901, 902, 903, 904, 905, 906])), Reads()

    def refuse(name: str) -> Model:
        raise AssertionError(name)

    progress = Progress(quiet=True)
    await aprobe(run, ProbeRequest(interval=2), KnowsFew(engine), open_generator=refuse, progress=progress)
    assert await engine.words() == TEXT.split()
    assert len(progress.notes) == 1


async def test_ids_of_an_unknown_model_without_text_are_those_of_the_model_that_is_named(tmp_path: Path) -> None:
    run, engine = imported(tmp_path, line(ids=[3, 3, 3, 3, 3, 3], text="")), Reads()
    for word in ["w", "x", "y", "z"]:
        engine.id_of(word)
    await probed(run, engine)
    assert engine.given == [3] * 6


async def test_a_generator_that_is_not_here_is_replaced_by_the_text(tmp_path: Path) -> None:
    run = imported(tmp_path, line(ids=[901, 902, 903, 904, 905, 906], run={"model": "far-away"}))
    engine, asked = Reads(), []

    def missing(name: str) -> Model:
        asked.append(name)
        raise ModelNotFound(f"There is no model {name!r}.", "Give another.")

    await aprobe(run, ProbeRequest(interval=2), KnowsFew(engine), open_generator=missing)
    assert asked == ["far-away"]
    assert await engine.words() == TEXT.split()


def KnowsFew(engine: Reads) -> Reads:  # noqa: N802
    """The same engine, which knows only the tokens that it has encoded."""
    decode = engine.decode

    async def known(ids: Sequence[int]) -> str:
        return await decode([one for one in ids if one < len(engine._words)])

    engine.decode = known  # type: ignore[method-assign]
    return engine


async def test_a_question_without_text_cannot_be_asked(tmp_path: Path) -> None:
    run = imported(tmp_path, line(question=""))
    with pytest.raises(NotRecorded, match="Question 'q0' has no text"):
        await probed(run, Reads())


async def test_the_interval_is_that_of_the_paper_if_nobody_gave_one(tmp_path: Path) -> None:
    run = imported(tmp_path, line(thinking_tokens=64, budget=64, ended="budget"))
    name, _ = await probed(run, Reads(), interval=None)
    assert positions(run, name) == [list(range(2, 64, 2))]


async def test_an_imported_run_is_probed_for_a_rule_without_thinking(tmp_path: Path) -> None:
    run = imported(tmp_path, line())
    engine = Reads(context=40)
    for request in (ProbeRequest(interval=2), ProbeRequest("start", close_think="always")):
        await aprobe(run, request, engine)
    assert Run.open(run).decide(make_rule("no-thinking")).at.tolist() == [0]


def test_the_context_holds_the_longest_text(tmp_path: Path) -> None:
    with Store.open(imported(tmp_path, line(text="x" * 300), line(1))) as store:
        assert room_for(store) == 100
        assert store.config.model == IMPORTED


@pytest.mark.parametrize(
    ("text", "back", "changed"),
    [("abc", "abc", 0), ("abc", " abc", 1), ("a²b", "a2b", 1), ("naïve", "nave", 1), ("", "x", 1)],
)
def test_changed_characters(text: str, back: str, changed: int) -> None:
    assert changed_characters(text, back) == changed


def test_the_command_asks_for_a_model_and_never_opens_the_word_imported(tmp_path: Path) -> None:
    run = imported(tmp_path, line(question="Find x, the last three digits of 317*29."))
    asked = command("probe", str(run))
    assert asked.returncode == 2
    assert "does not name its model" in asked.stderr
    assert "--model" in asked.stderr
    made = command("probe", str(run), "--model", "embedded", "--interval", "2", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["probes"] == 3
    assert made.stderr.count("encoded from text with the tokenizer of embedded") == 1
    unknown = command("probe", str(imported(tmp_path / "named", line(run={"model": "far-away"}))))
    assert (unknown.returncode, "--model" in unknown.stderr) == (2, True)
