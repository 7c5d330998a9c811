"""The client against a real server that fails in every way: an error then, never an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cgr.engines.base import Sampling
from cgr.engines.completions.client import Attempts, CompletionClient, Pool, Replica, ServedModel
from cgr.engines.completions.dialect import CompletionRequest, Dialect, Piece
from cgr.engines.completions.http import Server
from cgr.engines.completions.policy import RetryPolicy
from cgr.engines.text.chat import ThinkTags
from cgr.errors import CgrError, DoesNotFit, EngineError
from cgr.records import Message, Token
from tests.engines.completions.serving import Serving, cut, document, event, events, piece, reply, scored, serving

Call = Callable[[CompletionClient], Awaitable[object]]
POLICY = RetryPolicy(tries=2, pause=0.0, longest=0.0, first=5.0)
NATIVE = Dialect("llama.cpp", "llama.cpp", 4096, 4, "llama.cpp", logprobs=1000)
VLLM = Dialect("openai", "vllm", 4096, tokenize="vllm", logprobs=20)
REQUEST = CompletionRequest([1, 2], 4, Sampling())
TAGS = ThinkTags("<think>", "</think>")


async def streamed(client: CompletionClient) -> list[Piece]:
    async def attempt(server: Server) -> list[Piece]:
        request = CompletionRequest([1, 2], 4, Sampling(), stream=True)
        async with client.stream(server, request) as reads:
            return [piece async for pieces in reads for piece in pieces]

    return await Attempts(Replica(client.pool)).until_done(attempt)


async def complete(client: CompletionClient) -> Piece:
    return await Attempts(Replica(client.pool)).until_done(lambda server: client.complete(server, REQUEST))


async def on_server(served: Serving, call: Call, dialect: Dialect = NATIVE, **props: str) -> Any:
    pool = Pool([Server(served.address, "secret", POLICY)], POLICY)
    try:
        return await call(CompletionClient(dialect, ServedModel(served.address, "m", 4096, "llama.cpp", dict(props)), pool))
    finally:
        await pool.close()


CALLS: dict[str, Call] = {
    "tokenize": lambda client: client.encode("a"),
    "detokenize": lambda client: client.decode([1]),
    "complete": complete,
    "stream": streamed,
}


async def test_tags_are_kept_and_questions_are_not() -> None:
    """A server that has answered 10,000 questions keeps none of them."""

    async def kept(client: CompletionClient) -> list[str]:
        for number in range(3):
            await client.prompt(f"What is {number}?", TAGS)
            assert await client.encode(TAGS.close) == (5, 6)
        return list(client._encoded)

    async with serving(document({"tokens": [5, 6]})) as served:
        assert await on_server(served, kept) == [TAGS.close]
        assert len(served.requests) == 4


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
        with pytest.raises(CgrError) as caught:
            await on_server(served, call)
    assert caught.value.hint


@pytest.mark.parametrize("call", [CALLS[name] for name in ("tokenize", "detokenize", "complete")])
@pytest.mark.parametrize("wrong", WRONG_DOCUMENTS.values(), ids=WRONG_DOCUMENTS.keys())
async def test_documents(call: Call, wrong: bytes) -> None:
    async with serving(wrong) as served:
        with pytest.raises(CgrError) as caught:
            await on_server(served, call)
    assert caught.value.hint


@pytest.mark.parametrize("wrong", WRONG_STREAMS.values(), ids=WRONG_STREAMS.keys())
async def test_streams(wrong: bytes) -> None:
    async with serving(wrong) as served:
        with pytest.raises(EngineError) as caught:
            await on_server(served, streamed)
    assert caught.value.hint


@pytest.mark.parametrize("call", [CALLS["complete"], CALLS["stream"]])
async def test_a_full_context_is_told_apart(call: Call) -> None:
    full = document({"error": {"message": "too long", "type": "exceed_context_size_error"}}, "400 Bad Request")
    async with serving(full) as served:
        with pytest.raises(DoesNotFit, match="ran out of context"):
            await on_server(served, call)


async def test_what_the_server_said_is_passed_on() -> None:
    async with serving(WRONG["an error"]) as served:
        with pytest.raises(CgrError, match="failed 2 times in a row: it answered 500: out of luck"):
            await on_server(served, CALLS["complete"])


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
async def test_nobody_there(call: Call) -> None:
    async with serving(b"") as gone:
        pass
    with pytest.raises(EngineError, match="failed 2 times in a row: it could not be reached"):
        await on_server(gone, call)


async def test_a_server_that_hung_up_is_asked_again() -> None:
    """A kept connection may be closed just as it is used."""
    async with serving(b"", document({"tokens": [5, 6]})) as served:
        assert await on_server(served, CALLS["tokenize"]) == (5, 6)
        assert len(served.requests) == 2


async def test_the_key_goes_with_every_request() -> None:
    async with serving(document({"tokens": [5]})) as served:
        await on_server(served, CALLS["tokenize"])
    assert served.requests[0].headers["authorization"] == "Bearer secret"


async def test_special_tokens_are_read_as_such() -> None:
    async with serving(document({"tokens": [5]})) as served:
        await on_server(served, CALLS["tokenize"])
    assert served.requests[0].body == {"content": "a", "add_special": False, "parse_special": True}


async def test_a_whole_completion() -> None:
    done = piece(5, 6, text="ab", stop="limit", timings={"cache_n": 10, "prompt_n": 2})
    async with serving(document(done)) as served:
        assert await on_server(served, CALLS["complete"]) == Piece((5, 6), "ab", (), 10, 2, "limit")


async def test_a_character_spread_over_tokens() -> None:
    """The text of a token is what its bytes complete."""
    stream = events(scored((5, b"\xc3", -1.0)), scored((6, b"\xa9", -0.5)), piece(stop="limit"))
    async with serving(stream) as served:
        pieces = await on_server(served, streamed)
    assert isinstance(pieces, list)
    assert [token for one in pieces for token in one.tokens] == [
        Token(5, "", -1.0, ((5, -1.0),)),
        Token(6, "é", -0.5, ((6, -0.5),)),
    ]
    assert pieces[-1].stop == "limit"


async def test_a_conversation_of_several_turns() -> None:
    """With the template of the model's file for llama.cpp, and by the server's own for vLLM."""
    turns = (Message("system", "Be brief."), Message("user", "Hi"), Message("assistant", "Hello."), Message("user", "Why?"))
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    async with serving(document({"tokens": [5]})) as served:
        await on_server(served, lambda client: client.prompt(turns, TAGS), chat_template=template)
    text = "[system]Be brief.[user]Hi[assistant]Hello.[user]Why?<think>\n"
    assert served.requests[0].body["content"] == text
    known = document({"tokens": [5, 6]}), document({"tokens": [6]})  # the prompt, then the open tag: they end alike
    async with serving(*known) as served:
        assert await on_server(served, lambda client: client.prompt(turns, TAGS), VLLM) == (5, 6)
    assert len(served.requests) == 2
    line_break = document({"tokens": [5, 6, 7]}), document({"tokens": [6]}), document({"prompt": "<think>\n"})
    async with serving(*line_break) as served:
        assert await on_server(served, lambda client: client.prompt(turns, TAGS), VLLM) == (5, 6, 7)
    roles = [message["role"] for message in served.requests[0].body["messages"]]
    assert roles == ["system", "user", "assistant", "user"]


async def test_cancelling_a_whole_completion_closes_its_connection() -> None:
    """So that the server stops computing what nobody waits for."""
    asked, gone = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        while await reader.read(1000):
            pass
        gone.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    served = Serving([], address=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server:
        waiting = asyncio.create_task(on_server(served, complete))
        await asked.wait()
        waiting.cancel()
        await gone.wait()
        with pytest.raises(asyncio.CancelledError):
            await waiting
