"""Sessions on the embedded model: probes, overlap, forcing, many at once. Nothing here depends on how well it reasons."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cgr import Event, Model, Probed, Settings, Thinking, open_model
from cgr.drive.driver import Driver
from cgr.engines.base import Sampling, written_text
from cgr.engines.completions.engine import CHUNK
from cgr.engines.llama.engine import LlamaEngine
from cgr.reason import Abstention
from cgr.rules import make_rule
from tests.support import OTHERS, QUESTION, certainties, gist

WATCH: dict[str, Any] = {"rule": "only-watches", "budget": 96}


@pytest.mark.parametrize("temperature", [0.0, 0.6])
@pytest.mark.parametrize("interval", [32, 20])
async def test_a_probe_leaves_the_session_unchanged(model: Model, temperature: float, interval: int) -> None:
    alone = await model.asolve(QUESTION, rule="fixed-budget", budget=96, temperature=temperature)
    probed = await model.asolve(QUESTION, **WATCH, interval=interval, temperature=temperature)
    assert probed.thinking == alone.thinking
    assert probed.thinking_tokens == alone.thinking_tokens
    assert len(probed.probes) >= 1
    assert probed.answer == alone.answer
    assert probed.certainty == pytest.approx(alone.certainty, abs=1e-5)


async def test_a_probe_computes_only_its_tail(model: Model, engine: LlamaEngine) -> None:
    solution = await model.asolve(QUESTION, **WATCH, interval=16)
    prompt = len(await engine.prompt(Settings().prompt(QUESTION)))
    assert len(solution.probes) >= 5
    for probe in solution.probes:
        length = prompt + probe.at
        assert probe.prefilled + probe.cached == length + len(probe.suffix_ids)
        assert probe.cached >= length - CHUNK
        assert probe.prefilled <= len(probe.suffix_ids) + CHUNK
    naive = sum(prompt + probe.at + len(probe.suffix_ids) for probe in solution.probes)
    assert sum(probe.prefilled for probe in solution.probes) < naive / 4


async def test_an_overlapping_probe_computes_only_what_its_slot_lacks(model: Model, engine: LlamaEngine) -> None:
    solution = await model.asolve(QUESTION, **WATCH, interval=16, overlap=True)
    prompt = len(await engine.prompt(Settings().prompt(QUESTION)))
    for before, probe in zip(solution.probes, solution.probes[1:], strict=False):
        assert probe.cached >= prompt + before.at - CHUNK
        assert probe.prefilled <= len(probe.suffix_ids) + 16 + CHUNK


@pytest.mark.parametrize(
    ("rule", "threshold", "interval"), [("cgr", 0.99, 32), ("cgr", 0.3, 20), ("only-watches", 0.99, 20)]
)
async def test_overlap_equals_sequential(model: Model, rule: str, threshold: float, interval: int) -> None:
    options: dict[str, Any] = {"rule": rule, "threshold": threshold, "interval": interval, "budget": 112, "seed": 4}
    plain = await model.asolve(QUESTION, **options)
    ahead = await model.asolve(QUESTION, **options, overlap=True)
    assert gist(ahead) == gist(plain)
    assert certainties(ahead) == pytest.approx(certainties(plain), abs=1e-5)
    assert ahead.probe_tokens == plain.probe_tokens


async def test_many_at_once_equal_one_by_one(model: Model) -> None:
    """More questions than there are sessions: the rest wait their turn."""
    questions = (QUESTION, *OTHERS)
    options: dict[str, Any] = {"budget": 64, "interval": 24, "full": True}
    alone = [await model.asolve(question, **options, overlap=number % 2 == 1) for number, question in enumerate(questions)]
    together = await asyncio.gather(
        *(model.asolve(question, **options, overlap=number % 2 == 1) for number, question in enumerate(questions))
    )
    assert [gist(one) for one in together] == [gist(one) for one in alone]
    for one, other in zip(together, alone, strict=True):
        assert certainties(one) == pytest.approx(certainties(other), abs=1e-4)


async def test_overlapping_sessions_never_wait_for_each_other() -> None:
    """Each takes both of its slots or none: half a pair each would be a standstill."""
    async with open_model(sessions=1, overlap=True) as small:
        mixed = (small.asolve(QUESTION, budget=32, interval=16, overlap=number > 1) for number in range(5))
        assert len(await asyncio.gather(*mixed)) == 5


@pytest.mark.parametrize("overlap", [False, True])
async def test_watching_changes_nothing(model: Model, overlap: bool) -> None:
    heard: list[Event] = []
    options: dict[str, Any] = {"rule": "only-watches", "budget": 80, "interval": 24, "overlap": overlap}
    plain = await model.asolve(QUESTION, **options)
    watched = await model.asolve(QUESTION, **options, on_event=heard.append)
    assert gist(watched) == gist(plain)
    assert "".join(one.text for one in heard if isinstance(one, Thinking)) == plain.thinking
    assert [one.probe.at for one in heard if isinstance(one, Probed)] == [24, 48, 72]


async def begun_and_cancelled(model: Model, overlap: bool) -> None:
    begun = asyncio.Event()
    watching = model.asolve(QUESTION, rule="only-watches", overlap=overlap, on_event=lambda event: begun.set())
    solving = asyncio.create_task(watching)
    await begun.wait()
    solving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await solving


async def test_a_cancelled_solve_frees_its_slots(model: Model) -> None:
    reference = await model.asolve(QUESTION, budget=48)
    for overlap in (False, True, False):
        await begun_and_cancelled(model, overlap)
    again = await asyncio.gather(*(model.asolve(QUESTION, budget=48, overlap=True) for _ in range(2)))
    assert [gist(one) for one in again] == [gist(reference)] * 2


async def greedy_tag(engine: LlamaEngine, width: int) -> str:
    """A text of so many tokens that greedy thinking is bound to write, not among its first: an end tag for any model."""
    session = await engine.open(Settings().prompt(QUESTION), Sampling(temperature=0.0), room=64)
    ids = (await session.think(64)).ids
    await session.close()
    for start in range(8, 64 - width):
        text = await engine.decode(ids[start : start + width])
        alone = await engine.encode(text)
        if (
            text.strip()
            and text == text.strip()
            and "," not in text
            and len(alone) == width
            and text not in await engine.decode(ids[:start])
        ):
            return text
    raise AssertionError("greedy thinking repeats itself from the start")


@pytest.mark.parametrize("width", [1, 3])
async def test_a_tag_of_any_length_ends_thinking(engine: LlamaEngine, width: int) -> None:
    """Single tokens are watched by id, longer tags in the text; the thinking is what came before."""
    tag = await greedy_tag(engine, width)
    async with open_model(think_tags=f"<think>,{tag}") as tagged:
        plain = await tagged.asolve(QUESTION, rule="fixed-budget", budget=64, temperature=0.0)
        heard: list[Event] = []
        streamed = await tagged.asolve(QUESTION, rule="fixed-budget", budget=64, temperature=0.0, on_event=heard.append)
    assert plain.stop_cause == "end_of_thinking"
    assert 0 < plain.thinking_tokens < 64
    assert tag not in plain.thinking
    assert gist(streamed) == gist(plain)
    assert "".join(one.text for one in heard if isinstance(one, Thinking)) == plain.thinking


@pytest.mark.parametrize("rule", ["budget-forcing", "cgr-forced"])
async def test_forcing_replaces_the_end(engine: LlamaEngine, rule: str) -> None:
    tag = await greedy_tag(engine, 1)
    options: dict[str, Any] = {
        "rule": rule,
        "budget": 64,
        "temperature": 0.0,
        "threshold": 1.0,
        "interval": 24,
        "max_answer_tokens": 1,
    }
    async with open_model(think_tags=f"<think>,{tag}", overlap=True) as tagged:
        natural = await tagged.asolve(QUESTION, rule="fixed-budget", budget=64, temperature=0.0)
        forced = await tagged.asolve(QUESTION, **options)
        heard: list[Event] = []
        ahead = await tagged.asolve(QUESTION, **options, overlap=True, on_event=heard.append)
    assert natural.stop_cause == "end_of_thinking"
    assert (forced.stop_cause, forced.thinking_tokens) == ("budget", 64)
    assert forced.forced >= 1
    assert forced.thinking.startswith(natural.thinking + "\nWait")
    assert gist(ahead) == gist(forced)
    assert "".join(one.text for one in heard if isinstance(one, Thinking)) == forced.thinking
    if rule == "cgr-forced":
        assert natural.thinking_tokens in [probe.at for probe in forced.probes]


async def test_forcing_bans_the_end(engine: LlamaEngine) -> None:
    tag = await greedy_tag(engine, 1)
    async with open_model(think_tags=f"<think>,{tag}") as tagged:
        (banned,) = await tagged.engine.encode(tag)
        for name in ("budget-forcing", "cgr-forced"):
            session = await tagged.engine.open(Settings().prompt(QUESTION), Sampling(temperature=0.0), room=96)
            driver = Driver(tagged.engine, session, Settings(max_answer_tokens=1).spec())
            outcome = await driver.run(make_rule(name, forcing="ban"), 64, Abstention())
            assert outcome.decision.stop_cause == "budget"
            assert outcome.decision.forced == 0
            assert len(outcome.ids) == 64
            assert banned not in outcome.ids


async def test_a_trace_depends_on_its_seed(model: Model) -> None:
    first, again, other = [
        await model.asolve(QUESTION, rule="fixed-budget", budget=48, temperature=4.0, seed=seed) for seed in (1, 1, 2)
    ]
    assert first.thinking == again.thinking
    assert first.thinking != other.thinking


async def test_many_at_once_are_told_apart(model: Model) -> None:
    found = await asyncio.gather(
        *(model.asolve(QUESTION, rule="fixed-budget", budget=64, seed=seed, temperature=4.0) for seed in range(4))
    )
    assert len({one.thinking for one in found}) == 4


@pytest.mark.parametrize("watched", [False, True])
async def test_log_probabilities_of_the_thinking(engine: LlamaEngine, watched: bool) -> None:
    """One for each token, whatever the stretches; what nobody sampled has none."""
    session = await engine.open(Settings().prompt(QUESTION), Sampling(temperature=0.0, logprobs=True), room=96)
    on_text = (lambda text: None) if watched else None
    stretches = [await session.think(tokens, on_text=on_text) for tokens in (5, 40)]
    for stretch in stretches:
        assert len(stretch.logprobs) == len(stretch.ids)
        assert all(-100 < logprob <= 0 for logprob in stretch.logprobs)
    waiting = await engine.encode("\nWait")
    await session.append(waiting)
    more = await session.think(4, on_text=on_text)
    assert len(more.logprobs) == len(more.ids)
    assert session.trace == [*stretches[0].ids, *stretches[1].ids, *waiting, *more.ids]
    await session.close()


async def test_what_the_model_writes_after_its_thinking(engine: LlamaEngine) -> None:
    session = await engine.open(Settings().prompt(QUESTION), Sampling(temperature=0.0), room=96)
    await session.think(8)
    before = list(session.trace)
    pieces = [piece async for piece in session.write(4)]
    assert "".join(piece.text for piece in pieces) == await written_text(session.write(4))
    assert sum(piece.tokens for piece in pieces) <= 4
    assert [piece.stop for piece in pieces if piece.stop] in (["limit"], ["eos"])
    assert session.trace == before
    await session.close()


async def sampled(engine: LlamaEngine, **sampling: Any) -> tuple[int, ...]:
    session = await engine.open(Settings().prompt(QUESTION), Sampling(**sampling), room=64)
    ids = (await session.think(48)).ids
    await session.close()
    return ids


async def test_filters_are_used(engine: LlamaEngine) -> None:
    """With one token left to choose from, sampling is greedy, however hot."""
    greedy = await sampled(engine, temperature=0.0)
    assert await sampled(engine, temperature=4.0, top_k=1) == greedy
    assert await sampled(engine, temperature=1.0, min_p=1.0) == greedy
    assert await sampled(engine, temperature=4.0) != greedy


async def test_penalties_are_used_and_do_not_depend_on_the_stretches(engine: LlamaEngine) -> None:
    """They look back over the whole context, so that stretches of any length give the same thinking."""
    options: dict[str, Any] = {"temperature": 0.0, "frequency_penalty": 2.0}
    whole = await sampled(engine, **options)
    assert whole != await sampled(engine, temperature=0.0)
    session = await engine.open(Settings().prompt(QUESTION), Sampling(**options), room=64)
    parts = [(await session.think(tokens)).ids for tokens in (5, 30, 13)]
    await session.close()
    assert tuple(token for part in parts for token in part) == whole


async def test_a_stop_string_ends_the_written_answer(engine: LlamaEngine) -> None:
    async def written(*stop: str) -> tuple[str, str | None]:
        session = await engine.open(Settings().prompt(QUESTION), Sampling(temperature=0.0, stop=stop), room=96)
        await session.think(8)
        pieces = [piece async for piece in session.write(24)]
        await session.close()
        return "".join(piece.text for piece in pieces), pieces[-1].stop

    text, _ = await written()
    stop = text[len(text) // 2 : len(text) // 2 + 2]
    assert await written(stop) == (text[: text.index(stop)], "stop")
