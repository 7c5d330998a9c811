"""Which requests are probed, under each `--when` and with each way to ask; and what a body becomes."""

from __future__ import annotations

from typing import Any

import pytest

from cgr.engines.open import ModelOptions
from cgr.server.config import ServeConfig, When
from cgr.server.generation import Generation
from cgr.server.protocol import ChatBody, CompletionBody
from cgr.server.reading import PassOn, RequestReader

TAGS = ("<think>", "</think>")


def reader(when: When = "always", *, gateway: bool = True, shadow: bool = False) -> RequestReader:
    model = ModelOptions(base_url=("http://127.0.0.1:1",)) if gateway else ModelOptions("embedded")
    return RequestReader(ServeConfig(model=model, when=when, shadow=shadow), "m", TAGS)


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


def test_shadow_by_default_by_field_and_by_header() -> None:
    for found in (
        read(reader(shadow=True)),
        read(reader(), cgr={"shadow": True}),
        read(reader(), cgr="shadow"),
        read(reader(), model="m:shadow"),
        read(reader(), headers={"x-cgr": "Shadow"}),
    ):
        assert isinstance(found, Generation)
        assert found.mode == "shadow"


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
