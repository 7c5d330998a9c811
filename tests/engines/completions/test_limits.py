"""A server that sends more than it was asked for: memory and time stay bounded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cgr.engines.base import Sampling, Written
from cgr.engines.completions.client import CompletionClient, Pool, Replica, ServedModel
from cgr.engines.completions.dialect import CompletionRequest, Dialect, Piece
from cgr.engines.completions.http import BadReply, Server
from cgr.engines.completions.limits import EXTRA_EVENTS, MAX_TOKEN_CHARACTERS, limited
from cgr.engines.completions.policy import RetryPolicy
from cgr.engines.completions.session import CompletionsSession
from cgr.engines.completions.thinking import ThinkingFormat
from cgr.engines.text.chat import EndTag
from cgr.errors import EngineError
from cgr.records import Token
from tests.engines.completions.serving import cut, event, serving

POLICY = RetryPolicy(tries=2, pause=0.0, longest=0.0)
OPENAI = Dialect(server="vllm", context=4096, tokenize="vllm", logprobs=20)
FORM = ThinkingFormat(EndTag("</think>", (90,)), frozenset({90, 92}), frozenset({92}), 4096)


def session(address: str) -> CompletionsSession:
    pool = Pool([Server(address, None, POLICY)], POLICY)
    client = CompletionClient(OPENAI, ServedModel(address, "m", 4096, "vllm"), pool)
    return CompletionsSession(client, Replica(pool), FORM, [1, 2], Sampling(seed=5), 1000, lambda: None)


def openai(*ids: int, text: str = "a", stop: str | None = None, scored: bool = True) -> bytes:
    choice: dict[str, Any] = {"text": text, "finish_reason": stop, "token_ids": list(ids)}
    if scored and ids:
        names = [f"token_id:{one}" for one in ids]
        choice["logprobs"] = {"tokens": names, "token_logprobs": [-0.1] * len(ids), "top_logprobs": None}
    return event({"choices": [choice]})


def endless(events: Sequence[bytes]) -> bytes:
    """A stream that is still open after these events: who reads on waits for ever."""
    return cut(b"".join(events))


def first(tokens: Sequence[Token]) -> bool:
    return bool(tokens)


def second(tokens: Sequence[Token]) -> bool:
    return len(tokens) > 1


async def _written(writing: CompletionsSession) -> list[Written]:
    return [one async for one in writing.write(10)]


async def test_a_decided_probe_is_left_where_the_server_sends_more_than_was_asked_for() -> None:
    async with serving(endless([openai(7)] * 40)) as served:
        probing = session(served.address)
        answered = await probing.probe([3], 8, second)
        await probing.close()
        await probing.client.pool.close()
    assert len(answered.tokens) == 2


async def test_an_answer_is_not_longer_than_was_asked_for() -> None:
    async with serving(endless([openai(7, scored=False)] * 40)) as served:
        writing = session(served.address)
        written = await _written(writing)
        await writing.close()
        await writing.client.pool.close()
    assert sum(one.tokens for one in written) == 10
    assert "".join(one.text for one in written) == "a" * 10
    assert written[-1].stop == "limit"


@pytest.mark.parametrize("kind", ["think", "probe", "answer"])
async def test_events_without_tokens_come_to_an_end(kind: str) -> None:
    async with serving(endless([openai()] * (2 * 10 + EXTRA_EVENTS + 1))) as served:
        working = session(served.address)
        working.thinking._limit = 10
        work = {"think": working.think(10), "probe": working.probe([3], 10, first), "answer": _written(working)}
        with pytest.raises(EngineError, match="many more events than it was asked for tokens"):
            await work.pop(kind)
        for other in work.values():
            other.close()
        await working.close()
        await working.client.pool.close()


def test_a_token_has_a_length_that_tokens_have() -> None:
    most = "x" * MAX_TOKEN_CHARACTERS
    fine = Piece((1,), most, (Token(1, most, -0.1),))
    assert limited(fine) is fine
    for wrong in (
        fine._replace(text=most + "x"),
        fine._replace(tokens=(Token(1, most + "x", -0.1),)),
        Piece((), most + "x"),
    ):
        with pytest.raises(BadReply, match="a token of more than 4096 characters"):
            limited(wrong)
    assert limited(Piece((1, 2), 2 * most)).text == 2 * most
    assert limited(Piece((), 3 * most), 3).text == 3 * most


async def test_a_long_token_is_an_error_of_the_server_whole_or_in_a_stream() -> None:
    whole = {"choices": [{"text": "x" * 5000, "finish_reason": "length", "token_ids": [1]}]}
    body = json.dumps(whole).encode()
    reply = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    request = CompletionRequest([1], 1, Sampling())
    for sent, stream in ((reply, False), (endless([openai(7, text="x" * 5000)]), True)):
        async with serving(sent) as served:
            working = session(served.address)
            with pytest.raises(BadReply, match="a token of more than"):
                async with working.client.stream(working.replica.server, replace(request, stream=stream)) as reads:
                    [piece async for pieces in reads for piece in pieces]
            await working.close()
            await working.client.pool.close()
