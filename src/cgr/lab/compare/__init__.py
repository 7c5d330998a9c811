"""All rules on the traces of a run, each at every value of its main parameter: accuracy against tokens, and the best rule.

`compare` works in memory, `compare_run` on a run's folder; `write_comparison` writes `compare.json`, tables and a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cgr.errors import NotRecorded, UsageError
from cgr.lab.compare import figure, tables
from cgr.lab.compare.result import AREA, SAVING, Compared, Entry, Point, Split, Winner
from cgr.lab.compare.settings import Choice, Decide, Rules, Setting, choose, chosen_rules, corners, points, sweep, winner
from cgr.lab.decide.arrays import at_end
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.run import Run
from cgr.lab.exchange import as_run_folder
from cgr.lab.fit import learn
from cgr.lab.output import as_json, beside, style, unique_names, write_json, write_table
from cgr.lab.score.accuracy import PENALTIES, check_penalties, graded_questions
from cgr.lab.score.bootstrap import DRAWS
from cgr.lab.score.paired import LEAST, MARGIN, Paired, by_question, split_questions
from cgr.lab.types import Bools
from cgr.rules import Rule

TUNE_ON = 0.5
FOLDER, JSON, FIGURE = "compare", "compare.json", "frontier"
CAPTION = "Accuracy against tokens for each rule, and the tokens that each saves at equal accuracy."
NOTHING = "there is nothing to compare rules on."
HOW_TO_PROBE = "Make probes with `cgr probe`; traces that are shorter than its interval get none."
NO_RULE = "No rule can be decided on these recordings."
TOO_FEW = "Too few questions to hold any out: parameters were chosen on the questions that are shown."
IN_SAMPLE = "Parameters were chosen on the questions that are shown: expect less on other questions."
Learn = Callable[[Rule, Bools], Rule]


def compare(
    columns: Columns,
    decide: Decide,
    rules: Rules = None,
    penalties: Sequence[float] = PENALTIES,
    *,
    tune_on: float = TUNE_ON,
    draws: int = DRAWS,
    max_replays: int | None = None,
    learn: Learn | None = None,
    questions: Sequence[str] = (),
) -> Compared:
    """All rules (or these) on one run. `decide`: what a rule decides on its traces, or `NotRecorded`.

    A rule given by name or file probes on the run's grid; a rule object is used as it is. Each is tried at every value of
    its main parameter. Values are chosen on the share `tune_on` of the questions and shown on the others. `max_replays`: a
    rule without an array form that needs more replays is left out, and listed. `learn`: fits a rule to some questions
    before it is compared. `questions`: all questions of the run, if the columns do not have all of them.
    """
    if not 0 <= tune_on < 1:
        raise UsageError(
            f"A share of {tune_on:g} of the questions cannot be tuned on.", "Choose one from 0 (show them all) to below 1."
        )
    _check_gradable(columns)
    parts = split_questions(columns, tune_on, questions)
    split = Split(int(parts[0].sum()), int(parts[1].sum()), apart=not (parts[0] & parts[1]).any())
    chosen = chosen_rules(rules, columns.info.interval)
    if learn and split.apart:
        chosen = {name: learn(rule, parts[0]) for name, rule in chosen.items()}
    swept = [sweep(name, rule, columns, decide, max_replays) for name, rule in chosen.items()]
    settings = [setting for made, _ in swept for setting in made]
    results = _Results(settings, tuple(penalties), *_paired(columns, settings, parts, draws))
    return Compared(
        run=columns.info,
        questions=int(graded_questions(columns).sum()),
        seeds=len(columns.seeds),
        traces=int(columns.graded.sum()),
        split=split,
        penalties=tuple(penalties),
        baseline=results.shown_points[0],
        whole_baseline=results.whole_points[0],
        entries=results.entries,
        winners=results.winners,
        missing=tuple(one for _, refused in swept for one in refused),
        notes=() if split.apart else (IN_SAMPLE if tune_on <= 0 else TOO_FEW,),
        margin=MARGIN,
        draws=draws,
    )


def _check_gradable(columns: Columns) -> None:
    graded = int(graded_questions(columns).sum())
    if graded < LEAST:
        count = "no question" if not graded else "one question"
        raise UsageError(
            f"The run {columns.info.name!r} has {count} with a known answer: rules cannot be compared on it.",
            "At least two are needed; dozens separate rules.",
        )


def _paired(
    columns: Columns, settings: Sequence[Setting], parts: tuple[Bools, Bools], draws: int
) -> tuple[Paired, Paired, Paired]:
    """The settings on all questions, on those that choose, and on those that are shown. Setting 0 is the baseline."""
    decided = (at_end(columns), *(one.decided for one in settings))
    totals, graded = by_question(columns, decided), graded_questions(columns)

    def on(questions: Bools) -> Paired:
        traces = columns.graded & questions[columns.question]
        return Paired.of(totals.among(questions[graded]), draws, decided, traces)

    whole = on(parts[0] | parts[1])
    return (whole, whole, whole) if (parts[0] & parts[1]).any() else (whole, on(parts[0]), on(parts[1]))


@dataclass(frozen=True)
class _Results:
    """The settings, and their measurement on all questions, on those that choose, and on those that are shown."""

    settings: Sequence[Setting]
    penalties: tuple[float, ...]
    whole: Paired
    tuning: Paired
    shown: Paired

    @cached_property
    def values(self) -> tuple[float | None, ...]:
        return None, *(setting.value for setting in self.settings)

    @cached_property
    def whole_points(self) -> tuple[Point, ...]:
        return points(self.whole, self.values, self.penalties)

    @cached_property
    def shown_points(self) -> tuple[Point, ...]:
        return self.whole_points if self.shown is self.whole else points(self.shown, self.values, self.penalties)

    @cached_property
    def members(self) -> dict[str, list[int]]:
        """The settings of each rule."""
        places: dict[str, list[int]] = {}
        for place, one in enumerate(self.settings, 1):
            places.setdefault(one.name, []).append(place)
        return places

    @cached_property
    def choices(self) -> dict[str, tuple[Choice, ...]]:
        return {
            name: choose(self.tuning.only(places), self.shown.only(places), self.penalties)
            for name, places in self.members.items()
        }

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Rules of equal accuracy first, by their net saving; then the others, by the area under their frontier."""
        made = [self._entry(name, places) for name, places in self.members.items()]
        by = {entry.rule: entry.by(SAVING if entry.equal else AREA).figure or 0.0 for entry in made}
        return tuple(sorted(made, key=lambda entry: (not entry.equal, -by[entry.rule])))

    @property
    def winners(self) -> tuple[Winner, ...]:
        by_measure = zip(*self.choices.values(), strict=True)
        return tuple(winner(made[0].measure, dict(zip(self.choices, made, strict=True))) for made in by_measure)

    def _entry(self, name: str, members: list[int]) -> Entry:
        places = [0, *members]
        saving, *_ = made = self.choices[name]
        frontier = corners(self.whole.total.only(members))
        return Entry(
            rule=name,
            parameter=self.settings[members[0] - 1].parameter,
            sweep=tuple(self.whole_points[place] for place in members),
            held_out=tuple(self.shown_points[place] for place in members),
            shown=self.shown_points[places[saving.setting or 0]],
            tuned=saving.tuned,
            equal=saving.counts,
            figures=tuple(one.as_figure(self.values[places[one.setting or 0]]) for one in made),
            frontier=tuple(self.values[places[place]] for place in frontier if place > 0),
        )


