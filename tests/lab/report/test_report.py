from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cgr.cli.main import run
from cgr.errors import NotRecorded, UsageError
from cgr.lab.decide.columns import Columns
from cgr.lab.report import default_folder, load, numbers, reported, tables, write_report
from cgr.lab.report.result import Report
from cgr.lab.report.tables import labels, lines
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.records import Probe
from tests.lab.runs import SIX_INFO, plausible, six, trace

EXPECTED: dict[str, Any] = {
    "baseline": {"correct_mean": 2.0, "accuracy": 0.666667},
    "thresholds": [
        dict(zip(("threshold", "correct_mean", "accuracy", "diff_mean", "diff_points", "diff_relative", "equal", "better",
                  "worse"), row, strict=True))
        for row in (
            (0.96, 2.5, 0.833333, 0.5, 16.666667, 0.25, 0, 1, 1),
            (0.97, 2.0, 0.666667, 0.0, 0.0, 0.0, 0, 1, 1),
            (0.98, 2.5, 0.833333, 0.5, 16.666667, 0.25, 1, 1, 0),
            (0.99, 2.5, 0.833333, 0.5, 16.666667, 0.25, 1, 1, 0),
        )
    ],
    "savings": [
        dict(zip(("threshold", "total", "per_seed", "per_question", "probe_tokens", "net_total", "share",
                  "against_budget_total"), row, strict=True))
        for row in (
            (0.96, 5300, 2650.0, 883.333333, 33, 5267, 0.32716, 13100),
            (0.97, 4500, 2250.0, 750.0, 33, 4467, 0.277778, 12300),
            (0.98, 2500, 1250.0, 416.666667, 37, 2463, 0.154321, 10300),
            (0.99, 1500, 750.0, 250.0, 40, 1460, 0.092593, 9300),
        )
    ],
    "grade": [
        dict(zip(("threshold", "penalty", "final", "baseline", "diff", "max", "step"), row, strict=True))
        for row in (
            (0.96, 0, 2.0, 2.0, 0.0, 2.0, 3000),
            (0.96, 0.25, 1.875, 1.75, 0.125, 1.875, 3000),
            (0.96, 0.5, 1.75, 1.5, 0.25, 1.75, 3000),
            (0.96, 1.0, 1.5, 1.0, 0.5, 1.5, 3000),
            (0.97, 0, 1.5, 2.0, -0.5, 1.5, 3000),
            (0.97, 0.25, 1.25, 1.75, -0.5, 1.25, 3000),
            (0.97, 0.5, 1.0, 1.5, -0.5, 1.0, 3000),
            (0.97, 1.0, 0.5, 1.0, -0.5, 0.5, 2000),
            (0.98, 0, 1.0, 2.0, -1.0, 1.0, 3000),
            (0.98, 0.25, 0.875, 1.75, -0.875, 0.875, 3000),
            (0.98, 0.5, 0.75, 1.5, -0.75, 0.75, 3000),
            (0.98, 1.0, 0.5, 1.0, -0.5, 0.5, 2000),
            (0.99, 0, 1.0, 2.0, -1.0, 1.0, 3000),
            (0.99, 0.25, 0.875, 1.75, -0.875, 0.875, 3000),
            (0.99, 0.5, 0.75, 1.5, -0.75, 0.75, 3000),
            (0.99, 1.0, 0.5, 1.0, -0.5, 0.5, 3000),
        )
    ],
}  # fmt: skip


def assert_holds(found: Any, expected: Any, place: str = "report") -> None:
    """All expected values are there, to six digits; other values are ignored."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert_holds(found[name], value, f"{place}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for number, value in enumerate(expected):
            assert_holds(found[number], value, f"{place}[{number}]")
    else:
        assert found == pytest.approx(expected, abs=1e-6), place


def scored(traces: list[RecordedTrace], info: RunInfo = SIX_INFO, **options: Any) -> Report:
    return numbers.report(Columns.of(traces, info), **options)


def line(one: RecordedTrace) -> dict[str, Any]:
    """A trace as a line of a file that a user writes."""
    return {
        "question_id": one.question_id,
        "seed": one.seed,
        "gold": one.gold,
        "thinking_tokens": one.thinking_tokens,
        "ended": one.ended,
        "budget": one.budget,
        "final_answer": one.final.answer,
        "final_certainty": one.final.certainty,
        "probes": [
            {"at": p.at, "answer": p.answer, "probabilities": list(p.probabilities), "closed": p.closed} for p in one.probes
        ],
    }


def written(path: Path, traces: list[RecordedTrace]) -> Path:
    path.write_text("".join(json.dumps(line(one)) + "\n" for one in traces), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def six_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The six traces, imported and reported."""
    folder = tmp_path_factory.mktemp("runs")
    file = written(folder / "six.jsonl", six())
    assert run(["import", str(file), str(folder / "six")]) == 0
    with (folder / "said").open("w", encoding="utf-8") as said, redirect_stdout(said):
        assert run(["report", str(folder / "six")]) == 0
    return folder / "six"


