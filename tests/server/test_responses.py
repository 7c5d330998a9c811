"""`POST /v1/responses`: the same decision as chat completions, in the items and events of the Responses API."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.support import Served, events, served
from tests.server.upstream import ANSWER, MODEL, FakeUpstream, Trouble, fake_upstream
from tests.support import QUESTION

PATH = "/v1/responses"
BOXED = "What is x? Put it into \\boxed{}."
TOOLS = [{"type": "function", "name": "f", "parameters": {}}]


def respond(server: Served, **fields: Any) -> httpx.Response:
    return server.post(PATH, **{"input": BOXED, **fields})


def text(body: dict[str, Any]) -> str:
    return str(body["output"][-1]["content"][0]["text"])


def test_a_reasoning_item_and_a_message(gateway: Served, fake: FakeUpstream) -> None:
    reply = respond(gateway, metadata={"a": "b"}, reasoning={"effort": "low"})
    body = reply.json()
    assert reply.status_code == 200, body
    reasoning, message = body["output"]
    assert (body["object"], body["status"], body["error"]) == ("response", "completed", None)
    assert (reasoning["type"], reasoning["summary"]) == ("reasoning", [])
    assert reasoning["content"][0]["type"] == "reasoning_text"
    assert (message["role"], message["status"], text(body)) == ("assistant", "completed", ANSWER)
    assert body["cgr"]["stop_cause"] == "certain"
    assert body["cgr"]["answer"] == "42"
    thinking = len(reasoning["content"][0]["text"])
    assert body["usage"]["output_tokens"] == thinking + len(ANSWER) + 1
    assert body["usage"]["output_tokens_details"]["reasoning_tokens"] == thinking
    assert body["metadata"] == {"a": "b"}
    assert body["reasoning"]["effort"] == "low"
    assert reply.headers["x-cgr-stop-cause"] == "certain"


@pytest.mark.parametrize("summary", [None, "auto"])
def test_a_stream_builds_the_same_response(gateway: Served, fake: FakeUpstream, summary: str | None) -> None:
    fields: dict[str, Any] = {"seed": 1, "reasoning": {"summary": summary}}
    whole = respond(gateway, **fields).json()
    found = events(respond(gateway, stream=True, **fields).text)
    kinds = [event["type"] for event in found]
    assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert kinds[-1] == "response.completed"
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    last = found[-1]["response"]
    assert [item | {"id": ""} for item in last["output"]] == [item | {"id": ""} for item in whole["output"]]
    assert last["cgr"]["stop_cause"] == "certain"
    name = "reasoning_summary_text" if summary else "reasoning_text"
    deltas = "".join(event["delta"] for event in found if event["type"] == f"response.{name}.delta")
    assert deltas == whole["output"][0]["summary" if summary else "content"][0]["text"]
    assert "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta") == ANSWER
    done = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert done == last["output"]
    assert all("cgr" not in event for event in found)


def test_probes_ride_on_deltas(gateway: Served, fake: FakeUpstream) -> None:
    found = events(respond(gateway, stream=True, cgr={"stream_probes": True}).text)
    riding = [event for event in found if "cgr" in event]
    assert [event["cgr"]["at"] for event in riding] == [20, 40, 60, 80, 100]
    assert all(event["type"].endswith(".delta") for event in riding)


def test_items_of_earlier_turns(gateway: Served, fake: FakeUpstream) -> None:
    before = respond(gateway, instructions="Be brief.").json()["output"]
    items = [
        {"role": "user", "content": "Hi"},
        *before,
        {"role": "user", "content": [{"type": "input_text", "text": BOXED}]},
    ]
    fake.requests.clear()
    assert respond(gateway, input=items, instructions="Be brief.").status_code == 200
    prompts = [body["prompt"] for kind, _, body in fake.requests if kind == "think"]
    from tests.server.upstream import text_of

    shown = text_of(prompts[0])
    assert "system: Be brief." in shown
    assert ANSWER in shown
    assert "I think about" not in shown


def test_an_answer_that_is_cut_is_incomplete(gateway: Served, fake: FakeUpstream) -> None:
    body = respond(gateway, max_output_tokens=60).json()
    assert body["status"] == body["output"][-1]["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert events(respond(gateway, max_output_tokens=60, stream=True).text)[-1]["type"] == "response.incomplete"


def test_logprobs_are_those_of_the_text(gateway: Served, fake: FakeUpstream) -> None:
    include = ["message.output_text.logprobs", "reasoning.encrypted_content"]
    part = respond(gateway, include=include, top_logprobs=2).json()["output"][-1]["content"][0]
    assert "".join(one["token"] for one in part["logprobs"]) == part["text"]
    assert all(len(one["top_logprobs"]) == 2 for one in part["logprobs"])


def test_no_thinking_no_reasoning_item(gateway: Served, fake: FakeUpstream) -> None:
    body = respond(gateway, reasoning={"effort": "none"}).json()
    assert [item["type"] for item in body["output"]] == ["message"]


PASSED: list[dict[str, Any]] = [
    {"tools": TOOLS},
    {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}},
    {"previous_response_id": "resp_1"},
    {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
    {"input": [{"type": "function_call_output", "call_id": "c", "output": "1"}]},
    {"input": "Write a poem."},
    {"cgr": False},
]


@pytest.mark.parametrize("fields", PASSED, ids=lambda one: next(iter(one)))
def test_the_rest_is_passed_on_to_an_upstream_that_has_it(
    gateway: Served, fake: FakeUpstream, fields: dict[str, Any]
) -> None:
    reply = respond(gateway, **fields)
    assert reply.json()["cgr"]["stop_cause"] == "not_probed", reply.text
    assert fake.bodies("responses")[-1] == {"input": BOXED, **{name: fields[name] for name in fields if name != "cgr"}}
    found = events(respond(gateway, stream=True, **fields).text)
    assert found[-1]["response"]["cgr"]["stop_cause"] == "not_probed"
    assert "cgr" not in found[0]


def test_an_upstream_that_breaks_off_is_an_error(gateway: Served, fake: FakeUpstream) -> None:
    fake.troubles.append(Trouble("responses", "reset"))
    last = events(respond(gateway, stream=True, cgr=False).text)[-1]
    assert last["type"] == "error"
    assert last["error"]["code"] == "upstream_error"


def test_an_upstream_that_fails_in_the_thinking(fake: FakeUpstream) -> None:
    fake.troubles.extend([Trouble("think", "reset", after=30), *(Trouble("think", "500") for _ in range(6))])
    with served("--base-url", fake.address, "--upstream-tries", "2", "--interval", "1000", "--budget", "400") as server:
        found = events(respond(server, stream=True).text)
    assert [event["type"] for event in found[-2:]] == ["response.failed", "error"]
    assert found[-2]["response"]["status"] == "failed"
    assert found[-1]["error"]["message"]


def test_without_the_endpoint_upstream(fake: FakeUpstream) -> None:
    with fake_upstream(fake=FakeUpstream(endpoints=False)) as plain, served("--base-url", plain.address) as server:
        poem = respond(server, input="Write a poem.").json()
        assert poem["cgr"]["stop_cause"] == "not_probed"
        assert text(poem) == ANSWER
        refused = respond(server, tools=TOOLS)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "tools"
        assert PATH in refused.json()["error"]["message"]
        assert respond(server, model="other").status_code == 404
        assert respond(server, model=f"{MODEL}:cgr-0.9").json()["cgr"]["threshold"] == 0.9


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"input": ""}, "input"),
    ({"input": []}, "input"),
    ({"input": 5}, "input"),
    ({"input": [{"content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user", "content": "a </think>"}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
    ({"input": [{"type": "function_call", "name": "f"}]}, "input[0]"),
    ({"input": [{"type": "reasoning", "summary": []}]}, "input"),
    ({"instructions": "<think>"}, "instructions"),
    ({"tools": TOOLS}, "tools"),
    ({"include": ["file_search_call.results"]}, "include"),
    ({"reasoning": {"summary": "concise"}}, "reasoning.summary"),
    ({"reasoning": {"effort": "enormous"}}, "reasoning.effort"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"background": True}, "background"),
    ({"truncation": "auto"}, "truncation"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"cgr": {"threshold": 2}}, "cgr.threshold"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=str)
def test_a_wrong_field_of_a_response_is_named(own: Served, fields: dict[str, Any], param: str) -> None:
    reply = respond(own, **fields)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


def test_the_embedded_model_answers_as_in_chat_completions(own: Served) -> None:
    chat = own.chat(seed=3).json()
    body = respond(own, input=QUESTION, seed=3).json()
    assert body["output"][0]["content"][0]["text"] == chat["choices"][0]["message"]["reasoning"]
    assert text(body) == chat["choices"][0]["message"]["content"]
    assert body["cgr"]["probes"][0]["certainty"] == pytest.approx(chat["cgr"]["probes"][0]["certainty"], abs=1e-4)
