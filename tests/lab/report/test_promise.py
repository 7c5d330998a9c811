"""The promise of `cgr calibrate` and the share of changed answers on the page, in a real Chromium."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cgr.calibration import FILE, read, sentence
from cgr.lab.calibrate import calibrate, open_finished
from cgr.lab.calibrate.walk import Goal
from cgr.lab.report import write_report
from cgr.rules import Cgr
from tests.lab.calibrate.promised import INTERVAL, drawn, stored
from tests.lab.report.browser import Browser
from tests.lab.report.test_page import rows, same, text, value


@pytest.fixture
def run(tmp_path: Path) -> Path:
    found = [replace(one, gold=None) for one in drawn(4, 150)]
    folder = stored(tmp_path / "run", found)
    promise = calibrate(open_finished(folder), Cgr(interval=INTERVAL), Goal(0.1))
    assert promise.parameter is not None
    promise.write(folder / FILE)
    return folder


def test_the_page_shows_the_promise(tab: Browser, run: Path) -> None:
    page = write_report([run]).page
    assert page is not None
    promise = read(run / FILE)
    tab.open(page)
    assert sentence(promise) in text(tab, "#promise-text")
    assert value(tab, "promise.parameter") == promise.parameter
    assert tab.run("document.querySelectorAll('#promise svg.chart').length") == 2
    shown = rows(tab, "promise-table")
    assert [row["parameter"] for row in shown] == [step.parameter for step in promise.sequence]
    assert [bool(row["passed"]) for row in shown] == [step.passed for step in promise.sequence]


def test_a_run_without_a_promise_has_no_section(tab: Browser, run: Path) -> None:
    (run / FILE).unlink()
    page = write_report([run]).page
    assert page is not None
    tab.open(page)
    assert tab.run("document.querySelector('#promise').hidden")


def test_a_promise_that_cannot_be_used_is_named(tab: Browser, run: Path) -> None:
    data = json.loads((run / FILE).read_text())
    (run / FILE).write_text(json.dumps(data | {"epsilon": 0.001}))
    page = write_report([run]).page
    assert page is not None
    tab.open(page)
    assert "was changed after `cgr calibrate` wrote it" in text(tab, "#promise")
    assert tab.run("document.querySelector('#promise-body').hidden")


def test_changed_answers_are_those_of_the_report(tab: Browser, run: Path) -> None:
    written = write_report([run], thresholds=(0.7, 0.9, 0.99))
    assert written.page is not None
    wanted = {row.threshold: row.to_dict() for row in written.reports[0].savings}
    assert any(row["disagreement"] > 0 for row in wanted.values())
    tab.open(written.page, "#theta=0.9")
    for shown in rows(tab, "savings-table"):
        same(shown, wanted[shown["threshold"]], ["disagreement", "net_share"])
    assert "changed answers, certainty, head room and false sureness need none" in text(tab, "#notes")
