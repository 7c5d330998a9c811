"""One embedded model for the whole run, and hypothesis without a clock: the machine may be busy."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from hypothesis import settings

from cgr import Model, open_model
from cgr.engines.llama.engine import LlamaEngine

# CGR_EXAMPLES: other examples in each run, and more of them (the knock "properties")
MORE = os.environ.get("CGR_EXAMPLES")
settings.register_profile("calm", deadline=None, max_examples=int(MORE or 100), derandomize=not MORE, database=None)
settings.load_profile("calm")


@pytest.fixture(scope="session")
def loaded() -> Iterator[Model]:
    """The embedded model, opened once: two questions at once, each with a second slot for overlapping probes."""
    with open_model(sessions=2, overlap=True) as model:
        yield model


@pytest_asyncio.fixture
async def model(loaded: Model) -> AsyncIterator[Model]:
    """The same, for one test: its connections go with the test's event loop."""
    yield loaded
    await loaded.aclose()


@pytest.fixture
def engine(model: Model) -> LlamaEngine:
    assert isinstance(model.engine, LlamaEngine)
    return model.engine
