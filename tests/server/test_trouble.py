"""Trouble: clients that leave or do not read, upstreams that fail, full queues, the end of the server."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import pytest
from aiohttp import web

from cgr.engines.completions.http import MAX_BODY_BYTES
from cgr.server.faults import ApiError
from cgr.server.proxy import _whole
from tests.server.support import LONG, Served, chat_body, chunks, events, joined, served
from tests.server.upstream import ANSWER, FakeUpstream, Trouble, fake_upstream

BOXED = "What is x? Put it into \\boxed{}."


@contextmanager
def connection(server: Served, window: int | None = None, **body: object) -> Iterator[socket.socket]:
    """A request whose reply is read, or not, as the test likes. `window`: bytes that the client's system buffers."""
    address = urlsplit(server.address)
    data = json.dumps(chat_body(BOXED, **body)).encode()
    with socket.socket() as client:
        client.settimeout(LONG)
        if window:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        client.connect((address.hostname, address.port))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        client.sendall(head.encode() + data)
        yield client


# Clients that leave


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
@pytest.mark.parametrize("phase", ["think", "probe", "answer"])
def test_a_client_that_leaves_cancels_the_work(gateway: Served, fake: FakeUpstream, phase: str, stream: bool) -> None:
    fake.pace, fake.length = 0.02, 4000
    fake.probe_seconds = 60 if phase == "probe" else 0.0
    left = gateway.metric("cgr_client_disconnects_total")
    body = {"cgr": {"interval": 60, "threshold": 0.0 if phase == "answer" else 1.0}, "stream": stream}
    with connection(gateway, None, **body):
        fake.wait_for(phase)
        if phase == "think":
            time.sleep(0.1)
    fake.wait_idle()
    assert phase in fake.aborted
    gateway.wait_metric(left + 1, "cgr_client_disconnects_total")
    assert gateway.metric("cgr_requests_in_flight") == 0


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
def test_a_client_that_leaves_before_the_first_token(gateway: Served, fake: FakeUpstream, stream: bool) -> None:
    fake.first_seconds = 3600
    with connection(gateway, stream=stream):
        fake.wait_for("think")
    fake.wait_idle()
    assert "think" in fake.aborted


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
def test_a_client_that_leaves_a_request_that_was_passed_on(gateway: Served, fake: FakeUpstream, stream: bool) -> None:
    fake.pace = 3600 / 5
    with connection(gateway, cgr=False, stream=stream):
        fake.wait_for("chat")
    fake.wait_idle()
    assert "chat" in fake.aborted


def test_an_upstream_that_must_not_be_aborted_is_read_to_its_end() -> None:
    options = ("--drain", "--interval", "20", "--budget", "400")
    with fake_upstream() as fake, served("--base-url", fake.address, *options) as server:
        fake.pace = 0.005
        with connection(server, stream=True):
            fake.wait_for("think")
        fake.wait_idle()
        assert fake.aborted == []


def test_a_client_that_does_not_read_slows_its_thinking_down(gateway: Served, fake: FakeUpstream) -> None:
    """Only what fits the buffers of its connection is thought for it; without a limit there would be 109 probes."""
    fake.length = fake.sure_at = 8000
    with connection(gateway, 4096, stream=True, cgr={"interval": 64, "budget": 7000}, max_tokens=7600):
        fake.wait_for("think")
        seen = [-1, 0]
        until = time.monotonic() + LONG
        while (seen[-1] != seen[-2] or not seen[-1]) and time.monotonic() < until:
            time.sleep(1.5)
            seen.append(len(fake.bodies("probe")))
        assert 0 < seen[-1] < 80
    fake.wait_idle()


def test_a_client_that_never_reads_is_given_up() -> None:
    options = ("--client-seconds", "0.5", "--interval", "64", "--budget", "7000")
    with fake_upstream() as fake, served("--base-url", fake.address, *options) as server:
        fake.length = fake.sure_at = 8000
        with connection(server, 4096, stream=True):
            server.wait_metric(1, "cgr_client_disconnects_total")
            fake.wait_idle()
        assert server.metric("cgr_requests_in_flight") == 0


# Upstreams that fail


@pytest.mark.parametrize("what", ["reset", "half", "garbage", "500", "429", "503"])
@pytest.mark.parametrize("kind", ["think", "probe", "answer"])
def test_a_failure_that_passes_is_not_seen(gateway: Served, fake: FakeUpstream, kind: str, what: str) -> None:
    fake.troubles = [Trouble(kind, what, 0 if what.isdigit() or kind == "probe" else 3)]
    found = gateway.stream(BOXED)
    assert joined(found, "content") == ANSWER
    assert found[-1]["cgr"]["stop_cause"] == "certain"
    assert joined(found, "reasoning").startswith("I think about x. I think")
    assert not fake.troubles


