"""Probing saved traces: the same probes as during generation, and each trace is read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr import Model
from cgr.engines.base import Prompt, Sampling
from cgr.engines.scripted import ScriptedEngine, ScriptedSession
from cgr.errors import EngineError, NotRecorded, UnknownName, UsageError
from cgr.lab.record.generate import agenerate
from cgr.lab.record.jobs import Progress
from cgr.lab.record.probe import aprobe
from cgr.lab.record.prober import AskAt
from cgr.lab.store import Store, probing_stage
from cgr.lab.store.config import OtherConfiguration, ProbeRequest, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Probe
from cgr.rules import Seen
from tests.lab.record.test_generate import ASKED, OWN, FailingEngine, kept, plan
from tests.support import SURE, UNSURE, scripted, sure_from


@pytest.mark.parametrize(
    ("script", "budget", "interval", "positions"),
    [
        ("a b c d e </think>", 8, 2, [2, 4]),
        ("a b c d </think>", 8, 2, [2, 4]),
        ("a </think>", 8, 2, []),
        ("a b c d e f g h", 8, 2, [2, 4, 6]),
        ("a b c d e f g h", 8, 3, [3, 6]),
        ("a b c d e f g h", 8, 8, []),
    ],
)
async def test_cuts_are_multiples_of_the_interval_below_the_budget(
    tmp_path: Path, script: str, budget: int, interval: int, positions: list[int]
) -> None:
    engine = scripted(script, sure_from(4))
    for name, probe in (("on the way", True), ("after", False)):
        await agenerate(tmp_path / name, plan(ASKED[:1], probe=probe, budget=budget, interval=interval), engine)
    assert await aprobe(tmp_path / "after", ProbeRequest(), engine) == "default"
    after, on_the_way = kept(tmp_path / "after", "default"), kept(tmp_path / "on the way", "default")
    assert [probe.at for probe in after[0].probes] == positions
    assert after == on_the_way


async def test_the_embedded_model_reads_each_trace_once(model: Model, tmp_path: Path) -> None:
    made = {
        "on the way": plan(OWN[:2], budget=100, interval=16, probe=True),
        "after": plan(OWN[:2], budget=100, interval=16),
    }
    for name, wanted in made.items():
        await agenerate(tmp_path / name, wanted, model.engine, sessions=2)
    await aprobe(tmp_path / "after", ProbeRequest(), model.engine, sessions=2)
    for there, here in zip(kept(tmp_path / "on the way", "default"), kept(tmp_path / "after", "default"), strict=True):
        assert [probe.at for probe in here.probes] == [at for at in range(16, 100, 16) if at <= here.thinking_tokens]
        same(there.probes, here.probes)
        same([there.final], [here.final])
        with Store.open(tmp_path / "after") as store:
            prompt = len(store.prompt_ids((here.question_id, here.seed)))
        suffixes = sum(len(probe.suffix_ids) + 1 for probe in here.probes)
        assert sum(probe.prefilled for probe in here.probes) <= prompt + here.thinking_tokens + suffixes
        assert all(probe.cached >= prompt + probe.at - 16 - 1 for probe in here.probes[1:])


def same(there: Sequence[Probe], here: Sequence[Probe]) -> None:
    for one, other in zip(there, here, strict=True):
        assert (one.at, one.answer, one.closed, one.decoded) == (other.at, other.answer, other.closed, other.decoded)
        assert one.certainty == pytest.approx(other.certainty, abs=1e-5)
        assert [token.id for token in one.tokens] == [token.id for token in other.tokens]
        assert other.suffix_ids
        assert other.tokens
        assert all(token.top for token in other.tokens)


async def test_a_run_can_hold_several_sets(tmp_path: Path) -> None:
    engine = scripted("a b c d e f g h", sure_from(4))
    await agenerate(tmp_path, plan(), engine)
    assert await aprobe(tmp_path, ProbeRequest(), engine) == "default"
    assert await aprobe(tmp_path, ProbeRequest(interval=3), engine) == "every-3"
    assert await aprobe(tmp_path, ProbeRequest(interval=4), engine) == "every-4"
    assert await aprobe(tmp_path, ProbeRequest(interval=4, close_think="always", name="closed"), engine) == "closed"
    asked = len(engine.log)
    assert await aprobe(tmp_path, ProbeRequest(interval=3), engine) == "every-3"
    assert len(engine.log) == asked  # nothing was left to do
    with pytest.raises(OtherConfiguration, match="close think is 'always' there and 'never' here"):
        await aprobe(tmp_path, ProbeRequest(interval=4, name="closed"), engine)
    assert [probe.at for probe in kept(tmp_path, "every-3")[0].probes] == [3, 6]
    assert "</think> Final Answer: \\boxed{" in {line.partition(" 4 ")[2] for line in engine.log}


async def test_the_final_answer_is_decoded_again_only_with_other_options(tmp_path: Path) -> None:
    answers = {"Final Answer: \\boxed{": SURE, "Else: {": (("5", 0.5), ("6", 0.8), ("}", 0.9))}
    engine = scripted("a b </think>", lambda at, suffix: answers[suffix.removeprefix("</think> ")])
    await agenerate(tmp_path, plan(ASKED[:1]), engine)
    await aprobe(tmp_path, ProbeRequest(interval=1), engine)
    assert kept(tmp_path, "default")[0].final == kept(tmp_path)[0].final
    assert sum(line.startswith("probe 2 </think>") for line in engine.log) == 1
    await aprobe(tmp_path, ProbeRequest(prefix="Else: {", name="else"), engine)
    assert kept(tmp_path, "else")[0].final.answer == "56"
    assert kept(tmp_path)[0].final.answer == "7"
    asked = len(engine.log)
    await aprobe(tmp_path, ProbeRequest(interval=5, aggregate="product", name="product"), engine)
    assert not [line for line in engine.log[asked:] if line.startswith("probe")]


async def test_failures_are_listed_and_tried_again(tmp_path: Path) -> None:
    class Unreachable(FailingEngine):
        async def open(self, *args: Any, **more: Any) -> ScriptedSession:
            raise EngineError("It cannot be reached.")

    await agenerate(tmp_path, plan(), FailingEngine())
    await aprobe(tmp_path, ProbeRequest(), Unreachable(), progress=(progress := Progress(quiet=True)))
    with Store.open(tmp_path) as store:
        assert [failure.message for failure in store.failures(probing_stage("default"))] == ["It cannot be reached."] * 2
    assert progress.failed == 2
    await aprobe(tmp_path, ProbeRequest(), FailingEngine())
    with Store.open(tmp_path) as store:
        assert not store.failures()
        assert len(store.probed("default")) == 2


def test_asking_at_positions() -> None:
    rule = AskAt(positions=(3, 7))
    assert [rule.next_probe(Seen(at)) for at in (0, 3, 5, 7)] == [3, 7, 7, None]


async def test_probes_at_marks(tmp_path: Path) -> None:
    engine = scripted("so Wait no Alternatively x </think>", sure_from(3))
    await agenerate(tmp_path, plan(ASKED[:1]), engine)
    assert await aprobe(tmp_path, ProbeRequest(where="wait", name="w"), engine) == "w"
    assert [(probe.at, probe.answer) for probe in kept(tmp_path, "w")[0].probes] == [(1, "3"), (3, "7")]
    with Store.open(tmp_path) as store:
        assert (store.info("w").interval, store.info().interval) == (0, 2)


class Another(ScriptedEngine):
    """Another model, which keeps the tokens that it is given. `words` come first in its vocabulary."""

    def __init__(self, words: str, answers: Any) -> None:
        super().__init__((), answers)
        self.info = replace(self.info, name=words, fingerprint=words)
        self.given: list[int] = []
        for word in words.split():
            self.id_of(word)

    async def decode(self, ids: Sequence[int]) -> str:
        if any(token >= len(self._words) for token in ids):
            raise EngineError("No such token.")
        return await super().decode(ids)

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int = 0, overlap: bool = False, wait: float | None = None
    ) -> ScriptedSession:
        given = self.given

        class Given(ScriptedSession):
            async def append(self, ids: Sequence[int]) -> None:
                given.extend(ids)
                await super().append(ids)

        return Given(self)


async def test_another_model_is_probed_and_the_final_answer_stays(tmp_path: Path) -> None:
    """It gets the tokens if it has the same vocabulary, otherwise the text; the final answer stays."""
    generator = scripted("a b c d e </think>", lambda at, suffix: SURE)
    generator.info = replace(generator.info, fingerprint="g")
    await agenerate(tmp_path, plan(ASKED[:1]), generator)
    vocabulary = " ".join(generator._words)
    alike, unlike = Another(vocabulary, lambda at, suffix: UNSURE), Another("x y z e d", lambda at, suffix: UNSURE)
    assert await aprobe(tmp_path, ProbeRequest(), alike) == "default"
    thinker = Model(generator)
    assert await aprobe(tmp_path, ProbeRequest(), unlike, open_generator=lambda name: thinker) == "every-2"
    for another in (alike, unlike):
        assert (await another.decode(another.given)).split() == ["a", "b", "c", "d"]  # nothing is probed after these
    for name in ("default", "every-2"):
        (trace,) = kept(tmp_path, name)
        assert [(probe.at, probe.answer) for probe in trace.probes] == [(2, "3"), (4, "3")]
        assert trace.final.answer == "7"


async def test_a_model_with_another_vocabulary_needs_the_generator(tmp_path: Path) -> None:
    generator = scripted("a b c </think>")
    generator.info = replace(generator.info, fingerprint="g")
    await agenerate(tmp_path, plan(ASKED[:1]), generator)
    other = Another("x", lambda at, suffix: UNSURE)
    with pytest.raises(UsageError, match="has another vocabulary than scripted"):
        await aprobe(tmp_path, ProbeRequest(), other)
    with pytest.raises(UsageError, match="have changed"):
        await aprobe(tmp_path, ProbeRequest(), other, open_generator=lambda name: Model(Another("y", None)))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"where": "everywhere"}, UnknownName),
        ({"interval": 0}, UsageError),
        ({"max_answer_tokens": 0}, UsageError),
        ({"aggregate": "median"}, UnknownName),
    ],
)
def test_a_request_with_invalid_options_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        ProbeRequest(**options)


async def test_a_prefix_that_no_answer_can_close_is_refused(tmp_path: Path) -> None:
    engine = scripted("a </think>")
    await agenerate(tmp_path, plan(), engine)
    with pytest.raises(UsageError, match="could never be closed"):
        await aprobe(tmp_path, ProbeRequest(prefix="So: "), engine)


async def test_traces_without_tokens_and_runs_without_traces_cannot_be_probed(tmp_path: Path) -> None:
    config = RunConfig(model="scripted", engine="scripted", budget=8, interval=2)
    with Store.create(tmp_path, config) as store:
        store.add_questions(ASKED)
    with pytest.raises(NotRecorded, match="no traces yet"):
        await aprobe(tmp_path, ProbeRequest(), scripted("a"))
    with Store.create(tmp_path, config) as store:
        store.add_trace(RecordedTrace("q1", 0, "7", 5, "end_of_thinking", 8, Probe(5, "7", 0.9, True)))
    with pytest.raises(NotRecorded, match="neither token ids nor text"):
        await aprobe(tmp_path, ProbeRequest(), scripted("a"))