# The worked example


def test_the_report_of_six_traces_has_the_known_numbers() -> None:
    assert_holds(scored(six()).to_dict(), EXPECTED)


def test_six_imported_traces_give_the_same_report(six_run: Path) -> None:
    found = json.loads((six_run / "report" / "report.json").read_text(encoding="utf-8"))
    assert_holds(found, EXPECTED)
    assert found["schema"] == 1
    assert len(found["thresholds"][0]["ci95"]) == 2
    assert found["notes"] == []


def test_a_report_has_a_page_tables_and_figures(six_run: Path) -> None:
    folder = six_run / "report"
    assert "<html" in (folder / "index.html").read_text(encoding="utf-8")
    names = {path.name for path in (folder / "tables").iterdir()}
    made = [
        *(make.__name__ for make in tables.TABLES),
        *(f"compare{end}" for end in ("", "_winners", "_sweep", "_oracle", "_splits")),
    ]
    assert names == {f"{name}.{ending}" for name in made for ending in ("csv", "md", "tex")}
    assert {path.suffix for path in (folder / "figures").iterdir()} == {".png", ".svg", ".md"}


def test_the_budget_sweep_and_the_spread_of_the_six() -> None:
    report = scored(six())
    assert [(row.budget, row.correct_mean) for row in report.budget_sweep] == [(1000, 2), (2000, 2), (3000, 2.5), (4000, 2)]
    assert [row.thinking_tokens_mean for row in report.budget_sweep] == [5900 / 6, 10700 / 6, 13700 / 6, 2700]
    assert [row.ended_by_themselves for row in report.budget_sweep] == [1 / 6, 2 / 6, 3 / 6, 4 / 6]
    assert [row.threshold for row in report.spread] == [None, 0.96, 0.97, 0.98, 0.99]
    assert [row.low for row in report.spread] == pytest.approx([1 / 3, 2 / 3, 2 / 3, 2 / 3, 2 / 3])
    assert [row.high for row in report.spread] == pytest.approx([1, 1, 2 / 3, 1, 1])
    assert [row.sd for row in report.spread] == pytest.approx(
        [2 / 3 / 2**0.5, *(gap / 2**0.5 for gap in (1 / 3, 0, 1 / 3, 1 / 3))]
    )


def test_grade_without_abstention_and_at_the_budget() -> None:
    row = next(row for row in scored(six()).grade if (row.threshold, row.penalty) == (0.96, 1))
    assert row.answering == 2  # five right and one wrong over two seeds
    assert row.at_budget == 1.5  # the sixth was not sure, and says nothing
    assert row.over_budget == (0.5, 1.0, 1.5)


def test_answers_that_the_model_wrote_are_reported_separately() -> None:
    report = scored([replace(one, written="So \\boxed{70}.") if one.question_id == "a" else one for one in six()])
    assert report.written is not None
    assert (report.written.count, report.written.accuracy, report.written.decoded_accuracy) == (2, 1.0, 0.5)
    assert_holds(report.to_dict(), EXPECTED)
    assert any("wrote an answer of its own" in note for note in report.notes)


# Unusual runs


def no_golds() -> list[RecordedTrace]:
    return [replace(one, gold=None) for one in six()]


def no_probes() -> list[RecordedTrace]:
    return [replace(one, probes=()) for one in six()]


def one_seed() -> list[RecordedTrace]:
    return six()[:3]


def all_right() -> list[RecordedTrace]:
    def same(probe: Probe) -> Probe:
        return replace(probe, answer="7", closed=True)

    return [replace(one, gold="7", final=same(one.final), probes=tuple(map(same, one.probes))) for one in six()]


