"""Finding out what a server can do: strict, poor and peculiar ones, each told by what it answers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cgr import open_model
from cgr.engines.completions import detect
from cgr.engines.completions.detect import NoAnswer
from cgr.engines.completions.engine import CompletionsEngine
from cgr.engines.completions.policy import RetryPolicy
from cgr.engines.open import ModelOptions
from cgr.errors import CgrError, MissingCapability, ModelNotFound, UsageError
from tests.engines.completions.playing import playing

HF = str(Path(__file__).parents[3] / "src" / "cgr" / "model" / "hf")
HASTY = RetryPolicy(tries=2, pause=0.01)


def opened(address: str, **options: Any) -> CompletionsEngine:
    engine = open_model(base_url=address, patience=HASTY, **options).engine
    assert isinstance(engine, CompletionsEngine)
    return engine


def test_a_server_that_can_do_all() -> None:
    with playing() as (address, part):
        engine = opened(f"{address}/v1")
    found = engine.dialect
    assert (found.server, found.context, found.tokenize) == ("unknown", 4096, "vllm")
    assert (found.token_prompts, found.token_ids, found.logprobs, found.extras) == (True, "field", 20, True)
    assert (found.logit_bias, found.raw_logprobs, found.seed, found.stream, found.prefix_cache) == (True,) * 5
    assert (engine.info.name, engine.info.close_tag, engine.notes) == ("played", "</think>", ())
    assert len(part.bodies) <= 6  # it is asked little
    assert sum(body["max_tokens"] for body in part.bodies) < 100


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ({"most_logprobs": 5}, {"logprobs": 5}),
        ({"most_logprobs": 1}, {"logprobs": 1}),
        ({"seeds": False}, {"seed": False}),
        ({"streams": False}, {"stream": False}),
        ({"bans": False}, {"logit_bias": False, "raw_logprobs": True}),
        ({"counts_cached": False}, {"prefix_cache": None}),
    ],
    ids=str,
)
def test_what_a_server_lacks(part: dict[str, Any], found: dict[str, Any]) -> None:
    with playing(**part) as (address, _):
        dialect = opened(address).dialect.to_dict()
    assert {name: dialect[name] for name in found} == found


def test_seeds_that_are_not_kept_to_are_told() -> None:
    with playing(seeds=False) as (address, _):
        assert "does not obey seeds" in opened(address).notes[0]


def test_a_server_without_ids_and_extras() -> None:
    """OpenAI's own form: texts in, texts out, and nothing else."""
    with playing(ids_in=False, ids_out=False, extras=False, tokenizes=False) as (address, _):
        engine = opened(address, tokenizer=HF)
    assert (engine.dialect.token_prompts, engine.dialect.token_ids, engine.dialect.extras) == (False, "none", False)
    assert "results are not exact" in engine.notes[0]
    assert not engine.capabilities.token_ids
    assert not engine.capabilities.ban  # whom to ban is not known


@pytest.mark.parametrize(
    ("part", "options", "error", "said"),
    [
        ({"most_logprobs": 0}, {}, MissingCapability, "returns no log-probabilities"),
        ({"raw": False}, {}, MissingCapability, "not raw"),
        ({"tokenizes": False}, {}, MissingCapability, "does not tokenise"),
        ({"models": ("a", "b")}, {}, UsageError, "several models"),
        ({"models": ()}, {}, UsageError, "has no model"),
        ({}, {"model": "other"}, ModelNotFound, "has no model 'other'"),
    ],
    ids=str,
)
def test_what_is_needed_and_missing(
    part: dict[str, Any], options: dict[str, Any], error: type[CgrError], said: str
) -> None:
    with playing(**part) as (address, _), pytest.raises(error, match=said) as caught:
        opened(address, **options)
    assert caught.value.hint


def test_servers_that_share_the_work_have_the_same_model() -> None:
    with (
        playing() as (one, _),
        playing(models=("other",)) as (two, _),
        pytest.raises(UsageError, match="has other with a context"),
    ):
        asyncio.run(CompletionsEngine([one, two], ModelOptions(patience=HASTY)).connect())


def test_what_the_user_says_about_bans_is_not_tried() -> None:
    """A server that refuses the field `logit_bias` is never sent it, and the cache is still noticed."""
    with playing() as (address, part):
        found = opened(address, dialect=("logit_bias=no",)).dialect
    assert (found.logit_bias, found.raw_logprobs, found.prefix_cache) == (False, True, True)
    assert not any("logit_bias" in body for body in part.bodies)


@contextmanager
def silent() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_server_that_never_answers() -> None:
    with silent() as address, pytest.raises(NoAnswer, match=r"did not answer within 0\.2 seconds") as caught:
        open_model(base_url=address, patience=RetryPolicy(start=0.2))
    assert "CGR_CONNECT_TIMEOUT" in caught.value.hint


def test_a_silent_server_beside_one_that_works() -> None:
    with silent() as other, playing() as (address, _):
        engine = open_model(base_url=(other, address), patience=RetryPolicy(start=2.0)).engine
    assert any("did not answer" in note for note in engine.notes)


def test_a_server_that_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that makes it compute may take longer, and is not asked again in another form."""
    monkeypatch.setattr(detect, "COMPUTING", 2)
    release = threading.Event()
    with playing() as (address, part):
        monkeypatch.setattr(part, "complete", lambda body: release.wait(60) and "")
        try:
            with pytest.raises(NoAnswer, match="within 4 seconds"):
                open_model(base_url=address, patience=RetryPolicy(start=2.0))
        finally:
            release.set()


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "x"])
def test_a_limit_that_is_none(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CGR_CONNECT_TIMEOUT", given)
    with pytest.raises(UsageError, match="CGR_CONNECT_TIMEOUT is not a number of seconds"):
        open_model(base_url="http://127.0.0.1:9")


def test_the_limit_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CGR_CONNECT_TIMEOUT", "0.3")
    with silent() as address, pytest.raises(NoAnswer, match=r"0\.3 seconds"):
        open_model(base_url=address)


@pytest.mark.parametrize(
    "address",
    ["http://[::1", "http://", "http://x:99999", "http://x:0", "http://a b", "http://a..b", f"http://{'a' * 70}.com"],
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a server"):
        open_model(base_url=address)


@pytest.mark.parametrize("key", ["ключ", "two\nlines", "\x1b"])
def test_keys_that_are_none(key: str) -> None:
    with pytest.raises(UsageError, match="not printable ASCII"):
        open_model(base_url="http://127.0.0.1:9", api_key=key)
