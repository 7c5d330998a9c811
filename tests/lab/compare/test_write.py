"""`cgr compare` and the comparison in a report: files, terminal, figure and page say the same, and name what is missing."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cgr.cli.main import run
from cgr.lab.compare import compare_run, write_comparison
from cgr.lab.compare import figure as frontier
from cgr.lab.compare.result import Compared
from cgr.lab.output import style
from cgr.lab.report import load, page, write_report
from cgr.rules import Calibrated
from tests.lab.report import browser as chromium
from tests.lab.report import test_report as odd
from tests.lab.report.browser import Browser, launched
from tests.lab.runs import plausible, six

RULES = ("cgr", "fixed-budget", "no-thinking", "conformal")
PNG = b"\x89PNG\r\n\x1a\n"
NAMES = ("compare", "compare_winners", "compare_sweep", "compare_oracle", "compare_splits")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of traces, as somebody else recorded them."""
    folder = tmp_path_factory.mktemp("file")
    traces, _ = plausible(16, 3, chance=3)
    return odd.written(folder / "some.jsonl", [one for one in traces if one.final.closed])


@pytest.fixture(scope="module")
def folder(file: Path) -> Path:
    """The same as a run."""
    assert run(["import", str(file), str(file.parent / "some")]) == 0
    return file.parent / "some"


@pytest.fixture(scope="module")
def compared(folder: Path) -> Compared:
    return compare_run(folder, RULES)


@pytest.fixture(scope="module")
def reported(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([folder], tmp_path_factory.mktemp("report")).folder


def test_everything_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(folder), "--rules", ",".join(RULES), "--penalties", "0,2"]) == 0
    said, out = capsys.readouterr().out, folder / "compare"
    assert {path.name for path in out.iterdir()} == {
        *("compare.json", "frontier.png", "frontier.svg"),
        *(f"{name}.{end}" for name in NAMES for end in ("csv", "md", "tex")),
    }
    found = Compared.from_json((out / "compare.json").read_text(encoding="utf-8"))
    assert found.penalties == (0, 2)
    assert (out / "frontier.png").read_bytes().startswith(PNG)
    assert ElementTree.parse(out / "frontier.svg").getroot().tag.endswith("svg")
    assert said.rstrip().endswith(str(out))
    assert "some: imported, 16 questions × 3 seeds" in said
    assert "Parameters chosen on 8 questions; the numbers are from the other 8." in said
    assert "Most tokens saved at equal accuracy: " in said
    assert "Best Grade p=2: " in said
    assert "Equal: accuracy within 1 point on the questions shown" in said
    assert "The oracle saves " in said
    assert "Over 10 splits of the questions" in said
    assert "Whether accuracy is equal cannot be told for " in said
    assert "Head room: " in said
    assert "False sureness at 0.99: " in said
    assert "no-thinking: The rule 'no-thinking' needs probes before any thinking" in said
    assert f"cgr probe {folder} --for no-thinking" in said