def test_an_upstream_that_never_works_again_is_an_error_frame_and_done() -> None:
    options = ("--interval", "20", "--budget", "400", "--upstream-tries", "2")
    with fake_upstream() as fake, served("--base-url", fake.address, *options) as server:
        fake.troubles = [Trouble("think", "reset", 30), *(Trouble("think", "503") for _ in range(20))]
        fake.pace = 0.005
        text = server.chat(BOXED, stream=True).text
        events = [one for one in text.split("\n\n") if one]
        assert events[-1] == "data: [DONE]"
        assert json.loads(events[-2].removeprefix("data: "))["error"]["code"] == "upstream_error"
        assert '"finish_reason":"stop"' not in text
        fake.troubles = [Trouble("think", "503") for _ in range(20)]
        assert server.chat(BOXED).status_code == 502
        fake.troubles = []
        assert server.chat(BOXED).json()["cgr"]["stop_cause"] == "certain"


def test_one_of_several_upstreams_may_be_missing() -> None:
    with fake_upstream() as fake, served(
        "--base-url", "http://127.0.0.1:1", "--base-url", fake.address, "--interval", "20"
    ) as server:  # fmt: skip
        assert server.get("/ready").status_code == 200
        assert server.chat(BOXED, max_tokens=300).json()["cgr"]["stop_cause"] == "certain"
        assert server.chat("A poem").json()["cgr"]["stop_cause"] == "not_probed"
        assert "is not used for now" in server.wait_line("127.0.0.1:1")


def test_requests_are_shared_among_upstreams_and_each_stays_with_one() -> None:
    with fake_upstream() as one, fake_upstream() as other, served(
        "--base-url", one.address, "--base-url", other.address, "--interval", "20"
    ) as server:  # fmt: skip
        one.pace = other.pace = 0.005
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: server.chat(BOXED, max_tokens=300), range(8)))
        sessions = [{headers["x-session-id"] for headers in fake.headers("probe")} for fake in (one, other)]
        assert all(sessions)
        assert not sessions[0] & sessions[1]


@pytest.mark.parametrize("kind", ["think", "answer"])
def test_a_stream_that_hangs_is_requested_again_from_where_it_was(kind: str) -> None:
    options = ("--interval", "20", "--budget", "400", "--upstream-seconds", "0.5")
    with fake_upstream() as fake, served("--base-url", fake.address, *options) as server:
        fake.troubles = [Trouble(kind, "hang", 7)]
        found = server.stream(BOXED)
        assert joined(found, "content") == ANSWER
        assert joined(found, "reasoning").startswith("I think about x. I think about x. ")
        assert kind in fake.aborted


def test_probes_that_miss_the_cache_are_counted_and_warned_about_once() -> None:
    with fake_upstream() as fake, served("--base-url", fake.address, "--interval", "20") as server:
        fake.caches = False
        for _ in range(2):
            server.chat("x" * 300 + BOXED, max_tokens=400, cgr={"max_answer_tokens": 4})
        assert server.metric("cgr_probe_cache_misses_total") >= 2
        server.wait_line("probes miss the cache")
        assert sum("miss the cache" in line for line in server.lines) == 1


def test_cache_figures_are_known_for_some_probes_in_any_case() -> None:
    """A probe that is decided early is left, and its usage with it, except in one request of 16."""
    with fake_upstream() as fake, served("--base-url", fake.address, "--interval", "20") as server:
        known = [
            sum(probe["cached_tokens"] is not None for probe in server.chat(BOXED, max_tokens=400).json()["cgr"]["probes"])
            for _ in range(3)
        ]
        assert known == [1, 0, 0]
        assert fake.bodies("probe")


def test_it_goes_on_where_the_dead_upstream_stopped() -> None:
    fake = FakeUpstream(pace=0.02, sure_at=150)
    replies: list[httpx.Response] = []
    first = fake_upstream(fake=fake)
    first.__enter__()
    with served("--base-url", fake.address, "--interval", "20", "--budget", "400") as server:
        thread = threading.Thread(target=lambda: replies.append(server.chat(BOXED, stream=True)))
        thread.start()
        fake.wait_for("think")
        time.sleep(0.3)
        first.__exit__(None, None, None)
        time.sleep(0.3)
        assert server.get("/ready").status_code == 503
        assert server.get("/health").status_code == 200
        with fake_upstream(fake.port, fake):
            thread.join(LONG)
            found = chunks(replies[0].text)
            assert joined(found, "content") == ANSWER
            assert joined(found, "reasoning").startswith("I think about x. " * 8)
            assert server.get("/ready").status_code == 200


