"""Ablations: each is compared with the loop, the report or a count by hand; and the messages for missing recordings."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cgr.errors import NotRecorded, UnknownName, UsageError
from cgr.lab import ablate as ablations
from cgr.lab.ablate import aggregate as aggregation
from cgr.lab.ablate import forcing, grid, probe_sets
from cgr.lab.ablate.forcing import ForcedRow
from cgr.lab.ablate.inputs import AblationInputs, stopping
from cgr.lab.decide import replay as decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.report import numbers
from cgr.lab.score import accuracy as scores
from cgr.lab.score import bootstrap as intervals
from cgr.lab.score.calibration import auroc, auroc_of, calibration_error, error_of, probe_calibration, reliability
from cgr.lab.score.paired import measure
from cgr.lab.store import Store
from cgr.lab.store.config import Asking
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.probing import ProbeSpec, answer_span
from cgr.records import Probe, Question, Token
from cgr.rules import Cgr
from tests.lab.ablate.ablated import BUDGET, CONFIG, INTERVAL, add, probe_set, run, traces
from tests.lab.runs import probe, trace

FINE = traces(8, 4, interval=500)
MADE = [replace(one, probes=tuple(each for each in one.probes if each.at % INTERVAL == 0)) for one in FINE]
INFO = RunInfo(name="run", model="thinker", engine="scripted", budget=BUDGET, interval=INTERVAL)


def less_sure(made: list[RecordedTrace], by: float) -> list[RecordedTrace]:
    """The same answers, each token's probability raised to a power."""
    return [replace(one, probes=tuple(_less_sure(each, by) for each in one.probes)) for one in made]


