"""Which requests are probed, under each `--when` and with each way to ask; and what a body becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cgr.engines.open import ModelOptions
from cgr.records import Message
from cgr.server.config import ServeConfig, ShadowConfig, When
from cgr.server.generation import Generation
from cgr.server.protocol import ChatBody, CompletionBody
from cgr.server.reading import SHADOWED, PassOn, RequestReader
from cgr.server.record.key import RecordingKey

TAGS = ("<think>", "</think>")


def reader(when: When = "always", *, gateway: bool = True, share: float | None = None) -> RequestReader:
    model = ModelOptions(base_url=("http://127.0.0.1:1",)) if gateway else ModelOptions("embedded")
    shadow = None if share is None else ShadowConfig(share, Path("runs/shadow"))
    return RequestReader(ServeConfig(model=model, when=when, shadow=shadow), "m", TAGS, key=RecordingKey(b"k" * 32))


def read(
    found: RequestReader, text: str = "Hello", headers: dict[str, str] | None = None, **fields: Any
) -> Generation | PassOn:
    body = ChatBody.model_validate({"messages": [{"role": "user", "content": text}], **fields})
    return found.chat(body, headers or {}, "id")


WHEN: list[tuple[When, str, dict[str, Any], bool]] = [
    ("always", "Hello", {}, True),
    ("boxed", "Hello", {}, False),
    ("boxed", "Use \\boxed{}.", {}, True),
    ("asked", "Use \\boxed{}.", {}, False),
    ("asked", "Hello", {"cgr": True}, True),
    ("asked", "Hello", {"cgr": {}}, True),
    ("asked", "Hello", {"cgr": "shadow"}, True),
    ("asked", "Hello", {"model": "m:cgr-0.9"}, True),
    ("always", "Hello", {"model": "m:plain"}, False),
    ("always", "Hello", {"cgr": False}, False),
    ("always", "Hello", {"model": "m:plain", "cgr": True}, True),
]


@pytest.mark.parametrize(("when", "text", "fields", "probed"), WHEN)
def test_which_requests_are_probed(when: When, text: str, fields: dict[str, Any], probed: bool) -> None:
    assert isinstance(read(reader(when), text, **fields), Generation) is probed


def test_shadow_by_field_by_header_and_by_alias() -> None:
    for found in (
        read(reader(), cgr={"shadow": True}),
        read(reader(), cgr="shadow"),
        read(reader(), model="m:shadow"),
        read(reader(), headers={"x-cgr": "Shadow"}),
    ):
        assert isinstance(found, Generation)
        assert found.mode == "shadow"


def test_a_server_in_the_shadow_answers_plainly_and_records() -> None:
    passed = read(reader(share=1.0), "Hi")
    assert passed == PassOn(SHADOWED, "m", recorded=(Message("user", "Hi"),))
    own = read(reader(gateway=False, share=1.0), "Hi")
    assert isinstance(own, Generation)
    assert (own.mode, own.recorded) == ("off", True)


NOT_RECORDED: list[tuple[When, dict[str, Any], dict[str, str]]] = [
    ("always", {"cgr": "shadow"}, {}),
    ("always", {"cgr": True}, {}),
    ("always", {"cgr": False}, {}),
    ("always", {}, {"x-cgr": "shadow"}),
    ("always", {"model": "m:plain"}, {}),
    ("always", {"model": "another"}, {}),
    ("always", {"tools": [{"type": "function"}]}, {}),
    ("always", {"messages": [{"role": "user", "content": "<think>"}]}, {}),
    ("boxed", {}, {}),
    ("asked", {}, {}),
]


@pytest.mark.parametrize(("when", "fields", "headers"), NOT_RECORDED)
def test_a_request_that_says_what_it_wants_is_not_recorded(
    when: When, fields: dict[str, Any], headers: dict[str, str]
) -> None:
    found = read(reader(when, share=1.0), headers=headers, **fields)
    assert not found.recorded


def test_the_share_is_chosen_by_the_prompt_alone() -> None:
    texts = [f"What is {number} + 1?" for number in range(1000)]
    chosen = [bool(read(reader(share=0.3), text).recorded) for text in texts]
    assert 240 <= sum(chosen) <= 360
    again = [bool(read(reader(share=0.3), text, {"x-request-id": "1"}, seed=7, user="u").recorded) for text in texts]
    assert again == chosen
    more = [bool(read(reader(share=0.6), text).recorded) for text in texts]
    assert all(now for before, now in zip(chosen, more, strict=True) if before)


def test_without_an_upstream_a_plain_request_is_answered_here() -> None:
    found = read(reader(gateway=False), cgr=False)
    assert isinstance(found, Generation)
    assert found.mode == "off"
    assert found.detail == "the request asks for no probes"


def test_options_become_settings() -> None:
    options = {"threshold": 0.9, "interval": 50, "budget": 700, "prefix": "So: {", "at_budget": "abstain"}
    found = read(reader(), temperature=0.2, top_p=0.5, seed=-3, cgr=options)
    assert isinstance(found, Generation)
    settings = found.settings
    assert (settings.threshold, settings.interval, settings.budget) == (0.9, 50, 700)
    assert (settings.prefix, settings.at_budget, settings.temperature) == ("So: {", "abstain", 0.2)
    assert (settings.top_p, settings.seed, settings.instruction) == (0.5, -3, "")


def test_a_value_of_null_is_as_good_as_none() -> None:
    nothing = {
        name: None for name in (*ChatBody.model_fields, "tools", "n", "logit_bias", "anything") if name != "messages"
    }
    assert isinstance(read(reader(), "Hello", None, **nothing), Generation)


def test_a_prompt_of_ids() -> None:
    body = CompletionBody.model_validate({"prompt": [1, 2], "cgr": {}})
    found = reader().completion(body, {}, "id")
    assert isinstance(found, Generation)
    assert found.prompt == [1, 2]
    assert found.raw
