"""`POST /v1/messages`: the same decision as chat completions, in the blocks, events and errors of the Messages API."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.support import Served, events, served
from tests.server.upstream import ANSWER, FakeUpstream, Trouble, fake_upstream, text_of
from tests.support import QUESTION

PATH = "/v1/messages"
BOXED = "What is x? Put it into \\boxed{}."
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]


def send(server: Served, question: str = BOXED, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": 1000, **fields}
    return server.post(PATH, headers, **body)


def test_a_thinking_block_and_a_text_block(gateway: Served, fake: FakeUpstream) -> None:
    reply = send(gateway, thinking={"type": "enabled", "budget_tokens": 350})
    body = reply.json()
    assert reply.status_code == 200, body
    thinking, text = body["content"]
    assert (body["type"], body["role"], body["stop_reason"]) == ("message", "assistant", "end_turn")
    assert thinking["thinking"].startswith("I think about x.")
    assert text == {"type": "text", "text": ANSWER}
    assert (body["cgr"]["stop_cause"], body["cgr"]["budget"]) == ("certain", 350)
    assert body["usage"]["output_tokens"] == len(thinking["thinking"]) + len(ANSWER) + 1
    assert body["usage"]["output_tokens_details"]["thinking_tokens"] == len(thinking["thinking"])


def collected(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content that the events of a stream build."""
    content: list[dict[str, Any]] = []
    for event in found:
        if event["type"] == "content_block_start":
            assert event["index"] == len(content)
            content.append(event["content_block"])
        if event["type"] == "content_block_delta":
            kind = event["delta"]["type"].removesuffix("_delta")
            content[event["index"]][kind] += event["delta"][kind]
    return content


def test_a_stream_builds_the_same_message(gateway: Served, fake: FakeUpstream) -> None:
    whole = send(gateway, seed=1).json()
    found = events(send(gateway, seed=1, stream=True).text)
    kinds = [event["type"] for event in found]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    assert collected(found) == whole["content"]
    assert found[0]["message"]["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    assert found[-2]["usage"] == whole["usage"]
    assert found[-2]["cgr"]["stop_cause"] == "certain"
    assert all("cgr" not in event for event in found[:-2])


def test_probes_ride_on_thinking_deltas(gateway: Served, fake: FakeUpstream) -> None:
    found = events(send(gateway, stream=True, cgr={"stream_probes": True}).text)
    riding = [event for event in found[:-2] if "cgr" in event]
    assert [event["cgr"]["at"] for event in riding] == [20, 40, 60, 80, 100]
    assert {event["type"] for event in riding} == {"content_block_delta"}


def test_thinking_can_be_hidden_or_left_out(gateway: Served, fake: FakeUpstream) -> None:
    hidden: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 300, "display": "omitted"}}
    body = send(gateway, **hidden).json()
    assert [block["type"] for block in body["content"]] == ["thinking", "text"]
    assert body["content"][0]["thinking"] == ""
    assert collected(events(send(gateway, stream=True, **hidden).text)) == body["content"]
    without = send(gateway, thinking={"type": "disabled"}).json()
    assert [block["type"] for block in without["content"]] == ["text"]
    assert send(gateway, output_config={"effort": "low"}).json()["cgr"]["budget"] == 750  # a quarter of 1000 is reserved


def test_why_the_text_ended(gateway: Served, fake: FakeUpstream) -> None:
    assert send(gateway, max_tokens=60).json()["stop_reason"] == "max_tokens"
    stopped = send(gateway, stop_sequences=["x"]).json()
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "x")
    assert stopped["content"][-1]["text"] == ANSWER.split("x")[0]


def test_blocks_of_earlier_turns(gateway: Served, fake: FakeUpstream) -> None:
    before = send(gateway).json()["content"]
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": before},
        {"role": "user", "content": [{"type": "text", "text": BOXED, "cache_control": {"type": "ephemeral"}}]},
    ]
    fake.requests.clear()
    assert send(gateway, messages=messages, system=[{"type": "text", "text": "Be brief."}]).status_code == 200
    shown = text_of(fake.bodies("think")[0]["prompt"])
    assert "system: Be brief." in shown
    assert ANSWER in shown
    assert "I think about" not in shown


PASSED: list[dict[str, Any]] = [
    {"tools": TOOLS},
    {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
    {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}]},
    {"messages": [{"role": "user", "content": "Write a poem."}]},
]


@pytest.mark.parametrize("fields", PASSED, ids=lambda one: next(iter(one)))
def test_the_rest_is_passed_on(gateway: Served, fake: FakeUpstream, fields: dict[str, Any]) -> None:
    reply = send(gateway, headers={"anthropic-version": "2023-06-01"}, **fields)
    assert reply.json()["cgr"]["stop_cause"] == "not_probed", reply.text
    assert fake.bodies("messages")[-1] | fields == fake.bodies("messages")[-1]
    assert fake.headers("messages")[-1]["anthropic-version"] == "2023-06-01"
    found = events(send(gateway, stream=True, **fields).text)
    assert found[-1]["cgr"]["stop_cause"] == "not_probed"
    fake.troubles.append(Trouble("messages", "reset"))
    assert events(send(gateway, stream=True, **fields).text)[-1]["type"] == "error"


def test_errors_have_the_form_of_this_api(fake: FakeUpstream) -> None:
    with fake_upstream(fake=FakeUpstream(endpoints=False)) as plain, served("--base-url", plain.address) as server:
        refused = send(server, tools=TOOLS).json()
        assert (refused["type"], refused["error"]["type"]) == ("error", "invalid_request_error")
        assert refused["error"]["param"] == "tools"
        assert PATH in refused["error"]["message"]
        assert refused["request_id"]
        assert send(server, "Write a poem.").json()["content"][-1]["text"] == ANSWER
    with fake_upstream() as failing:
        failing.troubles.extend([Trouble("think", "reset", after=30), *(Trouble("think", "500") for _ in range(6))])
        options = ("--upstream-tries", "2", "--interval", "1000", "--budget", "400")
        with served("--base-url", failing.address, *options) as server:
            last = events(send(server, stream=True).text)[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "api_error")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages[0].content"),
    ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "The answer is"}]},
        "messages[1]",
    ),
    ({"system": "<think>"}, "system"),
    ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens"),
    ({"output_config": {"effort": "enormous"}}, "output_config.effort"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
    ({"tools": TOOLS}, "tools"),
    ({"stop_sequences": [""]}, "stop_sequences[0]"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=str)
def test_a_wrong_field_of_a_message_is_named(own: Served, fields: dict[str, Any], param: str) -> None:
    reply = send(own, **fields)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param
    assert reply.json()["type"] == "error"


def test_a_key_in_the_header_of_this_api() -> None:
    with served(env={"CGR_SERVER_KEYS": "secret"}) as server:
        refused = send(server, QUESTION)
        assert refused.status_code == 401
        assert refused.json()["error"]["type"] == "authentication_error"
        assert send(server, QUESTION, headers={"x-api-key": "secret"}).status_code == 200


def test_the_embedded_model_answers_as_in_chat_completions(own: Served) -> None:
    chat = own.chat(seed=3, max_tokens=1000).json()["choices"][0]["message"]
    thinking, text = send(own, QUESTION, seed=3).json()["content"]
    assert (thinking["thinking"], text["text"]) == (chat["reasoning"], chat["content"])