@pytest.mark.parametrize("what", ["reset", "half"])
@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/v1/chat/completions", "chat", chat_body("A poem")),
        ("/v1/completions", "think", {"prompt": "x<think>", "max_tokens": 9, "temperature": 0}),
        ("/v1/messages", "messages", chat_body("A poem", max_tokens=9)),
        ("/v1/responses", "responses", {"input": "A poem"}),
    ],
)
def test_a_passed_on_stream_that_breaks_off_is_an_error(
    gateway: Served, fake: FakeUpstream, path: str, kind: str, body: dict[str, Any], what: str
) -> None:
    """Also if the upstream ends it in good order, but without its end: clients would take it for the whole reply."""
    errors = gateway.metric("cgr_requests_total", stop_cause="error")
    fake.troubles = [Trouble(kind, what, 2)]
    found = [one for one in gateway.post(path, stream=True, **body).text.split("\n\n") if one]
    if kind in ("chat", "think"):
        assert found.pop() == "data: [DONE]"
    assert json.loads(found[-1].split("data: ", 1)[1])["error"]["code"] == "upstream_error"
    assert len(found) > 1
    gateway.wait_metric(errors + 1, "cgr_requests_total", stop_cause="error")
    assert "broke off" in gateway.wait_line(f'"endpoint":"{path}".*"error"')


def test_an_error_is_an_event_of_its_own_where_a_stream_breaks_off_inside_one(gateway: Served, fake: FakeUpstream) -> None:
    fake.troubles = [Trouble("chat", "in event", 2)]
    found = [one.strip() for one in gateway.chat("A poem", stream=True).text.split("\n\n") if one.strip()]
    assert found[-1] == "data: [DONE]"
    assert json.loads(found[-2].removeprefix("data: "))["error"]["code"] == "upstream_error"


def test_what_an_upstream_refuses_is_passed_on(gateway: Served, fake: FakeUpstream) -> None:
    fake.troubles = [Trouble("chat", "429")]
    refused = gateway.chat("A poem")
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "0.05"


async def test_a_reply_that_is_too_long_to_be_kept_is_an_error() -> None:
    class Announced:
        content_length = MAX_BODY_BYTES + 1

    with pytest.raises(ApiError, match="a reply of more than 64 MB") as failure:
        await _whole(cast(Any, Announced()))
    assert failure.value.status == 502


@pytest.mark.parametrize("sent", ["<html>", "[1]", '"x"'])
def test_a_list_of_models_that_is_none_is_an_error_of_the_upstream(sent: str) -> None:
    @dataclass
    class Changing(FakeUpstream):
        changed: bool = False

        async def models(self, request: web.Request) -> web.Response:
            return web.Response(text=sent) if self.changed else await super().models(request)

    with fake_upstream(fake=(fake := Changing())), served("--base-url", fake.address) as server:
        fake.changed = True
        reply = server.get("/v1/models")
        assert (reply.status_code, reply.json()["error"]["message"]) == (502, "The upstream lists no models.")


def test_silence_is_bridged_by_pings(gateway: Served, fake: FakeUpstream) -> None:
    fake.first_seconds = 1.0
    text = gateway.chat(BOXED, stream=True).text
    assert text.count(": ping\n\n") >= 2
    assert joined(chunks(text), "content") == ANSWER


def test_silence_of_a_passed_on_stream_is_bridged_too(gateway: Served, fake: FakeUpstream) -> None:
    fake.pace = 1.0
    text = gateway.chat("A poem", stream=True).text
    assert text.count(": ping\n\n") >= 4
    assert joined(chunks(text), "content") == "a poem of words"


def test_a_ping_is_never_put_into_an_event(gateway: Served, fake: FakeUpstream) -> None:
    fake.pause_in_event = 1.0
    text = gateway.post("/v1/responses", input="A poem", stream=True).text
    assert "ping\n\ndata" not in text
    assert [one["type"] for one in events(text)] == ["ping", "response.completed"]


# Many


def test_256_streams_at_once() -> None:
    """One worker has them all in flight, and each gets its whole reply."""
    with fake_upstream() as fake, served("--base-url", fake.address, "--interval", "20") as server:
        fake.held, fake.length, fake.sure_at = True, 40, 20
        with ThreadPoolExecutor() as pool:
            replies = pool.submit(asyncio.run, streams(server, 256))
            server.wait_metric(256, "cgr_requests_in_flight")
            fake.held = False
            texts = replies.result(10 * LONG)
        assert [joined(chunks(text), "content") for text in texts] == [ANSWER] * 256
        assert all(chunks(text)[-1]["cgr"]["stop_cause"] == "certain" for text in texts)
        assert server.metric("cgr_requests_in_flight") == 0
        assert fake.running["think"] == fake.running["probe"] == fake.running["answer"] == 0


