"""One transformers engine for all tests that need torch, with one thread: test machines are shared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cgr.engines.hf.engine import TransformersEngine
from tests.engines.hf.models import opened


@pytest.fixture(scope="session")
def connected_once() -> TransformersEngine:
    return asyncio.run(opened(sessions=8, threads=1))


@pytest_asyncio.fixture
async def hf(connected_once: TransformersEngine) -> AsyncIterator[TransformersEngine]:
    """The embedded model with eight sessions; its KV cache is cleared after each test."""
    yield connected_once
    await connected_once.close()
