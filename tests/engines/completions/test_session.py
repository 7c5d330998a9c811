"""Sessions in chunks, against a server that replies what a test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cgr.drive.driver import Driver
from cgr.engines.base import Sampling, Stretch, keyed_seed, written_text
from cgr.engines.completions.client import CompletionClient, Pool, Replica, ServedModel
from cgr.engines.completions.dialect import Dialect
from cgr.engines.completions.engine import CHUNK
from cgr.engines.completions.http import Server
from cgr.engines.completions.policy import RetryPolicy
from cgr.engines.completions.session import CompletionsSession
from cgr.engines.completions.thinking import ThinkingFormat
from cgr.engines.scripted import ScriptedEngine
from cgr.engines.text.chat import EndTag
from cgr.errors import DoesNotFit, EngineError
from cgr.probing import ProbeSpec
from cgr.reason import Abstention
from cgr.records import Token
from cgr.rules import Cgr
from tests.engines.completions.serving import Serving, cut, document, event, events, piece, reply, scored, serving

END, OPEN, EOS = 90, 91, 92
ONE = EndTag("</think>", (END,))
SEVERAL = EndTag("</think>", (60, 61))


POLICY = RetryPolicy(tries=2, pause=0.0, longest=0.0)
NATIVE = Dialect("llama.cpp", "llama.cpp", 4096, 4, "llama.cpp", logprobs=1000, prefix_cache=True)


def on_server(address: str, tag: EndTag = ONE, **options: Any) -> CompletionsSession:
    """A session in chunks, as on llama.cpp in this process."""
    pool = Pool([Server(address, "secret", POLICY)], POLICY)
    client = CompletionClient(NATIVE, ServedModel(address, "m", 4096, "llama.cpp"), pool)
    form = ThinkingFormat(tag, frozenset({END, EOS}), frozenset(), 4096, CHUNK)
    given: dict[str, Any] = {"sampling": Sampling(seed=5), "room": 1000, "release": lambda: None, "slots": [3]} | options
    return CompletionsSession(client, Replica(pool, counted=True), form, [1, 2], **given)


@asynccontextmanager
async def session(served: Serving, tag: EndTag = ONE, **options: Any) -> AsyncIterator[CompletionsSession]:
    thinking = on_server(served.address, tag, **options)
    try:
        yield thinking
    finally:
        await thinking.close()
        await thinking.client.pool.close()


def never(tokens: Sequence[Token]) -> bool:
    return False


async def test_thinking_comes_in_chunks_on_a_fixed_grid() -> None:
    """So that a trace depends on its seed alone, and not on where it was probed."""
    chunk = document(piece(*range(10, 10 + CHUNK), stop="limit"))
    async with serving(chunk) as served, session(served) as thinking:
        assert (await thinking.think(20)).ids == tuple(range(10, 30))
        assert len(served.requests) == 1
        assert (await thinking.think(20)).ids == (*range(30, 10 + CHUNK), *range(10, 18))
        assert thinking.trace == [*range(10, 10 + CHUNK), *range(10, 18)]
        await thinking.close()
    bodies = [request.body for request in served.requests]
    assert [body["n_predict"] for body in bodies] == [CHUNK, CHUNK]
    assert [body["seed"] for body in bodies] == [keyed_seed(5, 0), keyed_seed(5, CHUNK)]
    assert bodies[1]["prompt"] == [1, 2, *range(10, 10 + CHUNK)]
    assert {body["id_slot"] for body in bodies} == {3}
    assert thinking.wasted == CHUNK - 8


async def test_after_a_wait_the_grid_is_met_again() -> None:
    replies = document(piece(10, 11, END, stop="limit")), document(piece(*range(28), stop="limit"))
    async with serving(*replies) as served, session(served) as thinking:
        assert (await thinking.think(8)).ended
        await thinking.append([70, 71])
        await thinking.think(4)
    body = served.requests[1].body
    assert body["prompt"] == [1, 2, 10, 11, 70, 71]
    assert (body["n_predict"], body["seed"]) == (CHUNK - 4, keyed_seed(5, 4))


def test_seeds_are_keyed_by_position() -> None:
    seeds = {keyed_seed(seed, position) for seed in range(10) for position in range(0, 640, 32)}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert keyed_seed(1, 23) != keyed_seed(12, 3)


@pytest.mark.parametrize("watched", [False, True])
async def test_the_end_tag_ends_thinking(watched: bool) -> None:
    whole = document(piece(10, 11, END, 12, stop="limit"))
    stream = events(piece(10, text="a"), piece(11, text="b"), piece(END), piece(12, text="x"), piece(stop="limit"))
    heard: list[str] = []
    async with serving(stream if watched else whole) as served, session(served) as thinking:
        stretch = await thinking.think(8, on_text=heard.append if watched else None)
    assert (stretch.ids, stretch.ended, stretch.eos) == ((10, 11), True, False)
    assert "".join(heard) == ("ab" if watched else "")


@pytest.mark.parametrize("watched", [False, True])
async def test_the_end_of_the_turn_inside_thinking(watched: bool) -> None:
    whole = document(piece(10, 11, EOS, stop="eos"))
    stream = events(piece(10, text="a"), piece(11, text="b"), piece(EOS), piece(stop="eos"))
    async with serving(stream if watched else whole) as served, session(served) as thinking:
        stretch = await thinking.think(8, on_text=(lambda text: None) if watched else None)
    assert (stretch.ids, stretch.ended, stretch.eos) == ((10, 11), True, True)


async def test_an_end_exactly_after_the_wanted_tokens_is_seen_next_time() -> None:
    async with serving(document(piece(10, 11, END, stop="limit"))) as served, session(served) as thinking:
        assert not (await thinking.think(2)).ended
        assert await thinking.think(2) == Stretch((), ended=True)


async def test_a_tag_of_several_tokens_is_found_in_the_text() -> None:
    stream = events(piece(10, text="a"), piece(60, text="b</th"), piece(61, text="ink>"), piece(stop="limit"))
    async with serving(stream) as served, session(served, SEVERAL) as thinking:
        stretch = await thinking.think(8)
    assert (stretch.ids, stretch.ended) == ((10,), True)
    assert served.requests[0].body["stream"]


async def test_a_ban_reaches_the_server() -> None:
    async with serving(document(piece(*range(10, 10 + CHUNK), stop="limit"))) as served, session(served) as thinking:
        await thinking.think(2, ban_end=True)
    assert served.requests[0].body["logit_bias"] == [[END, False]]


async def test_a_full_context_is_not_the_budget() -> None:
    full = document(piece(10, stop="limit", truncated=True))
    async with serving(full) as served, session(served) as thinking:
        with pytest.raises(DoesNotFit, match="context is full"):
            await thinking.think(8)


BROKEN: dict[str, bytes] = {
    "no tokens at all": document({}),
    "no token ids": document({"content": "ab", "stop": True, "stop_type": "limit"}),
    "no end": document(piece(10, 11)),
}
BROKEN_STREAMS: dict[str, bytes] = {
    "no event": events(),
    "no token ids": events({"content": "ab", "stop": True, "stop_type": "limit"}),
}
BROKEN_OFF: dict[str, bytes] = {
    "no last event": events(piece(10, text="a")),
    "half an event": reply(event(piece(10, text="a")) + b'data: {"con', kind="text/event-stream"),
    "cut": cut(event(piece(10, text="a"))),
}


@pytest.mark.parametrize("broken", BROKEN_OFF.values(), ids=BROKEN_OFF.keys())
async def test_a_stream_that_breaks_off_is_continued(broken: bytes) -> None:
    """From the tokens that were received, none lost and none twice."""
    rest = events(*(piece(token, text="b") for token in range(11, 10 + CHUNK)), piece(stop="limit"))
    async with serving(broken, rest) as served, session(served) as thinking:
        stretch = await thinking.think(CHUNK, on_text=lambda text: None)
    assert stretch.ids == tuple(range(10, 10 + CHUNK))
    assert [request.body["prompt"] for request in served.requests] == [[1, 2], [1, 2, 10]]
    assert [request.body["n_predict"] for request in served.requests] == [CHUNK, CHUNK - 1]


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
async def test_half_a_completion_is_an_error(broken: bytes) -> None:
    async with serving(broken) as served, session(served) as thinking:
        with pytest.raises(EngineError) as caught:
            await thinking.think(64)
    assert caught.value.hint


@pytest.mark.parametrize("broken", BROKEN_STREAMS.values(), ids=BROKEN_STREAMS.keys())
async def test_half_a_stream_is_an_error(broken: bytes) -> None:
    async with serving(broken) as served, session(served) as thinking:
        with pytest.raises(EngineError) as caught:
            await thinking.think(64, on_text=lambda text: None)
    assert caught.value.hint


BROKEN_PROBES: dict[str, bytes] = {
    "no event": events(),
    "no last event": events(scored((10, b"7", -0.1))),
    "cut": cut(event(scored((10, b"7", -0.1)))),
    "no log-probabilities": events(piece(10, text="7"), piece(stop="limit")),
}


@pytest.mark.parametrize("broken", BROKEN_PROBES.values(), ids=BROKEN_PROBES.keys())
async def test_half_a_probe_is_never_an_answer(broken: bytes) -> None:
    async with serving(broken) as served, session(served) as thinking:
        with pytest.raises(EngineError) as caught:
            await thinking.probe([7, 8], 4, never)
    assert caught.value.hint


async def test_what_a_probe_says_and_costs() -> None:
    timings = {"cache_n": 40, "prompt_n": 3}
    stream = events(scored((10, b"4", -0.1), timings=timings), scored((11, b"}", -0.2)), piece(stop="limit"))
    async with serving(stream) as served, session(served) as thinking:
        answered = await thinking.probe([7, 8], 4, lambda tokens: tokens[-1].text == "}")
    assert [(token.id, token.text, token.logprob) for token in answered.tokens] == [(10, "4", -0.1), (11, "}", -0.2)]
    assert (answered.cached, answered.prefilled, answered.ended) == (40, 3, False)
    assert served.requests[0].body["prompt"] == [1, 2, 7, 8]
    assert served.requests[0].body["n_predict"] == 4


@pytest.mark.parametrize("control", [EOS, END])
async def test_a_probe_that_the_model_ends(control: int) -> None:
    stream = events(scored((10, b"4", -0.1)), scored((control, b"", -0.2)), piece(stop="eos"))
    async with serving(stream) as served, session(served) as thinking:
        answered = await thinking.probe([7, 8], 4, never)
    assert ([token.text for token in answered.tokens], answered.ended) == (["4"], True)


async def test_slots_go_back_once() -> None:
    released: list[bool] = []
    thinking = on_server("http://127.0.0.1:1", release=lambda: released.append(True))
    await thinking.close()
    await thinking.close()
    assert released == [True]
    assert thinking.replica.server.load == 0


async def test_reading_ahead_does_not_wait() -> None:
    """With overlap, thinking goes on while a probe is made: in chunks of the same grid, which `think` then uses."""
    chunk = document(piece(*range(10, 10 + CHUNK), stop="limit"))
    async with serving(chunk) as served, session(served) as thinking:
        await thinking.prefetch(2 * CHUNK)
        assert not served.requests
        assert len((await thinking.think(2 * CHUNK)).ids) == 2 * CHUNK
        assert [request.body["seed"] for request in served.requests] == [keyed_seed(5, 0), keyed_seed(5, CHUNK)]
        await thinking.prefetch(8)
        assert len((await thinking.think(8 + CHUNK)).ids) == 8 + CHUNK  # more than was read ahead


async def test_an_error_while_reading_ahead_is_raised_by_think() -> None:
    async with serving(document(piece(10, stop="limit", truncated=True))) as served, session(served) as thinking:
        await thinking.prefetch(8)
        with pytest.raises(DoesNotFit):
            await thinking.think(8)


async def test_what_the_model_writes_comes_in_pieces() -> None:
    """After the end tag, from a seed of its own; stop strings go with it, and only with it."""
    stream = events(piece(10, text="a"), piece(11, text="b"), piece(12, stop="word"))
    sampling = Sampling(seed=5, stop=("\n\n",))
    async with serving(stream) as served, session(served, sampling=sampling) as thinking:
        pieces = [one async for one in thinking.write(8)]
    assert [(one.text, one.tokens, one.stop) for one in pieces] == [("a", 1, None), ("b", 1, None), ("", 1, "stop")]
    body = served.requests[0].body
    assert (body["prompt"], body["n_predict"], body["stop"]) == ([1, 2, END], 8, ["\n\n"])
    assert body["seed"] == keyed_seed(5, 1)


async def test_a_written_answer_goes_on_where_it_broke_off() -> None:
    first, rest = cut(event(piece(10, text="a"))), events(piece(11, text="b"), piece(stop="eos"))
    async with serving(first, rest) as served, session(served) as thinking:
        assert await written_text(thinking.write(8)) == "ab"
    assert [request.body["prompt"] for request in served.requests] == [[1, 2, END], [1, 2, END, 10]]
    assert served.requests[1].body["n_predict"] == 7


async def test_stop_strings_do_not_stop_thinking() -> None:
    chunk = document(piece(*range(10, 10 + CHUNK), stop="limit"))
    async with serving(chunk) as served, session(served, sampling=Sampling(stop=("x",))) as thinking:
        await thinking.think(4)
    assert "stop" not in served.requests[0].body


async def test_the_verdict_is_read_as_soon_as_the_probe_is_there() -> None:
    """With overlap, a stop does not wait for the tokens that are being thought ahead: their request is cancelled."""
    chunk = document(piece(*range(10, 10 + CHUNK), stop="limit"))
    sure = events(scored((20, b"7", -0.001)), scored((21, b"}", -0.001)), piece(stop="limit"))
    first, gone = [chunk], asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        if "content" in body or "tokens" in body:
            writer.write(document({"tokens": [60], "content": "x"}))
        elif "n_probs" in body or first:
            writer.write(sure if "n_probs" in body else first.pop())
        else:
            await reader.read()  # thinking ahead takes for ever, until the connection is closed
            gone.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        thinking = on_server(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", slots=[0, 1])
        engine = ScriptedEngine([], lambda at, suffix: ())
        for number in range(10 + CHUNK):
            engine.id_of(str(number))
        driver = Driver(engine, thinking, ProbeSpec(max_answer_tokens=4), overlap=True)
        outcome = await driver.run(Cgr(interval=CHUNK, threshold=0.9), 4 * CHUNK, Abstention())
        await gone.wait()
        await thinking.client.pool.close()
    assert (outcome.decision.stop_cause, outcome.decision.thinking_tokens) == ("certainty", CHUNK)
