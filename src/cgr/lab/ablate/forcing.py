"""Forcing: what a model comes to if it may not end its thinking.

The paper's third ablation. Traces that ended by themselves cannot show it, so a forced run is recorded for real, on the
same questions under the same seeds, and each of its traces is held against the natural one: accuracy, tokens, and drift,
which is answers that were right at the natural end and wrong at the end of forcing, and the other way round. Where the
forced run was probed, CGR with forcing is replayed on it, for the two do not differ until one of them stops, and certainty
and accuracy are followed past the place where the model had wanted to end.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from cgr.errors import NotRecorded, UsageError
from cgr.lab.ablate import forcing_figure as forced_figure
from cgr.lab.ablate.forced_rows import Drift, ForcedRow, Step
from cgr.lab.ablate.inputs import Evidence, key_of, stopping
from cgr.lab.ablate.result import Ablated, Ablation, percent, points, span
from cgr.lab.decide.columns import Bools, Columns, Floats
from cgr.lab.decide.replay import Decided, at_budget, replayed
from cgr.lab.output.table import Cell, Head, Table
from cgr.lab.report.numbers import effective
from cgr.lab.score import accuracy as scores
from cgr.lab.score import bootstrap as intervals
from cgr.lab.score.measures import SCORE, cells, measure
from cgr.lab.store import DEFAULT, Store
from cgr.lab.store.config import NATURAL
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.lab.store.schema import forced_run
from cgr.probing import ProbeSpec
from cgr.rules import CgrForced

CAPTION = (
    "A forced run against the natural one: accuracy, tokens, answers lost and gained, and the way past the natural end."
)
MISSING = "No forced run was given: traces that ended by themselves cannot show what forcing does."
BEFORE = 6  # steps before the natural end that are shown
HEADS = (
    *(Head("way", "Way"), Head("thinking_tokens", "Tokens thought", ",.0f"), *SCORE),
    *(Head("lost", "Right, then wrong", ".1f", 100, "%"), Head("ci95_lost", "95% interval", ".1f", 100)),
    *(Head("gained", "Wrong, then right", ".1f", 100, "%"), Head("ci95_gained", "95% interval", ".1f", 100)),
)


@dataclass(frozen=True)
class Forced:
    """A forced run beside the natural one, trace by trace in the same order."""

    folder: Path
    info: RunInfo
    natural: Columns
    traces: tuple[RecordedTrace, ...]

    @cached_property
    def ends(self) -> Decided:
        """As it ended: budget forcing, which asks nothing on the way."""
        columns = Columns.of(self.traces, self.info)
        return at_budget(columns, columns.limit)

    @cached_property
    def probed(self) -> bool:
        return any(trace.probes for trace in self.traces)

    def until_sure(self, threshold: float, spec: ProbeSpec) -> Decided:
        """CGR with forcing."""
        return replayed(CgrForced(threshold=threshold, interval=self.info.interval), self.traces, spec)

    @cached_property
    def departed(self) -> int:
        """Traces that ended by themselves, and in the forced run did not want to at that place."""
        first = np.array([trace.forced[0][0] if trace.forced else -1 for trace in self.traces])
        return int((self.natural.ended & (first != self.natural.natural)).sum())


def ablate(evidence: Evidence) -> Ablated:
    runs = [beside(evidence, folder) for folder in evidence.forced]
    if not runs:
        raise NotRecorded(MISSING, command(evidence))
    rows = [row for run in runs for row in _rows(run, evidence)]
    every = (*_natural(runs[0].natural, evidence.threshold), *rows)
    lines = tuple((row.way, row.score.thinking_tokens, *cells(row.score), *_drifted(row.drift)) for row in every)
    table = Table("forcing", "Forced on, against the natural run", HEADS, lines)
    notes = tuple(note for run in runs for note in _notes(run, evidence))
    return Ablated(conclude(rows), every, table, lambda: forced_figure.draw(every), CAPTION, notes)


def command(evidence: Evidence) -> str:
    """As the run was made, and forced."""
    config, columns = evidence.config, evidence.columns()
    model = "" if config.model == "embedded" else f" --model {shlex.quote(config.model)}"
    return (
        f"cgr generate --rule budget-forcing --probe --questions {shlex.quote(config.source)} "
        f"--limit {len(columns.questions)} --seeds {1 + max(columns.seeds)} --budget {config.budget}{model} "
        f"--out {shlex.quote(str(forced_run(evidence.folder)))}"
    )


def beside(evidence: Evidence, folder: Path) -> Forced:
    """The traces that both runs have, in the same order."""
    with Store.open(folder) as store:
        config, info = store.config, store.info()
        traces = list(store.recorded(DEFAULT if DEFAULT in store.probe_sets() else None))
    if config.rule == NATURAL:
        raise UsageError(f"The run in {folder} was not forced.", "Make one with `cgr generate --rule budget-forcing`.")
    common = evidence.made() & {key_of(trace) for trace in traces}
    if not common:
        raise UsageError(
            f"The runs in {evidence.folder} and {folder} have no question and seed in common.",
            "Force the same questions under the same seeds.",
        )
    natural = Columns.of((one for one in evidence.traces(evidence.main) if key_of(one) in common), evidence.info)
    order = {question: place for place, question in enumerate(natural.questions)}
    kept = sorted((one for one in traces if key_of(one) in common), key=lambda one: (order[one.question_id], one.seed))
    return Forced(folder, info, natural, tuple(kept))


def _natural(columns: Columns, threshold: float) -> Sequence[ForcedRow]:
    measured = measure(columns, [stopping(columns, threshold)])
    names = ("natural end", f"cgr at {threshold:g}")
    return [ForcedRow(name, "", score) for name, score in zip(names, measured.all, strict=True)]


def _rows(run: Forced, evidence: Evidence) -> list[ForcedRow]:
    """The run as it ended and, where it was probed, until it is sure."""
    ways = {"budget-forcing": run.ends}
    if run.probed:
        spec = ProbeSpec(aggregate=evidence.config.asking.aggregate)
        ways[f"cgr-forced at {evidence.threshold:g}"] = run.until_sure(evidence.threshold, spec)
    measured = measure(run.natural, list(ways.values()))
    return [
        ForcedRow(name, str(run.folder), score, drift(run.natural, ways[name].right), () if place else steps(run))
        for place, (name, score) in enumerate(zip(ways, measured.scores, strict=True))
    ]


def drift(natural: Columns, right: Bools) -> Drift:
    """Shares of graded traces, with intervals over questions."""
    before, here = natural.final_right, scores.graded_questions(natural)
    graded = scores.by_question(natural, natural.graded)[here]
    changes = np.stack(
        [scores.by_question(natural, flags & natural.graded)[here] for flags in (before & ~right, ~before & right)], axis=1
    )

    def shares(counts: Floats) -> Floats:
        return np.array((counts @ changes) / (counts @ graded)[:, None], dtype=np.float64)

    lost, gained = (float(share) for share in shares(np.ones((1, len(graded))))[0])
    return Drift(lost, gained, *intervals.of_each(len(graded), shares))


def steps(run: Forced) -> tuple[Step, ...]:
    """Probes by how many steps after the natural end they were made, on traces that had wanted to end before the budget.
    Those made because it wanted to end again are left out: they lie where it is surest."""
    columns, natural = Columns.of(map(_on_the_way, run.traces), run.info), run.natural
    if not columns.at.size:
        return ()
    interval = run.info.interval
    after = np.ceil((columns.at - natural.natural[:, None]) / interval).astype(np.int64)
    asked = columns.present & (natural.ended & natural.graded)[:, None] & (after >= -BEFORE)
    sure = effective(columns.certainty, columns.closed)
    found = []
    for step in np.unique(after[asked]):
        here = asked & (after == step)
        means = float(sure[here].mean()), float(columns.right[here].mean())
        found.append(Step(int(step) * interval, int(here.sum()), *means))
    return tuple(found)


def _on_the_way(trace: RecordedTrace) -> RecordedTrace:
    ends = {at for at, _ in trace.forced}
    return replace(trace, probes=tuple(probe for probe in trace.probes if probe.at not in ends))


def _drifted(drift: Drift | None) -> tuple[Cell, ...]:
    return (drift.lost, drift.ci95_lost, drift.gained, drift.ci95_gained) if drift else (None,) * 4


def conclude(rows: Sequence[ForcedRow]) -> str:
    return " ".join(_said(row, row.drift) for row in rows if row.drift)


def _said(row: ForcedRow, drift: Drift) -> str:
    score = row.score
    cost = f"{percent(abs(score.net_share))} {'more' if score.net_share <= 0 else 'fewer'} tokens"
    low, high = score.ci95_diff_points
    verdict = "which could be chance" if low <= 0 <= high else "a gain" if low > 0 else "a loss"
    return (
        f"With {row.way} accuracy changes by {points(score.diff_points)} {span(score.ci95_diff_points)}, {verdict}, for "
        f"{cost} than the natural run; {percent(drift.lost)} of answers go from right to wrong, {percent(drift.gained)} "
        "the other way."
    )


def _notes(run: Forced, evidence: Evidence) -> list[str]:
    found = []
    if (short := len(evidence.made()) - len(run.traces)) > 0:
        found.append(f"{short} of {len(evidence.made())} traces are not in {run.folder} and are left out.")
    if not run.probed:
        found.append(f"{run.folder} was not probed: nothing is said about CGR with forcing, nor of the way past the end.")
    if run.departed:
        found.append(
            f"{run.departed} of {int(run.natural.ended.sum())} traces that ended by themselves did not want to at that "
            f"place in {run.folder}: the two runs were not sampled alike, and differ by chance too."
        )
    return found


ABLATION = Ablation("forcing", "Forcing", ablate)
