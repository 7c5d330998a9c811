from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.lab.output import style
from cgr.lab.output.style import SavedFigure


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (950, "950"), (1000, "1k"), (12_500, "12.5k"), (999_499, "999k"), (3_380_578, "3.38M")]
)
def test_short_token_counts(value: float, text: str) -> None:
    assert style.tokens(value) == text


@given(st.lists(st.floats(0, 100), max_size=8).map(sorted), st.floats(0.1, 20))
def test_labels_are_moved_apart_only_if_they_overlap(values: list[float], gap: float) -> None:
    places = style.spread_out(values, gap)
    assert all(later - earlier >= gap - 1e-9 for earlier, later in pairwise(places))
    assert sum(places) == pytest.approx(sum(values), abs=1e-6)
    if all(later - earlier >= gap for earlier, later in pairwise(values)):
        assert places == pytest.approx(values)


def test_the_list_gives_captions_and_reasons(tmp_path: Path) -> None:
    style.write_list([SavedFigure("a", "First."), SavedFigure("b", "Second.", why_not="No probe.")], tmp_path / "new")
    text = (tmp_path / "new" / style.LIST).read_text(encoding="utf-8")
    assert text == "# Figures\n\n- `a`: First.\n- `b`: Second. **Left out: No probe.**\n"


def test_a_figure_is_saved_in_both_formats_and_removed_again(tmp_path: Path) -> None:
    with style.styled():
        figure, axes = style.paper()
        axes.plot([0, 1], [0, 1])
        first = style.save(figure, "line", tmp_path / "figures")
    assert [path.name for path in first] == ["line.png", "line.svg"]
    assert all(path.stat().st_size > 500 for path in first)
    style.remove("line", tmp_path / "figures")
    style.remove("line", tmp_path / "figures")  # a figure that is not there is no error
    assert not any(path.exists() for path in first)