def test_a_table_has_the_numbers_of_the_json(folder: Path, compared: Compared, tmp_path: Path) -> None:
    write_comparison([folder], tmp_path, RULES)
    with (tmp_path / "compare.csv").open(encoding="utf-8") as file:
        baseline, *rows = csv.DictReader(file)
    assert baseline["rule"] == "baseline"
    for row, entry in zip(rows, compared.entries, strict=True):
        shown = entry.shown
        assert (row["rule"], row["equal"]) == (entry.rule, "yes" if entry.equal else "no")
        for name in ("value", "accuracy", "diff_points", "thinking_tokens", "probe_tokens", "gross_share", "net_share"):
            assert float(row[name]) == pytest.approx(getattr(shown, name)), name
        assert float(row["ci95_net_share_low"]) == pytest.approx(shown.ci95_net_share[0])
        assert float(row["area"]) == pytest.approx(entry.by("area").figure)
    with (tmp_path / "compare_sweep.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == sum(len(entry.sweep) for entry in compared.entries)


def test_a_file_is_compared_as_its_run(file: Path, compared: Compared) -> None:
    assert compare_run(file, RULES).entries == compared.entries


def test_as_json_and_quietly(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", str(folder), "--rules", "cgr", "--out", str(tmp_path), "--tune-on", "0"]
    assert run([*arguments, "--json"]) == 0
    out, errors = capsys.readouterr()
    assert json.loads(out) == json.loads((tmp_path / "compare.json").read_text(encoding="utf-8"))
    assert json.loads(out)["split"] == {"tuning": 16, "shown": 16, "apart": False, "shared_texts": None}
    assert errors == ""
    assert run([*arguments, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_several_runs_have_a_folder_each(folder: Path, file: Path, tmp_path: Path) -> None:
    written = write_comparison([folder, file], tmp_path, ["cgr", "fixed-budget"])
    assert [one.run.name for one in written.comparisons] == ["some", "some-2"]
    for name in ("some", "some-2"):
        assert (tmp_path / name / "frontier.png").is_file()
    assert len(json.loads((tmp_path / "compare.json").read_text(encoding="utf-8"))["runs"]) == 2
    head = (tmp_path / "compare_runs.csv").read_text(encoding="utf-8").splitlines()[0]
    assert head == "rule,some,some-2"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "There is no run 'nowhere'"),
        ([], "Missing argument"),
        (["{run}", "--rules", "crg"], "no rule called 'crg'"),
        (["{run}", "--rules", ","], "no rule to compare"),
        (["{run}", "--rules", "no.json"], "cannot be read"),
        (["{run}", "--penalty", "-1"], "A penalty of -1"),
        (["{run}", "--penalty", "much"], "'much' is not a list of numbers"),
        (["{run}", "--tune-on", "1.5"], "A share of 1.5"),
        (["{run}", "--tune-on", "half"], "'half'"),
        (["{run}", "--splits", "0"], "over 0 splits"),
        (["{run}/compare"], "no run in"),
    ],
)
def test_what_is_asked_wrongly_is_one_sentence_and_a_hint(
    folder: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "compare").mkdir(exist_ok=True)
    assert run(["compare", *(argument.format(run=folder) for argument in arguments)]) == 2
    error, hint = capsys.readouterr().err.strip().split("\n")
    assert error.startswith("error: ")
    assert said in error
    assert hint.startswith("hint:  ")


# The figure


def test_the_figure_has_a_panel_for_each_rule_and_a_row_in_its_colour(compared: Compared) -> None:
    with style.styled():
        left, right = frontier.draw(compared).subfigs
    names = [entry.rule for entry in compared.entries]
    shown = [axes for axes in left.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == names
    (rows,) = right.axes
    labels = rows.get_yticklabels()
    assert [label.get_text().split()[0] for label in labels] == names[::-1]
    colours = frontier.colours(compared)
    assert [label.get_color() for label in labels] == [colours[name] for name in names[::-1]]
    assert len(set(colours.values())) == len(colours)


def test_the_figure_of_one_rule_and_of_many(compared: Compared) -> None:
    one = compared.entries[0]
    alone = frontier.draw(replace(compared, entries=(one,)))
    assert len(alone.subfigs[0].axes) == 1
    many = replace(compared, entries=tuple(replace(one, rule=f"rule-{number}") for number in range(14)))
    assert sum(axes.get_visible() for axes in frontier.draw(many).subfigs[0].axes) == 14


# In the report


def test_a_report_has_the_comparison(reported: Path, folder: Path) -> None:
    found = Compared.from_json((reported / "compare.json").read_text(encoding="utf-8"))
    names = {entry.rule for entry in found.entries}
    assert {"cgr", "fixed-budget"} <= names
    assert {"no-thinking", "budget-forcing"} <= {one.rule for one in found.missing}
    for name in NAMES:
        assert (reported / "tables" / f"{name}.md").is_file()
    assert (reported / "figures" / "frontier.png").read_bytes().startswith(PNG)
    assert "`frontier`: " in (reported / "figures" / "figures.md").read_text(encoding="utf-8")


def test_a_report_that_has_nothing_to_compare_says_why(tmp_path: Path) -> None:
    one_gold = [replace(one, gold=one.gold if one.question_id == "a" else None) for one in six()]
    path = odd.written(tmp_path / "none.jsonl", one_gold)
    written = write_report([path], tmp_path / "out")
    assert not (written.folder / "compare.json").exists()
    assert not (written.folder / "figures" / "frontier.png").exists()
    listed = (written.folder / "figures" / "figures.md").read_text(encoding="utf-8")
    assert "**Left out: The run 'none' has one question with a known answer: rules cannot be compared on it.**" in listed


# On the page


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    binary = chromium.find()
    if binary is None:
        pytest.skip("no Chromium on the path: install the package `chromium` to test the page")
    with launched(binary, tmp_path_factory.mktemp("profile")) as running:
        running.resize(1280, 800)
        yield running


READ = """[...document.querySelectorAll("#rules-table tbody tr[data-rule]")].map((row) => ({
  rule: row.dataset.rule,
  ...Object.fromEntries([...row.querySelectorAll("[data-metric]")].map(({ dataset }) => [dataset.metric, +dataset.value])),
}))"""


def shown(tab: Browser, selector: str) -> str:
    return str(tab.run(f"document.querySelector({json.dumps(selector)}).innerText"))


def test_the_page_has_the_numbers_of_the_comparison(tab: Browser, reported: Path) -> None:
    found = Compared.from_json((reported / "compare.json").read_text(encoding="utf-8"))
    tab.open(reported / "index.html")
    rows: list[dict[str, Any]] = tab.run(READ)
    for row, entry in zip(rows, found.entries, strict=True):
        assert row["rule"] == entry.rule
        for name in ("accuracy", "diff_points", "gross_share", "net_share"):
            assert row[name] == pytest.approx(getattr(entry.shown, name)), name
        assert (row["equal"], row["area"]) == (entry.equal, pytest.approx(entry.by("area").figure))
    assert "Most tokens saved at equal accuracy" in shown(tab, "#verdicts")
    assert "[object" not in shown(tab, "#rules")
    assert tab.errors() == []


def test_a_rules_name_brings_its_line_to_the_front(tab: Browser, reported: Path) -> None:
    tab.open(reported / "index.html")
    first = shown(tab, "#frontier-name")
    last = tab.run("[...document.querySelectorAll('.rule-name')].at(-1).textContent")
    assert first != last
    tab.run("[...document.querySelectorAll('.rule-name')].at(-1).click()")
    assert shown(tab, "#frontier-name") == last
    assert tab.run("document.activeElement.textContent") == last
    assert tab.run("document.querySelectorAll('#rules-table [aria-pressed=true]').length") == 1
    assert f"; {last} is highlighted." in tab.run("document.querySelector('#frontier svg').getAttribute('aria-label')")
    assert tab.errors() == []


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_it_fits_the_screen(tab: Browser, reported: Path, width: int) -> None:
    tab.resize(width, 740)
    tab.open(reported / "index.html")
    assert tab.run("document.documentElement.scrollWidth") <= width
    tab.resize(1280, 800)


def test_without_a_comparison_the_page_says_why_or_nothing(tab: Browser, tmp_path: Path) -> None:
    traces, info = six(), load(odd.written(tmp_path / "six.jsonl", six()))[1].info
    runs: list[page.PageRun] = [(info, traces, {})]
    tab.open(page.write(tmp_path / "a", runs, (0.99,), (1.0,)))
    assert tab.run("document.querySelector('#rules').hidden") is True
    tab.open(page.write(tmp_path / "b", runs, (0.99,), (1.0,), [page.comparison(None, "There is <b>one</b> question.")]))
    assert "There is <b>one</b> question." in shown(tab, "#rules")
    assert tab.run("document.querySelector('#rules-body').hidden") is True
    assert tab.errors() == []


def test_calibrated_is_compared_with_weights_from_the_other_half(folder: Path) -> None:
    asked = replace(Calibrated(), interval=load(folder)[1].info.interval)
    given = replace(asked, answered=tuple(weight + 1e-9 for weight in asked.answered))
    learned, kept = compare_run(folder, {"learned": asked, "kept": given}).entries
    assert {learned.rule, kept.rule} == {"learned", "kept"}
    assert learned.sweep != kept.sweep