@dataclass(frozen=True, slots=True)
class WrittenComparison:
    """The folder of a comparison and its content."""

    folder: Path
    comparisons: tuple[Compared, ...]

    def to_dict(self) -> dict[str, Any]:
        """The content of compare.json."""
        return as_json(self.comparisons)


def compare_run(
    run: str | Path,
    rules: Rules = None,
    penalties: Sequence[float] = PENALTIES,
    *,
    tune_on: float = TUNE_ON,
    max_replays: int | None = None,
) -> Compared:
    """All rules on a run's folder or a file of traces; options as in `compare`."""
    with as_run_folder(run) as folder:
        opened = Run.open(folder)
        if rules is None and not opened.filled:
            raise NotRecorded(f"No probe was recorded in the run {opened.info.name!r}: {NOTHING}", HOW_TO_PROBE)
        return compare(
            opened.rule_columns(),
            opened.decide,
            rules,
            penalties,
            tune_on=tune_on,
            max_replays=max_replays,
            learn=lambda rule, tuning: learn(rule, opened.only(tuning)) if rule.unfitted else rule,
            questions=opened.questions,
        )


def write_comparison(
    runs: Sequence[str | Path],
    out: str | Path | None = None,
    rules: Rules = None,
    penalties: Sequence[float] = PENALTIES,
    *,
    tune_on: float = TUNE_ON,
) -> WrittenComparison:
    """Compare rules on each of these runs, and write the results into one folder."""
    if not runs:
        raise UsageError("There is no run to compare rules on.", "Give one: cgr compare runs/NAME.")
    costs = check_penalties(penalties)
    made = [compare_run(run, rules, costs, tune_on=tune_on) for run in runs]
    names = unique_names([one.run.name for one in made])
    comparisons = tuple(replace(one, run=replace(one.run, name=name)) for one, name in zip(made, names, strict=True))
    folder = Path(out) if out else beside([Path(run) for run in runs], FOLDER)
    write_json(folder / JSON, as_json(comparisons))
    for one in comparisons:
        place = folder if len(comparisons) == 1 else folder / one.run.name
        tables.write(one, place)
        draw(one, place)
    if len(comparisons) > 1:
        write_table(tables.several(comparisons), folder)
    return WrittenComparison(folder, comparisons)


def draw(compared: Compared | None, folder: Path, why_not: str = NO_RULE) -> style.SavedFigure:
    """Write the figure of the frontiers; without a comparison, remove it and say why there is none."""
    if compared is None or not compared.entries:
        return style.write(FIGURE, CAPTION, lambda: None, folder, why_not or NO_RULE)
    return style.write(FIGURE, CAPTION, lambda: figure.draw(compared), folder)
