"""The settings of a comparison measured on one split of the questions, and the result of each rule over several splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cgr.lab.compare.result import AREA, SAVING, AcrossSplits, Entry, Point, Winner
from cgr.lab.compare.settings import Choice, Setting, choose, corners, equal_accuracy, points, winner
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import FINAL, Columns
from cgr.lab.score import bounds
from cgr.lab.score.accuracy import graded_questions, split_questions
from cgr.lab.score.adaptive import FixedBudgets, oracle_saving
from cgr.lab.score.bootstrap import DRAWS
from cgr.lab.score.paired import Paired, by_question
from cgr.lab.types import Bools

Parts = tuple[Bools, Bools]
SettingsOf = Callable[[Parts], Sequence[Setting]]


def apart(parts: Parts) -> bool:
    """Whether no question is in both parts."""
    return not (parts[0] & parts[1]).any()


def measured(
    columns: Columns, baseline: Decisions, settings: Sequence[Setting], parts: Parts, draws: int = DRAWS
) -> tuple[Paired, Paired, Paired]:
    """The settings on all questions, on those that choose, and on those that are shown. Setting 0 is the baseline."""
    decided = (baseline, *(one.decided for one in settings))
    totals, graded = by_question(columns, decided), graded_questions(columns)

    def on(questions: Bools) -> Paired:
        traces = columns.graded & questions[columns.question]
        names = [name for name, here in zip(columns.questions, questions & graded, strict=True) if here]
        only_losses = columns.reference == FINAL
        return Paired.of(totals.among(questions[graded]), draws, decided, traces, names, only_losses=only_losses)

    whole = on(parts[0] | parts[1])
    return (whole, on(parts[0]), on(parts[1])) if apart(parts) else (whole, whole, whole)


def members(settings: Sequence[Setting]) -> dict[str, list[int]]:
    """The numbers of the settings of each rule; the baseline is 0."""
    places: dict[str, list[int]] = {}
    for place, one in enumerate(settings, 1):
        places.setdefault(one.name, []).append(place)
    return places


@dataclass(frozen=True, eq=False)
class Results:
    """The settings, and their measurement on all questions, on those that choose, and on those that are shown."""

    columns: Columns
    settings: Sequence[Setting]
    penalties: tuple[float, ...]
    whole: Paired
    tuning: Paired
    shown: Paired

    @cached_property
    def values(self) -> tuple[float | None, ...]:
        """The value of the parameter in each setting."""
        return None, *(setting.value for setting in self.settings)

    @cached_property
    def whole_points(self) -> tuple[Point, ...]:
        """The numbers of each setting on all questions."""
        return points(self.whole, self.columns, self.values, self.penalties)

    @cached_property
    def shown_points(self) -> tuple[Point, ...]:
        """The numbers of each setting on the questions shown."""
        if self.shown is self.whole:
            return self.whole_points
        return points(self.shown, self.columns, self.values, self.penalties)

    @cached_property
    def members(self) -> dict[str, list[int]]:
        """The settings of each rule."""
        return members(self.settings)

    @cached_property
    def choices(self) -> dict[str, tuple[Choice, ...]]:
        """The choices of each rule, one for each measure."""
        return {
            name: choose(
                self.tuning.only(places),
                self.shown.only(places),
                self.penalties,
                self.settings[places[0] - 1].allowed_loss,
                self.columns.reference,
            )
            for name, places in self.members.items()
        }

    @cached_property
    def fixed(self) -> FixedBudgets:
        """The fixed budgets on the questions shown."""
        return FixedBudgets.of(self.columns, self.shown.traces)

    @cached_property
    def oracle(self) -> float:
        """The share of the thinking that the oracle saves on the questions shown."""
        return oracle_saving(self.columns, self.fixed.traces)

    def entries(self, splits: Mapping[str, AcrossSplits]) -> tuple[Entry, ...]:
        """Rules of equal accuracy first, by their net saving; then the others, by the area under their frontier."""
        made = [replace(self._entry(name, places), splits=splits.get(name)) for name, places in self.members.items()]
        by = {entry.rule: entry.by(SAVING if entry.equal else AREA).figure or 0.0 for entry in made}
        return tuple(sorted(made, key=lambda entry: (not entry.equal, -by[entry.rule])))

    @property
    def winners(self) -> tuple[Winner, ...]:
        """The best rule by each measure."""
        by_measure = zip(*self.choices.values(), strict=True)
        return tuple(winner(made[0].measure, dict(zip(self.choices, made, strict=True))) for made in by_measure)

    def _entry(self, name: str, members: list[int]) -> Entry:
        places = [0, *members]
        saving, *_ = made = self.choices[name]
        place = places[saving.setting or 0]
        shown, frontier = self.shown_points[place], corners(self.whole.total.only(members))
        unknown = shown.verdict == bounds.UNKNOWN
        return Entry(
            rule=name,
            parameter=self.settings[members[0] - 1].parameter,
            sweep=tuple(self.whole_points[place] for place in members),
            held_out=tuple(self.shown_points[place] for place in members),
            shown=shown,
            tuned=saving.tuned,
            equal=shown.equal,
            figures=tuple(one.as_figure(self.values[places[one.setting or 0]]) for one in made),
            frontier=tuple(self.values[places[place]] for place in frontier if place > 0),
            verdict=shown.verdict,
            tuning_verdict=_verdict(self.tuning, place),
            needed_questions=self.shown.questions_needed(place) if unknown else None,
            oracle_share=shown.net_share / self.oracle if self.oracle > 0 else None,
            adaptive=self.fixed.gain(self.settings[place - 1].decided),
            splits=None,
        )


def _verdict(paired: Paired, setting: int) -> str:
    return bounds.verdict((float(paired.lows[setting]), float(paired.highs[setting])))


def across_splits(
    columns: Columns, baseline: Decisions, settings_of: SettingsOf, splits: Sequence[Parts]
) -> dict[str, AcrossSplits]:
    """Each rule over these splits, its value chosen anew in each. `settings_of`: the settings for a split; rules that learn
    have other decisions in each."""
    found: dict[str, list[tuple[float, float, str]]] = {}
    for parts in splits:
        settings = settings_of(parts)
        _, tuning, shown = measured(columns, baseline, settings, parts)
        for name, places in members(settings).items():
            allowed = settings[places[0] - 1].allowed_loss
            chosen = places[equal_accuracy(tuning.only(places), allowed)[0] - 1]
            one = shown.only([chosen])
            found.setdefault(name, []).append((float(one.total.net[1]), float(one.total.diff_points[1]), _verdict(one, 1)))
    return {name: _summary(rows) for name, rows in found.items()}


def _summary(rows: Sequence[tuple[float, float, str]]) -> AcrossSplits:
    net, diff, verdicts = zip(*rows, strict=True)
    counts = (verdicts.count(bounds.EQUAL), verdicts.count(bounds.WORSE))
    return AcrossSplits(
        len(rows), *counts, float(np.mean(net)), min(net), max(net), float(np.mean(diff)), min(diff), max(diff)
    )


def several_splits(columns: Columns, share: float, names: Sequence[str], count: int) -> list[Parts]:
    """This many splits of the questions, the first being that of the comparison; none if the parts would not be apart."""
    made = [split_questions(columns, share, names, seed) for seed in range(count)]
    return [parts for parts in made if apart(parts)]
