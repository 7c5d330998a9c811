"""Other people's servers: a real one, spoken to in both dialects, and faults put between us and it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cgr import Model, open_model
from cgr.engines.base import Sampling, written_text
from cgr.engines.completions.engine import CompletionsEngine
from cgr.engines.completions.policy import RetryPolicy
from cgr.engines.completions.session import CompletionsSession
from cgr.engines.completions.thinking import MAX_AHEAD, ThinkingReader
from cgr.errors import CgrError, DoesNotFit, EngineError, MissingCapability, ModelNotFound, UsageError
from cgr.records import Token
from tests.engines.completions.upstream import BEFORE, HASTY, KEY, WITHIN, Fault, Proxy, address, proxy
from tests.support import QUESTION, certainties, gist

NATIVE: tuple[str, ...] = ()
OPENAI = ("api=openai",)
BOTH = pytest.mark.parametrize("dialect", [NATIVE, OPENAI], ids=["llama.cpp", "openai"])
GREEDY: dict[str, Any] = {"temperature": 0.0, "budget": 160, "interval": 24, "rule": "only-watches"}
HF = str(Path(__file__).parents[3] / "src" / "cgr" / "model" / "hf")


@asynccontextmanager
async def remote(*addresses: str, **options: Any) -> AsyncIterator[Model]:
    options = {"api_key": KEY, **options}
    async with open_model(None, base_url=addresses or (address(),), **options) as model:
        yield model


def engine_of(model: Model) -> CompletionsEngine:
    assert isinstance(model.engine, CompletionsEngine)
    return model.engine


async def session_of(model: Model, room: int = 400, **sampling: Any) -> CompletionsSession:
    return await engine_of(model).open(QUESTION, Sampling(**sampling), room=room)


async def until(is_so: Callable[[], object]) -> None:
    """Wait for something that stays so once it is so; if it never becomes so, the test fails and does not hang."""
    for _ in range(60_000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("What is waited for did not happen.")


def never(tokens: Sequence[Token]) -> bool:
    return False


# What is found out


@BOTH
async def test_what_a_server_can_do_is_found_out(dialect: tuple[str, ...]) -> None:
    async with remote(dialect=dialect) as model:
        found, engine = engine_of(model).dialect, engine_of(model)
    assert (found.api, found.server) == ("openai" if dialect else "llama.cpp", "llama.cpp")
    assert (found.context, found.slots, found.tokenize) == (2048, 4, "llama.cpp")
    assert (found.token_prompts, found.exact, found.logit_bias, found.raw_logprobs) == (True, True, True, True)
    assert (found.seed, found.stream, found.prefix_cache) == (True, True, True)
    assert found.logprobs >= 20
    assert (engine.info.open_tag, engine.info.close_tag) == ("<think>", "</think>")
    assert (engine.capabilities.overlaps, engine.capabilities.ban, engine.capabilities.logprobs) == (True, True, "top-k")
    assert engine.notes == ()
    assert set(found.to_dict()) >= {"api", "token_prompts", "token_ids", "logprobs", "seed", "prefix_cache"}


async def test_what_is_found_out_can_be_overridden() -> None:
    async with remote(dialect=("stream=no", "context=1000", "server=mine")) as model:
        engine = engine_of(model)
    assert (engine.dialect.stream, engine.info.context, engine.dialect.server) == (False, 1000, "mine")
    assert engine.connected.form.chunk
    assert not engine.capabilities.overlaps
    assert "does not stream" in engine.notes[0]


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"dialect": ("logprobs=0", "api=openai")}, MissingCapability, "returns no log-probabilities"),
        ({"dialect": ("raw_logprobs=no",)}, MissingCapability, "not raw"),
        ({"dialect": ("context=0",)}, MissingCapability, "length of its context"),
        ({"dialect": ("streams=no",)}, UsageError, "no property of a dialect"),
        ({"dialect": ("stream=perhaps",)}, UsageError, "yes or no"),
        ({"dialect": ("api=soap",)}, UsageError, "no value of api"),
        ({"api_key": "wrong"}, UsageError, "refused the API key"),
        ({"tokenizer": "nowhere/at-all-x"}, ModelNotFound, "no tokenizer"),
        ({"device": "cuda", "base_url": ()}, UsageError, "--device is not for this model"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_what_is_missing_is_said_at_once(
    options: dict[str, Any], error: type[CgrError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    options = {"base_url": address(), "api_key": KEY, **options}
    with pytest.raises(error, match=said) as caught:
        await open_model(None, **options).engine.connect()
    assert caught.value.hint


async def test_a_server_that_is_not_there() -> None:
    with pytest.raises(ModelNotFound, match="There is no server at http://127") as caught:
        await open_model("x", base_url="http://127.0.0.1:9/v1").engine.connect()
    assert "--base-url" in caught.value.hint
    with pytest.raises(UsageError, match="not the address of a server"):
        open_model("x", base_url="localhost:8000")


# Thinking and probing


@BOTH
async def test_greedy_thinking_is_that_of_the_engine_here(dialect: tuple[str, ...], model: Model) -> None:
    """The same weights, two ways: one stream with probes beside it, and chunks with probes between them."""
    here = await model.asolve(QUESTION, **GREEDY, max_answer_tokens=4)
    async with remote(dialect=dialect) as there:
        solution = await there.asolve(QUESTION, **GREEDY, max_answer_tokens=4)
    assert gist(solution) == gist(here)
    assert certainties(solution) == pytest.approx(certainties(here), abs=1e-3)
    assert all(probe.cached for probe in solution.probes[1:])


async def test_chunks_are_those_of_the_engine_here(model: Model) -> None:
    """Keyed seeds on the same grid: the same sampled thinking, token for token."""
    options: dict[str, Any] = GREEDY | {"temperature": 0.6, "seed": 3, "max_answer_tokens": 4}
    here = await model.asolve(QUESTION, **options)
    async with remote(chunk=32) as there:
        assert gist(await there.asolve(QUESTION, **options)) == gist(here)
        assert gist(await there.asolve(QUESTION, **options, overlap=True)) == gist(here)


@BOTH
async def test_a_stream_does_not_depend_on_who_reads_it_or_when(dialect: tuple[str, ...]) -> None:
    """Overlapped or not, probed often or never, watched or not: one seed, one trace."""
    options: dict[str, Any] = {"temperature": 2.0, "budget": 120, "seed": 5, "rule": "only-watches", "max_answer_tokens": 4}
    heard: list[Any] = []
    async with remote(dialect=dialect) as model:
        plain = await model.asolve(QUESTION, **options, interval=40)
        other = await model.asolve(QUESTION, **options, interval=40, overlap=False, on_event=heard.append)
        rare = await model.asolve(QUESTION, **options, interval=500)
        another = await model.asolve(QUESTION, **options | {"seed": 6}, interval=500)
    assert gist(plain) == gist(other)
    assert plain.thinking == rare.thinking != another.thinking
    assert "".join(event.text for event in heard if hasattr(event, "text")) == plain.thinking


@BOTH
async def test_a_stop_hangs_up_and_counts_the_surplus(dialect: tuple[str, ...]) -> None:
    async with proxy() as passing, remote(passing.address, dialect=dialect) as model:
        session = await session_of(model, room=1500, temperature=0.0)
        await session.think(4, ban_end=True)
        await until(lambda: len(session.thinking.ahead) >= 8)
        assert passing.running == 1
        ahead = session.thinking.unused
        await session.close()
        assert session.wasted >= ahead
        await until(lambda: not passing.running)  # the server sees it


async def test_reading_ahead_has_an_end() -> None:
    """A buffer that is full is not read into. The read that fills it may bring several tokens."""
    async with remote() as model:
        session = await session_of(model, room=1800, temperature=0.0)
        await session.think(1, ban_end=True)
        await until(lambda: len(session.thinking.ahead) >= MAX_AHEAD)
        filled = len(session.thinking.ahead)
        await asyncio.sleep(0.2)
        assert len(session.thinking.ahead) == filled < MAX_AHEAD + 400
        stretch = await session.think(filled + 40, ban_end=True)
        assert len(stretch.ids) == filled + 40
        await session.close()


async def test_a_caller_is_woken_once_enough_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each token, unless its text is shown as it comes."""
    waits, more = 0, ThinkingReader._more

    async def counted(reader: ThinkingReader, target: int, on_piece: Any) -> None:
        nonlocal waits
        waits += 1
        await more(reader, target, on_piece)

    monkeypatch.setattr(ThinkingReader, "_more", counted)
    async with remote() as model:
        session = await session_of(model, room=1000, temperature=0.0)
        await session.think(300, ban_end=True)
        assert waits <= 3
        shown: list[str] = []
        await session.append([5])
        await session.think(100, ban_end=True, on_text=shown.append)
        assert len(shown) > 50
        await session.close()


