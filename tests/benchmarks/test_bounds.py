"""The simulation of the bounds: its tables are complete, and a population has the mean that it is given."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bounds import changes, tables


@pytest.mark.parametrize("seeds", [1, 8])
def test_a_population_has_the_mean_that_it_is_given(seeds: int) -> None:
    made = changes(np.random.default_rng(0), 2000, 100, seeds, 0.02, 0.01)
    assert made.mean() == pytest.approx(-0.01, abs=0.001)
    assert made.min() >= -1
    assert made.max() <= 1


def test_the_tables_are_complete() -> None:
    made = {table.name: table for table in tables(draws=20)}
    assert list(made) == ["smallest", "power", "coverage", "equal"]
    for table in made.values():
        assert all(len(row) == len(table.heads) and None not in row for row in table.rows)
    assert [row[1] for row in made["coverage"].rows] == ["betting", "betting", "exact"]
