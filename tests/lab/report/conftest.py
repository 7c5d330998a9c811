"""One real Chromium for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.report import browser as chromium
from tests.lab.report.browser import Browser, launched


@pytest.fixture(scope="package")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    binary = chromium.find()
    if binary is None:
        pytest.skip("no Chromium on the path: install the package `chromium` to test the page")
    with launched(binary, tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(autouse=True)
def as_usual(request: pytest.FixtureRequest) -> None:
    """Each test starts with a desktop window in light mode."""
    if "tab" in request.fixturenames:
        running: Browser = request.getfixturevalue("tab")
        running.blank()
        running.resize(1280, 800)
        running.media()
