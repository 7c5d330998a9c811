"""Fitting rules to recorded questions: weights that are there to be found, and choices that keep accuracy."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from cgr.errors import NotRecorded, UsageError
from cgr.lab import compare as comparing
from cgr.lab import fit as fitting
from cgr.lab.decide.arrays import Decisions, at_end
from cgr.lab.decide.run import Run
from cgr.lab.exchange import import_run, write_jsonl
from cgr.lab.exchange.line import to_line
from cgr.lab.fit import regression
from cgr.lab.score.accuracy import split_questions
from cgr.lab.score.paired import most_saving_within
from cgr.lab.store import Store
from cgr.lab.store.config import Asking, ProbeSet
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.lab.types import Bools
from cgr.records import Probe
from cgr.rules import Calibrated, Cgr, CgrDrought, FixedBudget, GiveUpEarly, NoThinking, Rule, make_rule
from cgr.rules import files as rule_files
from cgr.rules.calibrated import AS_CERTAINTY, GradedTrace
from cgr.rules.history import hopeless_steps
from tests.support import command

COUNT, BUDGET, INTERVAL = 150, 160, 10
INFO = RunInfo("made-up", "none", "none", BUDGET, INTERVAL)
EVERY = Calibrated(interval=INTERVAL, rare=1)


def probe(at: int, answer: str, certainty: float) -> Probe:
    return Probe(at, answer, certainty, True, (certainty,), decoded=2)


def trace(number: int, rng: np.random.Generator) -> RecordedTrace:
    """One question in five is hopeless: low certainty for ever, and wrong. The others slip now and then with a high
    certainty, and hold the right answer from a third of the budget on."""
    hopeless, knows = number % 5 == 0, int(rng.integers(2, 6))
    probes = []
    for step in range(1, BUDGET // INTERVAL):
        if hopeless:
            said, sure = str(rng.integers(100)), float(rng.uniform(0.05, 0.4))
        elif step >= knows:
            said, sure = "7", float(rng.uniform(0.9, 0.999))
        else:
            slips = rng.random() < 0.1
            said, sure = str(10 + rng.integers(80)), float(rng.uniform(0.88, 0.98) if slips else rng.uniform(0.1, 0.3))
        probes.append(probe(INTERVAL * step, said, sure))
    last = probe(BUDGET, "1" if hopeless else "7", 0.3 if hopeless else 0.99)
    return RecordedTrace(f"q{number}", 0, "7", BUDGET, "budget", BUDGET, last, tuple(probes))


def sample(seed: int = 0, count: int = COUNT) -> Run:
    rng = np.random.default_rng(seed)
    traces = tuple(trace(number, rng) for number in range(count))
    return Run.of(traces, INFO)


SAMPLE, OTHERS = sample(), sample(seed=1)


def test_learned_weights_say_what_the_traces_do() -> None:
    learned = fitting.learn(EVERY, SAMPLE)
    _, certainty, held, _, _ = learned.answered
    assert certainty > 0
    assert held > 0
    assert learned.span == BUDGET
    chances = [chance for _, chance in learned.hopeless]
    assert chances == sorted(chances)
    assert chances[0] < 0.5 < 0.95 < chances[-1] < 1
    assert learned.hopeless[-1][0] <= 60 / BUDGET


class Recorder:
    """Regressions that keep what they are given."""

    def __init__(self) -> None:
        self.good: list[bool] = []
        self.saved: list[float] = []

    def isotonic(self, values: Sequence[float], weights: Sequence[float]) -> Sequence[float]:
        return values

    def logistic(self, values: Sequence[Sequence[float]], good: Sequence[bool]) -> tuple[float, ...]:
        self.good = list(good)
        return AS_CERTAINTY

    def linear(self, values: Sequence[Sequence[float]], saved: Sequence[float]) -> tuple[float, ...]:
        self.saved = list(saved)
        return AS_CERTAINTY


def test_an_example_is_good_if_stopping_there_loses_nothing() -> None:
    """Its answer is right, or the final one is wrong."""
    probes = (probe(40, "1", 0.9), probe(80, "7", 0.9), probe(120, "1", 0.2))
    solved = GradedTrace(probes, (False, True, False), final_right=True, tokens=160)
    failed = GradedTrace(probes, (False, True, False), final_right=False, tokens=120)
    examples = Recorder()
    EVERY.learn([solved, failed] * 5, BUDGET, examples)
    assert examples.good == [False, True, True, True] * 5
    assert examples.saved == pytest.approx([120 / BUDGET, 80 / BUDGET, 80 / BUDGET, 40 / BUDGET] * 5)


def test_too_few_examples_teach_nothing() -> None:
    few = SAMPLE.only(np.arange(COUNT) == 3)
    assert fitting.learn(EVERY, few).answered == EVERY.answered


def test_calibrated_beats_plain_cgr_on_other_questions() -> None:
    """It stops where the answer holds, and after a drought; cgr waits for one probe, lucky or not."""
    fitted = fitting.fit(EVERY, SAMPLE)
    ours = fitting.score(OTHERS.columns(), OTHERS.decide(fitted.rule))
    plain = fitting.score(OTHERS.columns(), OTHERS.decide(fitting.fit(Cgr(interval=INTERVAL), SAMPLE).rule))
    assert fitted.score.verdict != "worse"
    assert ours.net > 1.3 * plain.net
    assert ours.diff_points > -2
    assert ours.gave_up == 0
    given_up = fitting.score(OTHERS.columns(), OTHERS.decide(replace(fitted.rule, then="give-up")))
    assert 25 <= given_up.gave_up <= 35


def trace_without_meaning(number: int, rng: np.random.Generator) -> RecordedTrace:
    """Half of the traces are unsure until the end, and 46% of these end right all the same. Droughts mean nothing."""
    unsure, right, knows = number % 2 == 0, rng.random() < 0.46, int(rng.integers(2, 10))
    steps = range(1, BUDGET // INTERVAL)
    if unsure:
        probes = [probe(INTERVAL * step, str(rng.integers(100, 999)), float(rng.uniform(0.05, 0.45))) for step in steps]
        last = probe(BUDGET, "7" if right else "1", 0.4)
    else:
        probes = [probe(INTERVAL * step, "7", 0.97 if step >= knows else 0.4) for step in steps]
        last = probe(BUDGET, "7", 0.99)
    return RecordedTrace(f"q{number}", 0, "7", BUDGET, "budget", BUDGET, last, tuple(probes))


@pytest.mark.parametrize("seed", range(3))
def test_where_droughts_mean_nothing_none_ends_the_thinking(seed: int) -> None:
    """Not at the price that a fit chooses, not at the default, and not at three times that."""
    rng = np.random.default_rng(seed)
    run = Run.of(tuple(trace_without_meaning(number, rng) for number in range(400)), INFO)
    fitted = fitting.fit(EVERY, run).rule
    assert fitted.hopeless
    for price in (fitted.price, 0.1, 0.3):
        decided = run.decide(replace(fitted, price=price))
        assert not (decided.sure & (decided.certainty < fitted.floor)).any()
        assert decided.fired >= 190
    assert fitting.fit(CgrDrought(interval=INTERVAL, threshold=0.95), run).rule.drought == 1


def test_a_drought_that_few_traces_reached_is_no_step() -> None:
    """One long drought that ended wrong says nothing."""
    short = [({INTERVAL}, number % 2 == 0) for number in range(40)]
    assert hopeless_steps(short, BUDGET, regression.isotonic) == ((INTERVAL / BUDGET, 0.5),)
    assert (
        hopeless_steps([*short, ({INTERVAL, 8 * INTERVAL}, True)], BUDGET, regression.isotonic)[-1][0] == INTERVAL / BUDGET
    )


def test_droughts_that_mean_something_end_the_thinking() -> None:
    fitted = fitting.fit(CgrDrought(interval=INTERVAL, threshold=0.9), sample(count=300))
    assert 0.3 <= fitted.rule.drought <= 0.5
    assert fitted.score.net > 0.4


def stated_sample(*, everywhere: bool = True) -> Run:
    """Answers are right if they stand in the thinking. With `everywhere` False, one probe does not say where."""
    rng = np.random.default_rng(3)
    made = []
    for number in range(60):
        knows = int(rng.integers(2, 14))
        said = [(step, step >= knows) for step in range(1, BUDGET // INTERVAL)]
        probes = [
            replace(probe(INTERVAL * step, "7" if ok else "8", 0.8), stated=(1, 5) if ok else (0, 0)) for step, ok in said
        ]
        made.append(RecordedTrace(f"q{number}", 0, "7", BUDGET, "budget", BUDGET, probe(BUDGET, "7", 0.9), tuple(probes)))
    if not everywhere:
        made[7] = replace(made[7], probes=(replace(made[7].probes[0], stated=None), *made[7].probes[1:]))
    return Run.of(made, INFO)


def test_where_an_answer_stands_is_learned_if_every_probe_says_it() -> None:
    run = stated_sample()
    learned = fitting.learn(EVERY, run)
    assert learned.reads_stated
    assert learned.fit_note == ""
    good = replace(learned, price=0.4)
    assert run.decide(good).right.all()
    assert run.decide(good).at.mean() < 0.7 * BUDGET
    partly = stated_sample(everywhere=False)
    without = fitting.learn(EVERY, partly)
    assert not without.reads_stated
    assert "`stated` were left out" in without.fit_note
    with pytest.raises(NotRecorded, match="was fitted with `stated`"):
        partly.decide(learned)


def test_the_price_may_lose_half_a_point_where_it_is_chosen() -> None:
    points, net = np.array([-2.0, -0.5, -0.2, 0.0]), np.array([0.9, 0.6, 0.6, 0.1])
    assert most_saving_within(0.5, points, net) == 2
    assert most_saving_within(0.5, points - 1, net) == 3
    assert most_saving_within(3.0, points, net) == 0


def test_the_main_parameter_is_chosen_at_equal_accuracy() -> None:
    rule = Cgr(interval=INTERVAL)
    many = sample(count=450)
    chosen = fitting.fit(rule, many)
    assert chosen.score.equal
    assert chosen.score.bound[0] > -1
    for value in rule.grid:
        tried = fitting.score(many.columns(), many.decide(replace(rule, threshold=value)))
        assert not tried.equal or tried.net <= chosen.score.net


def test_from_too_few_questions_equality_cannot_be_told() -> None:
    """The largest saving among the values that lost nothing is chosen, and the number of questions needed is said."""
    rule = Cgr(interval=INTERVAL)
    chosen = fitting.fit(rule, SAMPLE)
    assert chosen.score.verdict == "cannot be told"
    assert (chosen.score.low, chosen.score.high, chosen.score.diff_points) == (0, 0, 0)
    assert chosen.score.bound[0] < -1
    assert chosen.score.needed_questions == pytest.approx(400, abs=20)
    for value in rule.grid:
        tried = fitting.score(SAMPLE.columns(), SAMPLE.decide(replace(rule, threshold=value)))
        assert tried.diff_points < 0 or tried.net <= chosen.score.net


@dataclass(frozen=True, kw_only=True)
class Remembers(Rule):
    """Learns the answers that it was shown, and is certain of them."""

    price: float = 0.1
    known: tuple[str, ...] = ()
    main: ClassVar[str | None] = "price"
    grid: ClassVar[tuple[float, ...]] = (0.2, 0.1)
    learns: ClassVar[bool] = True

    def learn(self, traces: Sequence[GradedTrace], budget: int, regression: Any) -> Remembers:
        return replace(self, known=tuple(one.probes[0].answer for one in traces))


class RunWithNames(Run):
    """A run whose answers name the questions; a decision is right if the rule learned from its question."""

    def decide(self, rule: Rule) -> Decisions:
        assert isinstance(rule, Remembers)
        made = at_end(self.columns())
        return replace(made, right=np.array([one.probes[0].answer in rule.known for one in self.traces()]))


def test_weights_are_never_used_on_a_question_that_they_were_learned_from() -> None:
    asked = [replace(one, probes=(probe(INTERVAL, one.question_id, 0.5),)) for one in SAMPLE.traces()[:23]]
    plain = Run.of([*asked, *(replace(one, seed=1) for one in asked)], INFO)
    run = RunWithNames(**{one.name: getattr(plain, one.name) for one in fields(plain) if not one.name.startswith("_")})
    chosen = np.arange(23) % 2 == 0
    decide, learned = fitting.cross_fitted(Remembers(), run, chosen)
    assert isinstance(learned, Remembers)
    assert set(learned.known) == {f"q{number}" for number in range(0, 23, 2)}
    assert not decide(Remembers(price=0.2)).right.any()


def test_where_nothing_is_equal_the_most_cautious_is_chosen() -> None:
    wrong = tuple(
        replace(one, probes=tuple(replace(each, answer="1", certainty=1.0, probabilities=(1.0,)) for each in one.probes))
        for one in SAMPLE.traces()
    )
    chosen = fitting.fit(Cgr(interval=INTERVAL), Run.of(wrong, INFO))
    assert not chosen.score.equal
    assert chosen.rule.threshold == Cgr.grid[-1]


def test_giving_up_is_chosen_for_a_penalty() -> None:
    chosen = fitting.fit(GiveUpEarly(interval=INTERVAL), SAMPLE, penalty=1)
    assert isinstance(chosen.rule, GiveUpEarly)
    assert chosen.score.gave_up >= 28
    assert chosen.score.accuracy == pytest.approx(0.8, abs=0.05)


def test_learned_leaves_the_main_parameter() -> None:
    learned = fitting.learn(replace(EVERY, price=0.5), SAMPLE)
    assert isinstance(learned, Calibrated)
    assert learned.price == 0.5
    assert learned.answered != EVERY.answered
    assert fitting.learn(Cgr(), SAMPLE) == Cgr()


@pytest.mark.parametrize("rule", [FixedBudget(), NoThinking()])
def test_a_rule_without_a_parameter(rule: FixedBudget | NoThinking) -> None:
    with pytest.raises(UsageError, match="no parameter to fit"):
        fitting.fit(rule, SAMPLE)


def test_ungraded_questions_cannot_be_fitted_to() -> None:
    traces = tuple(replace(one, gold=None) for one in SAMPLE.traces()[:20])
    with pytest.raises(UsageError, match="fewer than two questions"):
        fitting.fit(Cgr(interval=INTERVAL), Run.of(traces, INFO))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the first sixty traces, by way of a file."""
    place = tmp_path_factory.mktemp("fit")
    write_jsonl(place / "traces.jsonl", map(to_line, SAMPLE.traces()[:60]))
    import_run(place / "traces.jsonl", place / "run")
    return place / "run"


