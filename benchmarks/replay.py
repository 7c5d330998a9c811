"""How long scoring of recorded probes takes: `python benchmarks/replay.py`. No model is used.

Three parts: 8 rules x 16 thresholds over 1,920 traces x 32 probes with every table; a whole report of a million probes,
from records; and the reasoning loop, which decides for rules without a vectorised form.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import click
import numpy as np

from cgr.lab.decide import replay as decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.report import numbers, tables
from cgr.lab.score import accuracy as scores
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.records import Probe
from cgr.rules import Cgr, FixedBudget, Rule

T = TypeVar("T")
INTERVAL, PROBES = 1000, 32
THRESHOLDS = tuple(float(value) for value in np.linspace(0.85, 1, 16))


def recorded(traces: int, seeds: int = 64) -> Iterator[RecordedTrace]:
    """Synthetic traces of 32 probes with random certainties; a quarter of the answers are correct."""
    rng = np.random.default_rng(0)
    for number in range(traces):
        sure = np.sort(rng.beta(2, 0.5, PROBES + 1))
        answers = np.where(rng.random(PROBES + 1) < 0.25, "70", rng.integers(0, 999, PROBES + 1).astype(str))
        probes = tuple(
            Probe(INTERVAL * (k + 1), str(answers[k]), float(sure[k]), True, (float(sure[k]), 1.0), decoded=3)
            for k in range(PROBES)
        )
        budget = INTERVAL * (PROBES + 1)
        final = Probe(budget, str(answers[-1]), float(sure[-1]), True, (float(sure[-1]),), decoded=3)
        yield RecordedTrace(f"q{number // seeds}", number % seeds, "70", budget, "budget", budget, final, probes)


def info() -> RunInfo:
    """The description of the synthetic run."""
    return RunInfo("synthetic", "none", "none", INTERVAL * (PROBES + 1), INTERVAL)


def timed(what: str, work: Callable[[], T]) -> T:
    """Do the work, print its time and the peak memory, and return its result."""
    begin, busy = time.perf_counter(), time.process_time()
    result = work()
    seconds, computed = time.perf_counter() - begin, time.process_time() - busy
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20)
    click.echo(f"{what:<50} {seconds:7.2f} s {computed:7.2f} s of CPU {megabytes:6.0f} MB peak memory so far")
    return result


def every_rule(columns: Columns) -> None:
    """8 rules x 16 thresholds: accuracy with its intervals, Grade at every step and penalty, savings; then the tables."""
    for threshold in THRESHOLDS:
        rules: list[Rule] = [FixedBudget(), *(Cgr(threshold=threshold, interval=INTERVAL * k) for k in range(1, 8))]
        for rule in rules:
            decided = decisions.decide(rule, columns)
            scores.compare(columns, decided.right)
            scores.savings(columns, decided)
            for penalty in scores.PENALTIES:
                scores.grade_over_budget(columns, decided, threshold, penalty, columns.steps)
    with TemporaryDirectory() as folder:
        tables.write(numbers.report(columns, THRESHOLDS), Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probes", type=int, default=1_000_000, help="number of probes of the large run")
    count: int = parser.parse_args().probes
    paper = list(recorded(1920))
    columns = timed("columns of 1,920 traces x 32 probes", lambda: Columns.of(paper, info()))
    timed("8 rules x 16 thresholds on them, and all tables", lambda: every_rule(columns))
    timed("one rule on them by the reasoning loop", lambda: decisions.replayed(Cgr(threshold=0.99), paper))
    many = list(recorded(count // PROBES))
    large = timed(f"columns of {count:,} probes", lambda: Columns.of(many, info()))
    timed("the whole report of them", lambda: numbers.report(large))


if __name__ == "__main__":
    main()
