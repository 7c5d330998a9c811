"""Servers for the clients: the embedded model, and a gateway in front of llama.cpp's own server with that model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engines.completions.upstream import KEY, address
from tests.server.support import Served, served


@pytest.fixture(scope="session")
def own() -> Iterator[Served]:
    with served("--sessions", "4") as server:
        yield server


@pytest.fixture(scope="session")
def gateway() -> Iterator[Served]:
    options = ("--when", "always", "--interval", "32", "--budget", "1200", "--max-answer-tokens", "4")
    with served("--base-url", f"{address()}/v1", *options, env={"CGR_API_KEY": KEY}) as server:
        yield server


@pytest.fixture(params=["own", "gateway"])
def server(request: pytest.FixtureRequest) -> Served:
    """Both kinds of server, one after the other."""
    found: Served = request.getfixturevalue(request.param)
    return found
