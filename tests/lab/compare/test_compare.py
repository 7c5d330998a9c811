"""Rules on the same traces: their numbers are those of the scores; area and winners are what they are defined to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.errors import CgrError, NotRecorded, UnknownName, UsageError
from cgr.lab.compare import IN_SAMPLE, NO_SUFFIX, TOO_FEW, compare
from cgr.lab.compare import tables as words
from cgr.lab.compare.result import SAVING, Compared, Winner
from cgr.lab.compare.settings import NOTHING, TOO_SLOW, Choice, area, corners, equal_accuracy, winner
from cgr.lab.decide import arrays
from cgr.lab.decide import replay as decisions
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.score import accuracy as scores
from cgr.lab.score import bootstrap as intervals
from cgr.lab.score.accuracy import split_questions
from cgr.lab.score.adaptive import false_sure, headroom
from cgr.lab.score.paired import Paired, Totals
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.types import Floats
from cgr.rules import GIVE_UP, Action, Cgr, Rule, Seen, base, make_rule, rule
from cgr.rules import files as rule_files
from tests.lab.runs import SIX_INFO, plausible, six

DRAWS = 400
TRACES, INFO = plausible(12, 3, chance=4)
COLUMNS = Columns.of(TRACES, INFO)


def decide(one: Rule) -> Decisions:
    return decisions.decide(one, COLUMNS, TRACES)


def compared(*names: str, **options: Any) -> Compared:
    options.setdefault("draws", DRAWS)
    return compare(COLUMNS, decide, names or ("cgr", "fixed-budget"), **options)


@contextmanager
def registered(name: str, cls: type[Rule]) -> Iterator[None]:
    rule(name)(cls)
    try:
        yield
    finally:
        del base._rules[name]


# The numbers of one setting


@pytest.mark.parametrize("threshold", [0.5, 0.9, 0.99])
def test_a_point_has_the_numbers_of_the_scores(threshold: float) -> None:
    found = compared("cgr", tune_on=0, penalties=(0.0, 0.5)).entry("cgr")
    point = next(point for point in found.sweep if point.value == threshold)
    decided = decide(Cgr(threshold=threshold, interval=INFO.interval))
    saved, change = scores.savings(COLUMNS, decided), scores.compare(COLUMNS, decided.right)
    assert point.accuracy == pytest.approx(scores.accuracy(COLUMNS, decided.right))
    assert point.diff_points == pytest.approx(change.diff_points)
    assert (point.gross_share, point.net_share) == pytest.approx((saved.share, saved.net_share))
    assert point.thinking_tokens * len(COLUMNS) == pytest.approx(decided.at.sum())
    assert point.probe_tokens * len(COLUMNS) == pytest.approx(saved.probe_tokens)
    assert point.suffix_tokens * len(COLUMNS) == pytest.approx(saved.suffix_tokens)
    assert point.net_tokens == pytest.approx(point.thinking_tokens + point.probe_tokens)
    for grade, penalty in zip(point.grade, (0.0, 0.5), strict=True):
        assert grade * len(COLUMNS.questions) == pytest.approx(scores.grade(COLUMNS, decided.right, penalty))
    assert point.stopped == pytest.approx(decided.sure.mean())


def test_intervals_are_those_of_a_paired_bootstrap_over_questions() -> None:
    point = compared("cgr", tune_on=0, draws=20_000).entry("cgr").sweep[3]
    decided = decide(Cgr(threshold=0.9, interval=INFO.interval))
    change = scores.compare(COLUMNS, decided.right).ci95
    assert change is not None
    low, high = (100 * end / len(COLUMNS.questions) for end in change)
    assert point.ci95_diff_points == pytest.approx((low, high), abs=0.6)
    saved = intervals.of_ratio(
        scores.by_question(COLUMNS, COLUMNS.natural - decided.at), scores.by_question(COLUMNS, COLUMNS.natural)
    )
    assert point.ci95_gross_share == pytest.approx(saved, abs=0.02)


def test_smaller_budgets_are_the_plain_curve() -> None:
    entry = compared("fixed-budget", tune_on=0).entry("fixed-budget")
    assert [point.value for point in entry.sweep] == [*COLUMNS.steps.tolist(), COLUMNS.limit]
    for point in entry.sweep:
        assert point.value is not None
        cut = arrays.at_budget(COLUMNS, int(point.value))
        assert point.accuracy == pytest.approx(scores.accuracy(COLUMNS, cut.right))
        assert point.probe_tokens == 0
    last = entry.sweep[-1]
    assert (last.diff_points, last.ci95_diff_points, last.net_share) == (0, (0, 0), 0)


def test_questions_without_a_gold_answer_are_left_out() -> None:
    traces = [replace(one, gold=None) if one.question_id == "q03" else one for one in TRACES]
    columns, kept = Columns.of(traces, INFO), [one for one in TRACES if one.question_id != "q03"]
    with_gold = Columns.of(kept, INFO)
    found = compare(columns, lambda one: decisions.decide(one, columns), ["cgr"], tune_on=0, draws=DRAWS)
    wanted = compare(with_gold, lambda one: decisions.decide(one, with_gold), ["cgr"], tune_on=0, draws=DRAWS)
    assert found.questions == 11
    assert found.entries == wanted.entries


# Giving up


@dataclass(frozen=True, kw_only=True)
class GivesUp(Rule):
    """Never sure of anything, it gives up at its first probe."""

    patience: int = 1
    interval: int = 1000
    main: ClassVar[str | None] = "patience"
    grid: ClassVar[tuple[float, ...]] = (4.0, 5.0)

    def next_probe(self, seen: Seen) -> int | None:
        return seen.at + self.interval * self.patience

    def on_probe(self, seen: Seen) -> Action:
        assert isinstance(self.patience, int)
        return GIVE_UP


def test_a_rule_of_a_users_own_is_there_and_what_it_gives_up_is_neither_right_nor_wrong() -> None:
    """A whole number as the parameter stays one."""
    with registered("gives-up", GivesUp):
        found = compare(COLUMNS, decide, ["gives-up"], (0.0, 1.0), tune_on=0, draws=DRAWS).entry("gives-up")
    assert found.parameter == "patience"
    first = found.sweep[0]
    short = COLUMNS.natural < 4000
    assert 0 < first.gave_up < 1
    assert first.gave_up == pytest.approx((~short).mean())
    assert first.accuracy == pytest.approx((COLUMNS.final_right & short).mean())
    wrong = (~COLUMNS.final_right & short).mean()
    assert first.grade == pytest.approx((first.accuracy, first.accuracy - wrong))


# Which questions


@pytest.mark.parametrize(
    ("share", "note", "shown"), [(0.5, None, 6), (0.25, None, 9), (0, IN_SAMPLE, 12), (0.01, TOO_FEW, 12)]
)
def test_values_are_chosen_on_some_questions_and_shown_on_others(share: float, note: str | None, shown: int) -> None:
    found = compared(tune_on=share)
    assert found.notes == ((note, NO_SUFFIX) if note else (NO_SUFFIX,))
    assert found.split.apart == (note is None)
    assert found.split.shown == shown
    entry = found.entry("cgr")
    place = [point.value for point in entry.held_out].index(entry.shown.value)
    assert entry.shown == entry.held_out[place]
    assert (entry.held_out == entry.sweep) == (note is not None)


# What is chosen


def totals(right: list[list[float]], cost: list[list[float]]) -> Totals:
    """(settings, questions) of one trace each; every setting thinks `cost` of 100 tokens."""
    good = np.array(right, dtype=np.float64)
    thinking = 100 * np.array(cost, dtype=np.float64)
    return Totals(np.ones((1, good.shape[1])), good, 1 - good, thinking, np.zeros_like(thinking))


def summed(accuracies: list[float], costs: list[float]) -> Totals:
    """One total: the baseline first."""
    accuracy = np.array(accuracies)
    return Totals(np.array([1.0]), accuracy, 1 - accuracy, 100 * np.array(costs), np.zeros(len(costs)))


def test_equal_accuracy_takes_the_largest_saving_whose_bound_stays_above_the_margin() -> None:
    always, some = [1.0] * 400, [1.0] * 395 + [0.0] * 5
    questions = totals([always, some, always, always], [[1.0] * 400, [0.2] * 400, [0.5] * 400, [0.8] * 400])
    assert equal_accuracy(Paired.of(questions, DRAWS)) == (2, True)
    loses = totals([always, some, [1.0] * 390 + [0.0] * 10], [[1.0] * 400, [0.9] * 400, [0.1] * 400])
    assert equal_accuracy(Paired.of(loses, DRAWS)) == (1, False)


def test_too_few_questions_cannot_show_equality_and_the_largest_saving_without_a_loss_is_taken() -> None:
    always, some = [1.0] * 40, [1.0] * 39 + [0.0]
    questions = totals([always, some, always, always], [[1.0] * 40, [0.2] * 40, [0.5] * 40, [0.8] * 40])
    assert equal_accuracy(Paired.of(questions, DRAWS)) == (2, False)


def test_of_equal_savings_the_more_cautious_value_is_taken() -> None:
    questions = totals([[1.0] * 4] * 3, [[1.0] * 4, [0.5] * 4, [0.5] * 4])
    assert equal_accuracy(Paired.of(questions, DRAWS)) == (2, False)


def columns_of(names: Sequence[str]) -> Columns:
    """A run with one trace of each of these questions."""
    return Columns.of([replace(six()[2], question_id=name) for name in names], SIX_INFO)


def test_a_choice_that_does_not_hold_where_it_is_shown_does_not_come_into_it() -> None:
    """Found equal on one half, the value is not on the other: the figure is shown, and wins nothing."""
    names = [f"q{number}" for number in range(800)]
    tuning, _ = split_questions(columns_of(names), 0.5)
    traces = [
        replace(six()[2], question_id=name, probes=(replace(six()[2].probes[0], answer="16" if tuned else "17"),))
        for name, tuned in zip(names, tuning, strict=True)
    ]
    columns = Columns.of(traces, SIX_INFO)
    found = compare(columns, lambda one: decisions.decide(one, columns), ["cgr"], draws=DRAWS)
    entry = found.entry("cgr")
    assert (entry.tuned, entry.equal) == (True, False)
    assert (entry.tuning_verdict, entry.verdict, entry.needed_questions) == ("equal", "worse", None)
    assert entry.shown.diff_points == -100
    assert entry.by(SAVING).figure is None
    assert found.winners[0].first is None
    assert "no rule; none is shown to have an accuracy within 1 point" in words.sentences(found)[0]


# The frontier


@pytest.mark.parametrize(
    ("accuracies", "costs", "path", "wanted"),
    [
        pytest.param([0.8], [1.0], (NOTHING, 0), 0.4, id="the baseline alone: half its accuracy"),
        pytest.param([0.8, 0.8], [1.0, 0.5], (NOTHING, 1), 0.2 + 0.4, id="level past the best setting"),
        pytest.param([0.8, 0.6], [1.0, 0.25], (NOTHING, 1, 0), 0.075 + 0.525, id="a straight line between settings"),
        pytest.param([0.8, 0.1], [1.0, 0.5], (NOTHING, 0), 0.4, id="worse than a coin between nothing and all"),
        pytest.param([0.8, 0.9], [1.0, 0.5], (NOTHING, 1), 0.225 + 0.45, id="better than the baseline"),
        pytest.param([0.8, 0.9], [1.0, 1.2], (NOTHING, 0), 0.4, id="dearer than the baseline"),
        pytest.param([0.8, 0.2, 0.2], [1.0, 0.0, 0.1], (NOTHING, 1, 0), 0.5, id="no thinking at all"),
    ],
)
def test_the_area_under_the_frontier(
    accuracies: list[float], costs: list[float], path: tuple[int, ...], wanted: float
) -> None:
    found = summed(accuracies, costs)
    assert corners(found) == path
    assert area(found, path) == pytest.approx(wanted)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=8), st.floats(0.01, 1))
def test_the_frontier_is_the_best_that_can_be_had(settings: list[tuple[float, float]], full: float) -> None:
    found = summed([full, *(accuracy for accuracy, _ in settings)], [1.0, *(cost for _, cost in settings)])
    path = corners(found)
    under = float(area(found, path))
    best = max(full, *(accuracy for accuracy, _ in settings))
    assert full / 2 - 1e-9 <= under <= best + 1e-9
    fewer = summed([full, *(accuracy for accuracy, _ in settings[1:])], [1.0, *(cost for _, cost in settings[1:])])
    assert float(area(fewer, corners(fewer))) <= under + 1e-9
    x = [0.0, *found.cost[list(path[1:])], 1.0]
    y = [0.0, *found.accuracy[list(path[1:])], found.accuracy[path[-1]]]
    for accuracy, cost in settings:
        assert accuracy <= np.interp(cost, x, y) + 1e-9 or cost in x


# Who wins


def choice(figure: float, spread: float, *, counts: bool = True, seed: int = 0) -> Choice:
    draws: Floats = figure + spread * np.random.default_rng(seed).standard_normal(2000)
    return Choice("accuracy", 1, figure, draws, counts=counts)


@pytest.mark.parametrize(
    ("choices", "first", "tied"),
    [
        pytest.param({"a": choice(0.5, 0.01), "b": choice(0.8, 0.01, seed=1)}, "b", (), id="told apart"),
        pytest.param({"a": choice(0.5, 0.1), "b": choice(0.51, 0.1, seed=1)}, "b", ("a",), id="intervals overlap"),
        pytest.param({"a": choice(0.5, 0.3), "b": choice(0.51, 0.3)}, "b", (), id="paired: wide, and told apart"),
        pytest.param({"a": choice(0.5, 0.1), "b": choice(0.5, 0.1)}, "a", ("b",), id="the same"),
        pytest.param({"a": choice(0.5, 0.1), "b": choice(0.9, 0.1, counts=False)}, "a", (), id="one does not count"),
        pytest.param({"a": choice(0.5, 0.1, counts=False)}, None, (), id="none counts"),
    ],
)
def test_the_winner_or_that_there_is_none(choices: dict[str, Choice], first: str | None, tied: tuple[str, ...]) -> None:
    found = winner("accuracy", choices)
    assert (found.first, found.tied) == (first, tied)
    if found.second is not None and found.first is not None:
        assert found.difference == pytest.approx(choices[found.first].figure - choices[found.second].figure)


def test_a_winner_must_be_told_from_every_other() -> None:
    """The second best is steady and beaten, the third so unsteady that it might be better."""
    found = winner("area", {"a": choice(0.8, 0.01), "b": choice(0.7, 0.01, seed=1), "c": choice(0.6, 0.5, seed=2)})
    assert (found.first, found.second, found.tied) == ("a", "b", ("c",))


def test_measures_and_their_order() -> None:
    measures = [one.measure for one in compared(penalties=(0.0, 0.25, 1.0)).winners]
    assert measures == ["saving", "area", "accuracy", "grade p=0.25", "grade p=1"]


def test_sentences() -> None:
    found = compared()
    made = replace(found, winners=(
        Winner("saving", "cgr", 0.25, "fixed-budget", 0.05, (0.01, 0.09)),
        Winner("area", "cgr", 0.25, "fixed-budget", 0.05, (-0.01, 0.09), ("fixed-budget",)),
        Winner("accuracy", "cgr", 0.25),
    ))  # fmt: skip
    at = found.entry("cgr").by("saving").value
    first, second, third = words.sentences(made)
    assert first == (
        f"Most tokens saved at equal accuracy: cgr, 25.0% at threshold {at:g}; "
        "ahead of fixed-budget by 5.0 points [1.0, 9.0]."
    )
    assert second == (
        "Largest area under the frontier: no clear winner; cgr, 25.0%, leads, but its interval overlaps with fixed-budget."
    )
    assert third.endswith("no other rule counts.")


def test_entries_that_are_equal_come_first_by_their_saving() -> None:
    entries = compared().entries
    equal = [entry.equal for entry in entries]
    assert equal == sorted(equal, reverse=True)
    savings = [entry.by(SAVING).figure or 0 for entry in entries if entry.equal]
    assert savings == sorted(savings, reverse=True)


# What is missing


def test_rules_that_lack_a_recording_are_named_with_the_reason() -> None:
    found = compared("cgr", "no-thinking", "budget-forcing")
    assert [entry.rule for entry in found.entries] == ["cgr"]
    assert [one.rule for one in found.missing] == ["no-thinking", "budget-forcing"]
    assert all("was not recorded" in one.why and one.hint and not one.values for one in found.missing)


def test_values_that_cannot_be_decided_are_named_and_the_others_compared() -> None:
    def reluctant(one: Rule) -> Decisions:
        if isinstance(one, Cgr) and one.threshold < 0.9:
            raise NotRecorded("A probe was cut short.", "Record it anew.")
        return decide(one)

    found = compare(COLUMNS, reluctant, ["cgr"], draws=DRAWS)
    (missing,) = found.missing
    assert missing.values == (0.5, 0.7, 0.8)
    assert [point.value for point in found.entry("cgr").sweep] == [value for value in Cgr.grid if value >= 0.9]
    assert words.reasons(found.missing) == (("cgr at 0.5, 0.7, 0.8: A probe was cut short.", "Record it anew."),)


def test_where_nothing_can_be_decided_there_is_nobody_to_win() -> None:
    found = compared("no-thinking")
    assert (found.entries, found.winners) == ((), ())
    assert found.baseline.accuracy > 0


def test_a_rule_that_takes_too_long_is_left_out_and_named() -> None:
    with registered("gives-up", GivesUp):
        found = compared("gives-up", "cgr", max_replays=2 * len(TRACES) - 1)
        assert [(one.rule, one.why) for one in found.missing] == [("gives-up", TOO_SLOW)]
        assert len(compared("gives-up", "cgr", max_replays=2 * len(TRACES)).entries) == 2


def golds_of(count: int) -> list[RecordedTrace]:
    return [one if int(one.question_id[1:]) <= count else replace(one, gold=None) for one in TRACES]


@pytest.mark.parametrize(
    ("rules", "options", "said"),
    [
        (["crg"], {}, "no rule called 'crg'"),
        ([], {}, "no rule to compare"),
        (["nothing.json"], {}, "cannot be read"),
        (["cgr"], {"tune_on": 1.0}, "A share of 1"),
        (["cgr"], {"tune_on": -0.5}, "A share of -0.5"),
    ],
)
def test_what_cannot_be_compared_is_refused(rules: list[str], options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        compare(COLUMNS, decide, rules, **options)


@pytest.mark.parametrize(("count", "said"), [(0, "has no question with"), (1, "has one question with")])
def test_without_golds_there_is_nothing_to_compare(count: int, said: str) -> None:
    columns = Columns.of(golds_of(count), INFO)
    with pytest.raises(UsageError, match=said):
        compare(columns, decide)


def test_a_rule_from_a_file_is_compared_under_the_files_name(tmp_path: Path) -> None:
    path = tmp_path / "fitted.json"
    rule_files.RuleFile.of(make_rule("cgr", threshold=0.9)).write(path)
    found = compared("cgr", str(path))
    assert {entry.rule for entry in found.entries} == {"cgr", "fitted"}
    assert found.entry("fitted").sweep == found.entry("cgr").sweep
    assert winner_of(found, "area").tied
    with pytest.raises(UnknownName) as error:
        compared("fited")
    assert "all" in error.value.hint


def winner_of(found: Compared, measure: str) -> Winner:
    return next(one for one in found.winners if one.measure == measure)


def test_all_rules_are_compared_without_being_named() -> None:
    """Each is there, or named with the reason."""

    def quick(one: Rule) -> Decisions:
        if one.name not in ("cgr", "fixed-budget"):
            raise NotRecorded("Not here.")
        return decide(one)

    found = compare(COLUMNS, quick, None, draws=DRAWS)
    assert {entry.rule for entry in found.entries} | {one.rule for one in found.missing} == set(base.known_rules())


def test_a_comparison_comes_back_from_json() -> None:
    found = compared()
    assert Compared.from_json(found.to_json()) == found


def test_a_bug_in_a_rule_is_not_hidden() -> None:
    def broken(one: Rule) -> Decisions:
        raise CgrError("Something else.")

    with pytest.raises(CgrError, match="Something else"):
        compare(COLUMNS, broken, ["cgr"])


# Learning


def test_a_rule_learns_only_from_the_questions_that_choose() -> None:
    heard: list[np.ndarray[Any, Any]] = []

    def learn(one: Rule, questions: np.ndarray[Any, Any]) -> Callable[[Rule], Decisions] | None:
        heard.append(questions)
        return (lambda rule: decide(replace(rule, **{"interval": 2 * INFO.interval}))) if isinstance(one, Cgr) else None

    found = compared("cgr", tune_on=0.5, learn=learn, splits=3)
    tuning = [list(split_questions(COLUMNS, 0.5, seed=seed)[0]) for seed in (0, 0, 1, 2)]
    assert [list(questions) for questions in heard] == tuning
    plain = compared("cgr", tune_on=0.5)
    assert found.entry("cgr").sweep[-1].probe_tokens < plain.entry("cgr").sweep[-1].probe_tokens
    compared("cgr", tune_on=0, learn=learn)
    assert len(heard) == 4


# Verdicts, the oracle, splits


def test_a_rule_that_saves_nothing_does_not_win_by_its_saving() -> None:
    losing = {"a": replace(choice(-0.002, 0.001), measure="saving"), "b": replace(choice(-0.01, 0.001), measure="saving")}
    assert winner("saving", losing) == Winner("saving", None)
    assert winner("accuracy", losing).first == "a"


def test_why_no_rule_wins_by_its_saving() -> None:
    found = compared("cgr")
    none = replace(found, winners=(Winner("saving", None),))
    assert words.sentences(none)[0].endswith("none is shown to have an accuracy within 1 point of the baseline's.")
    equal = tuple(replace(entry, equal=True) for entry in found.entries)
    assert words.sentences(replace(none, entries=equal))[0].endswith(
        "those with equal accuracy save nothing after probe tokens."
    )


def test_of_a_verdict_that_cannot_be_told_the_questions_that_would_settle_it_are_named() -> None:
    found = compared()
    entry = found.entry("cgr")
    assert entry.verdict == entry.shown.verdict == "cannot be told"
    assert entry.needed_questions is None or entry.needed_questions > found.split.shown
    assert words.settled_by(found).startswith("Whether accuracy is equal cannot be told for 2 rules. At the rates seen, ")
    settled = tuple(replace(one, verdict="equal") for one in found.entries)
    assert words.settled_by(replace(found, entries=settled)) == ""


def test_the_three_columns_and_the_net_saving_add_up_to_the_oracle() -> None:
    found = compared("cgr", "fixed-budget", "conformal")
    for entry in found.entries:
        shown = entry.shown
        assert found.oracle - shown.unsolved - shown.late - shown.probes == pytest.approx(shown.net_share)
        assert entry.oracle_share == pytest.approx(shown.net_share / found.oracle)
        assert shown.prefilled_net_share <= shown.net_share
        assert entry.adaptive.accuracy == pytest.approx(shown.accuracy)
        assert entry.adaptive.cost_mean == pytest.approx(shown.net_tokens)


def test_prefilled_tokens_are_charged_in_the_second_accounting() -> None:
    suffixed = [replace(one, probes=tuple(replace(each, suffix_ids=(1,) * 6) for each in one.probes)) for one in TRACES]
    columns = Columns.of(suffixed, INFO)
    found = compare(columns, lambda one: decisions.decide(one, columns), ["cgr"], draws=DRAWS, tune_on=0)
    assert NO_SUFFIX not in found.notes
    for point in found.entry("cgr").sweep:
        tokens = point.thinking_tokens + point.probe_tokens + point.suffix_tokens
        assert point.prefilled_net_share == pytest.approx(1 - tokens / columns.natural.mean())


def test_a_rule_over_several_splits() -> None:
    found = compared(splits=6)
    assert found.splits == 6
    entry = found.entry("cgr")
    over = entry.splits
    assert over is not None
    assert over.splits == 6
    assert over.net_share_worst <= over.net_share <= over.net_share_best
    assert over.net_share_worst < over.net_share_best
    assert over.diff_points_worst <= over.diff_points <= over.diff_points_best
    alone = compared(splits=1).entry("cgr").splits
    assert alone is not None
    assert (alone.net_share, alone.diff_points) == pytest.approx((entry.shown.net_share, entry.shown.diff_points))
    assert compared(tune_on=0).entry("cgr").splits is None


def test_splits_differ_and_each_is_the_same_in_any_order() -> None:
    made = {tuple(split_questions(COLUMNS, 0.5, seed=seed)[0]) for seed in range(10)}
    assert len(made) == 10


def test_texts_in_both_parts_are_reported() -> None:
    tuning, shown = (np.flatnonzero(part) for part in split_questions(COLUMNS, 0.5))
    texts = {name: f"What is {name}?" for name in COLUMNS.questions}
    assert compared(texts=texts).split.shared_texts == 0
    same = COLUMNS.questions[tuning[0]], COLUMNS.questions[shown[0]]
    found = compared(texts=texts | dict.fromkeys(same, "What  is it?") | {same[0]: "What is it?"})
    assert found.split.shared_texts == 1
    assert "1 text is both among the questions that parameters were chosen on and among those shown." in found.notes
    assert compared().split.shared_texts is None


def test_head_room_and_false_sureness_are_those_of_the_run() -> None:
    found = compared()
    assert found.headroom == headroom(COLUMNS)
    assert found.false_sure == false_sure(COLUMNS, 0.99)
