from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cgr.lab.output.table import Head, Table, plural, write_table

HEADS = (Head("rule", "Rule"), Head("share", "Share", ".1f", 100, "%"), Head("ci95_share", "95% interval", ".1f", 100))
TABLE = Table("rules", "All rules", HEADS, (("cgr", 0.125, (0.1, 0.15)), ("answer-consistency", None, None)))


def test_names_are_escaped_in_tables() -> None:
    table = Table("t", "50% of_all", (Head("a", "A|B"), Head("n", "N & M", ".1f")), (("x|y_z\\", None),))
    assert "| x\\|y_z\\ | – |" in table.markdown()
    assert r"x|y\_z\textbackslash{} & -- \\" in table.latex()
    assert r"\caption{50\% of\_all}" in table.latex()
    assert table.csv() == "a,n\nx|y_z\\,\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.001, "0.00"), (-0.001, "0.00"), (-1.5, "−1.50"), (2, "+2.00"), (None, "–"), ((-1, 1), "[−1.00, +1.00]")],
)
def test_formatted_numbers(value: Any, text: str) -> None:
    assert Head("d", "Diff.", "+.2f").text(value) == text


def test_terminal_lines_are_padded_to_the_widest_cell() -> None:
    assert TABLE.lines() == [
        "Rule                Share  95% interval",
        "cgr                 12.5%  [10.0, 15.0]",
        "answer-consistency      –             –",
    ]
    assert TABLE.lines(left=0)[1] == "               cgr  12.5%  [10.0, 15.0]"


def test_lines_have_no_space_at_their_end() -> None:
    table = Table("t", "", HEADS[:2], (("a", ""), ("longer", 0.5)))
    assert table.lines() == ["Rule    Share", "a", "longer  50.0%"]


def test_an_interval_has_two_columns_in_csv() -> None:
    assert TABLE.csv() == "rule,share,ci95_share_low,ci95_share_high\ncgr,0.125,0.1,0.15\nanswer-consistency,,,\n"


def test_a_table_of_records_reads_the_attributes_that_its_heads_name() -> None:
    class One:
        rule, share, ci95_share = "cgr", 0.25, (0.0, 0.5)

    assert Table.of_records("t", "c", HEADS, (One(),)).rows == (("cgr", 0.25, (0.0, 0.5)),)


def test_a_table_is_written_in_three_formats(tmp_path: Path) -> None:
    paths = write_table(TABLE, tmp_path / "tables")
    assert [path.name for path in paths] == ["rules.csv", "rules.md", "rules.tex"]
    assert [path.read_text(encoding="utf-8") for path in paths] == [TABLE.csv(), TABLE.markdown(), TABLE.latex()]


@pytest.mark.parametrize(("count", "text"), [(0, "0 traces"), (1, "1 trace"), (1200, "1,200 traces")])
def test_plural(count: int, text: str) -> None:
    assert plural(count, "trace") == text
