"""All rules on the traces of a run, each over its main parameter: accuracy against tokens, and who does best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cgr.errors import UnknownName, UsageError
from cgr.lab.compare import choose as choosing
from cgr.lab.compare.choose import MARGIN, Choice, Measured
from cgr.lab.compare.hull import corners
from cgr.lab.compare.points import points
from cgr.lab.compare.result import AREA, SAVING, Compared, Entry, Point, Split, Winner
from cgr.lab.compare.sweep import Decide, Setting, settings
from cgr.lab.decide.columns import Bools, Columns
from cgr.lab.decide.replay import Decided, at_budget
from cgr.lab.score import accuracy as scores
from cgr.lab.score.paired import DRAWS, Totals, among, by_question
from cgr.lab.store.needed_probes import ALL, rule_at_interval
from cgr.rules import Rule, known_rules
from cgr.rules import files as rule_files

PENALTIES = (0.0, 0.25, 0.5, 1.0)
TUNE_ON = 0.5
TOO_FEW = "Too few questions to hold any out: parameters were chosen on the questions that are shown."
Learn = Callable[[Rule, Bools], Rule]
IN_SAMPLE = "Parameters were chosen on the questions that are shown: expect less on others."


def compare(
    columns: Columns,
    decide: Decide,
    rules: Sequence[str] | Mapping[str, Rule] | None = None,
    penalties: Sequence[float] = PENALTIES,
    *,
    tune_on: float = TUNE_ON,
    draws: int = DRAWS,
    patience: int | None = None,
    learn: Learn | None = None,
) -> Compared:
    """Every rule (or these) on one run. `decide` says what a rule comes to on its traces, or raises `NotRecorded`.

    A rule by name, or in a file, asks where the run was probed; one that is given whole is taken as it is. Each is tried at
    every value of its main parameter; values are chosen on the share `tune_on` of the questions, and shown on the others.
    `patience`: how many traces a rule without a form over arrays may replay, one by one; one that would need more is left
    out, and named. `learn`: what a rule learns from the questions that choose, where others are shown.
    """
    check_share(tune_on)
    graded = check_gradable(columns)
    parts = choosing.halves(columns.questions, tune_on, scores.graded_questions(columns))
    wanted = chosen(rules, columns.info.interval)
    if learn and not (parts[0] & parts[1]).any():
        wanted = {name: learn(rule, parts[0]) for name, rule in wanted.items()}
    found, missing = settings(wanted, columns, decide, patience)
    scene = _Scene.of(columns, found, tuple(penalties), parts, draws)
    return Compared(
        run=columns.info,
        questions=len(graded),
        seeds=len(columns.seeds),
        traces=int(columns.graded.sum()),
        split=scene.split,
        penalties=tuple(penalties),
        baseline=scene.shown_points[0],
        whole_baseline=scene.whole_points[0],
        entries=scene.entries,
        winners=scene.winners,
        missing=missing,
        notes=() if scene.split.apart else (IN_SAMPLE if tune_on <= 0 else TOO_FEW,),
        margin=MARGIN,
        draws=draws,
    )


def chosen(rules: Sequence[str] | Mapping[str, Rule] | None, interval: int) -> dict[str, Rule]:
    """Every rule there is, or these, by the name that each is compared under: its own, or that of the file it came from."""
    if isinstance(rules, Mapping):
        return dict(rules)
    if rules is not None and not rules:
        raise UsageError("There is no rule to compare.", "Name some: --rules cgr,fixed-budget; `cgr rules` lists them.")
    known = known_rules()
    found: dict[str, Rule] = {}
    for name in rules or (ALL,):
        if rule_files.is_file(name):
            found[name if Path(name).stem in found else Path(name).stem] = _from_file(name, interval)
        elif name == ALL:
            found |= {one: rule_at_interval(one, interval) for one in known}
        elif name in known:
            found[name] = rule_at_interval(name, interval)
        else:
            raise UnknownName.among("rule", name, [*known, ALL])
    return found


def _from_file(path: str, interval: int) -> Rule:
    made = rule_files.read(path)
    asks = "interval" in made.made().parameters() and interval >= 1
    return made.made(interval=interval) if asks else made.made()


def check_share(share: float) -> None:
    if not 0 <= share < 1:
        raise UsageError(
            f"A share of {share:g} of the questions cannot be tuned on.", "Choose one from 0 (show them all) to below 1."
        )


def check_gradable(columns: Columns) -> tuple[str, ...]:
    """The questions with a known answer: rules are compared on these."""
    here = scores.graded_questions(columns)
    graded = tuple(name for name, known in zip(columns.questions, here, strict=True) if known)
    if len(graded) < choosing.LEAST:
        count = "no question" if not graded else "one question"
        raise UsageError(
            f"The run {columns.info.name!r} has {count} with a known answer: rules cannot be compared on it.",
            "Two are the least; dozens tell rules apart.",
        )
    return graded


@dataclass(frozen=True, eq=False)
class _Part:
    """Some of the questions: what every setting comes to on them, and their traces."""

    measured: Measured
    traces: Bools
    questions: int

    @classmethod
    def of(cls, columns: Columns, totals: Totals, which: Bools, draws: int) -> _Part:
        kept = which[scores.graded_questions(columns)]
        return cls(Measured.of(among(totals, kept), draws), columns.graded & which[columns.question], int(which.sum()))


@dataclass(frozen=True, eq=False)
class _Scene:
    """Every setting on every question, on those that choose, and on those that are shown. The baseline is setting 0."""

    settings: tuple[Setting, ...]
    penalties: tuple[float, ...]
    decided: tuple[Decided, ...]
    whole: _Part
    tuning: _Part
    shown: _Part

    @classmethod
    def of(
        cls,
        columns: Columns,
        found: tuple[Setting, ...],
        penalties: tuple[float, ...],
        halves: tuple[Bools, Bools],
        draws: int,
    ) -> _Scene:
        decided = (at_budget(columns, columns.limit), *(one.decided for one in found))
        totals = by_question(columns, decided)
        whole = _Part.of(columns, totals, halves[0] | halves[1], draws)
        apart = not (halves[0] & halves[1]).any()
        parts = [_Part.of(columns, totals, half, draws) if apart else whole for half in halves]
        return cls(found, penalties, decided, whole, *parts)

    @property
    def split(self) -> Split:
        return Split(self.tuning.questions, self.shown.questions, self.tuning is not self.shown)

    @cached_property
    def values(self) -> tuple[float | None, ...]:
        return None, *(setting.value for setting in self.settings)

    @cached_property
    def whole_points(self) -> tuple[Point, ...]:
        return self._points(self.whole)

    @cached_property
    def shown_points(self) -> tuple[Point, ...]:
        return self.whole_points if self.shown is self.whole else self._points(self.shown)

    def _points(self, part: _Part) -> tuple[Point, ...]:
        return points(part.measured, self.decided, self.values, part.traces, self.penalties)

    @cached_property
    def members(self) -> dict[str, list[int]]:
        """The settings of each rule."""
        places: dict[str, list[int]] = {}
        for place, one in enumerate(self.settings, 1):
            places.setdefault(one.name, []).append(place)
        return places

    @cached_property
    def choices(self) -> dict[str, tuple[Choice, ...]]:
        tuning, shown = self.tuning.measured, self.shown.measured
        return {
            name: choosing.choose(tuning.only(places), shown.only(places), self.penalties)
            for name, places in self.members.items()
        }

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The largest saving at equal accuracy first; then the others, by the area under their frontier."""
        made = [self._entry(name, places) for name, places in self.members.items()]
        by = {entry.rule: entry.by(SAVING if entry.equal else AREA).figure or 0.0 for entry in made}
        return tuple(sorted(made, key=lambda entry: (not entry.equal, -by[entry.rule])))

    @property
    def winners(self) -> tuple[Winner, ...]:
        by_measure = zip(*self.choices.values(), strict=True)
        return tuple(choosing.winner(made[0].measure, dict(zip(self.choices, made, strict=True))) for made in by_measure)

    def _entry(self, name: str, members: list[int]) -> Entry:
        places = [0, *members]
        saving, *_ = made = self.choices[name]
        path = corners(self.whole.measured.total.only(members))
        return Entry(
            rule=name,
            parameter=self.settings[members[0] - 1].parameter,
            sweep=tuple(self.whole_points[place] for place in members),
            held_out=tuple(self.shown_points[place] for place in members),
            shown=self.shown_points[places[saving.setting or 0]],
            tuned=saving.tuned,
            equal=saving.counts,
            figures=tuple(one.told(self.values[places[one.setting or 0]]) for one in made),
            frontier=tuple(self.values[places[place]] for place in path if place > 0),
        )
