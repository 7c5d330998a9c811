"""A gateway in front of a server like vLLM: probes, stops, pass-through, and one id for all calls of a request."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.support import LONG, Served, chat_body, chunks, joined, served
from tests.server.upstream import ANSWER, MODEL, FakeUpstream, fake_upstream

BOXED = "What is x? Put it into \\boxed{}."
POEM = "Write a poem."
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]


def test_it_stops_when_certain_and_the_model_writes_its_answer(gateway: Served, fake: FakeUpstream) -> None:
    reply = gateway.chat(BOXED)
    body = reply.json()
    message = body["choices"][0]["message"]
    assert reply.status_code == 200
    assert message["content"] == ANSWER
    assert message["reasoning"] == message["reasoning_content"]
    assert body["cgr"]["stop_cause"] == "certain"
    assert body["cgr"]["answer"] == "42"
    assert body["cgr"]["certainty"] == pytest.approx(0.999)
    assert 100 <= body["cgr"]["usage"]["thinking_tokens"] <= 102
    assert body["usage"]["completion_tokens"] == len(message["reasoning"]) + len(ANSWER) + 1
    assert reply.headers["x-cgr-stop-cause"] == "certain"
    assert reply.headers["x-cgr-certainty"] == "0.999"
    assert float(reply.headers["x-cgr-overhead-ms"]) > 0


def test_a_stream_has_the_same_parts(gateway: Served, fake: FakeUpstream) -> None:
    found = gateway.stream(BOXED, stream_options={"include_usage": True})
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"
    assert joined(found, "content") == ANSWER
    assert joined(found, "reasoning") == joined(found, "reasoning_content")
    *_, last, usage = found
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["cgr"]["stop_cause"] == usage["cgr"]["stop_cause"] == "certain"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens_details"]["reasoning_tokens"] == len(joined(found, "reasoning"))
    assert all("cgr" not in chunk for chunk in found[:-2])


def test_no_usage_chunk_unless_asked(gateway: Served, fake: FakeUpstream) -> None:
    assert "usage" not in gateway.stream(BOXED)[-1]


def test_probes_ride_on_deltas_and_never_inside_them(gateway: Served, fake: FakeUpstream) -> None:
    plain = gateway.stream(BOXED, cgr={})
    found = gateway.stream(BOXED, cgr={"stream_probes": True})
    riding = [chunk for chunk in found[:-1] if "cgr" in chunk]
    assert [chunk["cgr"]["at"] for chunk in riding] == [20, 40, 60, 80, 100]
    assert {chunk["cgr"]["object"] for chunk in riding} == {"cgr.probe"}
    assert all(len(chunk["choices"]) == 1 for chunk in riding)
    assert not any("cgr" in chunk["choices"][0]["delta"] for chunk in found)
    assert len(found) == len(plain)
    assert {"answer", "certainty", "closed", "cached_tokens", "ms"} <= riding[0]["cgr"].keys()


def test_every_call_of_a_request_carries_one_fresh_id(gateway: Served, fake: FakeUpstream) -> None:
    def ids() -> set[str]:
        fake.requests.clear()
        gateway.chat(BOXED)
        calls = [headers for kind, headers, _ in fake.requests if kind in ("think", "probe", "answer")]
        assert {kind for kind, _, _ in fake.requests} >= {"think", "probe", "answer"}
        return {one[name] for one in calls for name in ("x-session-id", "x-smg-routing-key")}

    first, second = ids(), ids()
    assert len(first) == len(second) == 1
    assert first != second


def test_a_further_session_header_can_be_named() -> None:
    with (
        fake_upstream() as fake,
        served("--base-url", fake.address, "--session-header", "X-Mine", "--interval", "20") as server,
    ):
        server.chat(BOXED, max_tokens=200)
        assert all(one["x-mine"] == one["x-session-id"] for one in fake.headers("probe"))


def test_tokens_of_probes_are_counted_apart(gateway: Served, fake: FakeUpstream) -> None:
    body = gateway.chat(BOXED, cgr={"max_answer_tokens": 4}).json()  # so short that all usage figures are waited for
    usage = body["cgr"]["usage"]
    assert usage["probe_tokens"]["cached"] > usage["probe_tokens"]["prefilled"] > 0
    assert all(probe["cached_tokens"] > 0 for probe in body["cgr"]["probes"])
    assert 5 <= usage["probe_tokens"]["decoded"] <= 20
    assert usage["answer_tokens"] == len(ANSWER) + 1


def test_the_natural_end_and_the_budget(gateway: Served, fake: FakeUpstream) -> None:
    fake.sure_at = 10_000
    ended = gateway.chat(BOXED).json()
    assert ended["cgr"]["stop_cause"] == "end_of_thinking"
    assert ended["cgr"]["usage"]["thinking_tokens"] == fake.length
    spent = gateway.chat(BOXED, cgr={"budget": 50}).json()
    assert spent["cgr"]["stop_cause"] == "budget"
    assert spent["cgr"]["budget"] == spent["cgr"]["usage"]["thinking_tokens"] == 50
    assert spent["choices"][0]["message"]["content"] == ANSWER


SPELLINGS: list[dict[str, Any]] = [
    {"thinking_token_budget": 50},
    {"thinking_budget_tokens": 50},
    {"reasoning_budget_tokens": 50},
    {"custom_params": {"thinking_budget": 50}},
    {"reasoning": {"max_tokens": 50}},
    {"nvext": {"max_thinking_tokens": 50}},
    {"thinking": {"type": "enabled", "budget_tokens": 50}},
    {"cgr": {"budget": 50}},
]


@pytest.mark.parametrize("fields", SPELLINGS, ids=lambda one: next(iter(one)))
def test_every_spelling_of_a_budget(gateway: Served, fake: FakeUpstream, fields: dict[str, Any]) -> None:
    fake.sure_at = 10_000
    assert gateway.chat(BOXED, **fields).json()["cgr"]["usage"]["thinking_tokens"] == 50


def test_effort_is_a_budget_and_none_is_no_thinking(gateway: Served, fake: FakeUpstream) -> None:
    fake.sure_at = 10_000
    assert gateway.chat(BOXED, reasoning_effort="low").json()["cgr"]["budget"] == 1024
    none = gateway.chat(BOXED, reasoning_effort="none").json()
    assert none["choices"][0]["message"]["reasoning"] == ""
    assert none["choices"][0]["message"]["content"] == ANSWER


def test_a_request_without_thinking_saves_nothing(gateway: Served, fake: FakeUpstream) -> None:
    """It would not have thought without probes either."""
    gateway.chat(BOXED, cgr="shadow")  # from now on a mean is known
    names = ("cgr_budget_tokens_total", "cgr_baseline_tokens_total")
    before, counted = [gateway.metric(name) for name in names], gateway.metric("cgr_requests_total")
    for fields in ({"reasoning_effort": "none"}, {"thinking_token_budget": 0}, {"thinking": {"type": "disabled"}}):
        cgr = gateway.chat(BOXED, None, **fields).json()["cgr"]
        assert cgr["saved"] == {"vs_budget": 0, "vs_mean": None}
        assert cgr["budget"] == 0
        assert cgr["stop_detail"] == "the request asks for no thinking"
    gateway.wait_metric(counted + 3, "cgr_requests_total")
    assert [gateway.metric(name) for name in names] == before


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_thinking_leaves_tokens_for_the_answer(gateway: Served, fake: FakeUpstream, name: str) -> None:
    fake.sure_at = 10_000
    body = gateway.chat(BOXED, None, **{name: 160}).json()
    assert body["cgr"]["budget"] == 120
    assert body["choices"][0]["message"]["content"] == ANSWER
    assert body["usage"]["completion_tokens"] <= 160
    short = gateway.chat(BOXED, None, **{name: 20}).json()
    assert short["choices"][0]["finish_reason"] == "length"
    assert short["choices"][0]["message"]["content"] == ANSWER[:5]
    assert short["usage"]["completion_tokens"] == 20


def test_stop_strings_apply_to_the_answer_only(gateway: Served, fake: FakeUpstream) -> None:
    body = gateway.chat(BOXED, stop=["about", "is"]).json()
    assert "about" in body["choices"][0]["message"]["reasoning"]
    assert body["choices"][0]["message"]["content"].startswith("The answer ")
    assert "boxed" not in body["choices"][0]["message"]["content"]
    assert body["choices"][0]["finish_reason"] == "stop"
    assert all("stop" not in one for one in fake.bodies("think"))


def test_sampling_goes_to_the_upstream(gateway: Served, fake: FakeUpstream) -> None:
    gateway.chat(BOXED, temperature=0.3, top_p=0.8, top_k=7, min_p=0.1, presence_penalty=0.5, repetition_penalty=1.1)
    sent = fake.bodies("think")[0]
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["min_p"]) == (0.3, 0.8, 7, 0.1)
    assert (sent["presence_penalty"], sent["repetition_penalty"]) == (0.5, 1.1)
    assert fake.bodies("probe")[0]["temperature"] == 0


def test_a_seed_is_repeated_and_a_missing_one_is_new(gateway: Served, fake: FakeUpstream) -> None:
    def seed(**fields: Any) -> int:
        fake.requests.clear()
        gateway.chat(BOXED, **fields)
        return int(fake.bodies("think")[0]["seed"])

    assert seed(seed=5) == seed(seed=5) != seed(seed=6)
    assert seed() != seed()


def test_logprobs_belong_to_the_content(gateway: Served, fake: FakeUpstream) -> None:
    choice = gateway.chat(BOXED, logprobs=True, top_logprobs=2).json()["choices"][0]
    entries = choice["logprobs"]["content"]
    assert "".join(one["token"] for one in entries) == choice["message"]["content"] == ANSWER
    assert all(len(one["top_logprobs"]) == 2 for one in entries)
    assert entries[0]["bytes"] == [ord("T")]
    cut = gateway.chat(BOXED, logprobs=True, stop=" is").json()["choices"][0]
    assert "".join(one["token"] for one in cut["logprobs"]["content"]) == cut["message"]["content"]
    found = gateway.stream(BOXED, logprobs=True)
    streamed = [one for chunk in found for one in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert "".join(one["token"] for one in streamed) == ANSWER
    assert all(one["top_logprobs"] == [] for one in streamed)


def test_boxed_style_and_wrap_up(gateway: Served, fake: FakeUpstream) -> None:
    boxed = gateway.chat(BOXED, cgr={"answer_style": "boxed"}).json()
    assert boxed["choices"][0]["message"]["content"] == "Final Answer: \\boxed{42}"
    assert not fake.bodies("answer")
    wrapped = gateway.chat(BOXED, cgr={"wrap_up": " Enough."}).json()
    assert wrapped["choices"][0]["message"]["reasoning"].endswith(" Enough.")
    assert gateway.chat(BOXED, logprobs=True, cgr={"answer_style": "boxed"}).json()["error"]["param"] == "logprobs"


def test_a_cut_waits_for_the_end_of_a_sentence(gateway: Served, fake: FakeUpstream) -> None:
    """The text has a point every 17 characters: after 101 there is one, and an interval of 20 allows 2 more."""
    waited = gateway.chat(BOXED, cgr={"sentence_end": True}).json()["choices"][0]["message"]["reasoning"]
    at_once = gateway.chat(BOXED, cgr={"sentence_end": False}).json()["choices"][0]["message"]["reasoning"]
    assert len(at_once) == 100
    assert waited.endswith("about x.")
    assert len(waited) == 101


def test_abstention_is_a_normal_reply(gateway: Served, fake: FakeUpstream) -> None:
    fake.sure_at = 10_000
    body = gateway.chat(BOXED, cgr={"at_end_of_thinking": "abstain"}).json()
    assert body["cgr"]["abstained"] is True
    assert body["cgr"]["answer"] is None
    assert "withheld" not in body["cgr"]
    assert all(probe["answer"] is None for probe in body["cgr"]["probes"])
    assert body["choices"][0]["message"]["content"] == "I am not certain enough to answer this."


def test_shadow_stops_nothing_and_notes_where_it_would(gateway: Served, fake: FakeUpstream) -> None:
    body = gateway.chat(BOXED, cgr="shadow").json()
    assert body["cgr"]["usage"]["thinking_tokens"] == fake.length
    assert body["cgr"]["stop_cause"] == "end_of_thinking"
    assert body["cgr"]["shadow"]["would_stop"]["at"] == 100
    assert body["choices"][0]["message"]["content"] == ANSWER


# Which requests are probed


def test_other_requests_are_passed_through_untouched(gateway: Served, fake: FakeUpstream) -> None:
    raw = b'{"messages": [ {"role":"user","content":"Write a poem."}],   "temperature": 0.25, "strange": {"x": 1}}'
    reply = httpx.post(
        gateway.address + "/v1/chat/completions", content=raw, headers={"content-type": "application/json"}, timeout=LONG
    )
    body = reply.json()
    assert body["choices"][0]["message"]["content"] == "a poem of words"
    assert body["cgr"]["stop_cause"] == reply.headers["x-cgr-stop-cause"] == "not_probed"
    assert "boxed" in body["cgr"]["stop_detail"]
    assert 0 < float(reply.headers["x-cgr-overhead-ms"]) < 1000 * LONG
    assert fake.bodies("chat")[0] == {
        "messages": [{"role": "user", "content": POEM}],
        "temperature": 0.25,
        "strange": {"x": 1},
    }
    assert not fake.bodies("think")


def test_a_stream_is_passed_through_without_waiting_for_its_end(gateway: Served, fake: FakeUpstream) -> None:
    fake.pace = 0.3
    with httpx.stream(
        "POST", gateway.address + "/v1/chat/completions", json=chat_body(POEM, stream=True), timeout=LONG
    ) as reply:
        assert reply.headers["cache-control"] == "no-cache, no-transform"
        assert reply.headers["x-accel-buffering"] == "no"
        pieces = reply.iter_text()
        first = next(pieces)
        assert "poem" not in first
        assert fake.running["chat"] == 1
        found = chunks(first + "".join(pieces))
    assert joined(found, "content") == "a poem of words"
    assert found[-1]["cgr"]["stop_cause"] == "not_probed"
    assert reply.headers["x-cgr-stop-cause"] == "not_probed"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"tools": TOOLS}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"cgr": {}, "tools": TOOLS}, "tools"),
        ({"n": 2}, "n"),
        ({"cgr": False}, "no probes"),
        ({"model": f"{MODEL}:plain"}, "no probes"),
        ({"model": "another"}, "another"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_what_goes_to_the_upstream(gateway: Served, fake: FakeUpstream, fields: dict[str, Any], why: str) -> None:
    body = gateway.chat(BOXED, **fields).json()
    assert body["cgr"]["stop_cause"] == "not_probed"
    assert why in body["cgr"]["stop_detail"]
    (sent,) = fake.bodies("chat")
    expected = {name: value for name, value in fields.items() if name != "cgr"}
    if str(fields.get("model")).endswith(":plain"):
        expected["model"] = MODEL
    assert sent == chat_body(BOXED, **expected)


def test_images_go_to_the_upstream(gateway: Served, fake: FakeUpstream) -> None:
    content = [{"type": "text", "text": BOXED}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    body = gateway.post(messages=[{"role": "user", "content": content}]).json()
    assert "messages[0].content" in body["cgr"]["stop_detail"]
    assert len(fake.bodies("chat")) == 1


def test_what_cannot_be_had_together_with_probes_is_refused_by_name(gateway: Served, fake: FakeUpstream) -> None:
    refused = gateway.chat(BOXED, cgr={}, logit_bias={"5": 1})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "logit_bias"


def test_a_request_is_probed_by_field_header_or_alias(gateway: Served, fake: FakeUpstream) -> None:
    assert gateway.chat(POEM, cgr=True).json()["cgr"]["threshold"] == 0.99
    assert gateway.chat(POEM, headers={"X-CGR": "on"}).json()["cgr"]["stop_cause"] == "certain"
    assert gateway.chat(POEM, headers={"X-CGR-Threshold": "0.9"}).json()["cgr"]["threshold"] == 0.9
    assert gateway.chat(POEM, model=f"{MODEL}:cgr-0.97").json()["cgr"]["threshold"] == 0.97
    assert gateway.chat(POEM, headers={"X-CGR-Budget": "33"}).json()["cgr"]["budget"] == 33


def test_body_beats_header_beats_alias(gateway: Served, fake: FakeUpstream) -> None:
    alias, header = f"{MODEL}:cgr-0.5", {"X-CGR-Threshold": "0.6"}
    assert gateway.chat(POEM, headers=header, model=alias).json()["cgr"]["threshold"] == 0.6
    assert gateway.chat(POEM, headers=header, model=alias, cgr={"threshold": 0.7}).json()["cgr"]["threshold"] == 0.7
    assert gateway.chat(POEM, headers={"X-CGR": "off"}, model=alias).json()["cgr"]["stop_cause"] == "not_probed"
    assert gateway.chat(POEM, headers={"X-CGR": "off"}, cgr={}).json()["cgr"]["stop_cause"] == "certain"
    for fields, budget in (({"thinking": {"budget_tokens": 40}}, 40), ({"reasoning_effort": "low"}, 1024), ({}, 33)):
        reply = gateway.chat(POEM, headers={"X-CGR-Budget": "33"}, **fields)
        assert reply.json()["cgr"]["budget"] == budget


def test_models_have_aliases(gateway: Served, fake: FakeUpstream) -> None:
    names = [one["id"] for one in gateway.get("/v1/models").json()["data"]]
    assert names[0] == MODEL
    assert {f"{MODEL}:plain", f"{MODEL}:cgr-0.97"} <= set(names)


def test_completions_are_passed_through_unless_they_ask(gateway: Served, fake: FakeUpstream) -> None:
    plain = gateway.post("/v1/completions", prompt="abc", max_tokens=4, temperature=0).json()
    assert plain["cgr"]["stop_cause"] == "not_probed"
    assert plain["cgr"]["stop_detail"] == "completions are probed only if they ask for it"
    asked = gateway.post("/v1/completions", prompt="What is x?<think>", cgr={}).json()
    assert asked["cgr"]["stop_cause"] == "certain"
    thinking, _, answer = asked["choices"][0]["text"].partition("</think>")
    assert thinking.startswith("I think")
    assert answer == ANSWER
    reply = gateway.post(
        "/v1/completions", prompt="What is x?<think>", cgr={}, stream=True, stream_options={"include_usage": True}
    )
    found = chunks(reply.text)
    assert "".join(one["choices"][0]["text"] for one in found[:-1]).endswith(f"</think>{ANSWER}")
    assert found[-1]["usage"]["reasoning_tokens"] >= 100


def test_ready_says_whether_the_upstream_is_there(gateway: Served, fake: FakeUpstream) -> None:
    assert gateway.get("/health").status_code == 200
    assert gateway.get("/ready").status_code == 200


def test_metrics_count_what_was_done(gateway: Served, fake: FakeUpstream) -> None:
    before = gateway.get("/metrics").text
    fake.pace = 0.002
    gateway.chat(BOXED, cgr={"max_answer_tokens": 4})
    gateway.chat(POEM)
    for name, labels in (
        ("cgr_requests_total", {"stop_cause": "certain", "model": MODEL}),
        ("cgr_requests_total", {"stop_cause": "not_probed"}),
        ("cgr_probes_total", {"outcome": "certain"}),
        ("cgr_thinking_tokens_total", {}),
        ("cgr_answer_tokens_total", {}),
        ("cgr_probe_tokens_total", {"kind": "cached"}),
        ("cgr_budget_tokens_total", {}),
        ("cgr_probe_certainty_count", {}),
        ("cgr_stop_certainty_count", {}),
        ("cgr_time_to_first_token_seconds_count", {}),
        ("cgr_time_to_first_answer_token_seconds_count", {}),
        ("cgr_overhead_seconds_count", {}),
        ("cgr_probe_duration_seconds_count", {}),
        ("cgr_request_duration_seconds_count", {}),
        ("cgr_queue_wait_seconds_count", {}),
        ("cgr_http_requests_total", {"endpoint": "/v1/chat/completions", "code": "200"}),
        ("cgr_upstream_requests_total", {"upstream": fake.address, "kind": "probe"}),
        ("cgr_upstream_cancelled_total", {"phase": "think"}),
    ):
        assert gateway.metric(name, **labels) > _metric(before, name, labels), name
    assert gateway.metric("cgr_requests_in_flight") == 0


def _metric(text: str, name: str, labels: dict[str, str]) -> float:
    from tests.server.support import metric

    return metric(text, name, **labels)
