"""The wire against a real server that fails in every way: an error then, never an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cgr.engines.base import Sampling
from cgr.engines.completions import wire as wire_module
from cgr.engines.completions.wire import Piece, Wire, probe_body, thinking_body
from cgr.errors import CgrError, DoesNotFit, EngineError
from cgr.records import Token
from tests.engines.completions.serving import Serving, cut, document, event, events, piece, reply, scored, serving

Call = Callable[[Wire], Awaitable[object]]
BODY = thinking_body([1, 2], 4, Sampling(), 0, 0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_module, "PAUSE", 0.0)


async def streamed(wire: Wire) -> list[Piece]:
    async with wire.stream(BODY) as pieces:
        return [one async for one in pieces]


async def on_wire(served: Serving, call: Call) -> object:
    wire = Wire(served.address, "secret")
    try:
        return await call(wire)
    finally:
        await wire.close()


CALLS: dict[str, Call] = {
    "tokenize": lambda wire: wire.tokenize("a"),
    "detokenize": lambda wire: wire.detokenize([1]),
    "complete": lambda wire: wire.complete(BODY),
    "stream": streamed,
}
NO_PROBABILITY = {"id": 1, "bytes": [97], "logprob": None, "top_logprobs": []}
WRONG: dict[str, bytes] = {
    "an error": document({"error": {"code": 500, "message": "out of luck"}}, "500 Internal Server Error"),
    "an error in plain words": document({"error": "out of luck"}, "503 Service Unavailable"),
    "an error that is no JSON": reply(b"<html>Bad gateway</html>", "502 Bad Gateway", "text/html"),
    "an error without a body": reply(b"", "500 Internal Server Error"),
    "a wrong key": document({"error": {"code": 401, "message": "Invalid API Key"}}, "401 Unauthorized"),
    "half a reply": reply(b'{"tokens": [1', length=5000),
    "nothing at all": b"",
    "no HTTP": b"hello\r\n\r\n",
}
WRONG_DOCUMENTS: dict[str, bytes] = {
    "no JSON": reply(b"tokens: 1, 2"),
    "half a JSON": reply(b'{"tokens": [1'),
    "no UTF-8": reply(b'{"content": "\xff\xfe"}'),
    "an empty body": reply(b""),
    "another JSON": document([1, 2]),
    "another kind": document({"tokens": 7, "content": None, "completion_probabilities": 3}),
    "an error that looks well": document({"error": {"message": "out of luck"}, "content": 7}),
}
WRONG_STREAMS: dict[str, bytes] = {
    "an event that is no JSON": events(piece(1, text="a"), b"oops"),
    "an event of another JSON": events(piece(1, text="a"), [1]),
    "an error among events": events(piece(1, text="a"), {"error": {"message": "out of luck"}}),
    "an error event": reply(event(piece(1)) + b'error: {"message": "out of luck"}\n\n', kind="text/event-stream"),
    "a stream that breaks off": cut(event(piece(1, text="a"))),
    "a stream cut in an event": cut(event(piece(1, text="a")) + b'data: {"con'),
    "probabilities of another shape": events({"completion_probabilities": [{"id": 1}]}),
    "a probability that is none": events({"completion_probabilities": [NO_PROBABILITY]}),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
async def test_whatever_is_called(call: Call, wrong: bytes) -> None:
    async with serving(wrong) as served:
        with pytest.raises(EngineError) as caught:
            await on_wire(served, call)
    assert caught.value.hint


@pytest.mark.parametrize("call", [CALLS[name] for name in ("tokenize", "detokenize", "complete")])
@pytest.mark.parametrize("wrong", WRONG_DOCUMENTS.values(), ids=WRONG_DOCUMENTS.keys())
async def test_documents(call: Call, wrong: bytes) -> None:
    async with serving(wrong) as served:
        with pytest.raises(EngineError) as caught:
            await on_wire(served, call)
    assert caught.value.hint


@pytest.mark.parametrize("wrong", WRONG_STREAMS.values(), ids=WRONG_STREAMS.keys())
async def test_streams(wrong: bytes) -> None:
    async with serving(wrong) as served:
        with pytest.raises(EngineError) as caught:
            await on_wire(served, streamed)
    assert caught.value.hint


@pytest.mark.parametrize("call", [CALLS["complete"], CALLS["stream"]])
async def test_a_full_context_is_told_apart(call: Call) -> None:
    full = document({"error": {"message": "the request exceeds the available context size"}}, "400 Bad Request")
    async with serving(full) as served:
        with pytest.raises(DoesNotFit, match="ran out of context"):
            await on_wire(served, call)


async def test_what_the_server_said_is_passed_on() -> None:
    async with serving(WRONG["an error"]) as served:
        with pytest.raises(CgrError, match="The server refused: out of luck"):
            await on_wire(served, CALLS["complete"])


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
async def test_nobody_there(call: Call) -> None:
    async with serving(b"") as gone:
        pass
    with pytest.raises(EngineError, match="The server was lost"):
        await on_wire(gone, call)


async def test_a_server_that_hung_up_is_asked_again() -> None:
    """A kept connection may be closed just as it is used."""
    async with serving(b"", document({"tokens": [5, 6]})) as served:
        assert await on_wire(served, CALLS["tokenize"]) == (5, 6)
        assert len(served.requests) == 2


async def test_the_key_goes_with_every_request() -> None:
    async with serving(document({"tokens": [5]})) as served:
        await on_wire(served, CALLS["tokenize"])
    assert served.requests[0].headers["authorization"] == "Bearer secret"


async def test_special_tokens_are_read_as_such() -> None:
    async with serving(document({"tokens": [5]})) as served:
        await on_wire(served, CALLS["tokenize"])
    assert served.requests[0].body == {"content": "a", "add_special": False, "parse_special": True}


async def test_a_whole_completion() -> None:
    done = piece(5, 6, text="ab", stop="limit", timings={"cache_n": 10, "prompt_n": 2})
    async with serving(document(done)) as served:
        assert await on_wire(served, CALLS["complete"]) == Piece((5, 6), "ab", (), 10, 2, "limit")


async def test_a_character_spread_over_tokens() -> None:
    """The text of a token is what its bytes complete."""
    stream = events(scored((5, b"\xc3", -1.0)), scored((6, b"\xa9", -0.5)), piece(stop="limit"))
    async with serving(stream) as served:
        pieces = await on_wire(served, streamed)
    assert isinstance(pieces, list)
    assert [token for one in pieces for token in one.tokens] == [
        Token(5, "", -1.0, ((5, -1.0),)),
        Token(6, "é", -0.5, ((6, -0.5),)),
    ]
    assert pieces[-1].stop == "limit"


async def test_leaving_a_stream_hangs_up() -> None:
    """What cancels a completion on the server."""
    gone = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event(piece(1, text="a")))
        while await reader.read(1000):
            pass
        gone.set()
        writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    wire = Wire(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "secret")
    async with server, wire.stream(BODY) as pieces:
        assert (await anext(pieces)).ids == (1,)
    await gone.wait()
    await wire.close()


def test_nothing_filters_but_what_was_asked_for() -> None:
    """The server's own sampling defaults apply silently unless they are sent."""
    body = thinking_body([1, 2], 7, Sampling(0.6, 0.9, 3), 11, 2, banned=[4])
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (0.6, 0.9, 0, 0.0)
    assert (body["prompt"], body["n_predict"], body["seed"], body["id_slot"]) == ([1, 2], 7, 11, 2)
    assert (body["cache_prompt"], body["return_tokens"], body["logit_bias"]) == (True, True, [[4, False]])
    assert "n_probs" not in body  # it sorts the vocabulary: for probes only


def test_a_probe_is_greedy_and_raw() -> None:
    body = probe_body([1, 2], 4, 1)
    assert (body["temperature"], body["logit_bias"], body["cache_prompt"]) == (0.0, [], True)
    assert body["n_probs"] > 0
    assert "post_sampling_probs" not in body
