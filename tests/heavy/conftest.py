"""One engine on torch for all tests here, one thread each: machines are shared."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cgr.engines.hf.engine import TransformersEngine
from tests.heavy.models import opened


@pytest.fixture(scope="session")
def loaded_once() -> TransformersEngine:
    return opened(sessions=8, threads=1)


@pytest_asyncio.fixture
async def hf(loaded_once: TransformersEngine) -> AsyncIterator[TransformersEngine]:
    """The embedded model with eight rows, its memory forgotten after each test."""
    yield loaded_once
    await loaded_once.close()
