"""Bad input: 4xx in OpenAI's shape, one sentence, the field named. Never an error of the server's own."""

from __future__ import annotations

import json
import os
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from pydantic import BaseModel
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from cgr.rules import known_rules
from cgr.server.protocol import ChatBody, CompletionBody, MessagesBody, ResponsesBody
from tests.server.support import LONG, Served, chat_body
from tests.support import QUESTION

CASES = int(os.environ.get("CGR_CASES", "150"))  # `make torture` tries more
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance]
USER = {"role": "user", "content": QUESTION}
BODY_OF: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {  # with the fields that are needed
    "/v1/chat/completions": (ChatBody, {"messages": [USER]}),
    "/v1/completions": (CompletionBody, {"prompt": QUESTION}),
    "/v1/responses": (ResponsesBody, {"input": QUESTION}),
    "/v1/messages": (MessagesBody, {"messages": [USER]}),
}
FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "  \n"}]}, "messages[0].content"),
    ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [USER, {"role": "assistant", "content": "So"}]}, "messages[1]"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages[0].content",
    ),
    ({"messages": [{"role": "user", "content": "a </think> b"}]}, "messages[0].content"),
    ({"messages": [{"role": "system", "content": "<think>"}, USER]}, "messages[0].content"),
    ({"model": 5}, "model"),
    ({"model": "embedded:cgr-7"}, "model"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_k": 1.5}, "top_k"),
    ({"seed": "x"}, "seed"),
    ({"stream": "yes"}, "stream"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": -5}, "max_completion_tokens"),
    ({"logprobs": 3}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"reasoning_effort": "enormous"}, "reasoning_effort"),
    ({"thinking_token_budget": -1}, "thinking_token_budget"),
    ({"thinking": {"budget_tokens": "many"}}, "thinking.budget_tokens"),
    ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"cgr": "on"}, "cgr"),
    ({"cgr": {"rule": "loop-breaker", "parameters": {"longest": 10**9}}}, "cgr.parameters.longest"),
    ({"cgr": {"budget": 0}}, "cgr.budget"),
    ({"cgr": {"threshold": 2}}, "cgr.threshold"),
    ({"cgr": {"interval": 0}}, "cgr.interval"),
    ({"cgr": {"thresold": 0.9}}, "cgr.thresold"),
    ({"cgr": {"rule": "nonsense"}}, "cgr.rule"),
    ({"cgr": {"aggregate": "median-ish"}}, "cgr.aggregate"),
    ({"cgr": {"parameters": {"nonsense": 1}}}, "cgr.parameters"),
    ({"cgr": {"rule": "loop-breaker", "parameters": {"times": 2.5}}}, "cgr.parameters.times"),
    ({"cgr": {"rule": "loop-breaker", "parameters": {"then": 5}}}, "cgr.parameters.then"),
    ({"cgr": {"rule": "loop-breaker", "parameters": {"then": "cry"}}}, "cgr.parameters"),
    ({"cgr": {"answer_style": "short"}}, "cgr.answer_style"),
]


@pytest.mark.parametrize(("fields", "param"), FIELDS, ids=lambda one: json.dumps(one)[:60])
def test_a_wrong_field_is_named(own: Served, fields: dict[str, Any], param: str) -> None:
    reply = own.post(**{**chat_body(), **fields})
    error = reply.json()["error"]
    assert reply.status_code == 400, error
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert error["message"].endswith(".")


BODIES: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"{", 400),
    (b"[]", 400),
    (b"null", 400),
    (b'"text"', 400),
    (b"{}", 400),
    (b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}', 400),
    (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400),
    (b'{"messages": NaN}', 400),
    (b'{"a":' * 100_000, 400),
    (b"[" * 100_000, 400),
    (b'{"messages": [{"role": "user", "content": "' + b"1 " * 40_000 + b'"}]}', 400),
    (b'{"x": "' + b"y" * (9 << 20) + b'"}', 413),
]


@pytest.mark.parametrize(("body", "code"), BODIES, ids=lambda one: str(one)[:40])
def test_a_wrong_body_is_refused(own: Served, body: bytes, code: int) -> None:
    for path in BODY_OF:
        reply = httpx.post(own.address + path, content=body, timeout=LONG, trust_env=False)
        assert reply.status_code == code, reply.text[:300]
        assert {"message", "type", "param", "code"} == reply.json()["error"].keys()


