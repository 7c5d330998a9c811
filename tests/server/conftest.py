"""One server on the embedded model, and one in front of a fake upstream, for all tests that change nothing about them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.report.conftest import as_usual, tab  # noqa: F401 - one Chromium for the tests of the page
from tests.server.support import Served, served
from tests.server.upstream import FakeUpstream, fake_upstream


@pytest.fixture(scope="session")
def own() -> Iterator[Served]:
    """The embedded model, one worker."""
    with served("--sessions", "2", "--log", "json") as server:
        yield server


@pytest.fixture(scope="session")
def _fake() -> Iterator[FakeUpstream]:
    with fake_upstream() as fake:
        yield fake


@pytest.fixture(scope="session")
def _gateway(_fake: FakeUpstream) -> Iterator[Served]:
    options = ("--interval", "20", "--budget", "400", "--ping-seconds", "0.2", "--log", "json")
    with served("--base-url", f"{_fake.address}/v1", "--sessions", "64", *options) as server:
        yield server


@pytest.fixture
def fake(_fake: FakeUpstream) -> Iterator[FakeUpstream]:
    """The fake upstream, in order again for each test."""
    _fake.wait_idle()
    _fake.reset()
    yield _fake
    _fake.reset()


@pytest.fixture
def gateway(_gateway: Served, fake: FakeUpstream) -> Served:
    """A gateway in front of the fake upstream."""
    return _gateway