@BOTH
async def test_forcing_by_replacing(dialect: tuple[str, ...], model: Model) -> None:
    """The end is replaced, wherever it comes."""
    async with remote(dialect=dialect) as there:
        forced = await there.asolve(QUESTION, rule="budget-forcing", temperature=0.0, budget=700)
        here = await model.asolve(QUESTION, rule="budget-forcing", temperature=0.0, budget=700)
        assert gist(forced) == gist(here)
        assert forced.thinking_tokens == 700


@BOTH
async def test_a_ban_that_comes_begins_another_stream(dialect: tuple[str, ...]) -> None:
    """Here `=` ends the thinking, which comes soon, unless it is banned."""
    async with proxy() as passing, remote(passing.address, dialect=dialect, think_tags="<think>,=") as model:
        (end,) = await model.engine.encode("=")
        session = await session_of(model, room=400, temperature=0.0)
        free = await session.think(100)
        assert free.ended
        assert end not in free.ids
        before = passing.completions
        banned = await session.think(60, ban_end=True)
        assert len(banned.ids) == 60 or banned.eos
        assert end not in banned.ids
        assert passing.completions == before + 1
        await session.close()


@BOTH
async def test_log_probabilities_of_the_thinking(dialect: tuple[str, ...]) -> None:
    async with remote(dialect=dialect) as model:
        session = await session_of(model, temperature=0.0, logprobs=True)
        stretch = await session.think(12)
        await session.append([5, 6])
        more = await session.think(3)
        await session.close()
    assert len(stretch.logprobs) == len(stretch.tops) == 12
    assert all(top < chosen <= 0 for top, chosen in zip(stretch.tops, stretch.logprobs, strict=True))
    assert len(more.logprobs) == 3