def never_sure() -> list[RecordedTrace]:
    return [replace(one, probes=tuple(replace(p, certainty=0.1) for p in one.probes)) for one in six()]


def uneven() -> list[RecordedTrace]:
    return [replace(one, probes=one.probes[:1]) if one.seed else one for one in six()]


def cut_short() -> list[RecordedTrace]:
    first = six()[0]
    return [replace(first, probes=(replace(first.probes[0], closed=False, bound=True), *first.probes[1:])), *six()[1:]]


def nothing_right() -> list[RecordedTrace]:
    return [replace(one, gold="999") for one in six()]


def one_missing() -> list[RecordedTrace]:
    return six()[:-1]


def one_without_gold() -> list[RecordedTrace]:
    return [replace(one, gold=None) if one.question_id == "c" else one for one in six()]


def other_budgets() -> list[RecordedTrace]:
    return [*six(), trace("c", 2, "16", 900, "end_of_thinking", ("16", 0.9), budget=2000)]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (no_golds, "No question has a known answer"),
        (no_probes, "No probe was recorded"),
        (one_seed, "There is one seed"),
        (all_right, "Every answer is right, with the rule and without it"),
        (never_sure, "The rule never fired"),
        (uneven, "not all probed at the same positions: 2 of 4 budgets"),
        (cut_short, "1 probe stopped decoding early"),
        (nothing_right, "The baseline has no right answer"),
        (one_missing, "1 trace of 6 is missing"),
        (one_without_gold, "1 of 3 questions has no known answer"),
        (other_budgets, "different budgets, from 2,000 to 4,000"),
    ],
)
def test_unusual_runs_are_explained_in_notes_and_give_no_nan(
    make: Callable[[], list[RecordedTrace]], words: str, tmp_path: Path
) -> None:
    report = scored(make())
    assert any(words in note for note in report.notes), report.notes
    text = json.dumps(report.to_dict(), allow_nan=False)
    assert Report.from_json(text) == report
    for path in tables.write(report, tmp_path):
        assert "nan" not in path.read_text(encoding="utf-8").lower()
    assert all(len(line) <= 80 or line.startswith("Note") for line in tables.lines(report))


@pytest.mark.parametrize("make", [six, one_missing, one_without_gold, other_budgets])
def test_all_points_have_one_denominator(make: Callable[[], list[RecordedTrace]]) -> None:
    """The graded traces: a missing trace does not make the points of Grade smaller than those of accuracy."""
    report = scored(make())
    size, base = report.size, report.baseline.accuracy
    per_question = 100 * size.seeds / size.graded_traces
    assert size.points_per_question == pytest.approx(per_question)
    assert base is not None
    for row, headline in zip(report.thresholds, tables.headlines(report)[1:], strict=True):
        assert row.accuracy is not None
        assert row.diff_mean is not None
        assert row.ci95 is not None
        assert row.diff_points == pytest.approx(100 * (row.accuracy - base))
        assert row.diff_points == pytest.approx(row.diff_mean * per_question)
        assert headline.ci95_points == pytest.approx([end * per_question for end in row.ci95])
    for grade in report.grade:
        assert grade.diff is not None
        assert grade.diff_points == pytest.approx(grade.diff * per_question)


def test_an_ordinary_run_has_no_notes() -> None:
    assert scored(*plausible(4, 3)).notes == ()


def test_without_golds_only_tokens_are_reported() -> None:
    report = scored(no_golds())
    assert report.baseline.accuracy is None
    assert report.thresholds[0].ci95 is None
    assert report.grade[0].final is None
    assert report.grade[0].over_budget == ()
    assert [row.total for row in report.savings] == [5300, 4500, 2500, 1500]


def test_answers_that_a_stop_changes_need_no_golds() -> None:
    """At .96, the second seed of a stops at 70 and ends with 71, the first of b stops at 580; and the second of b stops
    though its final answer did not close."""
    with_golds, without = scored(six()), scored(no_golds())
    assert [row.disagreement for row in without.savings] == [row.disagreement for row in with_golds.savings]
    assert [6 * row.disagreement for row in without.savings] == pytest.approx([3, 2, 1, 1])


