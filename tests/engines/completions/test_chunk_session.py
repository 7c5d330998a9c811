"""Sessions over HTTP, against a server that plays a part."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from cgr.engines.base import Sampling, Stretch, keyed_seed
from cgr.engines.completions.chunk_session import CHUNK, CompletionsSession
from cgr.engines.completions.wire import Wire
from cgr.engines.text.end_tag import EndTag
from cgr.errors import DoesNotFit, EngineError
from cgr.records import Token
from tests.engines.completions.serving import Serving, cut, document, event, events, piece, scored, serving

END, OPEN, EOS = 90, 91, 92
ONE = EndTag("</think>", (END,))
SEVERAL = EndTag("</think>", (60, 61))


@asynccontextmanager
async def session(served: Serving, tag: EndTag = ONE, seed: int = 5) -> AsyncIterator[CompletionsSession]:
    wire = Wire(served.address, "secret")
    control = frozenset({END, EOS})
    yield CompletionsSession(wire, [1, 2], Sampling(seed=seed), tag, control, [3], lambda: None)
    await wire.close()


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
    "no last event": events(piece(10, text="a")),
    "half an event": events(piece(10, text="a")) + b'data: {"con',
    "no token ids": events({"content": "ab", "stop": True, "stop_type": "limit"}),
    "cut": cut(event(piece(10, text="a"))),
}


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
    wire = Wire("http://127.0.0.1:1", "secret")
    thinking = CompletionsSession(wire, [1], Sampling(), ONE, frozenset(), [0], lambda: released.append(True))
    await thinking.close()
    await thinking.close()
    await wire.close()
    assert released == [True]
