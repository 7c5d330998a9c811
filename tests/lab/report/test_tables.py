from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr.lab.decide.columns import Columns
from cgr.lab.report import numbers
from cgr.lab.report.numbers import at
from cgr.lab.report.result import Report
from cgr.lab.report.tables import Headline, headline_lines, headlines, lines, main_figure, origin
from tests.lab.runs import plausible


@pytest.fixture(scope="module")
def report() -> Report:
    return numbers.report(Columns.of(*plausible()))


def test_headlines_equal_the_report(report: Report) -> None:
    base, *rest = headlines(report)
    assert (base.threshold, base.accuracy, base.saved_tokens) == (None, report.baseline.accuracy, None)
    for row, shown in zip(report.thresholds, rest, strict=True):
        saved = at(report.savings, row.threshold)
        grade = next(one for one in report.grade if (one.threshold, one.penalty) == (row.threshold, 1))
        assert (shown.threshold, shown.accuracy, shown.diff_points) == (row.threshold, row.accuracy, row.diff_points)
        assert (shown.saved_tokens, shown.saved_share) == (saved.total, saved.share)
        assert (shown.net_tokens, shown.net_share) == (saved.net_total, saved.net_share)
        assert (shown.grade, base.grade, shown.penalty) == (grade.final, grade.baseline, 1)
        assert row.ci95 is not None
        assert shown.ci95_points == pytest.approx([100 * end / report.size.graded_questions for end in row.ci95])


def test_without_a_penalty_of_one_the_largest_is_shown(report: Report) -> None:
    less = replace(report, grade=tuple(row for row in report.grade if row.penalty < 1))
    assert {row.penalty for row in headlines(less)} == {0.5}
    assert "Grade p=0.5" in headline_lines(headlines(less))[0]
    assert {row.grade for row in headlines(replace(report, grade=()))} == {None}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"temperature": 0.6}, "budget 8,000, probed every 1,000 tokens, temperature 0.6"),
        ({"temperature": 0.0}, "budget 8,000, probed every 1,000 tokens, temperature 0"),
        ({"prefix": None}, "budget 8,000, probed every 1,000 tokens, temperature unknown, prefix unknown"),
        ({"interval": 0}, "budget 8,000, probed at irregular positions, temperature unknown"),
    ],
)
def test_what_an_import_does_not_say_is_unknown(report: Report, changes: dict[str, Any], expected: str) -> None:
    told = replace(report, run=replace(report.run, **changes))
    assert lines(told)[1] == origin(told) == expected
    assert Report.from_json(told.to_json()) == told
    unprobed = replace(report, size=replace(report.size, probes=0))
    assert "no probes" in origin(unprobed)


def test_a_rule_that_reads_another_set_than_the_default_says_so(report: Report) -> None:
    assert "reads" not in origin(replace(report, probe_sets=("default",)))
    assert origin(replace(report, rule="deer", probe_sets=("wait",))).endswith(", deer reads 'wait'")


def test_headlines_fit_a_terminal_of_80_columns(report: Report) -> None:
    head, *rows = shown = headline_lines(headlines(report))
    assert max(map(len, shown)) <= 80
    assert len({len(line) for line in (head, *rows)}) == 1
    assert head.split() == ["Accuracy", "Fixed", "budget", "Diff.", "95%", "interval", "Saved", "Net", "Grade", "p=1"]


def test_numbers_that_a_run_cannot_give_are_dashes() -> None:
    rows = (Headline(None, None), Headline(0.99, None, None, None, 10, 0.1, 5, 0.05))
    assert headline_lines(rows)[2].split() == ["CGR", "0.99", "–", "–", "–", "–", "10.0%", "5.0%", "–"]


def test_the_main_figure_is_the_best_one_that_exists(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    assert main_figure(tmp_path) is None
    for name in ("tokens_used", "accuracy_against_tokens"):
        (tmp_path / "figures" / f"{name}.png").touch()
        assert main_figure(tmp_path) == tmp_path / "figures" / f"{name}.png"
