"""The page in a real Chromium: its numbers equal report.json and the loop, and missing numbers are explained in words."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr.errors import NotRecorded
from cgr.lab.compare import compare
from cgr.lab.decide.arrays import first_sure
from cgr.lab.decide.columns import Checker, Columns
from cgr.lab.decide.replay import replay
from cgr.lab.decide.run import Run
from cgr.lab.report import numbers, page
from cgr.lab.score.accuracy import PENALTIES
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.records import Decision, Ended, Probe
from cgr.rules import make_rule
from tests.lab.report.browser import Browser
from tests.lab.runs import SIX_INFO, plausible, probe, six, trace

THRESHOLDS = numbers.THRESHOLDS
READ_ROWS = """[...document.querySelectorAll("#ID tbody tr")].map((row) => ({
  ...row.dataset,
  ...Object.fromEntries([...row.children].map((cell) => [cell.dataset.metric, cell.dataset.value ?? null])),
}))"""
NONSENSE = re.compile(r"NaN|undefined|Infinity|null|\[object")


def as_report(traces: Sequence[RecordedTrace], info: RunInfo, thresholds: Sequence[float] = THRESHOLDS) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(numbers.report(Columns.of(traces, info), thresholds, PENALTIES).to_json())
    return found


def written(folder: Path, *runs: tuple[Sequence[RecordedTrace], RunInfo], thresholds: Sequence[float] = THRESHOLDS) -> Path:
    return page.write(
        folder, [(info, traces, as_report(traces, info, thresholds)) for traces, info in runs], thresholds, PENALTIES
    )


def rows(tab: Browser, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, str | None]] = tab.run(READ_ROWS.replace("ID", table))
    return [{key: None if value is None else float(value) for key, value in row.items()} for row in found]


def value(tab: Browser, metric: str) -> float:
    return float(tab.run(f"document.querySelector('[data-metric=\"{metric}\"]').dataset.value"))


def text(tab: Browser, selector: str = "body") -> str:
    return str(tab.run(f"document.querySelector({json.dumps(selector)}).innerText"))


def same(shown: dict[str, Any], wanted: dict[str, Any], names: Sequence[str]) -> None:
    for name in names:
        expected = wanted[name]
        assert (shown[name] is None) == (expected is None), name
        assert expected is None or shown[name] == pytest.approx(expected, rel=1e-9, abs=1e-9), (name, wanted["threshold"])


def check_against(tab: Browser, report: dict[str, Any]) -> None:
    """Every number that report.json and the page both have, at the threshold and penalties that the page shows."""
    accuracy, savings = rows(tab, "accuracy-table"), rows(tab, "savings-table")
    for shown, wanted in zip(accuracy, report["thresholds"], strict=True):
        same(shown, wanted, ["threshold", "correct_mean", "accuracy", "diff_mean", "diff_points", "diff_relative"])
        same(shown, wanted, ["equal", "better", "worse"])
        assert [shown["ci_low"], shown["ci_high"]] == pytest.approx(wanted["ci95"])
    for shown, wanted in zip(savings, report["savings"], strict=True):
        same(shown, wanted, ["threshold", "total", "per_seed", "per_question", "probe_tokens", "net_total", "share"])
        same(shown, wanted, ["net_share", "against_budget_total"])
    assert value(tab, "baseline.correct_mean") == pytest.approx(report["baseline"]["correct_mean"])
    assert value(tab, "baseline.accuracy") == pytest.approx(report["baseline"]["accuracy"])
    assert value(tab, "plain.tokens_mean") == pytest.approx(report["baseline"]["thinking_tokens_mean"])


def check_grade(tab: Browser, report: dict[str, Any], theta: float) -> None:
    wanted_rows = [row for row in report["grade"] if row["threshold"] == theta]
    for shown, wanted in zip(rows(tab, "grade-table"), wanted_rows, strict=True):
        same(shown, wanted, ["penalty", "final", "baseline", "diff", "max", "step"])


def check_certainty(tab: Browser, report: dict[str, Any], theta: float) -> None:
    """Calibration, risk and spread of the answers at this threshold."""
    found = next(row["selective"] for row in report["selective"] if row["threshold"] == theta)
    assert value(tab, "ece") == pytest.approx(found["ece"])
    assert value(tab, "aurc") == pytest.approx(found["aurc"])
    spread = {row["threshold"]: row["sd"] for row in report["spread"]}
    assert value(tab, "plain.sd") == pytest.approx(spread[None])
    assert value(tab, "guided.sd") == pytest.approx(spread[theta])


def always(answer: str, gold: str | None, certainty: float, seeds: int = 2, questions: int = 3) -> list[RecordedTrace]:
    return [
        trace(f"q{question}", seed, gold, 3000, "end_of_thinking", (answer, 0.9), [(1000, answer, (certainty,), True)])
        for question in range(questions)
        for seed in range(seeds)
    ]


def unprobed() -> list[RecordedTrace]:
    return [replace(one, probes=(), thinking_tokens=500) for one in always("7", "7", 0.5)]


def test_six_traces_have_their_known_numbers(tab: Browser, tmp_path: Path) -> None:
    path = written(tmp_path, (six(), SIX_INFO))
    known = {0.96: (2.5, 5300, 33, 1.5, 3000), 0.97: (2, 4500, 33, 0.5, 2000), 0.98: (2.5, 2500, 37, 0.5, 2000),
             0.99: (2.5, 1500, 40, 0.5, 3000)}  # fmt: skip
    for theta, (correct, saved, asked, best, step) in known.items():
        tab.open(path, f"?theta={theta}&p=1")
        accuracy = next(row for row in rows(tab, "accuracy-table") if row["threshold"] == theta)
        savings = next(row for row in rows(tab, "savings-table") if row["threshold"] == theta)
        grade = next(row for row in rows(tab, "grade-table") if row["penalty"] == 1)
        assert (accuracy["correct_mean"], savings["total"], savings["probe_tokens"]) == (correct, saved, asked)
        assert (grade["max"], grade["step"], grade["baseline"]) == (best, step, 1)
        assert tab.errors() == []


@pytest.mark.parametrize("seeds", [3, 8])
def test_numbers_equal_the_report(tab: Browser, tmp_path: Path, seeds: int) -> None:
    thresholds = (0.5, 0.8, 0.93, 0.97, 0.99, 0.999)
    traces, info = plausible(30, seeds, budget=16000, interval=500, chance=seeds)
    report = as_report(traces, info, thresholds)
    path = written(tmp_path, (traces, info), thresholds=thresholds)
    for theta in thresholds:
        tab.open(path, f"#theta={theta}")
        check_against(tab, report)
        check_grade(tab, report, theta)
        check_certainty(tab, report, theta)
    assert tab.errors() == []


def test_numbers_equal_the_report_where_traces_and_golds_are_missing(tab: Browser, tmp_path: Path) -> None:
    traces, info = plausible(12, 4, chance=5)
    ragged = [replace(one, gold=None) if one.question_id == "q03" else one for one in traces[:-5]]
    report = as_report(ragged, info)
    tab.open(written(tmp_path, (ragged, info)))
    check_against(tab, report)
    check_grade(tab, report, 0.99)
    assert len(report["notes"]) >= 2
    assert text(tab, "#notes").splitlines() == report["notes"]


def test_the_budget_sweep_equals_the_report(tab: Browser, tmp_path: Path) -> None:
    traces, info = plausible(20, 4, chance=2)
    tab.open(written(tmp_path, (traces, info)))
    tab.unfold("#sweep")
    for shown, wanted in zip(rows(tab, "sweep-table"), as_report(traces, info)["budget_sweep"], strict=True):
        assert shown["budget"] == wanted["budget"]
        assert shown["plain_accuracy"] == pytest.approx(wanted["accuracy"])
        assert shown["plain_tokens"] == pytest.approx(wanted["thinking_tokens_mean"])


# Runs the page's own scripts on a run, and returns the decisions of every trace at every pair of threshold and budget.
DECIDE = """(() => {
  SCRIPTS
  const run = openRun(RAW, 0);
  return { highestBound: run.highestBound, budgets: run.budgets,
           decisions: PAIRS.map(([theta, budget]) => decideAll(run, theta, budget ?? run.budget)) };
})()"""
Pair = tuple[float, int | None]


def page_decisions(tab: Browser, traces: Sequence[RecordedTrace], info: RunInfo, pairs: Sequence[Pair]) -> dict[str, Any]:
    scripts = "\n".join(page._source(name) for name in ("data.js", "decide.js"))
    raw = json.dumps(page._run(info, traces, {}))
    script = DECIDE.replace("PAIRS", json.dumps(pairs)).replace("RAW", raw).replace("SCRIPTS", scripts)
    found: dict[str, Any] = tab.run(script)
    return found


def recordings(rng: random.Random, *, whole_grid: bool = True) -> tuple[list[RecordedTrace], RunInfo]:
    """Random traces with bounds, unclosed answers, natural ends (on a step too) and budget ends."""
    interval, steps = rng.choice((100, 250)), rng.randint(4, 9)
    info = RunInfo("random", "random", "scripted", budget=interval * steps, interval=interval)
    return [
        random_trace(rng, question, seed, info, whole_grid)
        for question in range(rng.randint(3, 5))
        for seed in range(rng.randint(2, 4))
    ], info


def random_trace(rng: random.Random, question: int, seed: int, info: RunInfo, whole_grid: bool) -> RecordedTrace:
    anywhere, on_a_step = rng.randint(1, info.budget), info.interval * rng.randint(1, info.budget // info.interval - 1)
    length = rng.choice((anywhere, anywhere, on_a_step, info.budget))
    ended: Ended = "end_of_thinking" if length < info.budget else "budget"
    cuts = list(range(info.interval, min(length, info.budget - 1) + 1, info.interval))
    if not whole_grid:
        cuts = sorted({*rng.sample(cuts, len(cuts) // 2), *(rng.randint(1, length) for _ in range(3))})
        cuts = [at for at in cuts if at < info.budget]
    probes = tuple(random_probe(rng, at, bounds=at <= 2 * info.interval) for at in cuts)
    final = random_probe(rng, length, bounds=False)
    eos = ended == "end_of_thinking" and rng.random() < 0.3
    return RecordedTrace(f"q{question}", seed, str(question), length, ended, info.budget, final, probes, eos=eos)


def random_probe(rng: random.Random, at: int, *, bounds: bool) -> Probe:
    kind = rng.choices(("closed", "open", "bound"), (8, 1, 2 * bounds))[0]
    certainty = rng.choice((rng.random(), 1 - 10 ** -rng.uniform(0.5, 5), 0.9, 0.99))
    if kind == "bound":
        certainty *= 0.5
    answer = rng.choice(("0", "1", "2", "3"))
    return probe(at, answer, (certainty,), closed=kind == "closed", bound=kind == "bound")


def test_a_question_shows_every_text_and_gold_that_it_has_under_its_seeds() -> None:
    traces, info = recordings(random.Random(1))
    shuffled = [
        replace(one, question=f"Which, {one.seed}?", gold="AB"[one.seed % 2], format="choice")
        for one in traces
        if one.seed < 2
    ]
    (first, *_) = page._run(info, shuffled, {})["questions"]
    assert first["gold"] == "A (seed 0), B (seed 1)"
    assert first["text"] == "Seed 0: Which, 0?\n\nSeed 1: Which, 1?"
    (plain, *_) = page._run(info, traces, {})["questions"]
    assert (plain["gold"], plain["text"]) == ("0", "")


def random_pairs(rng: random.Random, traces: Sequence[RecordedTrace], budgets: Sequence[int]) -> list[Pair]:
    """Thresholds anywhere, at exactly a recorded certainty, and just above one."""
    recorded = [one.certainty for trace in traces for one in trace.probes] or [0.5]
    exact = [rng.choice(recorded) for _ in range(12)]
    thresholds = [*(rng.random() for _ in range(12)), *exact, *(math.nextafter(one, 2) for one in exact), 0.0, 1.0]
    return [(min(theta, 1.0), rng.choice(budgets)) for theta in thresholds]


def as_page(trace: RecordedTrace, decision: Decision, checker: Checker) -> dict[str, Any]:
    return {
        "cause": decision.stop_cause,
        "used": decision.thinking_tokens,
        "answer": decision.answer,
        "certainty": decision.certainty,
        "closed": decision.closed,
        "right": checker.right(decision.answer, decision.closed, trace.gold, trace.format),
        "probeTokens": decision.probe_tokens,
    }


@pytest.mark.parametrize("seed", range(8))
def test_the_page_decides_as_the_loop_at_random_thresholds_and_budgets(tab: Browser, seed: int) -> None:
    """Every trace, at 38 pairs of a threshold and a budget. Where the loop says that a bound cannot decide a threshold, the
    page knows it too: the threshold is not above its highest bound."""
    rng, checker = random.Random(seed), Checker()
    traces, info = recordings(rng)
    budgets = page_decisions(tab, traces, info, [])["budgets"]
    assert budgets == [row["budget"] for row in as_report(traces, info)["budget_sweep"]]
    pairs = random_pairs(rng, traces, budgets)
    found = page_decisions(tab, traces, info, pairs)
    causes = set()
    for (theta, budget), decisions in zip(pairs, found["decisions"], strict=True):
        rule = make_rule("cgr", threshold=theta, interval=info.interval)
        for one, shown in zip(traces, decisions, strict=True):
            try:
                wanted = as_page(one, replay(rule, one, budget=budget), checker)
            except NotRecorded:
                assert theta <= found["highestBound"]
                continue
            assert {name: shown[name] for name in wanted} == wanted, (theta, budget, one)
            causes.add(shown["cause"])
    assert causes == {"certainty", "end_of_thinking", "budget"}
    assert any(probe.bound for one in traces for probe in one.probes)
    assert any(not probe.closed and not probe.bound for one in traces for probe in one.probes)


@pytest.mark.parametrize("seed", range(4))
def test_the_page_decides_as_the_report_if_probes_are_at_any_position(tab: Browser, seed: int) -> None:
    rng = random.Random(100 + seed)
    traces, info = recordings(rng, whole_grid=False)
    columns = Columns.of(traces, info)
    bound = max((one.certainty for t in traces for one in t.probes if one.bound), default=-1)
    pairs = [(theta, None) for theta, _ in random_pairs(rng, traces, [0]) if theta > bound]
    assert len(pairs) >= 10
    for (theta, _), shown in zip(pairs, page_decisions(tab, traces, info, pairs)["decisions"], strict=True):
        decided = first_sure(columns, theta)
        assert [one["used"] for one in shown] == decided.at.tolist()
        assert [one["cause"] == "certainty" for one in shown] == decided.sure.tolist()
        assert [one["certainty"] for one in shown] == decided.certainty.tolist()
        assert [one["closed"] for one in shown] == decided.closed.tolist()
        assert [one["right"] for one in shown] == decided.right.tolist()
        assert [one["probeTokens"] for one in shown] == decided.probe_tokens.tolist()


@pytest.mark.parametrize("budget", [1000, 2000, 5000, 8000])
@pytest.mark.parametrize("theta", [0.9, 0.99])
def test_a_smaller_budget_equals_a_rerun_of_the_loop(tab: Browser, tmp_path: Path, theta: float, budget: int) -> None:
    traces, info = plausible(10, 3, chance=9)
    tab.open(written(tmp_path, (traces, info)), f"#theta={theta}&t={budget}")
    checker, rule = Checker(), make_rule("cgr", threshold=theta, interval=info.interval)
    made = [(one, replay(rule, one, budget=budget)) for one in traces]
    right = [checker.right(decision.answer, decision.closed, one.gold, one.format) for one, decision in made]
    assert value(tab, "guided.accuracy") == pytest.approx(sum(right) / len(right))
    assert value(tab, "guided.tokens_mean") == pytest.approx(sum(d.thinking_tokens for _, d in made) / len(made))
    spent = next(row for row in rows(tab, "savings-table") if row["threshold"] == theta)["probe_tokens"]
    assert spent == sum(decision.probe_tokens for _, decision in made)


def test_moving_the_controls_recomputes(tab: Browser, tmp_path: Path) -> None:
    traces, info = plausible(10, 4, chance=1)
    report = as_report(traces, info)
    tab.open(written(tmp_path, (traces, info)))
    before = value(tab, "headline.net_share")
    assert before == pytest.approx(next(row["net_share"] for row in report["savings"] if row["threshold"] == 0.99))
    tab.set("#theta-slide", "0")
    assert tab.run("document.querySelector('#theta').value") == "0.5"
    assert value(tab, "headline.net_share") > before
    tab.set("#theta", "0.96")
    check_grade(tab, report, 0.96)
    tab.set("#penalty", "2")
    assert [row["penalty"] for row in rows(tab, "grade-table")] == [0, 0.25, 0.5, 1, 2]
    tab.set("#budget", "2")
    assert tab.run("document.querySelector('#budget-text').textContent") == "3,000"
    assert value(tab, "plain.tokens_mean") <= 3000
    tab.set("#abstain", True)
    assert value(tab, "guided.coverage") < 1
    assert value(tab, "guided.selective") >= value(tab, "guided.accuracy")
    tab.wait_until("location.hash === '#theta=0.96&p=2&t=3000&abstain=1'")
    assert tab.errors() == []


GAIN = ("cost_mean", "accuracy", "fixed_accuracy", "gain_points", "fixed_cost_for_same_accuracy")


def check_fixed(tab: Browser, report: dict[str, Any]) -> None:
    """The table of fixed budgets, with its intervals, at every threshold of the report."""
    for shown, wanted in zip(rows(tab, "fixed-table"), report["adaptive"], strict=True):
        same(shown, wanted, ["threshold", *GAIN])
        if wanted["ci95"] is None:
            assert (shown["gain_low"], shown["gain_high"]) == (None, None)
        else:
            assert [shown["gain_low"], shown["gain_high"]] == pytest.approx(wanted["ci95"])


@pytest.mark.parametrize("chance", range(3))
def test_the_fixed_budget_of_the_same_cost_equals_the_report(tab: Browser, tmp_path: Path, chance: int) -> None:
    traces, info = plausible(25, 4, budget=16000, interval=500, chance=chance)
    report = as_report(traces, info)
    tab.open(written(tmp_path, (traces, info)))
    check_fixed(tab, report)
    wanted = next(row for row in report["adaptive"] if row["threshold"] == 0.99)
    for metric in ("headline.fixed_accuracy", "fixed.accuracy"):
        assert value(tab, metric) == pytest.approx(wanted["fixed_accuracy"])
    assert value(tab, "headline.accuracy") == pytest.approx(wanted["accuracy"])
    assert value(tab, "headline.gain_points") == pytest.approx(wanted["gain_points"], abs=1e-6)
    ends = [f"{end:+.1f}".replace("-", "\u2212").replace("+0.0", "0.0") for end in wanted["ci95"]]
    first = text(tab, "#headline").partition(".\n")[0]
    assert "against a fixed budget of the same cost it" in first
    assert f"{ends[0]} to {ends[1]}): " in first.replace("\u22120.0", "0.0")
    for metric in ("guided.cost_mean", "fixed.cost_mean"):
        assert value(tab, metric) == pytest.approx(wanted["cost_mean"])


def test_the_fixed_budget_follows_the_slider(tab: Browser, tmp_path: Path) -> None:
    """At thresholds that the report does not have, too; the interval of the gain is not known there."""
    traces, info = plausible(25, 4, budget=16000, interval=500, chance=5)
    tab.open(written(tmp_path, (traces, info)))
    last = int(tab.run("document.querySelector('#theta-slide').max"))
    for place in (0, 17, 45, 60, last):
        tab.set("#theta-slide", str(place))
        theta = float(tab.run("document.querySelector('#theta').value"))
        wanted = as_report(traces, info, [theta])["adaptive"][0]
        shown = next(row for row in rows(tab, "fixed-table") if row["threshold"] == theta)
        same(shown, wanted, GAIN)
        assert shown["gain_low"] is None
        assert value(tab, "fixed.accuracy") == pytest.approx(wanted["fixed_accuracy"])
    assert tab.errors() == []


@pytest.mark.parametrize("make", [six, lambda: six()[:-1], lambda: always("7", "7", 0.999), lambda: always("7", "7", 0.3)])
def test_the_fixed_budget_in_small_runs(tab: Browser, tmp_path: Path, make: Callable[[], list[RecordedTrace]]) -> None:
    report = as_report(make(), SIX_INFO)
    tab.open(written(tmp_path, (make(), SIX_INFO)))
    check_fixed(tab, report)


def test_a_smaller_budget_is_compared_with_fixed_budgets_below_it(tab: Browser, tmp_path: Path) -> None:
    traces, info = plausible(20, 4, chance=1)
    tab.open(written(tmp_path, (traces, info)), "#t=3000")
    best = max(row["accuracy"] for row in as_report(traces, info)["budget_sweep"] if row["budget"] <= 3000)
    assert value(tab, "fixed.accuracy") <= best
    assert value(tab, "fixed.cost_mean") <= 3000 + 100
    assert all(row["gain_low"] is None for row in rows(tab, "fixed-table"))


def test_what_rules_get_of_the_oracle_is_that_of_the_comparison(tab: Browser, tmp_path: Path) -> None:
    traces, info = plausible(12, 2)
    run = Run.of(traces, info)
    compared = compare(run.columns(), run.decide, ["cgr", "cgr-drought", "fixed-budget"], draws=100, splits=2)
    data = [(info, traces, as_report(traces, info))]
    tab.open(page.write(tmp_path, data, THRESHOLDS, PENALTIES, [page.comparison(compared)]))
    read = tab.run(READ_ROWS.replace("ID", "oracle-table"))
    found = [{key: value and float(value) for key, value in row.items() if key != "rule"} for row in read]
    assert [row.get("unsolved") is not None for row in found] == [True] * len(compared.entries)
    for shown, entry in zip(found, compared.entries, strict=True):
        wanted = {name: getattr(entry.shown, name) for name in ("net_share", "unsolved", "late", "probes")}
        wanted |= {"oracle_share": entry.oracle_share, "net_share_worst": entry.splits and entry.splits.net_share_worst}
        fixed = ("fixed_accuracy", "gain_points", "fixed_cost_for_same_accuracy")
        wanted |= {name: getattr(entry.adaptive, name) for name in fixed} | {"threshold": 0}
        same(shown, wanted, [name for name in wanted if name != "threshold"])
        assert sum(wanted[name] for name in ("net_share", "unsolved", "late", "probes")) == pytest.approx(compared.oracle)


@pytest.mark.parametrize("graded", [True, False])
def test_head_room_and_false_sureness_are_those_of_the_report(tab: Browser, tmp_path: Path, graded: bool) -> None:
    """They need no known answers."""
    traces, info = plausible(20, 4, chance=1)
    traces = traces if graded else [replace(one, gold=None) for one in traces]
    report = as_report(traces, info)
    tab.open(written(tmp_path, (traces, info)))
    assert value(tab, "headroom") == pytest.approx(report["headroom"])
    wanted = {row["threshold"]: row for row in report["false_sure"]}
    assert value(tab, "false_sure") == pytest.approx(wanted[0.99]["share"])
    for shown in rows(tab, "false-sure-table"):
        same(shown, wanted[shown["threshold"]], ["probes", "share"])


@pytest.mark.parametrize(
    ("traces", "verdict"),
    [
        pytest.param(always("7", "7", 0.999), "There is thinking to save here, and sure probes mostly agree", id="neither"),
        pytest.param(always("7", "7", 0.3), "no probe is sure enough to show", id="never sure"),
        pytest.param(
            [replace(one, final=replace(one.final, answer="8")) for one in always("7", "7", 0.999)],
            "Certainty is not to be trusted here",
            id="not to be trusted",
        ),
        pytest.param(
            [replace(one, thinking_tokens=1010) for one in always("7", "7", 0.999)],
            "There is nothing to save here",
            id="nothing to save",
        ),
        pytest.param(unprobed(), "Head room and false sureness are unknown: no probe was recorded.", id="no probes"),
    ],
)
def test_the_verdict_in_words(tab: Browser, tmp_path: Path, traces: list[RecordedTrace], verdict: str) -> None:
    tab.open(written(tmp_path, (traces, SIX_INFO)))
    assert verdict in text(tab, "#prospects")


def test_at_other_thresholds_the_page_computes_the_interval(tab: Browser, tmp_path: Path) -> None:
    traces, info = plausible(20, 4, chance=1)
    low, high = as_report(traces, info, [0.95])["thresholds"][0]["ci95"]
    tab.open(written(tmp_path, (traces, info)), "#theta=0.95")
    row = next(row for row in rows(tab, "accuracy-table") if row["threshold"] == 0.95)
    assert low < high
    assert [row["ci_low"], row["ci_high"]] == pytest.approx([low, high], abs=0.1 * (high - low))


@pytest.mark.parametrize(("field", "bad"), [("theta", ("", "7", "-1")), ("penalty", ("", "-1"))])
def test_invalid_numbers_are_marked_and_not_used(tab: Browser, tmp_path: Path, field: str, bad: Sequence[str]) -> None:
    tab.open(written(tmp_path, (six(), SIX_INFO)))
    story, valid = text(tab, "#headline"), tab.run(f"document.querySelector('#{field}').value")
    marked = f"document.querySelector('#{field}').getAttribute('aria-invalid') === 'true'"
    colour = f"getComputedStyle(document.querySelector('#{field}')).borderTopColor"
    plain = tab.run(colour)
    for nonsense in bad:
        tab.set(f"#{field}", nonsense)
        assert text(tab, "#headline") == story
        assert tab.run(marked)
        assert tab.run(colour) != plain
        assert f"Shown: {valid}." in text(tab, f"#{field}-error")
        tab.set(f"#{field}", valid)
        assert not tab.run(marked)
        assert text(tab, f"#{field}-error") == ""
        assert tab.run(colour) == plain


def test_the_slider_removes_the_mark_of_an_invalid_threshold(tab: Browser, tmp_path: Path) -> None:
    tab.open(written(tmp_path, (six(), SIX_INFO)))
    tab.set("#theta", "7")
    tab.set("#theta-slide", "0")
    assert tab.run(
        "[document.querySelector('#theta').value, document.querySelector('#theta').getAttribute('aria-invalid')]"
    ) == [
        "0.5",
        "false",
    ]


@pytest.mark.parametrize("address", ["#theta=7", "#theta=", "#theta=much", "?p=-1"])
def test_an_invalid_number_in_the_address_has_a_note(tab: Browser, tmp_path: Path, address: str) -> None:
    tab.open(written(tmp_path, (six(), SIX_INFO)), address)
    assert "It is ignored." in text(tab, "#notes")
    assert value(tab, "plain.accuracy") == pytest.approx(4 / 6)


def test_abstaining_gives_only_sure_answers(tab: Browser, tmp_path: Path) -> None:
    """At 0.99 three of the six are sure: two by a probe, one at its natural end, and that one is wrong."""
    tab.open(written(tmp_path, (six(), SIX_INFO)), "?theta=.99&abstain=1")
    assert value(tab, "guided.coverage") == pytest.approx(3 / 6)
    assert value(tab, "guided.accuracy") == pytest.approx(2 / 6)
    assert value(tab, "guided.selective") == pytest.approx(2 / 3)


def test_several_runs_in_one_page(tab: Browser, tmp_path: Path) -> None:
    first, second = plausible(5, 3, name="alpha"), plausible(6, 2, chance=4, budget=12000, name="beta <b>")
    tab.open(written(tmp_path, first, second), "#run=alpha")
    cell = "row.querySelector('[data-metric=net_share]').dataset.value"
    shown = f"Array.from(document.querySelectorAll('[data-run]'), (row) => [row.dataset.run, {cell}])"
    shares = {"alpha": as_report(*first), "beta <b>": as_report(*second)}
    for name, share in tab.run(shown):
        wanted = next(row["net_share"] for row in shares[name]["savings"] if row["threshold"] == 0.99)
        assert float(share) == pytest.approx(wanted)
    tab.set("#run", "1")
    check_against(tab, as_report(*second))
    assert text(tab, "#budget-text") == "12,000"
    assert tab.errors() == []


def mixed() -> list[RecordedTrace]:
    return [one for one in six() if one.seed == 0]


@pytest.mark.parametrize(
    ("traces", "sentence"),
    [
        pytest.param(always("7", None, 0.999), "No question has a known answer", id="no golds"),
        pytest.param(always("7", None, 0.3), "No question has a known answer", id="no golds, never fired"),
        pytest.param(always("7", "7", 0.3), "no trace stopped early", id="never fired"),
        pytest.param(always("7", "7", 0.999), "every answer is right", id="all right"),
        pytest.param(always("7", "8", 0.999), "does not change accuracy", id="all wrong"),
        pytest.param(mixed(), "There is only one seed", id="one seed"),
        pytest.param(always("7", "7", 0.3, 1, 1), "There is only one seed", id="one trace"),
        pytest.param(always("7", "8", 0.999, 2, 1), "an interval needs at least two questions", id="one question"),
        pytest.param(unprobed(), "No probe of this run has a closed answer", id="no probes"),
    ],
)
def test_missing_numbers_are_explained_in_words(
    tab: Browser, tmp_path: Path, traces: Sequence[RecordedTrace], sentence: str
) -> None:
    path = written(tmp_path, (traces, SIX_INFO))
    for address in ("", "#theta=0&t=1000", "#theta=1&t=2000&abstain=1"):
        tab.open(path, address + ("&" if address else "#") + f"open={traces[0].question_id}")
        tab.unfold("#sweep")
        markup = tab.run("document.querySelector('main').innerHTML + document.querySelector('h1').innerHTML")
        assert not NONSENSE.search(markup), NONSENSE.findall(markup)
        assert tab.errors() == []
    tab.open(path)
    assert sentence in text(tab)


def test_a_page_without_traces_has_a_message(tab: Browser, tmp_path: Path) -> None:
    tab.open(page.write(tmp_path, [(SIX_INFO, [], {})], THRESHOLDS, PENALTIES))
    assert text(tab, "h1") == "This report has no traces."
    assert tab.errors() == []


HOSTILE = (
    "</script><script>window.broken = 1</script><!-- <img src=x onerror='window.broken = 2'> \u2028 {{ data }} & \udc80 𝟚"
)


def hostile() -> list[RecordedTrace]:
    def tainted(one: Probe) -> Probe:
        return replace(one, answer=HOSTILE)

    return [
        replace(one, question=HOSTILE, text=HOSTILE * 4, written=HOSTILE, final=tainted(one.final),
                question_id=one.question_id + HOSTILE, probes=tuple(map(tainted, one.probes)))
        for one in six()
    ]  # fmt: skip


def test_text_is_never_markup(tab: Browser, tmp_path: Path) -> None:
    info = replace(SIX_INFO, name=HOSTILE, model=HOSTILE)
    tab.open(written(tmp_path, (hostile(), info)), "#theta=0.97")
    tab.unfold(".question")
    tab.unfold(".reader")
    assert tab.run("window.broken ?? null") is None
    assert "</script><script>window.broken = 1</script><!-- <img src=x" in text(tab, ".text")
    assert "𝟚" in text(tab, ".text")
    assert tab.errors() == []


def test_an_opened_question_shows_its_traces(tab: Browser, tmp_path: Path) -> None:
    thinking = "".join(f"step {number}. " for number in range(400))
    traces = [replace(one, text=thinking, written="I say 70") for one in six()]
    tab.open(written(tmp_path, (traces, SIX_INFO)), "#theta=0.98&open=a")
    tab.unfold(".reader")
    first, second = "[data-question=a] [data-seed='0']", "[data-question=a] [data-seed='1']"
    assert "stopped at 2,000 of 3,500 tokens" in text(tab, first)
    assert "1,494 saved net of probes" in text(tab, first)
    assert "not sure until its thinking ended" in text(tab, second)
    marks = tab.run(f'Array.from(document.querySelectorAll("{first} .probe"), (mark) => mark.textContent)')
    assert [mark.split(" · ")[0] for mark in marks] == ["1,000", "2,000", "3,000"]
    read = tab.run(f'document.querySelector("{first} .text").firstChild.textContent')
    assert len(read) == pytest.approx(len(thinking) * 1000 / 3500, abs=20)
    whole = tab.run(f"""[...document.querySelectorAll("{first} .text")].map((one) => {{
      const copy = one.cloneNode(true);
      copy.querySelectorAll(".probe, .stop-here").forEach((mark) => mark.remove());
      return copy.textContent;
    }})""")
    assert whole == [thinking, "I say 70"]
    assert tab.run(f'document.querySelector("{first} .unread").textContent.length') > len(thinking) / 3
    assert tab.run(f'document.querySelectorAll("{first} svg .dot").length') == 3


def test_questions_can_be_found_and_ordered(tab: Browser, tmp_path: Path) -> None:
    tab.open(written(tmp_path, (six(), SIX_INFO)))
    listed = "[...document.querySelectorAll('.question')].map((one) => one.dataset.question)"
    assert tab.run(listed) == ["b", "a", "c"]
    tab.set("#order", "unsaved")
    assert tab.run(listed) == ["c", "a", "b"]
    tab.set("#find", "588")
    assert tab.run(listed) == ["b"]
    tab.set("#find", "nowhere")
    assert text(tab, "#found") == "No question matches."


def test_many_questions_are_shown_on_demand(tab: Browser, tmp_path: Path) -> None:
    tab.open(written(tmp_path, plausible(130, 1)))
    count = "document.querySelectorAll('.question').length"
    assert tab.run(count) == 100
    tab.run("document.querySelector('#more').click()")
    assert tab.run(count) == 130


def test_long_texts_are_left_out_with_a_message(tab: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "TEXT_LIMIT", 10)
    path = written(tmp_path, ([replace(one, text="so it goes on") for one in six()], SIX_INFO))
    assert "so it goes on" not in path.read_text("utf-8")
    tab.open(path, "#open=a")
    assert "The text of the thinking is left out" in text(tab, "[data-question=a]")
    assert tab.run("document.querySelectorAll('.reader').length") == 0


def test_thresholds_below_a_bound_have_a_warning(tab: Browser, tmp_path: Path) -> None:
    traces = [*six()[1:], replace(six()[0], probes=(probe(1000, "1", (0.7,), closed=False, bound=True),))]
    path = written(tmp_path, (traces, SIX_INFO))
    tab.open(path, "#theta=0.6")
    assert "at thresholds up to 0.7 these numbers are not reliable" in text(tab, "#notes")
    tab.open(path, "#theta=0.8")
    assert "not reliable" not in text(tab, "#notes")


def test_the_page_requests_nothing(tab: Browser, tmp_path: Path) -> None:
    path = written(tmp_path, (six(), SIX_INFO))
    tab.open(path)
    assert [url for url in tab.requests() if not url.startswith("data:")] == [path.as_uri()]
    assert "default-src 'none'" in path.read_text("utf-8")


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_it_fits_the_screen(tab: Browser, tmp_path: Path, width: int) -> None:
    tab.resize(width, 740)
    traces = [replace(one, text="word " * 300, question="What? " * 60) for one in plausible(4, 12)[0]]
    tab.open(written(tmp_path, (traces, plausible()[1])), "#open=q01")
    tab.unfold("#sweep, .reader")
    assert tab.run("document.querySelectorAll('.probe').length") > 0
    assert tab.run("document.documentElement.scrollWidth") <= width
    small = "[...document.querySelectorAll('svg.chart')].filter((one) => one.getBoundingClientRect().width < 200).length"
    assert tab.run(small) == 0


CONTRAST = """(() => {
  const probe = document.body.appendChild(document.createElement("i"));
  const light = (name) => {
    probe.style.color = `var(--${name})`;
    const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map((n) => n / 255);
    const [r, g, b] = parts.map((n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light("paper");
  const ratio = (name) => (Math.max(light(name), paper) + 0.05) / (Math.min(light(name), paper) + 0.05);
  return Object.fromEntries(["ink", "quiet", "accent", "right", "wrong"].map((name) => [name, ratio(name)]));
})()"""
BRIGHT = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0] > 128"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_both_be_read(tab: Browser, tmp_path: Path, scheme: str) -> None:
    tab.media("", scheme)
    tab.open(written(tmp_path, (six(), SIX_INFO)))
    assert tab.run(BRIGHT) == (scheme == "light")
    assert all(ratio >= 4.5 for ratio in tab.run(CONTRAST).values())
    tab.run("document.querySelector('#theme').click()")
    assert tab.run(BRIGHT) == (scheme == "dark")
    assert all(ratio >= 4.5 for ratio in tab.run(CONTRAST).values())


def test_print(tab: Browser, tmp_path: Path) -> None:
    """Print: no controls, dark on white, the settings in words."""
    tab.media("print", "dark")
    tab.open(written(tmp_path, (six(), SIX_INFO)), "#theme=dark&theta=0.97")
    assert tab.run("getComputedStyle(document.querySelector('#controls')).display") == "none"
    assert tab.run("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert text(tab, "#settings") == "Settings: θ = 0.97, penalty 0.5, budget 4,000."
    assert tab.pdf().startswith(b"%PDF")


UNNAMED = """[...document.querySelectorAll("input, select, button, [tabindex='0'], svg[role=img]")].filter((one) =>
  !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim())).map((one) => one.outerHTML)"""


def test_controls_have_names_and_changes_are_announced(tab: Browser, tmp_path: Path) -> None:
    tab.open(written(tmp_path, (six(), SIX_INFO)), "#open=a")
    assert tab.run(UNNAMED) == []
    tab.set("#theta", "0.96")
    assert "0.96" in text(tab, "#headline")
    tab.wait_until("document.querySelector('[aria-live]').textContent === document.querySelector('#headline').textContent")


def test_figures_can_be_read_with_the_keyboard(tab: Browser, tmp_path: Path) -> None:
    tab.open(written(tmp_path, (six(), SIX_INFO)))
    press = """(() => {
      const chart = document.querySelector("#cumulative svg");
      chart.focus();
      for (let i = 0; i < 2; i++) chart.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
      return document.querySelector("#cumulative .reading").textContent;
    })()"""
    assert tab.run(press) == "By 2,000 tokens: 1.0 right, 0.0 wrong"
