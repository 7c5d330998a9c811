"""Notes where the answers of stored probes stand in the thinking, for runs that were recorded without it."""

from __future__ import annotations

from pathlib import Path

from cgr.engines.base import Engine
from cgr.errors import NotRecorded, UsageError
from cgr.lab.record.retrace import same_vocabulary
from cgr.lab.store import Store
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.store.updates import set_stated
from cgr.rules.stated import Stated, stated
from cgr.solve import Model


def note_stated(folder: Path, model: Model) -> int:
    """Note it for every closed answer that lacks it, and return their number. Only the tokenizer of the model is used."""
    return model.run(lambda: anote_stated(folder, model.engine))


async def anote_stated(folder: Path, engine: Engine) -> int:
    """The same for asynchronous code."""
    await engine.connect()
    count = 0
    with Store.open(folder, write=True) as store:
        for name in store.probe_sets():
            for trace in list(store.recorded(name, whole=True)):
                await _check_tokens(trace, engine, folder)
                found = await _found(trace, engine)
                set_stated(store, (trace.question_id, trace.seed), name, found)
                count += len(found)
    return count


async def _check_tokens(trace: RecordedTrace, engine: Engine, folder: Path) -> None:
    if len(trace.ids) != trace.thinking_tokens:
        raise NotRecorded(
            f"Question {trace.question_id!r}, seed {trace.seed}: the token ids of the thinking are missing.",
            "Where answers stand in the thinking can be noted only for runs with token ids.",
        )
    if trace.text and not await same_vocabulary(engine, trace):
        raise UsageError(
            f"{engine.info.name} has another vocabulary than the model that generated the run in {folder}.",
            "Name that model: --model M.",
        )


async def _found(trace: RecordedTrace, engine: Engine) -> dict[int, Stated]:
    lacking = [probe for probe in trace.probes if probe.closed and probe.at and probe.stated is None]
    return {probe.at: stated(probe.answer, await engine.decode(trace.ids[: probe.at])) for probe in lacking}