def _less_sure(one: Probe, by: float) -> Probe:
    chances = tuple(chance**by for chance in one.probabilities)
    return replace(one, probabilities=chances, certainty=min(chances, default=0.0), tokens=())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a finer probe set, one with another end tag, one with another prefix and a missing trace, and one of
    another model."""
    path = run(tmp_path_factory.mktemp("runs") / "plausible", MADE)
    add(path, "every-500", FINE, probe_set(interval=500))
    add(path, "closed", less_sure(MADE, 0.5), probe_set(asking=Asking(close_think="always")))
    add(path, "so", less_sure(MADE, 2)[:-1], probe_set(asking=Asking(prefix="So \\boxed{")))
    add(path, "other", less_sure(MADE, 3), probe_set(model="small", fingerprint="s"))
    return path


@pytest.fixture(scope="module")
def inputs(folder: Path) -> AblationInputs:
    return AblationInputs.open(folder)


@pytest.fixture(scope="module")
def columns(inputs: AblationInputs) -> Columns:
    return inputs.columns()


# Measures


def test_a_score_equals_the_report_with_its_intervals(columns: Columns) -> None:
    decided = stopping(columns, 0.97)
    (score,) = measure(columns, [decided]).scores
    compared, saved = scores.compare(columns, decided.right), scores.savings(columns, decided)
    assert score.accuracy == scores.accuracy(columns, decided.right)
    assert score.diff_points == pytest.approx(compared.diff_points)
    assert compared.ci95 is not None
    assert score.ci95_diff_points == pytest.approx([100 * end / len(columns.questions) for end in compared.ci95])
    assert (score.gross_share, score.net_share) == pytest.approx((saved.share, saved.net_share))
    assert score.ci95_gross_share == pytest.approx(saved.ci95_share)
    assert score.probe_tokens == pytest.approx(saved.probe_tokens / len(columns))


def test_the_baseline_is_the_recorded_run(columns: Columns) -> None:
    base = measure(columns, []).all[0]
    assert (base.diff_points, base.gross_share, base.net_share, base.stopped) == (0, 0, 0, 0)
    assert base.accuracy == scores.accuracy(columns, columns.final_right)
    assert base.thinking_tokens == columns.natural.mean()


def test_differences_are_paired(columns: Columns) -> None:
    """The same decisions twice do not differ, however wide the interval of either."""
    one, other = stopping(columns, 0.97), stopping(columns, 0.5)
    measured = measure(columns, [one, one, other])
    assert measured.scores[0].ci95_net_share[0] < measured.scores[0].ci95_net_share[1]
    assert measured.behind(0)[1] == pytest.approx((0, 0))
    assert measured.tied_with(0) == (1,)


def test_of_few_questions_the_threshold_with_the_highest_bound_is_taken(columns: Columns) -> None:
    """Eight questions cannot show that accuracy is equal; of equal bounds, the largest saving is taken."""
    measured = measure(columns, [stopping(columns, level) for level in (0.3, 0.9, 0.99, 1.0)])
    assert not any(one.equal for one in measured.scores)
    lows = [one.ci95_bound_points[0] for one in measured.scores]
    best = [place for place, low in enumerate(lows) if low == pytest.approx(max(lows))]
    assert measured.best_equal() == max(best, key=lambda place: measured.scores[place].net_share)


def test_one_question_is_too_few() -> None:
    with pytest.raises(UsageError, match="fewer than two questions"):
        measure(Columns.of(traces(1, 3), INFO), [])


# ProbeCalibration


def repeated(columns: Columns, counts: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    asked = columns.present & columns.closed
    question = np.broadcast_to(columns.question[:, None], asked.shape)[asked]
    times = np.array(counts)[question]
    return columns.certainty[asked].repeat(times), columns.right[asked].repeat(times), question.repeat(times)


@pytest.mark.parametrize("counts", [[1] * 8, [3, 0, 1, 1, 0, 1, 2, 0], [0, 0, 0, 0, 0, 0, 4, 4]])
def test_a_draw_of_questions_is_scored_as_its_answers(columns: Columns, counts: list[int]) -> None:
    whole = repeated(columns, [1] * 8)
    sure, right, _ = repeated(columns, counts)
    drawn = np.array([counts], dtype=np.float64)
    assert auroc_of(*whole, 8)(drawn)[0, 0] == pytest.approx(auroc(sure, right))
    assert error_of(*whole, 8)(drawn)[0, 0] == pytest.approx(calibration_error(reliability(sure, right)))


def test_calibration_of_probes_equals_the_report(columns: Columns) -> None:
    found = probe_calibration(columns)
    reported = numbers.report(columns).selective[1].selective
    assert (found.probes, found.auroc, found.ece) == (reported.count, reported.auroc, reported.ece)
    assert found.ci95_auroc is not None
    assert found.ci95_auroc[0] <= (found.auroc or 0) <= found.ci95_auroc[1]


def test_without_probes_there_is_no_calibration(columns: Columns) -> None:
    unprobed = replace(columns, at=np.full_like(columns.at, -1))
    assert probe_calibration(unprobed).auroc is None
    assert probe_calibration(unprobed).ece is None


# Threshold


def test_every_threshold_equals_the_report(inputs: AblationInputs, columns: Columns) -> None:
    rows = grid.ablate_threshold(inputs).rows
    report = numbers.report(columns)
    found = {row.threshold: row.score for row in rows if isinstance(row, grid.ThresholdScore)}
    for row in report.thresholds:
        assert found[row.threshold].accuracy == row.accuracy
        assert found[row.threshold].net_share == pytest.approx(numbers.at(report.savings, row.threshold).net_share)
    gross = [found[level].gross_share for level in sorted(found)]
    assert gross == sorted(gross, reverse=True)
    assert len(found) > 30


def test_the_conclusion_names_the_best_threshold_and_the_usual_one(inputs: AblationInputs) -> None:
    done = grid.ablate_threshold(inputs)
    rows = [row for row in done.rows if isinstance(row, grid.ThresholdScore)]
    assert done.conclusion.startswith("Within 1 point of accuracy, as far as so few questions can tell,")
    place = measure(inputs.columns(), [stopping(inputs.columns(), row.threshold) for row in rows]).best_equal()
    assert place is not None
    assert f"at {rows[place].threshold:g}" in done.conclusion.lower()
    assert "0.99 the net saving is" in done.conclusion


def test_the_conclusion_if_no_threshold_has_equal_accuracy() -> None:
    """A model that is sure and wrong until the end."""
    made = [
        trace(
            *(f"q{n}", 0, "7", 3500, "end_of_thinking", ("7", 0.999)),
            [(at, "8", (1.0,), True) for at in (1000, 2000, 3000)],
        )
        for n in range(3)
    ]
    columns = Columns.of(made, replace(INFO, budget=4000))
    levels = (0.5, 1.0)
    measured = measure(columns, [stopping(columns, level) for level in levels])
    rows = [grid.ThresholdScore(*pair) for pair in zip(levels, measured.scores, strict=True)]
    assert grid.conclude_threshold(rows, measured, 0.5).startswith("More than 1 point of accuracy is lost")


# Interval


def test_a_thinned_grid_equals_the_rule_at_that_interval(inputs: AblationInputs) -> None:
    rows = [row for row in grid.ablate_interval(inputs).rows if isinstance(row, grid.IntervalRow)]
    recorded = inputs.run.traces("every-500")
    natural = sum(one.thinking_tokens for one in recorded)
    assert [row.interval for row in rows] == [500, 1000, 1500, 2000, 2500, 3000]
    for row in rows:
        decided = decisions.replayed(Cgr(threshold=0.99, interval=row.interval), recorded)
        assert row.score.gross_share == pytest.approx(1 - decided.at.sum() / natural)
        assert row.score.probe_tokens == pytest.approx(decided.probe_tokens.mean())


def test_the_finest_set_with_the_same_prompt_is_used(inputs: AblationInputs, tmp_path: Path) -> None:
    assert grid.finest(inputs) == "every-500"
    path = run(tmp_path / "run", MADE)
    add(path, "fine", FINE, probe_set(interval=500, asking=Asking(close_think="always")))
    assert grid.finest(AblationInputs.open(path)) == "default"


def test_the_conclusion_names_the_best_interval_and_ties(inputs: AblationInputs) -> None:
    done = grid.ablate_interval(inputs)
    rows = [row for row in done.rows if isinstance(row, grid.IntervalRow)]
    best = max(rows, key=lambda row: row.score.net_share)
    assert done.conclusion.startswith(f"Best net saving at an interval of {best.interval:,}: ")
    tied = [row for row in rows if row is not best and row.ci95_behind[0] <= 0]
    for row in tied:
        assert f"{row.interval:,}" in done.conclusion.split("; ")[1]


def test_a_grid_that_cannot_be_thinned_is_refused(tmp_path: Path) -> None:
    made = [replace(one, probes=tuple(one for one in one.probes if one.at == 3000)) for one in MADE]
    path = run(tmp_path / "run", made, own=probe_set(interval=3000))
    with pytest.raises(NotRecorded, match="leave no longer interval"):
        grid.ablate_interval(AblationInputs.open(path))


# Aggregation


def tokens(*pairs: tuple[str, float]) -> tuple[Token, ...]:
    return tuple(Token(0, text, math.log(chance)) for text, chance in pairs)


@pytest.mark.parametrize(
    ("decoded", "without", "with_brace"),
    [
        ((("5", 0.9), ("}", 0.5)), [0.9], [0.9, 0.5]),
        ((("5}", 0.9),), [0.9], [0.9]),
        ((("5", 0.9), ("}$", 0.5), ("x", 0.1)), [0.9], [0.9, 0.5]),
        ((("5", 0.9), ("7", 0.8)), [0.9, 0.8], [0.9, 0.8]),
        ((("\\frac{1}", 0.9), ("{2}", 0.8), ("}", 0.7)), [0.9, 0.8], [0.9, 0.8, 0.7]),
        ((("}", 0.9),), [], []),
    ],
)
def test_the_brace_counts_if_it_is_a_token_of_its_own(
    decoded: tuple[tuple[str, float], ...], without: list[float], with_brace: list[float]
) -> None:
    made = tokens(*decoded)
    span = answer_span(made)
    asked = Probe(10, span.answer, 0.0, span.closed, span.probabilities, made, "Final Answer: \\boxed{")
    assert aggregation.probabilities(asked, False) == pytest.approx(without)
    assert aggregation.probabilities(asked, True) == pytest.approx(with_brace)


def test_the_recorded_aggregate_is_reproduced_and_the_brace_changes_it(inputs: AblationInputs, columns: Columns) -> None:
    whole = inputs.run.traces("default", whole=True)
    again = aggregation.certainties(columns, whole, "min", brace=False)
    assert again == pytest.approx(np.where(columns.present, columns.certainty, 0.0))
    with_brace = aggregation.certainties(columns, whole, "min", brace=True)
    assert (with_brace <= again).all()
    assert (with_brace[columns.present & columns.closed] <= 0.9).all()
    rows = aggregation.ablate(inputs).rows
    assert len(rows) == 8
    first = rows[0]
    assert isinstance(first, aggregation.AggregateRow)
    assert first.contender.score == measure(columns, [stopping(columns, 0.99)]).scores[0]


def test_imported_probes_without_tokens_are_refused_with_the_command(tmp_path: Path) -> None:
    bare = [replace(one, probes=tuple(replace(each, tokens=()) for each in one.probes)) for one in MADE]
    path = run(tmp_path / "run", bare)
    with pytest.raises(NotRecorded, match="without their tokens") as raised:
        aggregation.ablate(AblationInputs.open(path))
    assert raised.value.hint == f"cgr probe {path} --probes with-tokens"


# Prompt and probe model


def test_prompts_of_the_same_model_are_compared(inputs: AblationInputs) -> None:
    done = probe_sets.ablate_prompt(inputs)
    rows = [row for row in done.rows if isinstance(row, probe_sets.AskingRow)]
    assert [(row.probe_set, row.close_think) for row in rows] == [
        ("default", "never"),
        ("closed", "always"),
        ("so", "never"),
    ]
    assert "1 of 32 traces are not in all of these sets and are left out." in done.notes


def test_a_prober_stops_and_the_generator_answers() -> None:
    own = [
        trace(
            "a", 0, "70", 2500, "end_of_thinking", ("71", 0.9), [(1000, "70", (0.5, 0.5), True), (2000, "71", (0.9,), True)]
        ),
        trace("b", 0, "5", 2500, "end_of_thinking", ("5", 0.9), [(1000, "4", (0.2,), True), (2000, "5", (0.2,), True)]),
    ]
    small = [
        replace(own[0], probes=(probe(1000, "9", (0.999,)), probe(2000, "9", (0.9,)))),
        replace(own[1], probes=(probe(1000, "9", (0.3,)), probe(2000, "9", (0.4,)))),
    ]
    info = replace(INFO, budget=4000)
    mine, its = Columns.of(own, info), Columns.of(small, info)
    decided = probe_sets.answered_by(mine, stopping(its, 0.99))
    assert decided.at.tolist() == [1000, 2500]
    assert decided.right.tolist() == [True, True]
    assert stopping(its, 0.99).right.tolist() == [False, True]
    assert decided.probe_tokens.tolist() == [2 + 3, 2 + 2]
    assert probe_sets.answered_by(mine, stopping(its, 1.0)).at.tolist() == [2500, 2500]


def test_the_model_itself_is_listed_before_each_prober(inputs: AblationInputs) -> None:
    rows = [row for row in probe_sets.ablate_model(inputs).rows if isinstance(row, probe_sets.ProberRow)]
    assert [(row.prober, row.answers) for row in rows] == [
        ("thinker", "itself"),
        ("small", "the generator"),
        ("small", "the prober"),
    ]


def test_sets_on_different_grids_are_compared_on_the_common_grid(inputs: AblationInputs) -> None:
    fine, coarse = inputs.together(["every-500", "default"])
    assert (fine.info.interval, fine.at.tolist()) == (INTERVAL, coarse.at.tolist())


# Forcing


def forced(natural: list[RecordedTrace], made: list[RecordedTrace]) -> forcing.ForcedRun:
    info = replace(INFO, budget=4000)
    return forcing.ForcedRun(Path("f"), info, Columns.of(natural, info), tuple(made))


NATURAL = [
    trace("a", 0, "1", 1500, "end_of_thinking", ("1", 0.9), [(1000, "1", (0.5,), True)]),
    trace("b", 0, "2", 1500, "end_of_thinking", ("3", 0.9), [(1000, "2", (0.5,), True)]),
    trace("c", 0, "4", 4000, "budget", ("4", 0.9), [(at, "4", (0.5,), True) for at in (1000, 2000, 3000)]),
]
# The same, forced: a and b try to end at 1500, and a again at 2500; the forcing text is one token long.
ON = [
    replace(
        trace(
            *("a", 0, "1", 4000, "budget", ("9", 0.9)),
            [
                (1000, "1", (0.5,), True),
                (1500, "1", (0.7,), True),
                (2000, "1", (0.8,), True),
                (2500, "1", (0.95,), True),
                (3000, "9", (0.6,), True),
            ],
        ),
        forced=((1500, 1), (2500, 1)),
    ),
    replace(
        trace(
            *("b", 0, "2", 4000, "budget", ("2", 0.9)),
            [(1000, "2", (0.5,), True), (1500, "3", (0.9,), True), (2000, "3", (0.4,), True), (3000, "2", (1.0,), True)],
        ),
        forced=((1500, 1),),
    ),
    trace("c", 0, "4", 4000, "budget", ("4", 0.9), [(at, "4", (0.5,), True) for at in (1000, 2000, 3000)]),
]


def test_drift_counts_answers_lost_and_gained() -> None:
    run = forced(NATURAL, ON)
    found = forcing.drift(run.natural, run.at_end.right)
    assert (found.lost, found.gained) == pytest.approx((1 / 3, 1 / 3))
    assert found.ci95_lost[0] == 0
    assert found.ci95_lost[1] > 1 / 3
    assert forcing.drift(run.natural, run.natural.final_right).lost == 0


def test_steps_after_the_natural_end_use_traces_that_have_one() -> None:
    steps = forcing.steps(forced(NATURAL, ON))
    assert [(step.after, step.count) for step in steps] == [(0, 2), (1000, 2), (2000, 2)]
    assert [step.certainty for step in steps] == pytest.approx([0.5, 0.6, 0.8])
    assert [step.accuracy for step in steps] == pytest.approx([1, 0.5, 0.5])


def test_budget_forcing_costs_no_probes_and_cgr_forced_those_it_made() -> None:
    run = forced(NATURAL, ON)
    assert run.at_end.probe_tokens.tolist() == [0, 0, 0]
    sure = run.until_sure(0.95, ProbeSpec())
    assert sure.at.tolist() == [2500, 3000, 4000]
    assert sure.right.tolist() == [True, True, True]
    assert sure.probe_tokens.tolist() == [8, 8, 6]


def test_a_forced_run_that_was_sampled_differently_is_noticed() -> None:
    assert forced(NATURAL, ON).departed == 0
    assert forced(NATURAL, [replace(ON[0], forced=((1400, 1),)), *ON[1:]]).departed == 1


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """A natural run with a forced one in its folder, in which one trace is missing."""
    config = replace(CONFIG, budget=4000)
    path = run(tmp_path / "natural", NATURAL, config)
    run(path / "forced", ON[:2], replace(config, rule="budget-forcing"))
    return path


def test_a_forced_run_in_the_folder_is_found(both: Path) -> None:
    ((_, made),) = ablations.ablate(both, only=["forcing"]).ablations.made
    rows = [row for row in made.rows if isinstance(row, ForcedRow)]
    assert [row.way for row in rows] == ["natural end", "cgr at 0.99", "budget-forcing", "cgr-forced at 0.99"]
    natural, stopped, budget, until_sure = (row.score for row in rows)
    assert (natural.accuracy, budget.accuracy, until_sure.accuracy) == (0.5, 0.5, 0.5)
    assert (natural.thinking_tokens, stopped.thinking_tokens, budget.thinking_tokens) == (1500, 1500, 4000)
    assert until_sure.thinking_tokens == 3500
    assert budget.net_share == pytest.approx(1 - 4000 / 1500)
    assert "50.0% of the answers change from right to wrong and 50.0% from wrong to right" in made.conclusion
    assert made.notes == (f"1 of 3 traces are not in {both}/forced and are left out.",)
    assert (both / "ablations" / "figures" / "forcing.png").is_file()


def test_a_forced_run_without_probes_shows_its_final_answers(both: Path, tmp_path: Path) -> None:
    bare = [replace(one, probes=()) for one in ON]
    with Store.create(tmp_path / "bare", replace(CONFIG, budget=4000, rule="budget-forcing")) as store:
        store.add_questions(Question(one.question_id, one.question, one.gold, "integer") for one in bare)
        for one in bare:
            store.add_trace(one)
    done = forcing.ablate(AblationInputs.open(both, forced=[tmp_path / "bare"]))
    assert [row.way for row in done.rows if isinstance(row, ForcedRow)][2:] == ["budget-forcing"]
    assert "was not probed" in done.notes[0]
    done.draw()


def test_runs_that_cannot_be_compared_are_refused(folder: Path, both: Path) -> None:
    with pytest.raises(UsageError, match="was not forced"):
        forcing.ablate(AblationInputs.open(folder, forced=[folder]))
    with pytest.raises(UsageError, match="no question and seed in common"):
        forcing.ablate(AblationInputs.open(folder, forced=[both / "forced"]))


# All of them


@pytest.fixture(scope="module")
def written(folder: Path) -> ablations.WrittenAblations:
    return ablations.ablate(folder)


def test_every_possible_ablation_is_written(folder: Path, written: ablations.WrittenAblations) -> None:
    names = ["threshold", "interval", "aggregation", "asking", "prober"]
    assert [one.name for one, _ in written.ablations.made] == names
    assert written.folder == folder / "ablations"
    for name in names:
        assert all((written.folder / "tables" / f"{name}.{ending}").is_file() for ending in ("csv", "md", "tex"))
        assert (written.folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (written.folder / "figures" / f"{name}.svg").read_text()
    stored = json.loads((written.folder / "ablations.json").read_text())
    assert stored == json.loads(json.dumps(written.ablations.to_dict()))
    assert [len(one["rows"]) > 1 for one in stored["ablations"]] == [True] * 5


def test_a_missing_ablation_is_listed_with_its_command(folder: Path, written: ablations.WrittenAblations) -> None:
    (missing,) = written.ablations.missing
    assert missing.name == "forcing"
    assert missing.command == (
        "cgr generate --rule budget-forcing --probe --questions arithmetic --limit 8 --seeds 4 --budget 8000 "
        f"--model thinker --out {folder}/forced"
    )
    assert missing.command.replace("&", "&amp;") in written.page.read_text()


def test_the_page_needs_no_other_file(written: ablations.WrittenAblations) -> None:
    text = written.page.read_text()
    assert text.count("data:image/png;base64,") == 5
    assert "http" not in text
    for one, _ in written.ablations.made:
        assert f'id="{one.name}"' in text


def test_some_ablations_by_name(folder: Path, tmp_path: Path) -> None:
    some = ablations.ablate(folder, tmp_path / "out", only=["interval"])
    assert [one.name for one, _ in some.ablations.made] == ["interval"]
    assert sorted(path.name for path in (tmp_path / "out" / "figures").iterdir()) == ["interval.png", "interval.svg"]
    with pytest.raises(UnknownName, match="no ablation called 'intervall'"):
        ablations.ablate(folder, only=["intervall"])
    with pytest.raises(UsageError, match="No ablation was named"):
        ablations.ablate(folder, only=[])


def test_a_run_with_one_probe_set_gets_three_ablations(tmp_path: Path) -> None:
    found = ablations.measure(run(tmp_path / "bare", MADE))
    assert [one.name for one, _ in found.made] == ["threshold", "interval", "aggregation"]
    assert [one.name for one in found.missing] == ["forcing", "asking", "prober"]
    assert all(one.command.startswith("cgr ") for one in found.missing)


def test_folders_without_a_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no run"):
        ablations.ablate(tmp_path / "nothing")


def test_several_intervals_at_once_equal_single_ones() -> None:
    values = np.array([[1.0, 4.0], [2.0, 0.0], [6.0, 1.0]])
    both = intervals.of_each(3, lambda counts: counts @ values)
    assert both == [intervals.of_sum(values[:, 0]), intervals.of_sum(values[:, 1])]