def test_a_body_in_chunks_is_limited_too(own: Served) -> None:
    reply = httpx.post(
        own.address + "/v1/chat/completions", content=(b" " * 65536 for _ in range(200)), timeout=LONG, trust_env=False
    )
    assert reply.status_code == 413


@pytest.mark.parametrize(
    ("headers", "param"),
    [
        ({"X-CGR": "maybe"}, "X-CGR"),
        ({"X-CGR-Threshold": "2"}, "X-CGR-Threshold"),
        ({"X-CGR-Threshold": "nan"}, "X-CGR-Threshold"),
        ({"X-CGR-Threshold": "x"}, "X-CGR-Threshold"),
        ({"X-CGR-Budget": "0"}, "X-CGR-Budget"),
        ({"X-CGR-Budget": "1.5"}, "X-CGR-Budget"),
    ],
)
def test_a_wrong_header_is_named(own: Served, headers: dict[str, str], param: str) -> None:
    reply = own.chat(headers=headers)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


def test_paths_and_methods(own: Served) -> None:
    assert own.get("/v1/nothing").status_code == 404
    assert own.get("/v1/nothing").json()["error"]["code"] == "not_found"
    assert own.get("/v1/chat/completions").status_code == 405
    assert "error" in own.get("/v1/chat/completions").json()
    assert own.post("/health").status_code == 405


@pytest.mark.parametrize(("fields", "param"), [({"prompt": ["a", "b"]}, "prompt"), ({"prompt": ""}, "prompt"),
                         ({"prompt": [-1]}, "prompt"), ({"prompt": "x", "logprobs": 1}, "logprobs"),
                         ({"prompt": "x", "echo": True}, "echo")])  # fmt: skip
def test_wrong_completions(own: Served, fields: dict[str, Any], param: str) -> None:
    reply = own.post("/v1/completions", **fields)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


def test_an_id_that_is_no_token(own: Served) -> None:
    reply = own.post("/v1/completions", prompt=[38976], max_tokens=4)
    assert reply.status_code == 400
    assert "invalid tokens" in reply.json()["error"]["message"]
    refused = own.post("/v1/completions", prompt=[38976], max_tokens=4, stream=True)
    assert refused.status_code == 400


def test_nothing_was_an_error_of_the_server(own: Served) -> None:
    """After all of the above."""
    for code in ("500", "502", "503"):
        assert own.metric("cgr_http_requests_total", code=code) == 0


@pytest.mark.parametrize("unknown", [True, False], ids=["with unknown fields", "with known fields"])
@pytest.mark.parametrize("path", BODY_OF)
def test_hundreds_of_generated_requests(own: Served, path: str, unknown: bool) -> None:
    known, needed = BODY_OF[path]
    codes: set[int] = set()
    schema = schemathesis.openapi.from_dict(httpx.get(own.address + "/openapi.json", trust_env=False).json())
    schema.config.update(base_url=own.address)
    (operation,) = [found.ok() for found in schema.include(path=path).get_all_operations() if isinstance(found, Ok)]

    @given(case=operation.as_strategy())
    @settings(max_examples=CASES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    def generated(case: Any) -> None:
        if isinstance(case.body, dict):
            case.body["max_tokens"] = 4  # or each case would think as long as it can
            case.body.pop("max_output_tokens", None)
            if not unknown:
                case.body = {name: case.body[name] for name in case.body if name in known.model_fields and name != "model"}
                case.body |= needed
        codes.add(case.call_and_validate(checks=CHECKS, timeout=LONG).status_code)

    generated()
    assert 400 in codes
    assert unknown or 200 in codes


@pytest.mark.parametrize("rule", sorted(known_rules()))
def test_every_rule_with_strange_parameters(own: Served, rule: str) -> None:
    assert own.chat(max_tokens=40, cgr={"rule": rule}).status_code in (200, 400)
    for name in known_rules()[rule].parameters():
        for value in (0, -1, 2.5, 65536, True, "x", ""):
            reply = own.chat(max_tokens=40, cgr={"rule": rule, "parameters": {name: value}})
            assert reply.status_code in (200, 400), (name, value)
