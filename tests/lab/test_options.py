"""Certainty over the options of choice questions: its definition, live, recorded, imported and reported."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr import Model, Question, Settings
from cgr.certainty import OPTIONS, falls, letter_in, of_probe, over_options
from cgr.drive.driver import Driver
from cgr.engines.base import Capabilities, Sampling
from cgr.engines.scripted import ScriptedEngine
from cgr.errors import UsageError
from cgr.lab.ablate import aggregate as aggregation
from cgr.lab.ablate.inputs import AblationInputs
from cgr.lab.decide.replay import replay
from cgr.lab.exchange import export_run, import_run
from cgr.lab.record.generate import Plan, agenerate
from cgr.lab.record.probe import aprobe
from cgr.lab.report import write_report
from cgr.lab.report.tables import lines
from cgr.lab.store import Store
from cgr.lab.store.config import Asking, ProbeRequest
from cgr.lab.store.recorded import RecordedTrace
from cgr.probing import ProbeSpec, option_letters, option_probabilities
from cgr.reason import Abstention
from cgr.records import Probe, Token
from cgr.rules import Cgr
from tests.support import QUESTION, scripted

TEXT = "Which is a prime?\n\nA) 4\nB) 7\nC) 8\nD) 9\n\nChoose one, and answer with its letter."
CHOICE = Question("q", TEXT, "B", "choice")
# raw .7, over the options .7 / (.7 + .01 + .01 + .01): D is not listed and counts as the least that is
LIKELY_B = (("B", 0.7, {"B": 0.7, "The": 0.2, "A": 0.01, "C": 0.01}), ("}", 0.99))
OVER_OPTIONS = 0.7 / 0.73
WORDS = "a b c d e f g h"


@pytest.mark.parametrize(
    ("options", "alternatives", "expected"),
    [
        ("AB", {"A": 0.6, "B": 0.2}, {"A": 0.6, "B": 0.2}),
        ("ABC", {"A": 0.6, "B": 0.2, "x": 0.05}, {"A": 0.6, "B": 0.2, "C": 0.05}),  # a missing option has the least listed
        ("AB", {"A": 0.6, " A": 0.1, "a": 0.05, "B}": 0.2}, {"A": 0.75, "B": 0.2}),  # one letter, several tokens
        ("AB", {"A": 0.6, "(B)": 0.2, "Both": 0.1}, {"A": 0.6, "B": 0.2}),
        ("AB", {"C": 0.6, "D": 0.2}, {"A": 0.2, "B": 0.2}),  # none of the options is listed
        ("AB", {"A": 0.6}, {}),  # nothing is known about the other option
        ("AB", {}, {}),
    ],
)
def test_the_probabilities_of_the_options(options: str, alternatives: dict[str, float], expected: dict[str, float]) -> None:
    assert dict(option_probabilities(options, list(alternatives.items()))) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answer", "options", "expected"),
    [
        ("A", {"A": 0.6, "B": 0.2}, 0.75),
        ("b", {"A": 0.6, "B": 0.2}, 0.25),
        ("(A)", {"A": 0.6, "B": 0.2}, 0.75),
        ("A", {"A": 0.9}, 1.0),
        ("E", {"A": 0.6, "B": 0.2}, None),  # not an option
        ("\\text{A}", {"A": 0.6, "B": 0.2}, None),  # another token has the letter
        ("42", {"A": 0.6, "B": 0.2}, None),
        ("", {"A": 0.6, "B": 0.2}, None),
        ("A", {}, None),
        ("A", {"A": 0.0, "B": 0.0}, None),
    ],
)
def test_certainty_over_the_options(answer: str, options: dict[str, float], expected: float | None) -> None:
    given = tuple(options.items())
    assert over_options(answer, given) == (None if expected is None else pytest.approx(expected))
    probe = Probe(1, answer, 0.0, True, (0.4, 0.9) if answer else (), options=given)
    raw = 0.4 if answer else 0.0
    assert of_probe(OPTIONS, probe) == pytest.approx(raw if expected is None else expected)
    assert of_probe("min", probe) == raw == (probe.raw_certainty if answer else 0.0)


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        (TEXT, "ABCD"),
        ("Which?\n(A) one\n(B) two\n(C) three", "ABC"),
        ("Which?\nA. one\nB. two", "AB"),
        ("Which?\n  A: one\n  B: two", "AB"),
        ("Which? (A) one (B) two (C) three", "ABC"),
        ("Which?\nA) one\nB) two\nD) four", "AB"),  # letters after a gap are no options
        ("Which?\nB) two\nC) three", ""),
        ("Only\nA) one", ""),
        ("What is 2+2?", ""),
        ("A man and a woman. I. Who?", ""),
        ("", ""),
    ],
)
def test_the_options_of_a_question_are_those_that_its_text_lists(text: str, letters: str) -> None:
    assert "".join(option_letters(text)) == letters


def test_only_without_options_can_the_certainty_only_fall() -> None:
    assert [falls("min"), falls("mean"), falls(OPTIONS), falls(OPTIONS, "AB")] == [True, False, True, False]
    low = [Token(0, "B", math.log(0.5))]
    assert ProbeSpec(aggregate=OPTIONS).done(0.9)(low)
    assert not ProbeSpec(aggregate=OPTIONS, options=("A", "B")).done(0.9)(low)


@pytest.mark.parametrize(("text", "letter"), [("B", "B"), ("b", "B"), (" (B) ", "B"), ("B) because", "B"), ("Bob", None)])
def test_the_letter_of_an_answer(text: str, letter: str | None) -> None:
    assert letter_in(text) == letter


async def probed(engine: ScriptedEngine, spec: ProbeSpec) -> Probe:
    session = await engine.open("", Sampling())
    outcome = await Driver(engine, session, spec, full=True).run(Cgr(threshold=1.0, interval=2), 4, Abstention())
    return outcome.decision.probes[0]


@pytest.mark.parametrize(
    ("pieces", "certainty"),
    [
        (LIKELY_B, OVER_OPTIONS),
        ((("(", 0.6, {"(": 0.6, "B": 0.3}), LIKELY_B[0], (")}", 0.9)), OVER_OPTIONS),  # the token with the letter counts
        ((("B", 0.7), ("}", 0.99)), 0.7),  # no alternatives
        ((("7", 0.7, {"7": 0.7, "B": 0.2}), ("}", 0.99)), 0.7),  # the answer is no letter
    ],
)
async def test_a_probe_reads_the_alternatives_to_the_letter(pieces: Sequence[Any], certainty: float) -> None:
    spec = ProbeSpec(aggregate=OPTIONS, options=tuple("ABCD"))
    probe = await probed(scripted(WORDS, lambda at, suffix: pieces), spec)
    assert probe.certainty == pytest.approx(certainty)
    assert bool(probe.options) == (certainty == OVER_OPTIONS)


async def test_the_options_are_recorded_under_any_aggregate() -> None:
    probe = await probed(scripted(WORDS, lambda at, suffix: LIKELY_B), ProbeSpec(options=tuple("ABCD")))
    assert probe.certainty == pytest.approx(0.7)
    assert dict(probe.options) == pytest.approx({"A": 0.01, "B": 0.7, "C": 0.01, "D": 0.01})


async def test_solve_with_the_aggregate_options() -> None:
    model = Model(scripted(WORDS, lambda at, suffix: LIKELY_B))
    options: dict[str, Any] = {"budget": 8, "interval": 2, "threshold": 0.95}
    solution = await model.asolve(TEXT, aggregate=OPTIONS, **options)
    assert (solution.stop_cause, solution.answer, solution.thinking_tokens) == ("certainty", "B", 2)
    assert solution.certainty == pytest.approx(OVER_OPTIONS)
    assert solution.raw_certainty == pytest.approx(0.7)
    assert solution.summary()["probes"][0]["raw_certainty"] == pytest.approx(0.7)
    assert (await model.asolve(TEXT, **options)).stop_cause == "budget"
    with pytest.raises(UsageError, match="lists no options"):
        await model.asolve(QUESTION, aggregate=OPTIONS, **options)


async def test_the_embedded_model_gives_the_alternatives(model: Model) -> None:
    """It answers in digits: there are alternatives to them, but no option is chosen, so the certainty is the raw one."""
    assert model.engine.capabilities.alternatives
    session = await model.engine.open(QUESTION, Sampling(), room=64)
    suffix = await model.engine.encode(ProbeSpec().prefix)
    answered = await session.probe(suffix, 4, ProbeSpec().done())
    await session.close()
    first = answered.tokens[0]
    texts = {one: await model.engine.decode([one]) for one, _ in first.top}
    alternatives = [(texts[one], math.exp(logprob)) for one, logprob in first.top]
    found = dict(option_probabilities("0123456789", alternatives))
    assert len(first.top) >= 5
    assert found[first.text.strip()] == pytest.approx(math.exp(first.logprob))
    assert max(found.values()) == found[first.text.strip()]
    solution = await model.asolve(f"{QUESTION}\nA) 1\nB) 2", aggregate=OPTIONS)
    assert all(probe.certainty == probe.raw_certainty and not probe.options for probe in solution.probes)


def plan(*questions: Question, **options: Any) -> Plan:
    settings = Settings.of(**({"budget": 8, "interval": 2} | options))
    return Plan(questions or (CHOICE,), 1, settings, "test", probe=True)


def kept(folder: Path, probe_set: str = "default") -> RecordedTrace:
    with Store.open(folder) as store:
        return next(iter(store.recorded(probe_set, whole=True)))


def likely_b() -> ScriptedEngine:
    return scripted("a b c d e </think>", lambda at, suffix: LIKELY_B)


async def test_choice_questions_are_recorded_with_their_options_by_default(tmp_path: Path) -> None:
    await agenerate(tmp_path, plan(), likely_b())
    trace = kept(tmp_path)
    for probe in (*trace.probes, trace.final):
        assert probe.certainty == pytest.approx(OVER_OPTIONS)
        assert probe.raw_certainty == pytest.approx(0.7)
        assert dict(probe.options) == pytest.approx({"A": 0.01, "B": 0.7, "C": 0.01, "D": 0.01})
    with Store.open(tmp_path) as store:
        assert store.config.asking.aggregate == OPTIONS
    assert replay(Cgr(threshold=0.95, interval=2), trace, ProbeSpec(aggregate=OPTIONS)).thinking_tokens == 2
    assert replay(Cgr(threshold=0.95, interval=2), trace).thinking_tokens == 5  # on the raw certainty


async def test_a_chosen_aggregate_and_other_questions_stay_as_they_were(tmp_path: Path) -> None:
    await agenerate(tmp_path / "min", plan(aggregate="min"), likely_b())
    assert kept(tmp_path / "min").probes[0].certainty == pytest.approx(0.7)
    assert kept(tmp_path / "min").probes[0].options  # recorded all the same
    await agenerate(tmp_path / "math", plan(replace(CHOICE, format="math")), likely_b())
    assert (kept(tmp_path / "math").probes[0].options, kept(tmp_path / "math").probes[0].certainty) == ((), 0.7)
    with Store.open(tmp_path / "math") as store:
        assert store.config.asking.aggregate == "min"


async def test_an_older_run_is_continued_under_its_own_aggregate(tmp_path: Path) -> None:
    await agenerate(tmp_path, plan(aggregate="min"), likely_b())
    more = replace(CHOICE, id="q2")
    await agenerate(tmp_path, plan(CHOICE, more), likely_b())
    with Store.open(tmp_path) as store:
        assert store.config.asking.aggregate == "min"
        assert len(store.made()) == 2


async def test_an_engine_without_alternatives_records_the_minimum_and_says_so(tmp_path: Path) -> None:
    engine = likely_b()
    engine.capabilities = Capabilities("top-k", True, True, True)
    (note,) = plan().notes(engine.capabilities)
    assert "it is the aggregate 'min'" in note
    assert plan().notes(likely_b().capabilities) == plan(aggregate="min").notes(engine.capabilities) == ()
    await agenerate(tmp_path, plan(), engine)
    with Store.open(tmp_path) as store:
        assert store.config.asking.aggregate == "min"


async def test_saved_traces_are_probed_over_the_options(tmp_path: Path) -> None:
    await agenerate(tmp_path, replace(plan(), probe=False), likely_b())
    name = await aprobe(tmp_path, ProbeRequest(interval=4), likely_b())
    (probe,) = kept(tmp_path, name).probes
    assert probe.at == 4
    assert probe.certainty == pytest.approx(OVER_OPTIONS)
    raw = await aprobe(tmp_path, ProbeRequest(interval=4, aggregate="min", name="raw"), likely_b())
    assert kept(tmp_path, raw).probes[0].certainty == pytest.approx(0.7)


def line(**changes: Any) -> dict[str, Any]:
    probe = {"at": 2, "answer": "B", "probabilities": [0.7], "closed": True}
    probe["alternatives"] = {"B": 0.7, "The": 0.2, "A": 0.01, "C": 0.01}
    given = {"question_id": "q", "seed": 0, "gold": "B", "thinking_tokens": 3, "ended": "end_of_thinking", "budget": 8}
    given |= {"final_answer": "B", "final_certainty": 0.8, "probes": [probe], "question": TEXT, "format": "choice"}
    return given | changes


def imported(tmp_path: Path, *lines: dict[str, Any]) -> RecordedTrace:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    import_run(tmp_path / "in.jsonl", tmp_path / "run")
    return kept(tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, "ABCD"),
        ({"question": ""}, "ABC"),  # the letters that are listed
        ({"question": "", "options": ["A", "B", "C", "D"]}, "ABCD"),
    ],
)
def test_alternatives_can_be_imported(tmp_path: Path, changes: dict[str, Any], options: str) -> None:
    trace = imported(tmp_path, line(**changes))
    (probe,) = trace.probes
    assert "".join(letter for letter, _ in probe.options) == options
    assert probe.certainty == pytest.approx(0.7 / (0.7 + 0.01 * (len(options) - 1)))
    assert (probe.raw_certainty, trace.final.certainty) == (0.7, 0.8)
    with Store.open(tmp_path / "run") as store:
        assert store.config.asking.aggregate == store.probe_sets()["default"].asking.aggregate == OPTIONS


def test_alternatives_to_the_final_answer_can_be_imported(tmp_path: Path) -> None:
    final = {"final_alternatives": {"B": 0.8, "A": 0.1}, "final_probabilities": [0.8]}
    trace = imported(tmp_path, line(options=["A", "B"], **final))
    assert trace.final.certainty == pytest.approx(0.8 / 0.9)
    assert trace.final.raw_certainty == 0.8


def test_a_stated_aggregate_is_not_changed_by_alternatives(tmp_path: Path) -> None:
    asked = {"where": "interval", "interval": 2, "asking": {"prefix": "Answer: \\boxed{"}}
    trace = imported(tmp_path, line(probe_set=asked))
    assert (trace.probes[0].certainty, bool(trace.probes[0].options)) == (0.7, True)


@pytest.mark.parametrize("block", [{"run": {"model": "m"}}, {"probe_set": {"where": "anywhere"}}])
def test_a_block_that_states_nothing_about_the_probes(tmp_path: Path, block: dict[str, Any]) -> None:
    assert imported(tmp_path, line(**block)).probes[0].certainty == pytest.approx(OVER_OPTIONS)
    with Store.open(tmp_path / "run") as store:
        assert store.probe_sets()["default"].asking.aggregate == OPTIONS


async def test_imported_choice_questions_are_probed_over_their_options(tmp_path: Path) -> None:
    imported_without = line(probes=[], text="a b c", ids=[0, 1, 2], thinking_tokens=3)
    (tmp_path / "in.jsonl").write_text(json.dumps(imported_without) + "\n")
    import_run(tmp_path / "in.jsonl", tmp_path / "run")
    engine = likely_b()
    await engine.encode("a b c")
    name = await aprobe(tmp_path / "run", ProbeRequest(interval=2), engine)
    assert kept(tmp_path / "run", name).probes[0].certainty == pytest.approx(OVER_OPTIONS)


def test_alternatives_need_the_format_choice(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the format is not 'choice'"):
        imported(tmp_path, line(format="math"))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
async def test_a_round_trip_keeps_the_options(tmp_path: Path, form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    await agenerate(tmp_path / "run", plan(), likely_b())
    export_run(tmp_path / "run", tmp_path / f"out.{form}")
    import_run(tmp_path / f"out.{form}", tmp_path / "again")
    assert kept(tmp_path / "again") == kept(tmp_path / "run")
    with Store.open(tmp_path / "again") as store:
        assert store.config.asking == Asking(aggregate=OPTIONS)


async def test_the_report_shows_both_certainties(tmp_path: Path) -> None:
    await agenerate(tmp_path, plan(), likely_b())
    (report,) = write_report([tmp_path], thresholds=(0.5, 0.95)).reports
    assert report.aggregate == OPTIONS
    assert [row.fired for row in report.thresholds] == [1, 1]
    assert [(row.threshold, row.fired, row.share) for row in report.raw] == [(0.5, 1, 0.6), (0.95, 0, 0.0)]
    assert "the raw certainty of the same probes saves -80.0% net" in report.notes[-1]
    assert "Raw certainty:" in lines(report)
    assert (tmp_path / "report" / "tables" / "raw_certainty.csv").is_file()


async def test_the_ablation_of_the_aggregate_has_the_options(tmp_path: Path) -> None:
    await agenerate(tmp_path, plan(CHOICE, replace(CHOICE, id="q2")), likely_b())
    rows = aggregation.ablate(AblationInputs.open(tmp_path)).rows
    assert [row.to_dict()["aggregate"] for row in rows][-1] == OPTIONS


async def test_a_report_without_options_has_no_second_certainty(tmp_path: Path) -> None:
    await agenerate(tmp_path, plan(replace(CHOICE, format="math")), likely_b())
    (report,) = write_report([tmp_path]).reports
    assert (report.aggregate, report.raw) == ("min", ())
    assert "Raw certainty:" not in lines(report)
    assert not (tmp_path / "report" / "tables" / "raw_certainty.csv").exists()
