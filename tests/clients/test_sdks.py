"""SDKs against a real `cgr serve`: what each of them shows of the thinking, the answer and the result object."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.clients.support import LONG, check, node, python
from tests.server.support import Served, chat_body, chunks, events, joined
from tests.support import QUESTION

pytestmark = pytest.mark.clients


def test_openai_python(server: Served) -> None:
    found = python("openai_python.py", server)
    for name in ("chat", "chat_stream", "responses", "responses_stream"):
        check(found[name])
        assert found[name]["thinking"] == found["chat"]["thinking"], name
    assert found["chat_stream"]["probes"] == found["responses_stream"]["probes"] != []
    assert found["responses"]["reasoning_tokens"] == found["responses"]["cgr"]["usage"]["thinking_tokens"]
    assert found["chat_helper"]["text"] == found["chat"]["text"]
    assert any(name.endswith(":plain") for name in found["models"])


def test_openai_python_is_told_the_field(own: Served) -> None:
    assert python("openai_python.py", own)["refused"] == "tools"


def test_the_older_openai_python(own: Served) -> None:
    check(python("openai_python.py", own, name="CGR_LITELLM_PYTHON")["responses_stream"])


def test_anthropic_python(server: Served) -> None:
    found = python("anthropic_python.py", server)
    for name in ("messages", "messages_stream"):
        check(found[name])
        assert found[name]["stop_reason"] == "end_turn"
    assert found["messages"]["cgr"]["budget"] == 1024
    assert found["messages"]["tokens"] == found["messages"]["cgr"]["usage"]["thinking_tokens"]
    assert found["messages_stream"]["probes"]
    assert not found["messages_stream"]["final_has_cgr"]  # the SDK drops it; docs/clients.md says so
    assert found["second"]["text"]


def test_openai_node(server: Served) -> None:
    found = node("openai.mjs", server)
    for name in ("chat", "chat_stream", "responses", "responses_stream"):
        check(found[name])
    assert found["chat_helper"]["text"] == found["chat"]["text"]


def test_anthropic_node(own: Served) -> None:
    found = node("anthropic.mjs", own)
    check(found["messages"])
    check(found["messages_stream"])


def test_vercel(server: Served) -> None:
    found = node("vercel.mjs", server)
    assert found["errors"] == []
    check(found["whole"])
    check(found["stream"])
    assert found["reasoning_tokens"] == found["stream"]["cgr"]["usage"]["thinking_tokens"]


def test_langchain(own: Served) -> None:
    found = python("langchain.py", own)
    check(found["deepseek"], result=False)
    check(found["deepseek_stream"], result=False)
    assert float(found["deepseek"]["certainty"]) >= 0.99  # of the header
    assert found["openai"]["thinking"] is None  # by its own design
    assert "\\boxed{169}" in found["openai"]["text"]
    reasoning, text = found["responses"]
    check({"thinking": reasoning["content"][0]["text"], "text": text["text"]}, result=False)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_curl(own: Served, path: str) -> None:
    body: dict[str, Any] = {"seed": 3, "stream": True, "max_tokens": 1000}
    body |= {"input": QUESTION} if path.endswith("responses") else chat_body()
    call = ["curl", "-sS", "-N", own.address + path, "-H", "content-type: application/json", "-d", json.dumps(body)]
    text = subprocess.run(call, capture_output=True, text=True, timeout=LONG, check=True).stdout
    if path.endswith("completions"):
        assert "\\boxed{169}" in joined(chunks(text), "content")
    else:
        assert "certain" in json.dumps(events(text)[-2:])
