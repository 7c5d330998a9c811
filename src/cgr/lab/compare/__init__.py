"""All rules on the traces of a run, each at every value of its main parameter: accuracy against tokens, and the best rule.

`compare` works in memory, `compare_run` on a run's folder; `write_comparison` writes `compare.json`, tables and a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cgr.errors import NotRecorded, UsageError
from cgr.lab.compare import figure, tables
from cgr.lab.compare.measured import Parts, Results, across_splits, apart, measured, several_splits
from cgr.lab.compare.result import Compared, Split
from cgr.lab.compare.settings import Decide, Rules, Setting, Swept, chosen_rules, sweep
from cgr.lab.decide.arrays import at_end
from cgr.lab.decide.columns import FINAL, GOLD, Columns
from cgr.lab.decide.run import Run
from cgr.lab.exchange import as_run_folder
from cgr.lab.fit import cross_fitted
from cgr.lab.output import as_json, beside, style, unique_names, write_json, write_table
from cgr.lab.score.accuracy import LEAST, PENALTIES, check_penalties, graded_questions, split_questions
from cgr.lab.score.adaptive import SURE, false_sure, headroom, plain_verdict
from cgr.lab.score.agreement import NO_GOLDS, worded
from cgr.lab.score.bootstrap import DRAWS
from cgr.lab.score.bounds import MARGIN
from cgr.lab.types import Bools
from cgr.rules import Rule

TUNE_ON = 0.5
SPLITS = 10
FOLDER, JSON, FIGURE = "compare", "compare.json", "frontier"
CAPTION = "Accuracy against tokens for each rule, and the tokens that each saves at equal accuracy."
NOTHING = "there is nothing to compare rules on."
HOW_TO_PROBE = "Make probes with `cgr probe`; traces that are shorter than its interval get none."
NO_RULE = "No rule can be decided on these recordings."
TOO_FEW = "Too few questions to hold any out: parameters were chosen on the questions that are shown."
NO_SUFFIX = (
    'The probes do not say what they appended, so prefilled tokens are not counted: "Prefill paid" equals the net saving.'
)
IN_SAMPLE = "Parameters were chosen on the questions that are shown: expect less on other questions."
Learn = Callable[[Rule, Bools], Decide | None]


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
    splits: int = SPLITS,
    texts: Mapping[str, str] | None = None,
) -> Compared:
    """All rules (or these) on one run. `decide`: what a rule decides on its traces, or `NotRecorded`.

    A rule given by name or file probes on the run's grid; a rule object is used as it is. Each is tried at every value of
    its main parameter. Values are chosen on the share `tune_on` of the questions and shown on the others. `max_replays`: a
    rule without an array form that needs more replays is left out, and listed. `learn`: fits a rule to some questions, and
    gives what it then decides. `questions`: all questions of the run, if the columns do not have all of them. `splits`: how
    many splits of the questions are tried. `texts`: of the questions, to find those that are in both parts.
    """
    if not 0 <= tune_on < 1:
        raise UsageError(
            f"A share of {tune_on:g} of the questions cannot be tuned on.", "Choose one from 0 (show them all) to below 1."
        )
    if splits < 1:
        raise UsageError(f"A comparison over {splits} splits is none.", "Use 1 or more: --splits 10.")
    _check_gradable(columns)
    penalties = () if columns.reference == FINAL else tuple(penalties)  # Grade needs known answers
    parts = split_questions(columns, tune_on, questions)
    split = Split(int(parts[0].sum()), int(parts[1].sum()), apart(parts), shared_texts(columns, parts, texts))
    baseline, chosen = at_end(columns), chosen_rules(rules, columns.info.interval)
    swept: dict[str, Swept] = {}

    def settings_of(parts: Parts) -> list[Setting]:
        """The settings for one split. A rule that learns has other decisions in each; the others are decided once."""
        found = []
        for name, rule in chosen.items():
            decide_learned = learn(rule, parts[0]) if learn and apart(parts) else None
            if name not in swept or decide_learned:
                swept[name] = sweep(name, rule, columns, decide_learned or decide, max_replays)
            found += swept[name][0]
        return found

    settings = settings_of(parts)
    missing = tuple(one for name in chosen for one in swept[name][1])
    tried = several_splits(columns, tune_on, questions, splits)
    across = across_splits(columns, baseline, settings_of, tried)
    results = Results(columns, settings, penalties, *measured(columns, baseline, settings, parts, draws))
    room, sure = headroom(columns), false_sure(columns, SURE)
    return Compared(
        run=columns.info,
        questions=int(graded_questions(columns).sum()),
        seeds=len(columns.seeds),
        traces=int(columns.graded.sum()),
        split=split,
        penalties=penalties,
        baseline=results.shown_points[0],
        whole_baseline=results.whole_points[0],
        entries=results.entries(across),
        winners=results.winners,
        missing=missing,
        notes=_notes(split, tune_on, columns),
        margin=MARGIN,
        draws=draws,
        oracle=results.oracle,
        headroom=room,
        false_sure=sure,
        verdict=plain_verdict(room, sure),
        splits=len(tried),
        reference=columns.reference,
    )


def _notes(split: Split, tune_on: float, columns: Columns) -> tuple[str, ...]:
    found = [NO_GOLDS] if columns.reference == FINAL else []
    if not split.apart:
        found.append(IN_SAMPLE if tune_on <= 0 else TOO_FEW)
    elif split.shared_texts:
        texts = "1 text is" if split.shared_texts == 1 else f"{split.shared_texts} texts are"
        found.append(f"{texts} both among the questions that parameters were chosen on and among those shown.")
    if columns.present.any() and not columns.suffix.any():
        found.append(NO_SUFFIX)
    return tuple(found)


def shared_texts(columns: Columns, parts: Parts, texts: Mapping[str, str] | None) -> int | None:
    """How many different texts questions of both parts have; None if texts are not known. White space does not matter."""
    if texts is None or not apart(parts):
        return None
    tuning, shown = (
        {" ".join(texts.get(name, "").split()) for name, here in zip(columns.questions, part, strict=True) if here}
        for part in parts
    )
    return len((tuning & shown) - {""})


def _check_gradable(columns: Columns) -> None:
    graded = int(graded_questions(columns).sum())
    if graded < LEAST and columns.reference == FINAL:
        raise UsageError(
            f"The run {columns.info.name!r} has one question: rules cannot be compared on it.",
            "At least two are needed; dozens separate rules.",
        )
    if graded < LEAST:
        count = "no question" if not graded else "one question"
        raise UsageError(
            f"The run {columns.info.name!r} has {count} with a known answer: rules cannot be compared on it.",
            "At least two are needed; dozens separate rules.",
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
    splits: int = SPLITS,
) -> Compared:
    """All rules on a run's folder or a file of traces; options as in `compare`. A run without any gold answer is compared
    by agreement with the final answers of its traces."""
    with as_run_folder(run) as folder:
        opened = Run.open(folder)
        opened.folder = Path(run)  # a file was imported into a folder that is soon removed
        if rules is None and not opened.filled:
            raise NotRecorded(f"No probe was recorded in the run {opened.info.name!r}: {NOTHING}", HOW_TO_PROBE)
        opened = opened if opened.has_golds else opened.by_agreement()
        fit_notes: dict[str, str] = {}

        def learn(rule: Rule, tuning: Bools) -> Decide | None:
            if not rule.unfitted:
                return None
            decide, learned = cross_fitted(rule, opened, tuning)
            if learned.fit_note:
                fit_notes[rule.name] = f"{rule.name}: {learned.fit_note}."
            return decide

        found = compare(
            opened.rule_columns(),
            opened.decide,
            rules,
            penalties,
            tune_on=tune_on,
            max_replays=max_replays,
            learn=learn,
            questions=opened.questions,
            splits=splits,
            texts={trace.question_id: trace.question for trace in opened.traces()},
        )
        return replace(found, notes=(*found.notes, *fit_notes.values()))


def write_comparison(
    runs: Sequence[str | Path],
    out: str | Path | None = None,
    rules: Rules = None,
    penalties: Sequence[float] = PENALTIES,
    *,
    tune_on: float = TUNE_ON,
    splits: int = SPLITS,
) -> WrittenComparison:
    """Compare rules on each of these runs, and write the results into one folder."""
    if not runs:
        raise UsageError("There is no run to compare rules on.", "Give one: cgr compare runs/NAME.")
    costs = check_penalties(penalties)
    made = [compare_run(run, rules, costs, tune_on=tune_on, splits=splits) for run in runs]
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
    caption = worded(CAPTION, compared.reference if compared else GOLD)
    if compared is None or not compared.entries:
        return style.write(FIGURE, caption, lambda: None, folder, why_not or NO_RULE)
    return style.write(FIGURE, caption, lambda: figure.draw(compared), folder)
