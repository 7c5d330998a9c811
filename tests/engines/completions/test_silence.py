"""The clock of a stream: it runs while the reader waits, and only then."""

from __future__ import annotations

import asyncio
import time

from cgr.engines.completions.silence import NOT_WAITING, Silence


async def test_silence_ends_the_wait() -> None:
    ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    silence = Silence(ended.set_result, 0.05, None)
    assert isinstance(await asyncio.wait_for(ended, 60), TimeoutError)
    silence.close()


async def test_after_the_first_event_the_other_limit_counts() -> None:
    ended: list[BaseException] = []
    silence = Silence(ended.append, 0.05, 3600)
    silence.begun = True
    await asyncio.sleep(0.3)
    assert not ended
    silence.close()


async def test_a_busy_reader_is_not_silence() -> None:
    ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    silence = Silence(ended.set_result, 0.05, 0.05)
    silence.since = NOT_WAITING
    await asyncio.sleep(0.3)
    assert not ended.done()
    silence.since = time.monotonic()
    await asyncio.wait_for(ended, 60)
    silence.close()


async def test_without_limits_there_is_no_timer() -> None:
    ended: list[BaseException] = []
    silence = Silence(ended.append, None, None)
    assert silence._timer is None