def test_the_terminal_shows_what_needs_no_golds() -> None:
    report = scored(no_golds())
    _, _, heads, first, *_ = lines(report)
    assert heads.split() == ["θ", "Changed", "Saved", "Share", "Net"]
    assert first.split()[:3] == ["0.96", "50.0%", "5,300"]
    said = "\n".join(lines(report))
    assert "Head room" in said
    assert "False sureness at 0.99" in said
    assert "accuracy, Grade, calibration and the fixed budget of the same cost are missing" in said
    assert "–" not in said.split("Head room")[0]


def test_some_thresholds_may_never_fire() -> None:
    report = scored(six(), thresholds=(0.96, 0.9999, 1.0))
    assert "At 0.9999 and 1 the rule never fired: the numbers equal the baseline's." in report.notes
    assert [row.fired for row in report.thresholds] == [5, 0, 0]


def test_a_threshold_that_the_recording_cannot_decide_is_an_error_and_left_out_of_the_trade_off() -> None:
    first = replace(six()[0].probes[0], closed=False, bound=True)
    traces = [replace(six()[0], probes=(first, *six()[0].probes[1:]))]
    assert scored(traces).trade_off[0].threshold == 0.5
    assert first.certainty == 0.41
    with pytest.raises(NotRecorded, match=r"certainty is at most 0\.41"):
        scored(traces, thresholds=(0.4,))


def test_a_budget_of_one_interval_has_no_steps() -> None:
    report = scored(*plausible(2, 2, budget=500, interval=1000))
    assert report.steps == ()
    assert report.grade[0].max is None
    assert [row.budget for row in report.budget_sweep] == [500]


# Options


def test_thresholds_and_penalties_are_sorted_and_unique() -> None:
    report = scored(six(), thresholds=(0.97, 0.9, 0.97), penalties=(1, 0))
    assert [row.threshold for row in report.thresholds] == [0.9, 0.97]
    assert [row.penalty for row in report.grade] == [0, 1, 0, 1]
    assert report.shown == 0.97
    assert scored(six()).shown == 0.99


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"thresholds": ()}, "needs a threshold"),
        ({"thresholds": (1.5,)}, "1.5 is not a certainty"),
        ({"thresholds": (math.nan,)}, "nan is not a certainty"),
        ({"penalties": (-1,)}, "-1 is not valid"),
        ({"penalties": (math.inf,)}, "inf is not valid"),
    ],
)
def test_invalid_thresholds_and_penalties_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        scored(six(), **options)


def test_the_earliest_best_step_ignores_rounding() -> None:
    assert numbers.earliest_best(np.array([0.0, 0.1 + 0.2, 0.3])) == 1
    assert numbers.earliest_best(np.array([0.3, 0.1 + 0.2])) == 0


# Tables