def test_fit_writes_a_rule_that_solve_takes(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    done = command("fit", str(folder), "--set", "rare=2", "--out", str(path))
    assert done.returncode == 0, done.stderr
    assert "calibrated, price" in done.stdout
    assert "whether accuracy is equal cannot be told: with 95% confidence the difference is from" in done.stdout
    assert "questions would settle it at the rates seen" in done.stdout
    assert done.stdout.rstrip().endswith(str(path))
    made = rule_files.read(path)
    assert made.rule == "calibrated"
    assert made.parameters["rare"] == 2
    assert made.parameters["span"] == BUDGET
    assert "interval" not in made.parameters
    assert made.fitted == {"run": "run", "questions": 60, "traces": 60, "share": 1.0}
    solved = command("solve", "--rule", str(path), "--budget", "64", "--json")
    assert solved.returncode == 0, solved.stderr
    assert json.loads(solved.stdout)["rule"] == "calibrated"


def test_fit_on_a_share_of_the_questions(folder: Path) -> None:
    done = command("fit", str(folder), "--rule", "cgr", "--share", "0.5", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rule"] == "cgr"
    assert rule_files.read(folder / "cgr.json").fitted["questions"] == 30
    (folder / "cgr.json").unlink()


@pytest.fixture(scope="module")
def partly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of sixty questions. A third has no gold answer. Another probe set has the half that a comparison shows, and ten
    of the others."""
    place = tmp_path_factory.mktemp("partly")
    traces = [replace(one, gold=None) if number % 3 == 0 else one for number, one in enumerate(SAMPLE.traces()[:60])]
    write_jsonl(place / "traces.jsonl", map(to_line, traces))
    import_run(place / "traces.jsonl", place / "run")
    columns = Run.of(traces, INFO).columns()
    tuning = {columns.questions[number] for number in np.flatnonzero(split_questions(columns, 0.5)[0])}
    with Store.open(place / "run", write=True) as store:
        name = store.add_probe_set(ProbeSet("interval", INTERVAL, Asking(close_think="always")), "some")
        for one in [one for one in traces if one.question_id not in {*sorted(tuning)[10:]}]:
            store.add_probing((one.question_id, one.seed), name, one.probes)
    return place / "run"


@pytest.mark.parametrize("probe_set", [None, "some"])
def test_a_comparison_shows_no_question_that_a_rule_was_fitted_to(
    partly: Path, probe_set: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned: list[set[str]] = []

    def learn(rule: Rule, run: Run, questions: Bools) -> tuple[Callable[[Rule], Decisions], Rule]:
        names = zip(run.columns().questions, questions, strict=True)
        tuned.append({name for name, here in names if here})
        return run.decide, rule

    monkeypatch.setattr(comparing, "cross_fitted", learn)
    compared = comparing.compare_run(partly, {"calibrated": EVERY}, tune_on=0.5)
    fitted = set(fitting.open_run(partly, probe_set, share=0.5).columns().questions)
    assert compared.split.apart
    assert len(fitted) >= 5
    assert fitted <= tuned[0]
    assert (fitted == tuned[0]) == (probe_set is None)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--share", "0"), "A share of 0"),
        (("--rule", "fixed-budget"), "no parameter to fit"),
        (("--rule", "crg"), "no rule called 'crg'"),
        (("--out", "mine.txt"), "does not end in .json"),
    ],
)
def test_fit_refuses(folder: Path, arguments: tuple[str, ...], what: str) -> None:
    done = command("fit", str(folder), *arguments)
    assert done.returncode == 2
    assert what in done.stderr


def test_a_rule_file_goes_round(tmp_path: Path) -> None:
    rule = Calibrated(price=0.2, hopeless=((0.1, 0.5), (0.2, 0.9)), answered=(1.0, 2.0, 3.0, 4.0, 5.0), interval=7)
    rule_files.RuleFile.of(rule, run="some").write(tmp_path / "deep" / "rule.json")
    found = rule_files.read(tmp_path / "deep" / "rule.json")
    assert found.made(interval=7) == rule
    assert rule_files.named(str(tmp_path / "deep" / "rule.json")) == ("calibrated", dict(found.parameters))
    assert rule_files.named("cgr") == ("cgr", {})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "holds no rule"),
        ("[]", "holds no rule"),
        ('{"name": "cgr"}', "holds no rule"),
        ('{"rule": 3}', "holds no rule"),
        ('{"rule": "crg"}', "no rule called 'crg'"),
        ('{"rule": "cgr", "parameters": {"treshold": 0.9}}', "no parameter of cgr called 'treshold'"),
        ('{"rule": "cgr", "parameters": {"threshold": "high"}}', "The value of 'threshold' of 'cgr' cannot be 'high'"),
    ],
)
def test_files_that_hold_no_rule(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "rule.json").write_text(text)
    with pytest.raises(UsageError, match=what):
        rule_files.read(tmp_path / "rule.json")


def test_a_rule_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        rule_files.read(tmp_path / "none.json")


def test_a_rule_by_name_takes_lists_for_tuples() -> None:
    assert make_rule("calibrated", answered=[0, 1, 0, 0, 0], hopeless=[[0.1, 0.9]]) == Calibrated(hopeless=((0.1, 0.9),))
