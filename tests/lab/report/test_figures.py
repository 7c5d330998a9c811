from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text

from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import deciding
from cgr.lab.output import style
from cgr.lab.report import figures, numbers
from cgr.lab.report.figures import FigureData, answers, certainty, tokens
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from tests.lab.report import test_report as odd
from tests.lab.runs import SIX_INFO, plausible, six

ROOT = Path(__file__).parents[3]
PNG = b"\x89PNG\r\n\x1a\n"
NAMES = {plot.name for plot in figures.PLOTS}


def figure_data(traces: list[RecordedTrace], info: RunInfo = SIX_INFO) -> FigureData:
    columns = Columns.of(traces, info)
    return FigureData(columns, numbers.report(columns), deciding(columns))


def missing(traces: list[RecordedTrace], info: RunInfo = SIX_INFO) -> set[str]:
    data = figure_data(traces, info)
    return {plot.name for plot in figures.PLOTS if plot.why_not(data)}


# All of them


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every figure of an ordinary run."""
    folder = tmp_path_factory.mktemp("figures")
    data = figure_data(*plausible(5, 3))
    before = dict(matplotlib.rcParams)
    figures.write(data, folder)
    assert dict(matplotlib.rcParams) == before
    return folder


def test_every_figure_is_written_in_two_formats_and_listed(drawn: Path) -> None:
    assert {path.name for path in drawn.iterdir()} == {f"{name}.{end}" for name in NAMES for end in ("png", "svg")} | {
        style.LIST
    }
    listed = (drawn / style.LIST).read_text(encoding="utf-8")
    assert all(f"`{plot.name}`: {plot.caption}" in listed for plot in figures.PLOTS)
    assert "Left out" not in listed


def test_the_files_have_the_format_of_their_name(drawn: Path) -> None:
    for path in drawn.glob("*.png"):
        assert path.read_bytes().startswith(PNG)
    for path in drawn.glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_the_same_figure_gives_the_same_bytes(drawn: Path, tmp_path: Path) -> None:
    data = figure_data(*plausible(5, 3))
    with style.styled():
        again = style.save(tokens.used(data), "tokens_used", tmp_path)
    for path in again:
        assert path.read_bytes() == (drawn / path.name).read_bytes()


def test_no_window_and_no_global_state() -> None:
    light = "import sys, cgr.lab.report; print('matplotlib' in sys.modules)"
    drawing = (
        "import sys; from tests.lab.report.test_figures import *; data = figure_data(six())\n"
        "with style.styled(): tokens.used(data)\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    for code in (light, drawing):
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        assert ran.stdout == "False\n"


# Figures that are left out

BY_SEED = {"accuracy_by_seed", "distance_from_baseline", "tokens_saved_by_seed"}
SAVED = {"distance_from_baseline", "tokens_saved_by_seed", "tokens_saved_heat_map", "savings_by_question"}
GRADED = {
    "cumulative_predictions",
    "incorrect_to_correct",
    "accuracy_by_seed",
    "distance_from_baseline",
    "grade_over_budget",
    "accuracy_against_tokens",
    "reliability",
    "risk_coverage",
}


@pytest.mark.parametrize(
    ("make", "left_out"),
    [
        (six, set()),
        (odd.no_golds, GRADED),
        (odd.one_seed, {*BY_SEED, "incorrect_to_correct", "risk_coverage"}),
        (odd.all_right, {"incorrect_to_correct", "risk_coverage"}),
        (odd.nothing_right, {"incorrect_to_correct", "risk_coverage"}),
        (odd.never_sure, SAVED),
        (odd.no_probes, {*SAVED, "certainty_histogram", "average_certainty", "accuracy_against_tokens"}),
        (odd.uneven, set()),
        (odd.one_missing, set()),
        (odd.one_without_gold, set()),
        (odd.other_budgets, set()),
    ],
)
def test_figures_that_make_no_sense_are_left_out(make: Callable[[], list[RecordedTrace]], left_out: set[str]) -> None:
    data = figure_data(make())
    reasons = {plot.name: why for plot in figures.PLOTS if (why := plot.why_not(data))}
    assert reasons.keys() == left_out
    assert all(why.endswith(".") for why in reasons.values())
    with style.styled():
        for plot in figures.PLOTS:
            if plot.name not in reasons:
                plot.draw(data).draw_without_rendering()


def test_a_figure_left_out_is_listed_and_its_old_file_removed(tmp_path: Path) -> None:
    data = figure_data(odd.no_golds())
    old = tmp_path / "reliability.png"
    old.write_bytes(PNG)
    figures.write(data, tmp_path)
    assert not old.exists()
    assert "**Left out: No question has a known answer.**" in (tmp_path / style.LIST).read_text(encoding="utf-8")


def test_a_tiny_budget_has_no_figures_over_steps() -> None:
    assert {"grade_over_budget", "average_certainty"} <= missing(*plausible(2, 2, budget=500, interval=1000))


def test_many_questions_and_seeds_fit() -> None:
    traces, info = plausible(60, 3, budget=3000)
    data = figure_data(traces, info)
    with style.styled():
        for draw in (tokens.heat_map, tokens.by_question):
            figure = draw(data)
            figure.draw_without_rendering()
            assert figure.get_size_inches()[1] == 6
            assert not figure.axes[0].get_yticks().size
    wide = figure_data(*plausible(2, 90, budget=3000))
    with style.styled():
        figure = answers.by_seed(wide)
    assert len(figure.axes[0].get_xticks()) <= 20


# What figures show


def test_cumulative_predictions_of_the_six_traces() -> None:
    """At 0.99: c ends at 1800 and 900, a at 3000 (sure) and 2000 (wrong), b at 3000 (sure) and else at the budget."""
    data = figure_data(six())
    assert answers.given_at(data).tolist() == [3000, 4000, 1801, 2001, 3000, 901]
    with style.styled():
        lines = answers.cumulative(data).axes[0].get_lines()
    right, _, last_right, wrong, _, last_wrong = (line.get_ydata().tolist() for line in lines)
    assert right == [0, 0.5, 1.0, 2.0]
    assert wrong == [0, 0, 0, 0.5]
    assert (last_right, last_wrong) == ([2.5], [0.5])


def test_the_ratio_starts_at_the_first_correct_answer() -> None:
    with style.styled():
        line = answers.ratio(figure_data(six())).axes[0].get_lines()[0]
    assert line.get_xdata().tolist() == [1000, 2000, 3000, 4000]
    assert line.get_ydata().tolist() == [0, 0, 0.25, 0.2]


def test_average_certainty_of_running_and_of_all_traces() -> None:
    grid, running, carried = certainty.certainty_by_step(figure_data(six()))
    assert running.sum(axis=0).tolist() == [5, 4, 3]
    assert carried[2].tolist() == [0.965, 0.97, 0.97]
    assert carried[5].tolist() == [0.9, 0.9, 0.9]
    assert carried[4].tolist() == [0, 0.6, 0.99]  # the first did not close
    assert grid[running].sum() == pytest.approx(carried[running].sum())


def test_a_missing_probe_keeps_the_last_certainty() -> None:
    first = six()[0]
    traces = [replace(first, probes=(first.probes[0], first.probes[2]))]
    _, running, carried = certainty.certainty_by_step(figure_data(traces))
    assert running.tolist() == [[True, False, True]]
    assert carried.tolist() == [[0.41, 0.41, 0.998]]


def test_the_band_is_the_standard_deviation_over_seeds() -> None:
    data = figure_data(six())
    grid, running, _ = certainty.certainty_by_step(data)
    spread = certainty.spread_over_seeds(data, grid, running)
    means = [np.mean([0.41, 0.2, 0.965]), np.mean([0.3, 0.0])]
    assert spread[0] == pytest.approx(np.std(means, ddof=1))
    assert not certainty.spread_over_seeds(figure_data(six()[:3]), grid[:3], running[:3]).any()


def test_the_heat_map_shows_missing_traces_as_missing() -> None:
    with style.styled():
        image = tokens.heat_map(figure_data(six()[:-1])).axes[0].get_images()[0].get_array()
    assert image.mask.sum() == 1
    assert image.sum() == 1500 - 40  # thinking saved, minus the probe tokens


LONG = RunInfo("demo", "model", "import", budget=8000, interval=1000)


def long_names() -> FigureData:
    """A run whose ids and rule have long names."""
    traces, _ = plausible(12, 8, chance=3)
    traces = [replace(one, question_id=f"aime-2025-problem-{one.question_id}") for one in traces]
    data = figure_data(traces, LONG)
    return replace(data, report=replace(data.report, rule="a-fitted-rule-with-a-long-name"))


@pytest.mark.parametrize("plot", figures.PLOTS, ids=lambda plot: plot.name)
@pytest.mark.parametrize("make", [lambda: figure_data(six()), long_names], ids=["six traces", "long names"])
def test_all_text_is_inside_the_figure(make: Callable[[], FigureData], plot: figures.Plot) -> None:
    data = make()
    with style.styled():
        figure = plot.draw(data)
        figure.draw_without_rendering()
        page, hidden = figure.bbox, ticks_outside(figure)
        for text in figure.findobj(lambda one: isinstance(one, Text) and one.get_visible() and one.get_text()):
            box = text.get_window_extent()
            inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.width + 1 and box.y1 <= page.height + 1
            assert inside or text in hidden, (text.get_text(), box, page)


def ticks_outside(figure: Any) -> list[Any]:
    """The labels of ticks beyond the limits of their axis, which are not drawn."""
    found = []
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        room = 1e-6 * (high - low)
        found += [one.label1 for one in axis.get_major_ticks() if not low - room <= one.get_loc() <= high + room]
    return found


def test_the_trade_off_shows_a_fixed_budget_of_the_same_cost() -> None:
    data = figure_data(*plausible(20, 4, chance=1))
    row = next(row for row in data.report.adaptive if row.threshold == data.report.shown)
    with style.styled():
        lines = {line.get_label(): line for line in tokens.trade_off(data).axes[0].get_lines()}
    square = next(line for label, line in lines.items() if label.startswith("fixed budget that costs as much as 0.99"))
    assert [square.get_xdata()[0], square.get_ydata()[0]] == pytest.approx([row.cost_mean, row.fixed_accuracy])
    assert lines["fixed budgets"].get_ydata() == pytest.approx([row.accuracy for row in data.report.budget_sweep])


@pytest.mark.parametrize(
    ("ticks", "texts"),
    [
        ([0, 2500, 5000, 7500], ["0", "2,500", "5,000", "7,500"]),
        ([0, 12500, 25000], ["0", "12.5k", "25k"]),
        ([112_500, 125_000], ["112.5k", "125k"]),
        ([0, 2_500_000, 12_500_000], ["0", "2.5M", "12.5M"]),
    ],
)
def test_ticks_of_tokens_are_exact_and_in_one_unit(ticks: list[int], texts: list[str]) -> None:
    assert [style.tick(value, max(ticks)) for value in ticks] == texts
