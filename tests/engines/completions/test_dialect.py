"""What goes over the wire in each dialect, and how what comes back is read."""

from __future__ import annotations

from typing import Any

import pytest

from cgr.engines.base import Sampling
from cgr.engines.completions.detect import lost_by_encoding
from cgr.engines.completions.dialect import BrokenOff, Dialect, Wanted, body, probe_wanted, read, tokenize_call
from cgr.errors import EngineError, UnknownName, UsageError

VLLM = Dialect(server="vllm 0.32.0", logprobs=20)
SERVED_BY_LLAMA = Dialect(server="llama.cpp", token_ids="logprobs", logprobs=20)
NATIVE = Dialect(api="llama.cpp", server="llama.cpp", logprobs=20)
THINKING = Wanted([1, 2], 7, Sampling(0.6, 0.9, 3), 11, [4], stream=True)


def test_vllm_is_told_everything() -> None:
    """It takes what is left out from the model's generation config."""
    sent = body(VLLM, "m", THINKING)
    assert (sent["model"], sent["prompt"], sent["max_tokens"], sent["seed"], sent["stream"]) == ("m", [1, 2], 7, 11, True)
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["min_p"]) == (0.6, 0.9, -1, 0.0)
    assert (sent["repetition_penalty"], sent["presence_penalty"], sent["frequency_penalty"]) == (1.0, 0.0, 0.0)
    assert (sent["skip_special_tokens"], sent["return_token_ids"], sent["logit_bias"]) == (False, True, {"4": -100.0})
    assert "logprobs" not in sent
    assert "ignore_eos" not in sent


def test_a_plain_server_is_told_what_openai_has() -> None:
    plain = Dialect(logprobs=5, extras=False, seed=False)
    sent = body(plain, "m", probe_wanted(plain, "text", 4, top=20))
    assert sent.keys() == {
        "model", "prompt", "max_tokens", "temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs",
        "stream",
    }  # fmt: skip
    assert (sent["temperature"], sent["logprobs"], sent["prompt"]) == (0.0, 5, "text")


def test_llama_server_gives_ids_with_log_probabilities_only() -> None:
    assert body(SERVED_BY_LLAMA, "m", THINKING)["logprobs"] == 1
    assert body(SERVED_BY_LLAMA, "m", THINKING)["samplers"] == ["temperature", "top_p"]


def test_llama_chooses_the_slot_by_itself() -> None:
    sent = body(NATIVE, "m", THINKING)
    assert "id_slot" not in sent
    assert (sent["n_predict"], sent["seed"], sent["logit_bias"], sent["stream"]) == (7, 11, [[4, False]], True)
    assert body(NATIVE, "m", probe_wanted(NATIVE, [1], 4))["n_probs"] == 5


def choice(**values: Any) -> dict[str, Any]:
    return {"choices": [{"text": "", **values}]}


def test_an_event_of_vllm() -> None:
    logprobs = {
        "tokens": ["token_id:25"],
        "token_logprobs": [-0.5],
        "top_logprobs": [{"token_id:25": -0.5, "token_id:3": -2.0}],
    }
    piece = read(VLLM, choice(text="5", token_ids=[25], logprobs=logprobs, finish_reason="length"))
    assert (piece.ids, piece.text, piece.stop) == ((25,), "5", "limit")
    (token,) = piece.tokens
    assert (token.id, token.text, token.logprob, token.top) == (25, "5", -0.5, ((25, -0.5), (3, -2.0)))


def test_the_usage_comes_by_itself() -> None:
    usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 96}}
    piece = read(VLLM, {"choices": [], "usage": usage})
    assert (piece.cached, piece.prefilled, piece.ids, piece.stop) == (96, 4, (), None)


def test_a_server_that_knows_texts_only() -> None:
    texts = Dialect(token_ids="none", logprobs=5)
    logprobs = {"tokens": ["5", "}"], "token_logprobs": [-0.5, -0.1], "top_logprobs": None}
    piece = read(texts, choice(text="5}", logprobs=logprobs, finish_reason="stop"))
    assert [(token.id, token.text) for token in piece.tokens] == [(-1, "5"), (-1, "}")]
    assert piece.stop == "eos"


@pytest.mark.parametrize("logprob", [None, -9999.0, float("nan"), float("-inf")])
def test_a_token_without_a_probability_is_an_error_and_not_zero(logprob: float | None) -> None:
    logprobs = {"tokens": ["token_id:25"], "token_logprobs": [logprob], "top_logprobs": [{}]}
    with pytest.raises(EngineError, match="no probability for a token that it chose"):
        read(VLLM, choice(token_ids=[25], logprobs=logprobs))


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
    with pytest.raises(BrokenOff):
        read(VLLM, event)


def test_tokenizing_in_both_forms() -> None:
    assert tokenize_call(Dialect(tokenize="vllm"), "m", "x")[1] == {
        "model": "m",
        "prompt": "x",
        "add_special_tokens": False,
    }
    llama = tokenize_call(Dialect(tokenize="llama.cpp"), "m", "x", special=True)[1]
    assert llama == {"content": "x", "add_special": True, "parse_special": True}


def test_overriding() -> None:
    changed = VLLM.changed(["stream=no", "logprobs=5", "token_ids=none", "prefix_cache=yes", "server=mine"])
    assert (changed.stream, changed.logprobs, changed.token_ids, changed.prefix_cache) == (False, 5, "none", True)
    assert (changed.server, changed.exact, VLLM.exact) == ("mine", False, True)
    for wrong, error in (("colour=red", UnknownName), ("logprobs=many", UsageError), ("tokenize=x", UnknownName)):
        with pytest.raises(error):
            VLLM.changed([wrong])


def test_a_dialect_comes_back_from_json() -> None:
    assert Dialect.from_json(VLLM.to_json()) == VLLM


@pytest.mark.parametrize(
    ("before", "after", "lost"), [([1, 2, 3], [1, 2, 3], 0), ([1, 2, 3, 4], [1, 5, 4], 2), ([1, 2], [], 2), ([], [], 0)]
)
def test_what_is_lost_by_encoding_again(before: list[int], after: list[int], lost: int) -> None:
    assert lost_by_encoding(before, after) == lost
