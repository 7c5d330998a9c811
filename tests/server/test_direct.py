"""Thinking that is sent at once, without waking the task of its request."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import uvicorn
from uvicorn.server import ServerState

from cgr.engines.base import Sampling
from cgr.records import Probe
from cgr.server.chat import ChatStream
from cgr.server.exchange import FLOW, EventWriter, Exchange
from cgr.server.generation import Generation, ProbeMade, ReasoningDelta
from cgr.server.http_limits import LimitedHttp
from cgr.settings import Settings
from tests.support import scripted

TEXTS = ["a", ' "quoted"\n', "100%d", "é\0\\", "", "🙂"]


async def _chunks(probed: bool) -> list[dict[str, Any]]:
    request = Generation("1", "50%b\\u0000", "", Settings(), Sampling(), stream_probes=True)
    stream = ChatStream(request, scripted("a b"))
    sent = b""
    for number, text in enumerate(TEXTS):
        if probed and number == 3:
            await stream.frames(ProbeMade(Probe(at=3, answer="7", certainty=0.5, closed=True)))
        sent += stream.thought(text) if number % 2 else await stream.frames(ReasoningDelta(text))
    return [orjson.loads(line[6:]) for line in sent.split(b"\n\n") if line]


@pytest.mark.parametrize("probed", [False, True])
async def test_a_chunk_of_thinking_is_the_same_however_it_was_put_together(probed: bool) -> None:
    role, *chunks = await _chunks(probed)
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"reasoning": text, "reasoning_content": text} for text in TEXTS
    ]
    assert {tuple(chunk["choices"][0]) for chunk in chunks} == {("index", "delta", "logprobs", "finish_reason")}
    assert [number for number, chunk in enumerate(chunks) if "cgr" in chunk] == ([3] if probed else [])
    assert {chunk["model"] for chunk in chunks} == {"50%b\\u0000"}


async def _writer(flow: SimpleNamespace | None) -> tuple[EventWriter, list[Any]]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {"type": "http", "headers": [], "path": "/"} | ({FLOW: flow} if flow else {})
    writer = EventWriter(Exchange(scope, lambda: asyncio.sleep(3600), send), 3600, 3600)  # type: ignore[arg-type, return-value]
    return writer, sent


async def test_frames_are_sent_at_once_only_if_nothing_has_to_wait() -> None:
    flow = SimpleNamespace(write_paused=False)
    writer, sent = await _writer(flow)
    assert not writer.can_send_now  # the reply has not begun
    writer.add(b"first")
    await writer.flush()
    assert writer.can_send_now
    writer.send_now(b"second")
    assert [message.get("body") for message in sent] == [None, b"first", b"second"]
    writer.add(b"third")
    assert not writer.can_send_now  # it would overtake
    await writer.flush()
    flow.write_paused = True
    assert not writer.can_send_now
    await writer.close()


async def test_without_word_of_the_client_nothing_is_sent_at_once() -> None:
    writer, _ = await _writer(None)
    writer.add(b"first")
    await writer.flush()
    assert not writer.can_send_now
    await writer.close()


async def test_the_http_server_says_whether_the_client_reads() -> None:
    said: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        said.append(scope[FLOW].write_paused)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(app, http=LimitedHttp, ws="none", lifespan="off", log_config=None)
    config.load()
    server = await asyncio.get_running_loop().create_server(
        lambda: LimitedHttp(config=config, server_state=ServerState(), app_state={}), "127.0.0.1", 0
    )
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 204")
        writer.close()
        await writer.wait_closed()
    assert said == [False]
