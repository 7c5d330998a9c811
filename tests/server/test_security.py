"""Keys, limits, logs without secrets, origins, and the headers of the page."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from cgr.errors import UsageError
from cgr.server.keys import may_enter, read_keys
from tests.server.support import LONG, Served, served
from tests.server.upstream import fake_upstream
from tests.support import QUESTION, command

KEYS = ("first-secret", "second-secret")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    path.write_text(f"# of the team\n{KEYS[0]}\n\n{KEYS[1]}  # of the script\n")
    with served("--api-key-file", str(path), "--cors", "https://page.example", "--log", "json") as server:
        yield server


def test_a_key_is_needed(locked: Served) -> None:
    refused = locked.chat(max_tokens=4)
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert locked.chat(max_tokens=4, headers={"authorization": "Bearer wrong"}).status_code == 401
    assert locked.chat(max_tokens=4, headers={"authorization": f"Basic {KEYS[0]}"}).status_code == 401
    for key in KEYS:
        assert locked.chat(max_tokens=4, headers={"authorization": f"Bearer {key}"}).status_code == 200
        assert locked.chat(max_tokens=4, headers={"x-api-key": key}).status_code == 200
    assert locked.get("/metrics").status_code == 401
    assert locked.get("/v1/models").status_code == 401
    assert locked.get("/v1/nothing").status_code == 401
    assert locked.get("/health").status_code == locked.get("/").status_code == 200


def test_keys_are_hashed_and_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CGR_SERVER_KEYS", "a, b")
    keys = read_keys(None)
    assert len(keys) == 2
    assert not {b"a", b"b"} & keys
    assert may_enter({"authorization": "Bearer b"}, keys)
    assert not may_enter({"authorization": "Bearer "}, keys)
    assert not may_enter({}, keys)
    monkeypatch.delenv("CGR_SERVER_KEYS")
    assert read_keys(None) == frozenset()
    empty = tmp_path / "empty"
    empty.write_text("# nothing\n")
    with pytest.raises(UsageError, match="holds no key"):
        read_keys(empty)
    with pytest.raises(UsageError, match="cannot be read"):
        read_keys(tmp_path / "missing")


def test_logs_hold_no_prompt_no_reply_and_no_key(locked: Served) -> None:
    reply = locked.chat(seed=1, headers={"authorization": f"Bearer {KEYS[0]}", "x-request-id": "mine-1"})
    assert reply.headers["x-request-id"] == "mine-1"
    entry = json.loads(locked.wait_line('"mine-1"'))
    assert entry["code"] == 200
    assert entry["thinking_tokens"] > 0
    logged = "".join(locked.lines)
    for secret in (*KEYS, QUESTION[:20], reply.json()["choices"][0]["message"]["content"].strip()):
        assert secret not in logged


@pytest.mark.parametrize("given", ["a b", "x" * 200, "é", "a\tb", '{"level":"error"}'])
def test_a_request_id_cannot_forge_log_lines(locked: Served, given: str) -> None:
    headers = httpx.Headers([(b"x-request-id", given.encode())])
    reply = httpx.get(locked.address + "/health", headers=headers, timeout=LONG, trust_env=False)
    assert reply.headers["x-request-id"] != given
    assert reply.headers["x-request-id"].isalnum()


def test_text_logs_are_one_line_each() -> None:
    with served("--log", "text") as server:
        server.post("/v1/chat/completions", messages=[{"role": "user", "content": "x"}], model="a\nerror b")
        line = server.wait_line("code=404")
    assert "\\n" in line
    assert not any(one.startswith("error b") for one in server.lines)


def test_pages_of_other_origins_only_if_asked(locked: Served, own: Served) -> None:
    headers = {"origin": "https://page.example"}
    assert locked.get("/health", headers=headers).headers["access-control-allow-origin"] == "https://page.example"
    assert "access-control-allow-origin" not in locked.get("/health", headers={"origin": "https://other.example"}).headers
    assert "access-control-allow-origin" not in own.get("/health", headers=headers).headers


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"origin": "https://other.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://other.example", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site"}, 403),
        ({"origin": "https://behind.a.proxy", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "https://page.example", "sec-fetch-site": "cross-site"}, 200),
        ({}, 200),
    ],
)
def test_a_page_of_another_origin_cannot_make_the_model_work(locked: Served, headers: dict[str, str], code: int) -> None:
    """Such a request needs no permission of the browser if it says that it is text."""
    text = {"content-type": "text/plain", "authorization": f"Bearer {KEYS[0]}"}
    assert locked.chat(headers=text | headers, max_tokens=4).status_code == code


def test_the_page_of_the_server_may_use_it(own: Served) -> None:
    assert own.chat(headers={"origin": own.address}, max_tokens=4).status_code == 200


def test_the_page_has_a_strict_policy(own: Served) -> None:
    page = own.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "/v1" in page.text


def _raw(server: Served, data: bytes) -> bytes:
    address = urlsplit(server.address)
    with socket.create_connection((address.hostname, address.port), timeout=LONG) as client:
        try:
            client.sendall(data)
            return client.recv(65536)
        except ConnectionError:
            return b""


def test_long_headers_are_refused(own: Served) -> None:
    many = b"".join(b"x-%d: %s\r\n" % (number, b"y" * 1000) for number in range(200))
    reply = _raw(own, b"GET /health HTTP/1.1\r\nhost: x\r\n" + many + b"\r\n")
    assert reply == b"" or reply.startswith(b"HTTP/1.1 4")
    for length, status in ((66_000, 431), (64_000, 200)):  # it fits into one read
        assert own.get("/health", headers={"x": "y" * length}).status_code == status
    endless = _raw(own, b"GET /health HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 300_000)
    assert endless == b"" or endless.startswith(b"HTTP/1.1 4")
    assert own.get("/health").status_code == 200


def test_what_is_no_http_is_no_problem(own: Served) -> None:
    assert _raw(own, b"\x16\x03\x01\x00nonsense\r\n\r\n").startswith((b"HTTP/1.1 400", b""))
    assert own.get("/health").status_code == 200


def test_the_client_neither_chooses_the_upstream_nor_sees_its_key() -> None:
    env = {"CGR_API_KEY": "key-of-the-upstream"}
    with fake_upstream() as fake, served("--base-url", fake.address, "--log", "json", env=env) as server:
        sent = {"authorization": "Bearer of-the-client", "host": "evil.example", "x-forwarded-host": "evil.example"}
        reply = server.chat("A poem", headers=sent, base_url="http://evil.example")
        (headers,) = fake.headers("chat")
        assert headers["authorization"] == "Bearer key-of-the-upstream"
        assert headers["host"] == fake.address.removeprefix("http://")
        assert "key-of-the-upstream" not in reply.text + str(reply.headers) + "".join(server.lines)
        assert "of-the-client" not in "".join(server.lines)


def test_a_warning_without_a_key_on_other_addresses() -> None:
    with served("--host", "0.0.0.0") as server:
        assert "warning" in server.wait_line("everybody who can reach 0.0.0.0")


def test_options_that_make_no_sense() -> None:
    for arguments, words in (
        (("--threshold", "2"), "threshold"),
        (("--api-key-file", "/nonexistent"), "key file"),
        (("--workers", "2", "--model", "hf:some/model"), "worker"),
        (("--host", "256.1.1.1"), "Cannot listen"),
        (("--port", "99999"), "Cannot listen"),
    ):
        done = command("serve", "--port", "0", *arguments)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