async def test_room_is_checked_and_the_limit_kept() -> None:
    async with proxy() as passing, remote(passing.address) as model:
        with pytest.raises(DoesNotFit, match="the context has 2048"):
            await session_of(model, room=3000)
        solution = await model.asolve(QUESTION, rule="fixed-budget", temperature=0.0, budget=16)
    assert (solution.thinking_tokens, solution.wasted_tokens) == (16, 0)
    assert passing.completions - 6 == 2  # six to find out; then a stream and an answer


# Servers that lack something


@pytest.mark.parametrize("given", [("token_prompts=no",), ("token_prompts=no", "token_ids=none")], ids=["prompts", "ids"])
async def test_without_token_ids_exactness_is_lost_and_that_is_said(given: tuple[str, ...], model: Model) -> None:
    here = await model.asolve(QUESTION, **GREEDY, max_answer_tokens=4)
    async with remote(dialect=("api=openai", *given), tokenizer=HF) as there:
        engine = engine_of(there)
        assert not engine.capabilities.token_ids
        assert re.search(r"results are not exact. Of \d\d tokens of a sample, \d+ changed", engine.notes[0])
        solution = await there.asolve(QUESTION, **GREEDY, max_answer_tokens=4)
    assert solution.thinking_tokens > 0
    assert solution.thinking[:20] == here.thinking[:20]


async def test_a_tokenizer_of_our_own(model: Model) -> None:
    async with remote(tokenizer=HF) as there:
        assert engine_of(there).dialect.tokenize == "local"
        assert await there.engine.prompt(QUESTION) == await model.engine.prompt(QUESTION)
        assert await there.engine.encode("Final Answer: \\boxed{") == await model.engine.encode("Final Answer: \\boxed{")


async def test_a_server_that_does_not_stream(model: Model) -> None:
    here = await model.asolve(QUESTION, **GREEDY, max_answer_tokens=4)
    async with remote(dialect=("stream=no",)) as there:
        assert gist(await there.asolve(QUESTION, **GREEDY, max_answer_tokens=4)) == gist(here)


# Faults


@BOTH
@pytest.mark.parametrize("fault", [*BEFORE, *WITHIN], ids=lambda fault: f"{fault.kind} after {fault.after}")
async def test_no_token_is_lost_or_doubled(fault: Fault, dialect: tuple[str, ...], greedy: Any) -> None:
    """Thinking and every probe meet the fault once: the result is that of the undisturbed run."""
    async with proxy() as passing, remote(passing.address, dialect=dialect, patience=HASTY) as model:
        passing.faults = [*times(fault), None, *times(fault), None, None, *times(fault)]
        solution = await model.asolve(QUESTION, **GREEDY, max_answer_tokens=4)
        assert passing.done.count(fault.kind) >= (1 if fault.after > 4 else 2)  # a probe has no more events than that
    assert gist(solution) == gist(greedy)
    assert certainties(solution) == pytest.approx(certainties(greedy), abs=1e-3)


def times(fault: Fault) -> list[Fault | None]:
    """A reset before the first word is not noticed until it comes again and again."""
    return [fault] * (1 + HASTY.at_once if fault.kind == "reset" else 1)


@pytest.fixture(scope="module")
def greedy() -> Any:
    """The undisturbed run."""
    with open_model(None) as here:
        return here.solve(QUESTION, **GREEDY, max_answer_tokens=4)


