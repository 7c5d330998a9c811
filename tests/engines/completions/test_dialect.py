"""What goes over the wire in each dialect, and how what comes back is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cgr.engines.base import Sampling
from cgr.engines.completions.client import tokenize_body
from cgr.engines.completions.detect import overrides
from cgr.engines.completions.dialect import CompletionRequest, Dialect, probe_request, read_reply, request_body
from cgr.engines.completions.http import BadReply
from cgr.engines.completions.startup import changed_tokens
from cgr.errors import EngineError, UnknownName, UsageError

VLLM = Dialect(server="vllm 0.32.0", logprobs=20)
SERVED_BY_LLAMA = Dialect(server="llama.cpp", token_ids="logprobs", logprobs=20)
NATIVE = Dialect(api="llama.cpp", server="llama.cpp", context=4096, logprobs=20)
THINKING = CompletionRequest([1, 2], 7, Sampling(0.6, 0.9, 3), 11, [4], stream=True)


def test_vllm_is_told_everything() -> None:
    """It takes what is left out from the model's generation config."""
    sent = request_body(VLLM, "m", THINKING)
    assert (sent["model"], sent["prompt"], sent["max_tokens"], sent["seed"], sent["stream"]) == ("m", [1, 2], 7, 11, True)
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["min_p"]) == (0.6, 0.9, -1, 0.0)
    assert (sent["repetition_penalty"], sent["presence_penalty"], sent["frequency_penalty"]) == (1.0, 0.0, 0.0)
    assert (sent["skip_special_tokens"], sent["return_token_ids"], sent["logit_bias"]) == (False, True, {"4": -100.0})
    assert "logprobs" not in sent
    assert "ignore_eos" not in sent


def test_a_plain_server_is_told_what_openai_has() -> None:
    plain = Dialect(logprobs=5, extras=False, seed=False)
    sent = request_body(plain, "m", probe_request(plain, "text", 4, top=20))
    assert sent.keys() == {
        "model", "prompt", "max_tokens", "temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs",
        "stream",
    }  # fmt: skip
    assert (sent["temperature"], sent["logprobs"], sent["prompt"]) == (0.0, 5, "text")


def test_llama_server_gives_ids_with_log_probabilities_only() -> None:
    assert request_body(SERVED_BY_LLAMA, "m", THINKING)["logprobs"] == 1
    assert request_body(SERVED_BY_LLAMA, "m", THINKING)["samplers"] == ["temperature", "top_p"]


def test_llama_chooses_the_slot_by_itself() -> None:
    sent = request_body(NATIVE, "m", THINKING)
    assert "id_slot" not in sent
    assert (sent["n_predict"], sent["seed"], sent["logit_bias"], sent["stream"]) == (7, 11, [[4, False]], True)
    assert request_body(NATIVE, "m", probe_request(NATIVE, [1], 4))["n_probs"] == 5


def choice(**values: Any) -> dict[str, Any]:
    return {"choices": [{"text": "", **values}]}


def test_an_event_of_vllm() -> None:
    logprobs = {
        "tokens": ["token_id:25"],
        "token_logprobs": [-0.5],
        "top_logprobs": [{"token_id:25": -0.5, "token_id:3": -2.0}],
    }
    piece = read_reply(VLLM, choice(text="5", token_ids=[25], logprobs=logprobs, finish_reason="length"))
    assert (piece.ids, piece.text, piece.stop) == ((25,), "5", "limit")
    (token,) = piece.tokens
    assert (token.id, token.text, token.logprob, token.top) == (25, "5", -0.5, ((25, -0.5), (3, -2.0)))


def test_the_usage_comes_by_itself() -> None:
    usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 96}}
    piece = read_reply(VLLM, {"choices": [], "usage": usage})
    assert (piece.cached, piece.prefilled, piece.ids, piece.stop) == (96, 4, (), None)


def test_a_server_that_knows_texts_only() -> None:
    texts = Dialect(token_ids="none", logprobs=5)
    logprobs = {"tokens": ["5", "}"], "token_logprobs": [-0.5, -0.1], "top_logprobs": None}
    piece = read_reply(texts, choice(text="5}", logprobs=logprobs, finish_reason="stop"))
    assert [(token.id, token.text) for token in piece.tokens] == [(-1, "5"), (-1, "}")]
    assert piece.stop == "eos"


@pytest.mark.parametrize("logprob", [None, -9999.0, float("nan"), float("-inf")])
def test_a_token_without_a_probability_is_an_error_and_not_zero(logprob: float | None) -> None:
    logprobs = {"tokens": ["token_id:25"], "token_logprobs": [logprob], "top_logprobs": [{}]}
    with pytest.raises(EngineError, match="no probability for a token that it chose"):
        read_reply(VLLM, choice(token_ids=[25], logprobs=logprobs))


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"choices": [7]},
        choice(finish_reason="abort"),
        choice(finish_reason="error"),
        choice(token_ids=["x"]),
        choice(logprobs={"tokens": ["a"], "token_logprobs": [], "top_logprobs": []}),
    ],
)
def test_what_makes_no_sense_is_half_a_reply(event: dict[str, Any]) -> None:
    with pytest.raises(BadReply):
        read_reply(VLLM, event)


