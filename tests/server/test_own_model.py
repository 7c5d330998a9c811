"""A model of its own: the embedded one. The same decision as `cgr solve`, plain replies, errors for what it cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cgr import Model, Settings
from cgr.records import Message
from tests.server.support import Served, chunks, joined, served
from tests.support import QUESTION


@pytest.mark.parametrize("seed", [0, 3])
def test_it_decides_as_solve_does(own: Served, loaded: Model, seed: int) -> None:
    solution = loaded.solve(QUESTION, seed=seed, instruction="")
    body = own.chat(seed=seed, temperature=0.6, cgr={"sentence_end": False}).json()
    cgr = body["cgr"]
    assert (cgr["answer"], cgr["budget"], cgr["seed"]) == (solution.answer, solution.budget, seed)
    assert cgr["certainty"] == pytest.approx(solution.certainty, abs=1e-4)
    assert cgr["usage"]["thinking_tokens"] == solution.thinking_tokens
    assert body["choices"][0]["message"]["reasoning"] == solution.thinking
    assert [probe["at"] for probe in cgr["probes"]] == [probe.at for probe in solution.probes]
    assert f"\\boxed{{{solution.answer}}}" in body["choices"][0]["message"]["content"]


def test_a_system_message_is_for_requests_without_one(tmp_path: Path, loaded: Model) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"question": "1+1?", "reply": "<think>two</think>2"}')
    settings = Settings(instruction="", system="You count.", examples=file)
    own = (Message("system", "Mine."), Message("user", QUESTION))
    with served("--system", "You count.", "--example", str(file), "--budget", "64") as server:
        for messages, prompt in (
            ([{"role": "user", "content": QUESTION}], settings.prompt(QUESTION)),
            ([{"role": one.role, "content": one.content} for one in own], own),
        ):
            body = server.post(messages=messages, seed=3, temperature=0.6, cgr={"sentence_end": False}).json()
            solution = loaded.solve(prompt, seed=3, instruction="", budget=64)
            assert body["choices"][0]["message"]["reasoning"] == solution.thinking


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_completion_may_end_inside_a_character(own: Served, count: int) -> None:
    """With this penalty the model repeats the bytes of the prompt, of which each character has two."""
    reply = own.post("/v1/completions", prompt="\u00b3\u00d8\u00dc", seed=0, repetition_penalty=0.01, max_tokens=count)
    assert reply.status_code == 200, reply.text
    assert reply.json()["usage"]["completion_tokens"] == count


def test_the_plain_model_thinks_to_its_end_without_probes(own: Served) -> None:
    plain = own.chat(seed=3, model="embedded:plain").json()
    assert plain["cgr"]["stop_cause"] == "not_probed"
    assert plain["cgr"]["probes"] == []
    assert plain["cgr"]["certainty"] is None
    assert "\\boxed{" in plain["choices"][0]["message"]["content"]
    shadow = own.chat(seed=3, cgr="shadow").json()
    assert shadow["choices"] == plain["choices"]
    assert shadow["cgr"]["shadow"]["would_stop"]["certainty"] >= 0.99
    stopped = own.chat(seed=3).json()
    assert stopped["cgr"]["usage"]["thinking_tokens"] < plain["cgr"]["usage"]["thinking_tokens"]
    assert stopped["cgr"]["saved"]["vs_mean"] is not None


def test_no_thinking_is_no_thinking_for_the_plain_model_too(own: Served) -> None:
    plain = own.chat(seed=3, reasoning_effort="none", cgr=False).json()
    assert plain["usage"]["reasoning_tokens"] == 0
    assert plain["choices"] == own.chat(seed=3, reasoning_effort="none").json()["choices"]


def test_thinking_and_answer_in_a_stream_are_those_of_the_whole_reply(own: Served) -> None:
    whole = own.chat(seed=5).json()["choices"][0]["message"]
    found = own.stream(seed=5)
    assert joined(found, "content") == whole["content"]
    assert joined(found, "reasoning") == whole["reasoning"]
    assert "<think>" not in str(found)


def test_small_max_tokens_still_give_an_answer(own: Served) -> None:
    body = own.chat(max_tokens=64, seed=1).json()
    assert body["cgr"]["stop_cause"] in ("budget", "certain")
    assert "boxed{" in body["choices"][0]["message"]["content"]
    assert body["usage"]["completion_tokens"] <= 64
    for few in (1, 2, 3):
        short = own.chat(max_tokens=few, seed=1).json()
        assert short["usage"]["completion_tokens"] == few
        assert short["choices"][0]["message"]["content"]
        assert short["choices"][0]["finish_reason"] == "length"


def test_logprobs_of_the_embedded_model(own: Served) -> None:
    choice = own.chat(seed=1, logprobs=True, top_logprobs=3).json()["choices"][0]
    assert "".join(one["token"] for one in choice["logprobs"]["content"]) == choice["message"]["content"]
    assert all(len(one["top_logprobs"]) == 3 for one in choice["logprobs"]["content"])


def test_no_thinking(own: Served) -> None:
    body = own.chat(seed=1, reasoning_effort="none").json()
    assert body["usage"]["reasoning_tokens"] == 0
    assert body["choices"][0]["message"]["content"]


def test_conversations_and_text_parts(own: Served) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "<think>so</think>Hi.", "reasoning_content": "so"},
        {"role": "user", "content": [{"type": "text", "text": QUESTION[:10]}, {"type": "text", "text": QUESTION[10:]}]},
    ]
    assert own.post(messages=messages, user="me", metadata={"a": "b"}, store=False, tools=[]).status_code == 200


def test_completions_of_the_embedded_model(own: Served) -> None:
    text = own.post("/v1/completions", prompt=f"<|user|>{QUESTION}<|end|><|assistant|>", seed=1, cgr={}).json()
    assert "</think>" in text["choices"][0]["text"]
    assert text["cgr"]["stop_cause"] in ("certain", "end_of_thinking")
    plain = own.post("/v1/completions", prompt=f"<|user|>{QUESTION}<|end|><|assistant|>", seed=1).json()
    assert plain["cgr"]["stop_cause"] == "not_probed"
    reply = own.post("/v1/completions", prompt=[1, 2, 3], max_tokens=40, stream=True)
    assert chunks(reply.text)[-1]["cgr"]["object"] == "cgr.result"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("response_format", {"type": "json_object"}),
        ("n", 2),
        ("logit_bias", {"1": 5}),
        ("functions", [{"name": "f"}]),
        ("anything", 1),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(own: Served, field: str, value: Any) -> None:
    refused = own.chat(QUESTION, None, **{field: value})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == field


def test_names_of_the_model(own: Served) -> None:
    assert own.chat(model="embedded:cgr-0.9", seed=1).json()["cgr"]["threshold"] == 0.9
    missing = own.chat(model="gpt-5")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"
    assert [one["id"] for one in own.get("/v1/models").json()["data"]][:2] == ["embedded", "embedded:plain"]


def test_more_requests_than_sessions_wait_their_turn(own: Served) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda seed: own.chat(seed=seed).status_code, range(8)))
    assert replies == [200] * 8


def test_a_blank_stop_string_leaves_an_answer(own: Served) -> None:
    """lm-eval sends it, and the model writes a blank line after its thinking."""
    plain = own.chat(seed=3).json()["choices"][0]["message"]["content"]
    stopped = own.chat(seed=3, stop=["\n\n"]).json()["choices"][0]
    assert stopped["message"]["content"] == plain
    assert plain.startswith("\n")
    assert joined(own.stream(seed=3, stop=["\n\n"]), "content") == plain
    assert own.chat(seed=3, stop=[" "]).json()["choices"][0]["message"]["content"] == "\n\nFinal"
