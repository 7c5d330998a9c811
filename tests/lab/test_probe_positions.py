"""Which probes a rule is scored on: its own set, recorded positions, or a refusal by name. The baseline is the run's."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr.cli.main import run as cli
from cgr.errors import NotRecorded
from cgr.lab import ablate
from cgr.lab import fit as fitting
from cgr.lab.compare import compare_run
from cgr.lab.decide.run import Run, default_probe_set
from cgr.lab.exchange import import_run
from cgr.lab.report import reported
from cgr.lab.report.result import Report
from cgr.lab.store import Store
from cgr.lab.store.checks import write_all
from cgr.lab.store.config import Asking, ProbeRequest, ProbeSet, RunConfig
from cgr.lab.store.needed_probes import requests_for, requests_of
from cgr.rules import Adaptive, Calibrated, Cgr, Deer, known_rules
from tests.lab.runs import probe

BUDGET, QUESTIONS = 2000, 12
BUILT_IN = {name for name, cls in known_rules().items() if cls.__module__.startswith("cgr.rules")}  # tests register others
READ_ANYWHERE = {
    *("answer-consistency", "calibrated", "cgr", "cgr-drought", "code-stop", "conformal", "give-up", "puma-verify"),
    *("smoothed", "sure-twice"),
}


def lines(probed: bool, **more: Any) -> list[dict[str, Any]]:
    """Traces as another program writes them, with probes at irregular positions or without any."""
    chance, made = random.Random(3), []
    for number in range(QUESTIONS):
        gold = str(100 + number)
        for seed in (0, 1):
            length = chance.randint(400, BUDGET - 1)
            found, answer = chance.randint(50, length), gold if chance.random() < 0.8 else "7"
            at = sorted(chance.sample(range(10, length), chance.randint(1, 8))) if probed else []
            probes = [
                {"at": one, "answer": answer, "probabilities": [0.995], "closed": True}
                if one >= found
                else {"at": one, "answer": str(one), "probabilities": [0.4], "closed": True}
                for one in at
            ]
            line = {"question_id": f"q{number}", "seed": seed, "gold": gold, "thinking_tokens": length, "budget": BUDGET}
            final = {"ended": "end_of_thinking", "final_answer": answer, "final_certainty": 0.99}
            made.append(line | final | {"probes": probes} | more)
    return made


def imported(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "traces.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    import_run(path, folder / "run")
    return folder / "run"


@pytest.fixture
def irregular(tmp_path: Path) -> Path:
    return imported(tmp_path, lines(True, probe_set={"where": "anywhere"}))


@pytest.fixture(params=["no set", "an empty set"])
def unprobed(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Traces that were imported without probes. Earlier versions left an empty set called `default`."""
    folder = imported(tmp_path, lines(False))
    if request.param == "an empty set":
        assert probe_all(folder, ProbeSet("interval", BUDGET), ()) == "default"
    return folder


def probe_all(folder: Path, probe_set: ProbeSet, at: Sequence[int], final: str | None = None, answer: str = "") -> str:
    """Add a probe set: the same positions in each trace, with the trace's final answer or another one."""
    with Store.open(folder, write=True) as store:
        name = store.add_probe_set(probe_set)
        for trace in list(store.recorded(None)):
            here = [probe(one, answer or trace.final.answer, (0.995,)) for one in at if one <= trace.thinking_tokens]
            other = replace(trace.final, answer=final) if final else None
            store.add_probing((trace.question_id, trace.seed), name, here, other)
    return name


def scored(folder: Path, rule: str = "cgr", probe_set: str | None = None) -> Report:
    """The report at .99, without its files."""
    return reported(folder, (0.99,), (1.0,), probe_set, rule).report


# Irregular positions


def test_rules_that_read_what_was_probed_are_compared_on_irregular_positions(irregular: Path) -> None:
    compared = compare_run(irregular)
    assert {entry.rule for entry in compared.entries} & BUILT_IN == READ_ANYWHERE | {"fixed-budget"}
    assert {one.rule for one in compared.missing if not one.values and one.rule in BUILT_IN} == {
        *(
            "adaptive",
            "budget-forcing",
            "cgr-forced",
            "deepconf",
            "deer",
            "dynasor",
            "eat",
            "loop-breaker",
            "no-thinking",
            "nth-end",
        ),
    }
    why = {one.rule: one for one in compared.missing}
    assert why["adaptive"].why == "The rule 'adaptive' needs probes every 1000 tokens, which were not recorded."
    assert why["deer"].why.startswith("The rule 'deer' needs probes at each wait")
    assert why["deer"].hint.endswith("--for deer")
    assert compared.entry("cgr").shown.net_share > 0.1