async def streams(server: Served, count: int) -> list[str]:
    """The texts of this many streams at once."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=LONG, trust_env=False, limits=limits) as client:
        body = chat_body(BOXED, stream=True)
        posts = (client.post(server.address + "/v1/chat/completions", json=body) for _ in range(count))
        return [reply.text for reply in await asyncio.gather(*posts)]


# Full


def test_a_full_queue_and_a_long_wait() -> None:
    options = ("--sessions", "1", "--queue", "1", "--queue-seconds", "1", "--interval", "20")
    with fake_upstream() as fake, served("--base-url", fake.address, *options) as server:
        fake.first_seconds = 3600
        with connection(server, stream=True):
            fake.wait_for("think")
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(server.chat, BOXED)
                server.wait_metric(1, "cgr_requests_queued")
                full = server.chat(BOXED)
                late = waiting.result(LONG)
        assert full.status_code == 429
        assert full.json()["error"]["code"] == "queue_full"
        assert int(full.headers["retry-after"]) >= 1
        assert int(full.headers["retry-after-ms"]) >= 1
        assert late.status_code == 408
        assert server.metric("cgr_rejected_total", reason="queue_full") == 1
        assert server.metric("cgr_rejected_total", reason="queue_timeout") == 1
        fake.wait_idle()
        fake.first_seconds = 0
        assert server.chat(BOXED, max_tokens=300).status_code == 200


def test_a_client_that_leaves_the_queue_gives_its_place_up() -> None:
    options = ("--sessions", "1", "--queue", "1", "--interval", "20")
    with fake_upstream() as fake, served("--base-url", fake.address, *options) as server:
        fake.first_seconds = 3600
        with connection(server):
            fake.wait_for("think")
            with connection(server):
                server.wait_metric(1, "cgr_requests_queued")
            until = time.monotonic() + LONG
            while server.metric("cgr_requests_queued"):
                assert time.monotonic() < until
                time.sleep(0.01)


# The end


async def _stream(client: httpx.AsyncClient, server: Served, begun: asyncio.Semaphore, cgr: Any) -> str:
    text = ""
    body = chat_body(BOXED, stream=True, cgr=cgr)
    async with client.stream("POST", server.address + "/v1/chat/completions", json=body) as reply:
        async for piece in reply.aiter_text():
            if not text:
                begun.release()
            text += piece
    return text


async def _fifty_streams_and_sigterm(server: Served, *, probed: bool = True) -> list[str]:
    cgr = {"threshold": 1.0, "interval": 400} if probed else False
    begun = asyncio.Semaphore(0)
    limits = httpx.Limits(max_connections=60)
    async with httpx.AsyncClient(timeout=LONG, limits=limits, trust_env=False) as client:
        streams = [asyncio.create_task(_stream(client, server, begun, cgr)) for _ in range(50)]
        for _ in streams:
            await begun.acquire()
        server.terminate()
        return await asyncio.gather(*streams)


async def test_sigterm_lets_fifty_streams_finish() -> None:
    with fake_upstream() as fake, served("--base-url", fake.address, "--budget", "300") as server:
        fake.pace = 0.01
        texts = await _fifty_streams_and_sigterm(server)
        assert [joined(chunks(text), "content") for text in texts] == [ANSWER] * 50
        with pytest.raises(httpx.TransportError):
            server.get("/health")


@pytest.mark.parametrize("probed", [True, False])
async def test_after_the_limit_streams_end_with_an_error(probed: bool) -> None:
    with (
        fake_upstream() as fake,
        served("--base-url", fake.address, "--budget", "4000", "--shutdown-seconds", "0.5") as server,
    ):
        fake.pace, fake.length, fake.chat_thinks = 0.05, 4000, True
        texts = await _fifty_streams_and_sigterm(server, probed=probed)
        for text in texts:
            events = [one for one in text.split("\n\n") if one]
            assert events[-1] == "data: [DONE]"
            assert json.loads(events[-2].removeprefix("data: "))["error"]["code"] == "shutting_down"
        server.process.wait(LONG)
        fake.wait_idle()
        assert not [line for line in server.lines if "ASGI" in line]


def test_a_dead_upstream_at_the_start_is_one_sentence() -> None:
    from tests.support import command

    done = command("serve", "--port", "0", "--base-url", "http://127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.startswith("error: There is no server at")
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_one_sentence() -> None:
    from tests.support import command

    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = command("serve", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert done.stderr.startswith("error: Cannot listen")