async def test_many_cuts_in_one_trace(greedy: Any) -> None:
    """Every request gives one event more, and breaks: each time it goes on from there."""
    async with proxy() as passing, remote(passing.address, patience=HASTY) as model:
        passing.always = Fault("cut", 2)
        session = await session_of(model, temperature=0.0)
        stretch = await session.think(20)
        await session.close()
        assert passing.done.count("cut") >= 10
        assert greedy.thinking.startswith(await model.engine.decode(stretch.ids))
        assert len(stretch.ids) == 20


@pytest.mark.parametrize("kind", ["503", "429", "reset", "cut", "stall", "no JSON"])
async def test_patience_has_an_end(kind: str) -> None:
    async with proxy() as passing, remote(passing.address, patience=HASTY) as model:
        passing.always = Fault(kind)
        with pytest.raises(EngineError, match="failed 4 times in a row") as caught:
            await model.asolve(QUESTION, budget=32)
        assert caught.value.hint
        assert passing.done == [kind] * HASTY.tries * (1 + HASTY.at_once if kind == "reset" else 1)


@pytest.mark.parametrize("kind", ["503", "cut", "garbage", "no stream"])
async def test_a_failed_probe_is_never_an_answer(kind: str) -> None:
    async with proxy() as passing, remote(passing.address, patience=HASTY) as model:
        session = await session_of(model, temperature=0.0)
        await session.think(8)
        await session.thinking.stop()
        passing.always = Fault(kind)
        with pytest.raises(EngineError):
            await session.probe([7, 8], 4, never)
        passing.always = Fault("no stream")
        with pytest.raises(EngineError):
            await written_text(session.write(8))
        await session.close()


async def test_what_cannot_pass_is_not_tried_again() -> None:
    async with proxy() as passing, remote(passing.address, patience=HASTY) as model:
        session = await session_of(model)
        before = passing.completions
        with pytest.raises(CgrError):
            await session.probe([10**7], 4, never)
        await session.close()
        assert passing.completions == before + 1


async def test_a_server_that_restarts(greedy: Any) -> None:
    async with proxy() as passing, remote(passing.address, patience=RetryPolicy(pause=0.1, longest=0.5)) as model:
        session = await session_of(model, temperature=0.0)
        stretch = await session.think(10)
        passing.always = Fault("cut", 4)
        await passing.stop()
        rest = asyncio.create_task(session.think(60))
        await asyncio.sleep(0.3)
        passing.always = None
        await passing.start()
        ids = stretch.ids + (await rest).ids
        await session.close()
        assert len(ids) == 70
        assert greedy.thinking.startswith(await model.engine.decode(ids))


def test_waiting_grows_and_keeps_to_what_was_asked() -> None:
    patience = RetryPolicy(pause=1.0, longest=20.0)
    waits = [patience.delay(attempt) for attempt in range(8)]
    assert all(2**n <= wait <= 1.5 * 2**n for n, wait in enumerate(waits[:4]))
    assert max(waits) == 20.0
    assert 7.0 <= patience.delay(0, 7.0) <= 7.5
    assert patience.delay(0, 3600.0) == 20.0


# Several servers


def both(*proxies: Proxy, **options: Any) -> Model:
    addresses = [one.address for one in proxies]
    return open_model(None, base_url=addresses, api_key=KEY, patience=HASTY, **options)


async def test_servers_share_the_work() -> None:
    async with proxy(number=0) as one, proxy(number=1) as two, both(one, two, sessions=4) as model:
        before = one.completions
        await asyncio.gather(*(model.asolve(QUESTION, budget=32, interval=16, seed=seed) for seed in range(4)))
        assert one.completions > before
        assert two.completions > 0


async def test_one_server_dies_and_the_other_goes_on(greedy: Any) -> None:
    async with proxy(number=0) as one, proxy(number=1) as two, both(one, two, sessions=2) as model:
        sessions = [await session_of(model, temperature=0.0) for _ in range(2)]
        assert {session.replica.server.address for session in sessions} == {one.address, two.address}
        begun = [await session.think(5) for session in sessions]
        one.always = Fault("reset")
        await one.stop()
        rest = [await session.think(80) for session in sessions]
        assert {session.replica.server.address for session in sessions} == {two.address}
        for first, second in zip(begun, rest, strict=True):
            assert greedy.thinking.startswith(await model.engine.decode(first.ids + second.ids))
        for session in sessions:
            await session.close()
        await one.start()
        one.always = None
        await asyncio.sleep(HASTY.longest)
        used = one.completions
        await asyncio.gather(*(model.asolve(QUESTION, budget=16, seed=seed) for seed in range(2)))
        assert one.completions > used  # it is tried again


async def test_one_server_that_is_away_from_the_start_is_set_aside() -> None:
    async with proxy(number=1) as two, remote("http://127.0.0.1:9", two.address) as model:
        assert "It is not used for now" in engine_of(model).notes[0]
        assert (await model.asolve(QUESTION, budget=32)).thinking_tokens <= 32