def test_report_and_compare_agree_on_irregular_positions(irregular: Path) -> None:
    report = scored(irregular)
    point = next(one for one in compare_run(irregular, ["cgr"]).entry("cgr").sweep if one.value == 0.99)
    assert report.savings[0].net_share == pytest.approx(point.net_share)
    assert report.thresholds[0].accuracy == pytest.approx(point.accuracy)
    assert report.thresholds[0].fired > 10
    assert report.probe_sets == ("default",)
    twice = scored(irregular, rule="sure-twice")
    assert 0 < twice.thresholds[-1].fired < report.thresholds[0].fired
    with pytest.raises(NotRecorded, match="'adaptive' needs probes every"):
        scored(irregular, rule="adaptive")


@pytest.mark.parametrize("rule", [Cgr(), Calibrated()], ids=lambda rule: rule.name)
def test_rules_are_fitted_to_irregular_positions(irregular: Path, rule: Any) -> None:
    fitted = fitting.fit(rule, fitting.open_run(irregular))
    assert fitted.score.net > 0.1
    assert fitted.score.diff_points == 0


def test_a_fit_on_irregular_positions_takes_the_usual_distance_as_interval(
    irregular: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(irregular) as store:
        traces = list(store.recorded())
    distances = sorted(
        two - one
        for trace in traces
        for one, two in zip((0, *(p.at for p in trace.probes)), (p.at for p in trace.probes), strict=False)
    )
    run = Run.open(irregular)
    assert run.info.interval == 0
    middle = len(distances) // 2
    assert distances[middle - 1] <= run.interval <= distances[middle]
    assert cli(["fit", str(irregular), "--rule", "cgr", "--json"]) == 0
    assert "threshold" in capsys.readouterr().out
    with pytest.raises(NotRecorded, match="'adaptive' needs probes every"):
        fitting.fit(Adaptive(), fitting.open_run(irregular))


def test_ablations_on_irregular_positions(irregular: Path) -> None:
    made = ablate.measure(irregular, only=["threshold", "interval", "aggregation"])
    assert [one.name for one, _ in made.made] == ["threshold"]
    why = {one.name: one.why for one in made.missing}
    assert "are at irregular positions, which have no interval" in why["interval"]
    assert "without their tokens" in why["aggregation"]


def test_probes_at_irregular_positions_are_complete() -> None:
    """`cgr probe --for` adds what is missing beside them, and does not continue them."""
    config = RunConfig(budget=BUDGET, interval=0)
    stored = [ProbeSet("anywhere")]
    assert requests_for(["cgr", "calibrated", "sure-twice"], config, stored) == []
    (wanted,) = requests_for(["adaptive"], config, stored)
    assert (wanted.where, wanted.interval) == ("interval", BUDGET // 32)


# No probes


def test_a_run_without_probes_is_said_in_one_sentence(unprobed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = scored(unprobed)
    assert report.probe_sets == ()
    assert [note for note in report.notes if "No probe was recorded" in note]
    with pytest.raises(
        NotRecorded, match=r"^No probe was recorded in the run 'run': there is nothing to compare rules on\.$"
    ):
        compare_run(unprobed)
    named = compare_run(unprobed, ["cgr", "sure-twice", "fixed-budget"])
    assert [entry.rule for entry in named.entries] == ["fixed-budget"]
    assert {one.rule for one in named.missing if not one.values} == {"cgr", "sure-twice"}
    assert all("recorded" in one.why and "cgr probe" in one.hint for one in named.missing if not one.values)
    for verb in ("fit", "ablate"):
        assert cli([verb, str(unprobed)]) != 0
        assert "no probes" in capsys.readouterr().err


def test_traces_that_were_probed_after_their_import_are_scored_on_these_probes(unprobed: Path) -> None:
    name = probe_all(unprobed, ProbeSet("interval", 300, model="another"), range(300, BUDGET, 300))
    report = scored(unprobed)
    assert report.probe_sets == (name,)
    assert report.run.interval == 300
    assert report.size.probes > 0
    assert report.savings[-1].share > 0.3
    compared = compare_run(unprobed)
    assert {*READ_ANYWHERE, "adaptive"} <= {entry.rule for entry in compared.entries}
    cgr = next(one for one in compared.entry("cgr").sweep if one.value == 0.99)
    assert cgr.net_share == pytest.approx(report.savings[-1].net_share)
    assert ablate.measure(unprobed, only=["threshold"]).made


def test_new_probes_of_an_import_without_probes_have_the_interval_of_its_budget() -> None:
    assert RunConfig(budget=4000, interval=4000).probe_interval == 125
    assert RunConfig(budget=32_000, interval=0).probe_interval == 1000
    assert RunConfig(budget=32_000, interval=64).probe_interval == 64
    assert RunConfig(budget=1, interval=1).probe_interval == 1


GRID, OTHER, ANY = ProbeSet("interval", 50), ProbeSet("interval", 10), ProbeSet("anywhere")
WAIT, ENTROPY = ProbeSet("wait"), ProbeSet("paragraph", asking=Asking(reads="entropy"))


@pytest.mark.parametrize(
    ("sets", "filled", "found"),
    [
        ({}, "", None),
        ({"default": GRID, "b": OTHER}, "default b", "default"),
        ({"default": GRID, "b": OTHER}, "b", "b"),
        ({"default": GRID, "b": OTHER}, "", "default"),
        ({"default": GRID, "w": WAIT}, "w", "default"),
        ({"w": WAIT, "b": OTHER, "c": GRID}, "w b c", "b"),
        ({"w": WAIT, "a": ANY}, "w a", "a"),
        ({"w": WAIT, "a": ANY, "c": GRID}, "w a c", "c"),
        ({"e": ENTROPY, "w": WAIT}, "e w", "e"),
    ],
)
def test_the_set_that_is_read_by_default(sets: dict[str, ProbeSet], filled: str, found: str | None) -> None:
    assert default_probe_set(sets, filled.split()) == found


# A rule's own set


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A run with a grid, with probes for `deer` that are all wrong, and with final answers of that set that are wrong."""
    folder = imported(tmp_path, lines(False, run={"budget": BUDGET, "interval": 300}))
    probe_all(folder, ProbeSet("interval", 300), range(300, BUDGET, 300))
    (wanted,) = requests_for(["deer"], RunConfig(budget=BUDGET, interval=300))
    asking = wanted.asking(Asking())
    assert probe_all(folder, ProbeSet("wait", 0, asking), (70, 130), final="wrong", answer="wrong") == "wait"
    return folder


def test_a_rule_is_scored_on_its_own_set_and_the_baseline_is_the_runs(several: Path) -> None:
    usual = scored(several)
    deer = scored(several, rule="deer")
    chosen = scored(several, probe_set="wait")
    assert usual.baseline == deer.baseline == chosen.baseline
    assert [one.probe_sets for one in (usual, deer, chosen)] == [("default",), ("wait",), ("wait",)]
    assert usual.thresholds[-1].diff_mean == 0
    assert deer.thresholds[-1].accuracy == chosen.thresholds[-1].accuracy == 0
    assert deer.size.probes == chosen.size.probes == 4 * QUESTIONS
    assert deer.savings[-1].share == chosen.savings[-1].share > 0.9


def test_a_rule_without_its_set_is_refused_by_name(several: Path) -> None:
    for rule in ("dynasor", "eat", "no-thinking"):
        with pytest.raises(NotRecorded, match=f"The rule '{rule}' needs probes .* which were not recorded") as caught:
            scored(several, rule=rule)
        assert caught.value.hint == f"Record them: cgr probe {several} --for {rule}"
    with pytest.raises(NotRecorded, match=r"'deer' needs probes at each wait .* the probe set 'default' does not have"):
        scored(several, rule="deer", probe_set="default")
    with pytest.raises(NotRecorded, match=r"'adaptive' needs probes every .* the probe set 'wait' does not have"):
        scored(several, rule="adaptive", probe_set="wait")
    entropies = probe_all(several, ENTROPY, (70,))
    with pytest.raises(NotRecorded, match=f"'cgr' needs answers inside the thinking, which the probe set '{entropies}'"):
        scored(several, probe_set=entropies)


def test_all_rules_are_reported_as_they_are_compared(several: Path) -> None:
    """What one refuses, the other refuses with the same sentence."""
    compared = compare_run(several)
    refused = {one.rule: one.why for one in compared.missing if not one.values}
    for name in BUILT_IN:
        if name in refused:
            with pytest.raises(NotRecorded) as caught:
                scored(several, rule=name)
            assert caught.value.message == refused[name]
        elif name != "fixed-budget":
            row, sweep = scored(several, rule=name), compared.entry(name).sweep
            assert row.savings[0].net_share in [pytest.approx(point.net_share) for point in sweep], name


def test_traces_that_a_set_lacks_are_counted(several: Path) -> None:
    with Store.open(several, write=True) as store:
        probing = "SELECT id FROM probings WHERE trace = 1 AND probe_set = 2"
        store._db.execute(f"DELETE FROM probes WHERE probing IN ({probing})")
        store._db.execute("DELETE FROM probings WHERE trace = 1 AND probe_set = 2")
        write_all(store._db)
    chosen = scored(several, probe_set="wait")
    left_out = "1 of 24 traces is not in the probe set 'wait' and is left out, in the baseline too."
    assert left_out in chosen.notes
    with pytest.raises(NotRecorded, match="'wait' lacks 1 trace"):
        scored(several, rule="deer")
    assert Run.open(several).left_out == 0


def test_a_rule_reads_the_set_that_was_named_at_irregular_positions(several: Path) -> None:
    run = Run.open(several, "wait")
    assert run.sets_for(Cgr(interval=300)) == run.sets_for(Deer()) == ("wait",)
    decided = run.decide(Cgr(interval=300))
    assert set(decided.at[decided.sure].tolist()) == {70}
    assert run.decide(Calibrated(interval=300)).fired == decided.fired


def test_a_request_says_whether_any_position_serves() -> None:
    assert ProbeRequest().anywhere is False
    assert [request.anywhere for rule in (Cgr(), Adaptive()) for request in requests_of(rule)] == [True, False]
