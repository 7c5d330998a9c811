"""A stream of events: in order, with a result, slowed down by a slow reader, and cancelled when it is left."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from cgr.drive.events import MAX_WAITING, EventStream, Thinking
from cgr.errors import CgrError


async def counting(stream: EventStream[int], count: int) -> int:
    for number in range(count):
        await stream.room()
        stream.put(Thinking(str(number)))
    return count


async def test_events_in_order_and_then_the_result() -> None:
    stream: EventStream[int] = EventStream(lambda stream: counting(stream, 5))
    with pytest.raises(CgrError, match="not over"):
        assert stream.result
    assert [event async for event in stream] == [Thinking(str(number)) for number in range(5)]
    assert stream.result == 5


async def test_a_slow_reader_slows_the_work_down() -> None:
    made = 0

    async def work(stream: EventStream[None]) -> None:
        nonlocal made
        for _ in range(5 * MAX_WAITING):
            made += 1
            await stream.room()
            stream.put(Thinking(""))
            await asyncio.sleep(0)

    events = EventStream(work).__aiter__()
    await anext(events)
    for _ in range(10 * MAX_WAITING):
        await asyncio.sleep(0)
    assert made <= MAX_WAITING + 2
    assert len([event async for event in events]) == 5 * MAX_WAITING - 1


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_leaving_cancels_the_work(how: str) -> None:
    ended = asyncio.Event()

    async def work(stream: EventStream[None]) -> None:
        stream.put(Thinking("a"))
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def read() -> None:
        async with aclosing(EventStream(work).__aiter__()) as events:
            await anext(events)
            if how == "closed":
                return
            await anext(events)

    reading = asyncio.create_task(read())
    if how == "cancelled":
        for _ in range(5):
            await asyncio.sleep(0)
        reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert ended.is_set()


async def test_an_error_comes_after_the_events_before_it() -> None:
    async def work(stream: EventStream[None]) -> None:
        stream.put(Thinking("a"))
        raise CgrError("no luck")

    events = EventStream(work).__aiter__()
    assert await anext(events) == Thinking("a")
    with pytest.raises(CgrError, match="no luck"):
        await anext(events)
