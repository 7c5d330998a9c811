from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from cgr.lab.output import Head, Table, as_json, beside, plural, unique_names, with_interval, write_json, write_table

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


def test_a_line_break_in_a_cell_does_not_break_the_row() -> None:
    table = Table("asking", "Prompts", (Head("prefix", "Prefix"), Head("n", "n")), (("**Final**\n\\boxed{", 1),))
    assert table.markdown().endswith("| **Final**\\n\\boxed{ | 1 |\n")
    assert table.lines()[-1] == "**Final**\\n\\boxed{  1"
    assert "**Final**\n" in table.csv()


def test_lines_have_no_space_at_their_end() -> None:
    table = Table("t", "", HEADS[:2], (("a", ""), ("longer", 0.5)))
    assert table.lines() == ["Rule    Share", "a", "longer  50.0%"]


def test_an_interval_has_two_columns_in_csv() -> None:
    assert TABLE.csv() == "rule,share,ci95_share_low,ci95_share_high\ncgr,0.125,0.1,0.15\nanswer-consistency,,,\n"


def test_a_table_of_records_reads_the_attributes_that_its_heads_name() -> None:
    class One:
        rule, share, ci95_share = "cgr", 0.25, (0.0, 0.5)

    assert Table.of_records("t", "c", HEADS, (One(),)).rows == (("cgr", 0.25, (0.0, 0.5)),)


def test_of_several_records_the_first_that_has_an_attribute_counts() -> None:
    class Named:
        rule = "mine"

    class One:
        rule, share, ci95_share = "cgr", 0.25, None

    assert Table.of_records("t", "c", HEADS, [(Named(), One())]).rows == (("mine", 0.25, None),)
    assert Table.of_records("t", "c", HEADS, [(Named(), None)]).rows == (("mine", None, None),)
    with pytest.raises(AttributeError, match="share"):
        Table.of_records("t", "c", HEADS, [Named()])


def test_an_interval_column_has_the_format_of_its_number_without_the_unit() -> None:
    assert with_interval("share", "Share", ".1f", 100, "%") == HEADS[1:]


def test_a_table_is_written_in_three_formats(tmp_path: Path) -> None:
    paths = write_table(TABLE, tmp_path / "tables")
    assert [path.name for path in paths] == ["rules.csv", "rules.md", "rules.tex"]
    assert [path.read_text(encoding="utf-8") for path in paths] == [TABLE.csv(), TABLE.markdown(), TABLE.latex()]


@pytest.mark.parametrize(("count", "text"), [(0, "0 traces"), (1, "1 trace"), (1200, "1,200 traces")])
def test_plural(count: int, text: str) -> None:
    assert plural(count, "trace") == text


def test_output_goes_into_a_run_beside_a_file_or_beside_the_first_of_several(tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "six.jsonl"
    run.mkdir()
    file.touch()
    assert beside([run], "report") == run / "report"
    assert beside([file], "report") == tmp_path / "six-report"
    assert beside([run, file], "report") == tmp_path / "report"


@pytest.mark.parametrize(
    ("names", "unique"),
    [(["a", "b"], ["a", "b"]), (["a", "a", "a"], ["a", "a-2", "a-3"]), (["a-2", "a", "a"], ["a-2", "a", "a-3"])],
)
def test_names_that_occur_again_get_a_number(names: list[str], unique: list[str]) -> None:
    assert unique_names(names) == unique


def test_json_is_written_into_a_new_folder_and_nan_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "new" / "a.json", {"θ": [0.5, None]})
    text = (tmp_path / "new" / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"θ": [0.5, None]}
    assert text.endswith("}\n")
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "b.json", {"x": math.nan})


def test_one_result_is_written_as_it_is_and_several_as_a_list() -> None:
    class Result:
        schema = 1

        def to_dict(self) -> dict[str, int]:
            return {"a": 1}

    assert as_json([Result()]) == {"a": 1}
    assert as_json([Result(), Result()]) == {"schema": 1, "runs": [{"a": 1}, {"a": 1}]}
