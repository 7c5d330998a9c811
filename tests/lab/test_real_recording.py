"""The shipped recordings of a real model: their numbers, computed here from the lines of the files by the definitions."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cgr.lab.calibrate import calibrate, open_finished
from cgr.lab.compare import compare_run
from cgr.lab.decide.run import Run
from cgr.lab.exchange import export_run, import_run
from cgr.lab.report import reported
from cgr.lab.report.result import Report
from cgr.lab.store import Store
from cgr.rules import CgrForced, DeepConf

EXAMPLES = Path(__file__).parents[2] / "examples"
FILE, NATURAL = (EXAMPLES / f"qwen2.5-coder-1.5b-gsm8k-{name}.jsonl.gz" for name in ("forced", "natural"))
MATH = EXAMPLES / "qwen2.5-coder-1.5b-math500-forced.jsonl.gz"
AGAIN, NATURAL_AGAIN = (EXAMPLES / f"qwen2.5-coder-1.5b-gsm8k-{name}-2.jsonl.gz" for name in ("forced", "natural"))
NEW = EXAMPLES / "qwen2.5-coder-1.5b-gsm8k-forced-3.jsonl.gz"
EACH = pytest.mark.parametrize("file", [FILE, NATURAL, NATURAL_AGAIN], ids=["forced", "natural", "natural-2"])
THRESHOLDS = (0.9, 0.95, 0.99, 0.999)
Line = dict[str, Any]


@cache
def lines(file: Path = FILE) -> tuple[Line, ...]:
    return tuple(map(json.loads, gzip.decompress(file.read_bytes()).splitlines()))


@cache
def report(file: Path) -> Report:
    return reported(file, THRESHOLDS, (0.0, 1.0), None, "cgr").report


def length(file: Path) -> int:
    """The thinking tokens of all traces."""
    return sum(int(line["thinking_tokens"]) for line in lines(file))


def same(one: str, other: str) -> bool:
    """Equal as texts or as numbers; thousands may have commas, and dollars and percents a sign."""

    def number(text: str) -> Fraction | str:
        plain = text.replace("\\$", "").replace("$", "").replace("\\%", "").replace(",", "").strip().removesuffix(".")
        try:
            return Fraction(plain)
        except ValueError:
            return "".join(text.split())

    return number(one) == number(other)


def right(line: Line, answer: str, closed: bool) -> bool:
    return closed and same(answer, line["gold"])


def sure(probe: Line, threshold: float) -> bool:
    return bool(probe["closed"] and probe["probabilities"] and min(probe["probabilities"]) >= threshold)


def agrees(line: Line, probe: Line) -> bool:
    return bool(probe["closed"] and line["final_closed"] and same(probe["answer"], line["final_answer"]))


def decoded(probe: Line) -> int:
    """Tokens that a probe decoded, by default its content and the closing brace."""
    return int(probe.get("decoded", len(probe["probabilities"]) + probe["closed"]))


def stopped(line: Line, threshold: float) -> tuple[int, bool, int]:
    """The thinking tokens, whether the answer is right, and the tokens of probes, if the first sure probe stops."""
    spent = 0
    for probe in line["probes"]:
        spent += decoded(probe)
        if sure(probe, threshold):
            return probe["at"], right(line, probe["answer"], True), spent
    return line["thinking_tokens"], right(line, line["final_answer"], line["final_closed"]), spent


def settled(line: Line) -> int:
    """The first probe from which on every answer is the final one."""
    at = int(line["thinking_tokens"])
    for probe in reversed(line["probes"]):
        if not agrees(line, probe):
            break
        at = probe["at"]
    return at


@pytest.mark.parametrize("file", [FILE, NATURAL, AGAIN, NATURAL_AGAIN, NEW], ids=lambda file: file.name)
def test_it_holds_no_texts_and_is_small(file: Path) -> None:
    assert file.stat().st_size < 2_000_000
    for line in lines(file):
        assert not {"question", "text", "ids", "prompt_ids", "written", "logprobs"} & line.keys()
        assert (line["run"]["budget"], line["run"]["interval"], line["run"]["temperature"]) == (640, 48, 0.6)
        assert "/" not in line["run"]["model"] + line["run"]["source"]
    assert len({line["question_id"] for line in lines(file)}) == len(lines(file))


def test_the_forced_traces_reach_the_budget_and_the_natural_ones_begin_in_the_same_way() -> None:
    """Sampling depends on the seed and the position, so the first end that was forced on is the natural end."""
    ends = {line["question_id"]: line["thinking_tokens"] for line in lines(NATURAL) if line["ended"] == "end_of_thinking"}
    for line in lines():
        assert (line["thinking_tokens"], line["ended"], line["run"]["rule"]) == (640, "budget", "budget-forcing")
        if line["question_id"] in ends:
            assert line["forced"][0][0] == ends[line["question_id"]]
    assert all(line["run"].get("rule", "fixed-budget") == "fixed-budget" for line in lines(NATURAL))


def test_every_end_was_probed_before_it_was_forced_on() -> None:
    for line in lines():
        probed = {probe["at"] for probe in line["probes"]}
        assert {at for at, _ in line.get("forced", ()) if at} <= probed


def test_forcing_turns_more_answers_wrong_than_right() -> None:
    """The counts in docs/real-models.md, on the questions that both runs have."""
    ends = {
        file: {line["question_id"]: right(line, line["final_answer"], line["final_closed"]) for line in lines(file)}
        for file in (NATURAL, FILE)
    }
    pairs = [(natural, ends[FILE][question]) for question, natural in ends[NATURAL].items()]
    counts = [pairs.count(pair) for pair in ((True, True), (True, False), (False, True))]
    assert (len(pairs), counts) == (100, [47, 8, 3])


@EACH
def test_the_baseline(file: Path) -> None:
    count = sum(right(line, line["final_answer"], line["final_closed"]) for line in lines(file))
    assert report(file).baseline.correct_mean == count
    assert report(file).baseline.accuracy == pytest.approx(count / len(lines(file)))
    assert report(file).baseline.thinking_tokens_mean == pytest.approx(length(file) / len(lines(file)))


@EACH
@pytest.mark.parametrize("place", range(len(THRESHOLDS)))
def test_what_a_threshold_saves_and_loses(file: Path, place: int) -> None:
    made = [stopped(line, THRESHOLDS[place]) for line in lines(file)]
    row, saving = report(file).thresholds[place], report(file).savings[place]
    assert row.correct_mean == sum(good for _, good, _ in made)
    assert saving.total == length(file) - sum(at for at, _, _ in made)
    assert saving.probe_tokens == sum(spent for _, _, spent in made)
    assert saving.net_total == saving.total - saving.probe_tokens
    assert saving.share == pytest.approx(saving.total / length(file))
    cost = sum(at + spent for at, _, spent in made) / len(made)
    assert report(file).adaptive[place].cost_mean == pytest.approx(cost)


@EACH
def test_head_room_and_false_sureness(file: Path) -> None:
    assert report(file).headroom == pytest.approx(1 - sum(map(settled, lines(file))) / length(file))
    for row in report(file).false_sure:
        found = [agrees(line, probe) for line in lines(file) for probe in line["probes"] if sure(probe, row.threshold)]
        assert row.probes == len(found)
        assert row.share == (pytest.approx(1 - sum(found) / len(found)) if found else None)


def test_every_rule_that_reads_the_probes_is_compared_on_the_forced_run() -> None:
    rules = ["cgr", "sure-twice", "fixed-budget", "cgr-forced"]
    assert {entry.rule for entry in compare_run(FILE, rules, splits=1).entries} == set(rules)


def test_compare_has_the_forcing_rules() -> None:
    compared = compare_run(FILE, ["budget-forcing", "cgr-forced"], splits=1)
    assert {entry.rule for entry in compared.entries} == {"budget-forcing", "cgr-forced"}
    (forced,) = (entry for entry in compared.entries if entry.rule == "cgr-forced")
    points = {point.value: point for point in forced.sweep if point.value is not None}
    for threshold in points.keys() & set(THRESHOLDS):
        made = [stopped(line, threshold) for line in lines()]
        assert points[threshold].accuracy == pytest.approx(sum(good for _, good, _ in made) / len(made))
    assert points.keys() & set(THRESHOLDS)


def at_end(line: Line, number: int) -> tuple[int, bool]:
    """The thinking tokens and whether the answer is right, if this end stops it, or the next with an answer."""
    probes = {probe["at"]: probe for probe in line["probes"]}
    for at, _ in line.get("forced", ())[number - 1 :]:
        if probes[at]["closed"]:
            return at, right(line, probes[at]["answer"], True)
    return line["thinking_tokens"], right(line, line["final_answer"], line["final_closed"])


@pytest.mark.parametrize("file", [FILE, AGAIN, NEW, MATH], ids=lambda file: file.name)
def test_the_rule_that_forces_a_fixed_number_of_times(file: Path) -> None:
    """For GSM8K only the answers are checked by hand here: those of MATH-500 need algebra."""
    (entry,) = compare_run(file, ["nth-end"], splits=1).entries
    for point in entry.sweep:
        made = [at_end(line, int(point.value or 1)) for line in lines(file)]
        assert point.gross_share == pytest.approx(1 - sum(at for at, _ in made) / length(file))
        if file != MATH:
            assert point.accuracy == pytest.approx(sum(good for _, good in made) / len(made))


@pytest.mark.parametrize(
    ("file", "counts"), [(FILE, [11, 5]), (AGAIN, [12, 0]), (NEW, [6, 5])], ids=["forced", "forced-2", "forced-3"]
)
def test_what_forcing_changes_in_the_same_thinking(file: Path, counts: list[int]) -> None:
    """The counts in docs/real-models.md: right at the first end and wrong at the budget, and the other way round."""
    ends = [right(line, line["final_answer"], line["final_closed"]) for line in lines(file)]
    pairs = [(at_end(line, 1)[1], end) for line, end in zip(lines(file), ends, strict=True)]
    assert [pairs.count(pair) for pair in ((True, False), (False, True))] == counts


def test_it_can_be_imported_calibrated_and_exported_again(tmp_path: Path) -> None:
    import_run(FILE, tmp_path / "run")
    found = calibrate(open_finished(tmp_path / "run"), CgrForced(interval=48))
    assert (found.questions, found.rule, found.parameters["text"]) == (len(lines()), "cgr-forced", "\nWait")
    export_run(tmp_path / "run", tmp_path / "again.jsonl.gz", digits=6)
    assert gzip.decompress((tmp_path / "again.jsonl.gz").read_bytes()) == gzip.decompress(FILE.read_bytes())
    with Store.open(tmp_path / "run") as store:
        assert {question.text for question in store.questions()} == {""}


def test_deepconf_finds_its_floor_on_a_forced_run(tmp_path: Path) -> None:
    """The floor is a percentile of the lowest mean over a window of each trace. Appended tokens do not count, and the rule
    does not look at them."""
    import_run(FILE, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    window = DeepConf().within(640).window or 0
    lowest, places = [], []
    for line in lines():
        tops = [-top if top is not None else None for top in line["tops"]]
        ends = range(window, len(tops) + 1)
        groups = {end: [top for top in tops[end - window : end] if top is not None] for end in ends}
        means = {end: sum(group) / len(group) for end, group in groups.items()}
        lowest.append(min(means.values()))
        places.append({end: mean for end, mean in means.items() if tops[end - 1] is not None})
    floor = float(np.percentile(lowest, 50))
    expected = [next((end for end, mean in one.items() if mean < floor), 640) for one in places]
    decided = run.decide(DeepConf(percentile=50.0))
    assert decided.at.tolist() == expected
    assert 50 < decided.gave_up.sum() < 100


def test_every_rule_that_needs_no_tokens_is_compared_on_math500() -> None:
    """The file has the probes of every rule; only `loop-breaker` reads the tokens, which are left out."""
    compared = compare_run(MATH, splits=1)
    assert [missing.rule for missing in compared.missing] == ["loop-breaker"]
    assert {"deer", "dynasor", "eat", "no-thinking", "deepconf", "cgr-forced"} <= {entry.rule for entry in compared.entries}
    assert compared.whole_baseline.accuracy == 15 / 40


def test_every_rule_that_needs_no_tokens_is_compared_on_the_new_questions() -> None:
    compared = compare_run(NEW, ["deer", "dynasor", "eat", "no-thinking", "nth-end", "loop-breaker"], splits=1)
    assert [missing.rule for missing in compared.missing] == ["loop-breaker"]
    assert {entry.rule for entry in compared.entries} >= {"deer", "dynasor", "eat", "no-thinking", "nth-end"}
    assert compared.whole_baseline.accuracy == 40 / 72
    others = {line["question_id"] for line in (*lines(FILE), *lines(NATURAL))}
    assert not others & {line["question_id"] for line in lines(NEW)}


def test_the_second_natural_recording_has_the_probes_of_the_other_rules() -> None:
    """`deer` has nothing to read: it probes before each Wait, and no trace has one."""
    compared = compare_run(NATURAL_AGAIN, ["deer", "dynasor", "eat", "no-thinking"], splits=1)
    assert [missing.rule for missing in compared.missing] == ["deer"]
    assert {entry.rule for entry in compared.entries} >= {"dynasor", "eat", "no-thinking"}
    assert not any(line["more_probe_sets"]["wait"]["probes"] for line in lines(NATURAL_AGAIN))


def test_the_second_recordings_are_of_the_same_questions() -> None:
    """The counts in docs/real-models.md: what another sample of the same model changes."""
    for first, second in ((NATURAL, NATURAL_AGAIN), (FILE, AGAIN)):
        assert {line["question_id"] for line in lines(first)} == {line["question_id"] for line in lines(second)}
    good = {
        file: {line["question_id"]: right(line, line["final_answer"], line["final_closed"]) for line in lines(file)}
        for file in (NATURAL, NATURAL_AGAIN)
    }
    pairs = [(one, good[NATURAL_AGAIN][question]) for question, one in good[NATURAL].items()]
    assert [pairs.count(pair) for pair in ((True, True), (True, False), (False, True))] == [38, 17, 6]
    counts = [sum(stopped(line, threshold)[1] for line in lines(AGAIN)) for threshold in (2.0, *THRESHOLDS)]
    assert counts == [74, 48, 58, 68, 80]


def test_the_probes_of_other_rules_lie_in_the_traces() -> None:
    assert (len(lines(MATH)), {line["ended"] for line in lines(MATH)}) == (40, {"budget"})
    sets = ["wait", "every-32-text", "paragraph-entropy", "paragraph", "start"]
    found = (*lines(MATH), *lines(NATURAL_AGAIN), *lines(NEW))
    for line in found:
        assert [*line["more_probe_sets"]] == sets
        assert {probe["at"] for probe in line["more_probe_sets"]["start"]["probes"]} == {0}
        assert not {"text", "ids", "question"} & line.keys()


def test_the_recordings_are_small() -> None:
    assert sum(file.stat().st_size for file in EXAMPLES.glob("*.jsonl.gz")) < 2_500_000
