"""A whole checkup, on the embedded model and on a scripted one."""

from __future__ import annotations

import pytest

from cgr.doctor import Checkup, CheckupOptions, examine, other_threads
from cgr.doctor.terminal import checkup_lines
from cgr.engines.llama.engine import LlamaEngine
from cgr.engines.scripted import ScriptedEngine
from cgr.errors import UsageError
from tests.support import UNSURE, scripted

SMALL = CheckupOptions(tokens=32, sessions=2)


async def test_the_embedded_model(engine: LlamaEngine) -> None:
    checkup = await examine(engine, SMALL, {"again": lambda: engine})
    assert checkup.noise.exact
    assert checkup.noise.trace_repeats
    assert [series.name for series in checkup.noise.ways] == [
        "while thinking",
        "same probe repeated",
        "read stretch by stretch",
        "new session at each cut",
        "with 1 other sessions",
        "again",
    ]
    assert checkup.integers.fit
    assert checkup.model.template_opens
    assert (len(checkup.model.opening.ids), len(checkup.model.closing.ids)) == (1, 1)
    assert checkup.model.context >= engine.info.context
    assert checkup.cost.token_seconds > 0
    assert checkup.cost.probe_seconds > 0
    assert checkup.machine.cores > 0
    assert Checkup.from_json(checkup.to_json()) == checkup


async def test_every_session_is_closed(engine: LlamaEngine) -> None:
    """A second checkup finds all sessions free."""
    await examine(engine, SMALL)
    await examine(engine, SMALL)


async def test_a_model_that_is_not_reproducible() -> None:
    asked = 0

    def answers(at: int, suffix: str) -> list[tuple[str, float]]:
        nonlocal asked
        asked += 1
        return [("7", 0.6 + 0.01 * (asked % 7)), ("}", 0.999)]

    checkup = await examine(ScriptedEngine(["so"] * 64, answers), CheckupOptions(tokens=32, sessions=1))
    assert not checkup.noise.exact
    assert 0.01 <= checkup.noise.largest <= 0.07
    text = "\n".join(checkup_lines(checkup))
    assert "is not reproducible" in text
    assert "may stop one run and not the next" in text


async def test_an_exact_model() -> None:
    checkup = await examine(scripted("so " * 64, lambda at, suffix: UNSURE), CheckupOptions(tokens=32, sessions=1))
    text = "\n".join(checkup_lines(checkup))
    assert "exact, stops are reproducible at any threshold" in text
    assert "template      unknown" in text


async def test_thinking_that_ends_early_is_continued() -> None:
    script = scripted("so </think> so </think> " * 40, lambda at, suffix: UNSURE)
    checkup = await examine(script, CheckupOptions(tokens=32, sessions=1))
    assert checkup.noise.cuts == (4, 8, 12, 16, 20, 24, 28, 32)
    assert any(entry.startswith("append") for entry in script.log)


async def test_the_dialect_of_a_server_is_shown() -> None:
    class FakeDialect:
        def to_dict(self) -> dict[str, object]:
            return {"token_ids": True, "logprobs": 5, "seed": False, "cache": None}

    class Served(ScriptedEngine):
        dialect = FakeDialect()

    engine = Served(["so"] * 64, lambda at, suffix: UNSURE)
    checkup = await examine(engine, CheckupOptions(tokens=32, sessions=1))
    assert "dialect       token_ids yes, logprobs 5, seed no, cache unknown" in checkup_lines(checkup)


def test_another_number_of_threads(engine: LlamaEngine) -> None:
    assert other_threads(engine) not in (None, engine.info.threads)
    assert other_threads(scripted("")) is None


@pytest.mark.parametrize("wrong", [{"tokens": 7}, {"share": 0.0}, {"share": 1.0}, {"threshold": 1.5}])
def test_wrong_options_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        CheckupOptions(**wrong)  # type: ignore[arg-type]