def test_tokenizing_in_both_forms() -> None:
    assert tokenize_body(Dialect(tokenize="vllm"), "m", "x") == {
        "model": "m",
        "prompt": "x",
        "add_special_tokens": False,
    }
    llama = tokenize_body(Dialect(tokenize="llama.cpp"), "m", "x", special=True)
    assert llama == {"content": "x", "add_special": True, "parse_special": True}


def test_overriding() -> None:
    changed = replace(VLLM, **overrides(["stream=no", "logprobs=5", "token_ids=none", "prefix_cache=yes", "server=mine"]))
    assert (changed.stream, changed.logprobs, changed.token_ids, changed.prefix_cache) == (False, 5, "none", True)
    assert (changed.server, changed.exact, VLLM.exact) == ("mine", False, True)
    for wrong, error in (("colour=red", UnknownName), ("logprobs=many", UsageError), ("tokenize=x", UnknownName)):
        with pytest.raises(error):
            overrides([wrong])


def test_a_dialect_comes_back_from_json() -> None:
    assert Dialect.from_json(VLLM.to_json()) == VLLM


@pytest.mark.parametrize(
    ("before", "after", "lost"), [([1, 2, 3], [1, 2, 3], 0), ([1, 2, 3, 4], [1, 5, 4], 2), ([1, 2], [], 2), ([], [], 0)]
)
def test_what_is_lost_by_encoding_again(before: list[int], after: list[int], lost: int) -> None:
    assert changed_tokens(before, after) == lost


def test_no_filter_but_those_that_were_asked_for() -> None:
    """The defaults of llama.cpp apply silently unless others are sent."""
    sent = request_body(NATIVE, "m", CompletionRequest([1, 2], 7, Sampling(0.6, 0.9, 3), 11, [4], slot=2))
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["min_p"]) == (0.6, 0.9, 0, 0.0)
    assert (sent["samplers"], sent["id_slot"]) == (["temperature", "top_p"], 2)
    assert (sent["cache_prompt"], sent["return_tokens"], sent["logit_bias"]) == (True, True, [[4, False]])
    assert "n_probs" not in sent  # it sorts the vocabulary: for probes only
    assert "repeat_penalty" not in sent


def test_a_probe_is_greedy_and_raw() -> None:
    sent = request_body(NATIVE, "m", probe_request(NATIVE, [1, 2], 4, slot=1))
    assert (sent["temperature"], sent["logit_bias"], sent["cache_prompt"], sent["id_slot"]) == (0.0, [], True, 1)
    assert sent["n_probs"] > 0
    assert "post_sampling_probs" not in sent


FILTERED = Sampling(top_k=40, min_p=0.05, presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=1.1)


def test_filters_and_penalties_in_each_dialect() -> None:
    request = CompletionRequest([1], 4, FILTERED, stop=("\n\n",))
    native = request_body(NATIVE, "m", request)
    assert native["samplers"] == ["penalties", "temperature", "top_k", "top_p", "min_p"]
    assert (native["top_k"], native["min_p"], native["repeat_penalty"], native["repeat_last_n"]) == (40, 0.05, 1.1, 4096)
    assert (native["presence_penalty"], native["frequency_penalty"], native["stop"]) == (0.5, 0.25, ["\n\n"])
    vllm = request_body(VLLM, "m", request)
    assert (vllm["top_k"], vllm["min_p"], vllm["repetition_penalty"]) == (40, 0.05, 1.1)
    assert (vllm["presence_penalty"], vllm["frequency_penalty"], vllm["stop"]) == (0.5, 0.25, ["\n\n"])


@pytest.mark.parametrize(
    ("said", "stop"),
    [({"finish_reason": "stop"}, "eos"), ({"finish_reason": "stop", "stop_reason": "\n"}, "stop"), ({}, None)],
)
def test_why_a_completion_ended(said: dict[str, Any], stop: str | None) -> None:
    assert read_reply(VLLM, choice(**said)).stop == stop


def test_why_a_completion_of_llama_ended() -> None:
    for said, stop in (("eos", "eos"), ("limit", "limit"), ("word", "stop")):
        assert read_reply(NATIVE, {"content": "", "tokens": [], "stop": True, "stop_type": said}).stop == stop
    with pytest.raises(BadReply):
        read_reply(NATIVE, {"content": "", "tokens": [], "stop": True, "stop_type": "luck"})
