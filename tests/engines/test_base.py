"""The protocol's shared parts: places for sessions, prompts of every kind, and sampling that an engine lacks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from cgr.engines.base import FILTERS, Places, Sampling, check_fits, check_sampling, is_ids, keyed_seed, prompt_ids
from cgr.errors import Busy, DoesNotFit, MissingCapability
from cgr.records import Message, messages_of
from tests.support import scripted


async def test_places_are_given_in_order() -> None:
    places = Places("ab")
    assert [await places.take(), await places.take()] == ["a", "b"]
    waiting = [asyncio.create_task(places.take()) for _ in range(2)]
    await asyncio.sleep(0)
    places.give_back("b")
    places.give_back("a")
    assert await asyncio.gather(*waiting) == ["b", "a"]


async def test_a_place_with_little_load_is_taken_first() -> None:
    load = {"a": 1, "b": 0, "c": 0}
    places = Places("abc", load.__getitem__)
    assert await places.take() == "b"
    load["b"] = 1
    places.give_back("b")
    assert [await places.take() for _ in range(3)] == ["c", "a", "b"]


async def test_waiting_for_a_place_is_bounded() -> None:
    places = Places("a")
    await places.take()
    with pytest.raises(Busy, match="All 1 sessions are in use") as caught:
        await places.take(0.01)
    assert caught.value.hint
    with pytest.raises(Busy):
        await places.take(0)
    places.give_back("a")
    assert await places.take(0) == "a"


async def test_cancelled_waiting_loses_no_place() -> None:
    places = Places("a")
    await places.take()
    waiting = asyncio.create_task(places.take(60))
    await asyncio.sleep(0)
    waiting.cancel()
    places.give_back("a")
    await asyncio.gather(waiting, return_exceptions=True)
    assert await places.take(1) == "a"


@pytest.mark.parametrize("name", sorted(FILTERS))
async def test_what_an_engine_lacks_in_sampling_is_refused_by_name(name: str) -> None:
    values: dict[str, Any] = {"top_k": 5, "stop": ("x",), "repetition_penalty": 1.1}
    sampling = Sampling(**{name: values.get(name, 0.5)})
    assert sampling.filters() == {name}
    engine = scripted("a b")
    with pytest.raises(MissingCapability, match=f"does not support '{name}'"):
        check_sampling(sampling, engine)
    engine.capabilities = replace(engine.capabilities, sampling=frozenset({name}))
    check_sampling(sampling, engine)


def test_plain_sampling_needs_no_filter() -> None:
    assert Sampling(0.3, 0.9, 7, True, 100).filters() == frozenset()


async def test_prompts_of_every_kind() -> None:
    turns = (Message("system", "Be brief."), Message("user", "Why?"))
    assert messages_of("Why?") == (Message("user", "Why?"),)
    assert messages_of(turns) == turns
    assert is_ids((1, 2))
    assert not is_ids("12")
    assert not is_ids(turns)
    engine = scripted("a b")
    assert await prompt_ids((1, 2), engine) == (1, 2)
    assert await prompt_ids("Why?", engine) == await engine.encode("Why?")
    assert await prompt_ids(turns, engine) == await engine.encode("Be brief.\nWhy?")


def test_what_does_not_fit() -> None:
    check_fits([1, 2], 8, 10)
    with pytest.raises(DoesNotFit, match="but the context has 10") as caught:
        check_fits([1, 2], 10, 10)
    assert "by at least 2" in caught.value.hint


def test_seeds_are_keyed_by_position() -> None:
    seeds = {keyed_seed(seed, position) for seed in range(10) for position in range(0, 640, 32)}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert keyed_seed(1, 23) != keyed_seed(12, 3)