def test_tables_hold_the_same_numbers_in_three_formats(six_run: Path) -> None:
    folder = six_run / "report" / "tables"
    with (folder / "thresholds.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["accuracy"]) for row in rows] == pytest.approx([5 / 6, 4 / 6, 5 / 6, 5 / 6])
    assert {"ci95_low", "ci95_high", "ci95_seeds_low", "diff_points", "diff_relative"} <= rows[0].keys()
    markdown = (folder / "thresholds.md").read_text(encoding="utf-8")
    assert "| 0.96 | 2.50 | 83.33% | +0.50 | [0.00, +1.50] | +16.67 | +25.00% | 0 | 1 | 1 |" in markdown
    latex = (folder / "thresholds.tex").read_text(encoding="utf-8")
    assert r"0.96 & 2.50 & 83.33\% & +0.50 & [0.00, +1.50] & +16.67 & +25.00\% & 0 & 1 & 1 &" in latex
    for word in (r"\toprule", r"\midrule", r"\bottomrule", r"$\theta$"):
        assert word in latex
    grade = (folder / "grade.tex").read_text(encoding="utf-8")
    assert r"0.97 & 1.00 & 0.50 & 1.00 & $-$0.50 & $-$16.67 & 0.50 & 2,000" in grade


def test_runs_are_labelled_by_model_if_models_differ() -> None:
    info = SIX_INFO
    first, second = scored(six(), info), scored(six(), replace(info, name="more", model="larger"))
    assert labels([first, second]) == ("worked example", "larger")
    assert labels([first, replace(first, run=replace(info, name="again"))]) == ("six", "again")


# The command


def test_a_file_of_traces_can_be_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "six.jsonl", six())
    assert run(["report", str(file), "--thresholds", "0.9,0.97", "--penalties", "0 2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["threshold"] for row in found["thresholds"]] == [0.9, 0.97]
    assert {row["penalty"] for row in found["grade"]} == {0, 2}
    assert (tmp_path / "six-report" / "report.json").is_file()


def test_the_terminal_shows_the_numbers_and_the_path(six_run: Path) -> None:
    out = (six_run.parent / "said").read_text(encoding="utf-8")
    assert "six: imported, 3 questions × 2 seeds" in out
    assert "    0.96   2.50  83.3%  +0.50  [0.00, +1.50]  0/1/1   5.3k  32.7%  32.5%" in out
    assert out.rstrip().endswith(str(six_run / "report" / "index.html"))


def test_several_runs_are_compared(six_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = written(tmp_path / "six.jsonl", plausible(3, 2, budget=4000)[0])
    out = tmp_path / "both"
    assert run(["report", str(six_run), str(other), "--out", str(out)]) == 0
    found = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert [one["run"]["name"] for one in found["runs"]] == ["six", "six-2"]
    assert_holds(found["runs"][0], EXPECTED)
    with (out / "tables" / "models.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == ["six", "six-2"]
    assert [float(row["correct_mean"]) for row in rows] == [2.0, found["runs"][1]["baseline"]["correct_mean"]]
    for place in (
        "tables/six/grade.md",
        "tables/six-2/grade.md",
        "figures/six-2/tokens_used.svg",
        "figures/models_trade_off.png",
    ):
        assert (out / place).is_file(), place
    assert (out / "index.html").is_file()


def test_another_rule_is_reported_in_every_table(six_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fixed"
    assert run(["report", str(six_run), "--rule", "fixed-budget", "--out", str(out)]) == 0
    found = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert found["rule"] == "fixed-budget"
    assert [row["diff_mean"] for row in found["thresholds"]] == [0] * 4
    assert not (out / "index.html").exists()
    assert "without a page" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "There is no run 'nowhere'"),
        ([], "Missing argument"),
        (["{run}", "--probes", "other"], "no probe set called 'other'"),
        (["{run}", "--thresholds", "high"], "'high' is not a list of numbers"),
        (["{run}", "--thresholds", ""], "needs a threshold"),
        (["{run}", "--rule", "crg"], "no rule called 'crg'"),
        (["{run}/report"], "no run in"),
    ],
)
def test_wrong_arguments_give_one_sentence_and_a_hint(
    six_run: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", *(argument.format(run=six_run) for argument in arguments)]) == 2
    error, hint = capsys.readouterr().err.strip().split("\n")
    assert error.startswith("error: ")
    assert words in error
    assert hint.startswith("hint:  ")


def test_a_rule_that_needs_other_recordings_is_an_error(six_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(six_run), "--rule", "no-thinking"]) == 1
    assert "'no-thinking' needs probes before any thinking with the thinking closed" in capsys.readouterr().err


def test_the_default_folder_of_a_report(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert default_folder([tmp_path / "a"]) == tmp_path / "a" / "report"
    assert default_folder([tmp_path / "a.jsonl"]) == tmp_path / "a-report"
    assert default_folder([tmp_path / "a", tmp_path / "b"]) == tmp_path / "report"
    with pytest.raises(UsageError, match="no run to report"):
        write_report([])


def test_a_run_without_probes_has_a_report_of_its_baseline(tmp_path: Path) -> None:
    file = written(tmp_path / "six.jsonl", no_probes())
    assert run(["import", str(file), str(tmp_path / "six")]) == 0
    _, columns = load(tmp_path / "six")
    assert not columns.present.any()
    assert len(columns.steps) > 1
    assert numbers.report(columns).baseline.correct_mean == 2


def test_a_rule_without_a_threshold_says_what_the_rows_differ_in(six_run: Path) -> None:
    for rule, noted in (("answer-consistency", True), ("cgr", False)):
        notes = reported(six_run, (0.9, 0.99), (1.0,), None, rule).report.notes
        assert any("has no threshold" in note for note in notes) == noted
