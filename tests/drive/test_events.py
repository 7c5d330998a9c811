"""A stream of events: in order, with a result, slowed down by a slow reader, and cancelled when it is left."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing

import pytest

from cgr.drive.events import MAX_WAITING, Answering, Event, EventStream, Thinking
from cgr.errors import CgrError


async def counting(stream: EventStream[int], count: int) -> int:
    for number in range(count):
        await stream.room()
        stream.put(Thinking(str(number)))
    return count


async def test_events_in_order_and_then_the_result() -> None:
    stream: EventStream[int] = EventStream(lambda stream: counting(stream, 5))
    with pytest.raises(CgrError) as caught:
        assert stream.result
    assert (caught.value.message, caught.value.hint) == ("The events are not over yet.", "Read them all first.")
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
            for _ in range(5):  # what the work still does when it is cancelled is waited for
                await asyncio.sleep(0)
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
    await asyncio.wait([reading])
    assert ended.is_set()
    assert reading.cancelled() == (how == "cancelled")


async def test_an_error_comes_after_the_events_before_it() -> None:
    async def work(stream: EventStream[None]) -> None:
        stream.put(Thinking("a"))
        raise CgrError("no luck")

    events = EventStream(work).__aiter__()
    assert await anext(events) == Thinking("a")
    with pytest.raises(CgrError, match="no luck"):
        await anext(events)


async def test_events_can_be_taken_while_the_reader_waits() -> None:
    """What one step of the work puts comes in one call; what is not taken goes to the reader, in order."""
    offered: list[list[Event]] = []

    def take_thinking(events: deque[Event]) -> None:
        offered.append(list(events))
        while events and events[0] != Answering("b"):
            events.popleft()

    async def work(stream: EventStream[None]) -> None:
        await asyncio.sleep(0)  # the reader waits now
        for texts in (("a", "b"), ("c",)):
            for text in texts:
                stream.put(Answering(text))
            for _ in range(5):
                await asyncio.sleep(0)

    stream = EventStream(work, take_thinking)
    assert [event async for event in stream] == [Answering("b")]
    assert offered == [[Answering("a"), Answering("b")], [Answering("c")]]


async def test_events_of_one_turn_of_the_event_loop_are_offered_in_one_call() -> None:
    """Also if other callbacks come between them."""
    offered: list[list[Event]] = []

    def take(events: deque[Event]) -> None:
        offered.append(list(events))
        events.clear()

    async def work(stream: EventStream[None]) -> None:
        later = asyncio.get_running_loop().call_soon
        await asyncio.sleep(0)  # the reader waits now
        stream.put(Thinking("a"))
        later(stream.put, Thinking("c"))
        stream.put(Thinking("b"))
        later(stream.put, Thinking("d"))
        for _ in range(5):
            await asyncio.sleep(0)

    assert [event async for event in EventStream(work, take)] == []
    assert offered == [[Thinking("a"), Thinking("b")], [Thinking("c"), Thinking("d")]]


async def test_nothing_is_offered_after_the_reader_left() -> None:
    offered: list[Event] = []
    began = asyncio.Event()

    async def work(stream: EventStream[None]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stream.put(Thinking("late"))
            await asyncio.sleep(0)

    reading = asyncio.create_task(anext(EventStream(work, offered.extend).batches()))
    await began.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert not offered


async def test_what_is_taken_makes_room() -> None:
    stream = EventStream(lambda stream: counting(stream, 3 * MAX_WAITING), deque[Event].clear)

    async def read() -> int:
        return len([event async for event in stream])

    reading = asyncio.create_task(read())
    for _ in range(10 * MAX_WAITING):
        await asyncio.sleep(0)
    assert reading.done()
    assert reading.result() < 3 * MAX_WAITING


async def test_nothing_is_offered_to_a_reader_that_is_being_cancelled() -> None:
    offered: list[Event] = []

    async def work(stream: EventStream[None]) -> None:
        await asyncio.sleep(0)  # the reader waits now
        reading.cancel()
        stream.put(Thinking("late"))
        await asyncio.Event().wait()

    reading = asyncio.create_task(anext(EventStream(work, offered.extend).batches()))
    await asyncio.wait([reading])
    await asyncio.sleep(0)
    assert not offered


async def test_work_that_ends_while_events_are_unread_ends_quietly(caplog: pytest.LogCaptureFixture) -> None:
    """An error in a callback of the event loop would only be logged."""
    stream: EventStream[int] = EventStream(lambda stream: counting(stream, 3))
    assert [events async for events in stream.batches(2)] == [[Thinking("0"), Thinking("1")], [Thinking("2")]]
    assert (stream.result, stream.waiting, caplog.records) == (3, 0, [])
