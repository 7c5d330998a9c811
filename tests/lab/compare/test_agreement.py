"""Runs without gold answers are compared by agreement with the final answers of their traces, and everything says so."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cgr.cli.main import run
from cgr.errors import UsageError
from cgr.lab.calibrate.losses import CalibrationQuestions
from cgr.lab.compare import compare, compare_run, write_comparison
from cgr.lab.compare import figure as frontier
from cgr.lab.compare.result import Compared, Entry, Point
from cgr.lab.decide.columns import FINAL, Columns
from cgr.lab.decide.run import Run
from cgr.lab.output import style
from cgr.lab.report import write_report
from cgr.lab.score.accuracy import savings
from cgr.lab.score.adaptive import headroom
from cgr.lab.score.agreement import NO_GOLDS
from cgr.lab.store import DEFAULT, Store
from cgr.lab.store.config import RunConfig
from cgr.lab.store.recorded import SHADOW, RecordedTrace
from cgr.records import Question
from cgr.rules import Cgr, LoopBreaker
from cgr.server.record.answers import without_text
from cgr.server.record.key import RecordingKey
from tests.lab.report import browser as chromium
from tests.lab.report import test_report as odd
from tests.lab.report.browser import Browser, launched
from tests.lab.runs import SIX_INFO, plausible, six

RULES = ("cgr", "fixed-budget", "calibrated", "sure-twice", "give-up")
DRAWS = 400


def no_golds(questions: int = 20, seeds: int = 1, *, closed: bool = True) -> list[RecordedTrace]:
    traces, _ = plausible(questions, seeds, chance=5)
    return [replace(one, gold=None) for one in traces if one.final.closed or not closed]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return odd.written(tmp_path_factory.mktemp("file") / "none.jsonl", no_golds())


@pytest.fixture(scope="module")
def compared(file: Path) -> Compared:
    return compare_run(file, RULES)


def shadow_run(folder: Path, traces: Sequence[RecordedTrace]) -> Path:
    """These traces as `cgr serve --shadow` records them: hashes in place of answers, and no texts."""
    key = RecordingKey(b"0" * 32)
    with Store.create(folder, RunConfig(budget=8000, interval=1000, source=SHADOW)) as store:
        store.add_probe_set(replace(Run.of(traces, plausible(2, 1)[1]).sets[DEFAULT]), DEFAULT)
        for one in traces:
            store.add_questions([Question(one.question_id, "", None, one.format)])
            store.add_trace(without_text(one, key), prompt_ids=(), seconds=0.0, probe_set=DEFAULT)
    return folder


# What is measured


def test_agreement_is_one_minus_the_disagreement_of_a_report_and_of_a_promise() -> None:
    """Two seeds of each question, and a final answer that did not close: a stop before it is a changed answer."""
    traces = [replace(one, gold=None) for one in six()]
    recorded = Run.of(traces, SIX_INFO).by_agreement()
    columns = recorded.rule_columns()
    found = compare(columns, recorded.decide, ["cgr"], tune_on=0, draws=DRAWS)
    questions = CalibrationQuestions.of(columns, np.ones(3, dtype=np.bool_), "disagreement")
    seen = set()
    for point in found.entry("cgr").sweep:
        decided = Run.of(traces, SIX_INFO).decide(Cgr(threshold=float(point.value or 0), interval=1000))
        assert point.accuracy == pytest.approx(1 - savings(columns, decided).disagreement)
        assert point.accuracy == pytest.approx(1 - questions.losses("disagreement", decided, None, 0.0).mean)
        assert point.diff_points == pytest.approx(100 * (point.accuracy - 1))
        seen.add(round(point.accuracy, 6))
    assert len(seen) > 2
    assert found.baseline.accuracy == 1
    assert found.oracle == pytest.approx(headroom(columns))
    assert {point.unsolved for point in found.entry("cgr").sweep} == {0}


def test_it_is_the_comparison_by_golds_that_are_the_final_answers(compared: Compared, tmp_path: Path) -> None:
    """Weights are learned, values chosen and verdicts reached alike. Grade and best accuracy are of golds only, and only
    the bounds of agreement end at 0."""
    known = [replace(one, gold=one.final.answer) for one in no_golds()]
    by_gold = compare_run(odd.written(tmp_path / "none.jsonl", known), RULES)
    assert compared.reference == FINAL
    assert by_gold.reference == "gold"
    assert [alike(one) for one in compared.entries] == [alike(one) for one in by_gold.entries]
    assert (compared.oracle, compared.split, compared.missing) == (by_gold.oracle, by_gold.split, by_gold.missing)
    assert [one.measure for one in compared.winners] == ["saving", "area"]
    assert compared.winners == by_gold.winners[:2]
    assert max(point.ci95_bound_points[1] for entry in by_gold.entries for point in entry.sweep) > 0
    assert max(point.ci95_bound_points[1] for entry in compared.entries for point in entry.sweep) == 0


def alike(entry: Entry) -> Entry:
    def cut(point: Point) -> Point:
        low, high = point.ci95_bound_points
        return replace(point, grade=(), ci95_grade=(), ci95_bound_points=(low, min(high, 0.0)))

    held_out, sweep = tuple(map(cut, entry.held_out)), tuple(map(cut, entry.sweep))
    return replace(entry, shown=cut(entry.shown), held_out=held_out, sweep=sweep, figures=entry.figures[:2])


def test_a_recording_without_texts_gives_the_same_numbers(tmp_path: Path) -> None:
    traces = no_golds(12, 2, closed=False)
    with_texts = compare_run(odd.written(tmp_path / "none.jsonl", traces), RULES)
    hashed = compare_run(shadow_run(tmp_path / "shadow", traces), RULES)
    assert hashed.entries == with_texts.entries


def test_rules_that_read_texts_are_left_out_by_name(tmp_path: Path) -> None:
    found = compare_run(shadow_run(tmp_path / "shadow", no_golds(8)))
    said = {one.rule: f"{one.why} {one.hint}" for one in found.missing}
    assert {"cgr", "smoothed", "calibrated"} <= {entry.rule for entry in found.entries}
    assert {LoopBreaker.name, "deer", "eat", "dynasor"} <= said.keys()
    for name in (LoopBreaker.name, "deer", "eat"):
        assert "--record-text" in said[name]
    assert "cgr generate --logprobs" in said["deepconf"]


# What is refused


def test_one_gold_is_too_few_and_so_is_one_question(tmp_path: Path) -> None:
    mixed = [replace(one, gold="1" if one.question_id == "q01" else None) for one in no_golds()]
    with pytest.raises(UsageError, match="has one question with a known answer"):
        compare_run(odd.written(tmp_path / "mixed.jsonl", mixed))
    with pytest.raises(UsageError, match="has one question: rules cannot be compared"):
        compare_run(odd.written(tmp_path / "one.jsonl", no_golds()[:1]), ["cgr"])


def test_two_golds_are_compared_by_accuracy(tmp_path: Path) -> None:
    mixed = [replace(one, gold="1" if one.question_id in ("q01", "q02") else None) for one in no_golds()]
    found = compare_run(odd.written(tmp_path / "mixed.jsonl", mixed), ["cgr"])
    assert (found.reference, found.questions) == ("gold", 2)


# What is said


def test_everything_says_agreement(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(file), "--rules", ",".join(RULES), "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.count(NO_GOLDS) == 1
    assert "Most tokens saved at equal agreement: " in said
    assert "Whether agreement is equal cannot be told for " in said
    assert "Head room on the questions shown: " in said
    for path in tmp_path.iterdir():
        text = path.read_text(encoding="utf-8") if path.suffix != ".png" else ""
        said_here = accuracy_words(text)
        assert said_here == (["nsolved"] if path.suffix == ".json" else []), path.name  # a field there, which is always 0
    assert not accuracy_words(said)
    with (tmp_path / "compare.csv").open(encoding="utf-8") as rows:
        assert next(row["agreement"] for row in csv.DictReader(rows)) == "1.0"


def accuracy_words(text: str) -> list[str]:
    return [word for word in ("ccuracy", "Acc.", "Grade", "nsolved", "racle saves") if word in text]


def test_the_file_says_agreement_and_comes_back(compared: Compared) -> None:
    data = json.loads(compared.to_json())
    assert data["reference"] == "final"
    assert data["baseline"]["agreement"] == 1
    assert "fixed_agreement" in data["entries"][0]["adaptive"]
    assert NO_GOLDS in data["notes"]
    assert Compared.from_json(compared.to_json()) == compared


def test_the_figure_says_agreement(compared: Compared) -> None:
    with style.styled():
        left, right = frontier.draw(compared).subfigs
    assert left.get_supylabel() == "Agreement"
    assert left.get_suptitle().startswith("Agreement against tokens")
    assert "equal agreement" in right.axes[0].get_title(loc="left")


def test_runs_with_and_without_golds_side_by_side(file: Path, tmp_path: Path) -> None:
    known = odd.written(tmp_path / "known.jsonl", plausible(8, 1, chance=5)[0])
    both = "accuracy or agreement"
    for runs, words in (([file, known], both), ([known, known], "accuracy"), ([file, file], "agreement")):
        write_comparison(runs, tmp_path / "out", ["cgr"])
        assert f"**Net tokens saved at equal {words}, run by run**" in (tmp_path / "out" / "compare_runs.md").read_text()


# In a report


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    binary = chromium.find()
    if binary is None:
        pytest.skip("no Chromium on the path: install the package `chromium` to test the page")
    with launched(binary, tmp_path_factory.mktemp("profile")) as running:
        running.resize(1280, 800)
        yield running


def test_the_report_and_its_page_compare_by_agreement(file: Path, tmp_path: Path, tab: Browser) -> None:
    written = write_report([file], tmp_path)
    assert Compared.from_json((tmp_path / "compare.json").read_text(encoding="utf-8")).reference == FINAL
    assert "Agreement against tokens" in (tmp_path / "figures" / "figures.md").read_text(encoding="utf-8")
    tab.open(Path(str(written.page)))
    shown = str(tab.run("document.querySelector('#rules').innerText"))
    assert NO_GOLDS in shown
    assert "Agreement against tokens" in shown
    assert "Of the head room" in shown
    assert not accuracy_words(shown)
    helped = str(tab.run("[...document.querySelectorAll('#rules [title]')].map((one) => one.title).join(' ')"))
    assert "equal agreement" in helped
    assert "ccuracy" not in helped
    heads = tab.run("[...document.querySelectorAll('#oracle-table tr')].map((row) => row.children.length)")
    assert len(set(heads)) == 1
    assert tab.errors() == []


# Columns


def test_columns_by_agreement_grade_every_trace_by_its_final_answer() -> None:
    columns = Columns.of([replace(one, gold=None) for one in six()], SIX_INFO)
    assert not columns.graded.any()
    found = columns.by_agreement()
    assert found.graded.all()
    assert found.final_right.all()
    assert (found.right == columns.agrees).all()
    assert (found.reference, columns.reference) == ("final", "gold")
