"""Ablation of forcing: the model may not end its thinking before the budget.

The paper's third ablation. A forced run is recorded on the same questions and seeds, because traces with a natural end
cannot show what forcing does. Each forced trace is compared with the natural one: accuracy, tokens, and drift (answers
that were right at the natural end and wrong at the end of forcing, and the reverse). If the forced run was probed,
`cgr-forced` is replayed on it, and certainty and accuracy are followed past the natural end.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from cgr.errors import NotRecorded, UsageError
from cgr.lab.ablate import figures
from cgr.lab.ablate.inputs import AblationInputs, stopping
from cgr.lab.ablate.result import SCORE_HEADS, AblationResult, percent, points
from cgr.lab.decide.arrays import Decisions, at_end
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import replayed
from cgr.lab.decide.run import key_of
from cgr.lab.output import Head, Table, with_interval
from cgr.lab.score import accuracy as scores
from cgr.lab.score import bootstrap as intervals
from cgr.lab.score.calibration import effective
from cgr.lab.score.paired import Score, measure
from cgr.lab.store import DEFAULT, Store
from cgr.lab.store.config import NATURAL
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.lab.store.schema import forced_run
from cgr.lab.types import Bools, Floats, Interval
from cgr.probing import ProbeSpec
from cgr.records import Record
from cgr.rules import CgrForced

CAPTION = "The forced run against the natural one: accuracy, tokens, changed answers, and certainty after the natural end."
MISSING = "No forced run was given. Traces with a natural end cannot show what forcing does."
STEPS_BEFORE = 6  # intervals before the natural end that are shown
HEADS = (
    *(Head("way", "Rule"), Head("thinking_tokens", "Thinking tokens", ",.0f"), *SCORE_HEADS),
    *with_interval("lost", "Right, then wrong", ".1f", 100, "%"),
    *with_interval("gained", "Wrong, then right", ".1f", 100, "%"),
)


@dataclass(frozen=True, slots=True)
class Drift(Record):
    """Shares of traces whose answer was right at the natural end and is wrong now (`lost`), and the reverse (`gained`)."""

    lost: float
    gained: float
    ci95_lost: Interval
    ci95_gained: Interval


@dataclass(frozen=True, slots=True)
class ForcedStep(Record):
    """Means over the probes made up to `after` tokens after the natural end and not more than an interval before that."""

    after: int
    count: int
    certainty: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class ForcedRow(Record):
    """One rule (`way`). `run`: the folder of the forced run, empty for rules on the natural run."""

    way: str
    run: str
    score: Score
    drift: Drift | None = None
    steps: tuple[ForcedStep, ...] = ()


@dataclass(frozen=True)
class ForcedRun:
    """A forced run and the columns of the natural one, trace by trace in the same order."""

    folder: Path
    info: RunInfo
    natural: Columns
    traces: tuple[RecordedTrace, ...]

    @cached_property
    def at_end(self) -> Decisions:
        """The rule `budget-forcing`: the answer at the end of each forced trace, without probes."""
        return at_end(Columns.of(self.traces, self.info))

    @cached_property
    def probed(self) -> bool:
        """Whether the forced run has probes."""
        return any(trace.probes for trace in self.traces)

    def until_sure(self, threshold: float, spec: ProbeSpec) -> Decisions:
        """The rule `cgr-forced`. The two rules see the same trace until one of them stops."""
        rule, interval = CgrForced(threshold=threshold), self.info.interval
        return replayed(replace(rule, interval=interval) if interval else rule, self.traces, spec, irregular=not interval)

    @cached_property
    def departed(self) -> int:
        """Traces with a natural end whose forced trace was not first forced at that position."""
        first = np.array([trace.forced[0][0] if trace.forced else -1 for trace in self.traces])
        return int((self.natural.ended & (first != self.natural.natural)).sum())


def ablate(inputs: AblationInputs) -> AblationResult:
    """The natural run and every forced run, rule by rule."""
    runs = [load_forced(inputs, folder) for folder in inputs.forced]
    if not runs:
        raise NotRecorded(MISSING, command(inputs))
    forced = [row for run in runs for row in _forced_rows(run, inputs)]
    rows = (*_natural_rows(runs[0].natural, inputs.threshold), *forced)
    cells = [(row, row.score, row.drift) for row in rows]
    table = Table.of_records("forcing", "Forced runs against the natural run", HEADS, cells)
    notes = tuple(note for run in runs for note in _notes(run, inputs))
    conclusion = " ".join(conclude(row, row.drift) for row in forced if row.drift)
    return AblationResult(conclusion, rows, table, lambda: figures.forcing(rows), CAPTION, notes)


def command(inputs: AblationInputs) -> str:
    """The command that records the forced run."""
    config, columns = inputs.run.config, inputs.columns()
    model = "" if config.model == "embedded" else f" --model {shlex.quote(config.model)}"
    return (
        f"cgr generate --rule budget-forcing --probe --questions {shlex.quote(config.source)} "
        f"--limit {len(columns.questions)} --seeds {1 + max(columns.seeds)} --budget {config.budget}{model} "
        f"--out {shlex.quote(str(forced_run(inputs.run.folder)))}"
    )


def load_forced(inputs: AblationInputs, folder: Path) -> ForcedRun:
    """The traces that both runs have, in the same order."""
    with Store.open(folder) as store:
        config, info = store.config, store.info()
        traces = list(store.recorded(DEFAULT if DEFAULT in store.probe_sets() else None))
    if config.rule == NATURAL:
        raise UsageError(f"The run in {folder} was not forced.", "Make one with `cgr generate --rule budget-forcing`.")
    common = inputs.run.keys & {key_of(trace) for trace in traces}
    if not common:
        message = f"The runs in {inputs.run.folder} and {folder} have no question and seed in common."
        raise UsageError(message, "Record the forced run with the same questions and seeds.")
    natural = Columns.of((one for one in inputs.run.traces(inputs.main) if key_of(one) in common), inputs.columns().info)
    order = {question: place for place, question in enumerate(natural.questions)}
    kept = sorted((one for one in traces if key_of(one) in common), key=lambda one: (order[one.question_id], one.seed))
    return ForcedRun(folder, info, natural, tuple(kept))


def _natural_rows(columns: Columns, threshold: float) -> Sequence[ForcedRow]:
    measured = measure(columns, [stopping(columns, threshold)])
    names = ("natural end", f"cgr at {threshold:g}")
    return [ForcedRow(name, "", score) for name, score in zip(names, measured.all, strict=True)]


def _forced_rows(run: ForcedRun, inputs: AblationInputs) -> list[ForcedRow]:
    """`budget-forcing` and, if the run was probed, `cgr-forced`."""
    rules = {"budget-forcing": run.at_end}
    if run.probed:
        spec = ProbeSpec(aggregate=inputs.run.config.asking.aggregate)
        rules[f"cgr-forced at {inputs.threshold:g}"] = run.until_sure(inputs.threshold, spec)
    measured = measure(run.natural, list(rules.values()))
    return [
        ForcedRow(name, str(run.folder), score, drift(run.natural, rules[name].right), () if place else steps(run))
        for place, (name, score) in enumerate(zip(rules, measured.scores, strict=True))
    ]


def drift(natural: Columns, right: Bools) -> Drift:
    """Changed answers as shares of the graded traces, with intervals over questions."""
    before, here = natural.final_right, scores.graded_questions(natural)
    graded = scores.by_question(natural, natural.graded)[here]
    changed = (before & ~right, ~before & right)
    changes = np.stack([scores.by_question(natural, one & natural.graded)[here] for one in changed], axis=1)

    def shares(counts: Floats) -> Floats:
        return np.array((counts @ changes) / (counts @ graded)[:, None], dtype=np.float64)

    lost, gained = (float(share) for share in shares(np.ones((1, len(graded))))[0])
    return Drift(lost, gained, *intervals.of_each(len(graded), shares))


def steps(run: ForcedRun) -> tuple[ForcedStep, ...]:
    """Means of probes by their distance from the natural end, over traces with a natural end. Probes made where the model
    tried to end again are left out: certainty is highest there."""
    columns, natural = Columns.of(map(_without_end_probes, run.traces), run.info), run.natural
    if not columns.at.size or not run.info.interval:
        return ()
    interval = run.info.interval
    after = np.ceil((columns.at - natural.natural[:, None]) / interval).astype(np.int64)
    shown = columns.present & (natural.ended & natural.graded)[:, None] & (after >= -STEPS_BEFORE)
    certainty = effective(columns.certainty, columns.closed)
    found = []
    for step in np.unique(after[shown]):
        here = shown & (after == step)
        means = float(certainty[here].mean()), float(columns.right[here].mean())
        found.append(ForcedStep(int(step) * interval, int(here.sum()), *means))
    return tuple(found)


def _without_end_probes(trace: RecordedTrace) -> RecordedTrace:
    ends = {at for at, _ in trace.forced}
    return replace(trace, probes=tuple(probe for probe in trace.probes if probe.at not in ends))


def conclude(row: ForcedRow, drift: Drift) -> str:
    """The change in accuracy, tokens and answers by one rule on a forced run."""
    score = row.score
    cost = f"{percent(abs(score.net_share))} {'more' if score.net_share <= 0 else 'fewer'} tokens"
    low, high = score.ci95_diff_points
    verdict = "not significant" if low <= 0 <= high else "a significant gain" if low > 0 else "a significant loss"
    return (
        f"With {row.way} accuracy changes by {points(score.diff_points, score.ci95_diff_points)} "
        f"({verdict}) for {cost} than the natural run; {percent(drift.lost)} of the answers change from right to wrong and "
        f"{percent(drift.gained)} from wrong to right."
    )


def _notes(run: ForcedRun, inputs: AblationInputs) -> list[str]:
    found = []
    if (missing := len(inputs.run.keys) - len(run.traces)) > 0:
        found.append(f"{missing} of {len(inputs.run.keys)} traces are not in {run.folder} and are left out.")
    if not run.probed:
        found.append(f"{run.folder} was not probed: `cgr-forced` and certainty after the natural end are not shown.")
    if run.departed:
        found.append(
            f"{run.departed} of {int(run.natural.ended.sum())} traces with a natural end continue differently in "
            f"{run.folder} before that end: the two runs were not sampled in the same way, so they also differ by chance."
        )
    return found
