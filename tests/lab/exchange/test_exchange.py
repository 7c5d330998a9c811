"""Export and import: a round trip changes nothing, foreign files are understood, and errors name the line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from cgr import Model, Question, Settings
from cgr.errors import UnknownName, UsageError
from cgr.lab.decide.run import Run
from cgr.lab.exchange import export_run, exported, import_run
from cgr.lab.exchange.blocks import UNKNOWN_ASKING
from cgr.lab.record.generate import Plan, agenerate
from cgr.lab.store import NotARun, Store
from cgr.lab.store.config import Asking, ProbeSet, RunConfig
from cgr.probing import PREFIX
from cgr.rules import make_rule
from tests.lab.store.test_store import CONFIG, QUESTIONS, SET, trace

Line = dict[str, Any]


def probe(at: int, answer: str, *probabilities: float, closed: bool = True) -> Line:
    return {"at": at, "answer": answer, "probabilities": list(probabilities), "closed": closed}


def line(question: str, seed: int, gold: str | None, tokens: int, final: tuple[str, float], *probes: Line) -> Line:
    return {
        "question_id": question,
        "seed": seed,
        "gold": gold,
        "thinking_tokens": tokens,
        "ended": "budget" if tokens == 4000 else "end_of_thinking",
        "budget": 4000,
        "final_answer": final[0],
        "final_certainty": final[1],
        "probes": list(probes),
    }


SIX = (
    line("a", 0, "70", 3500, ("70", 0.999), probe(1000, "12", 0.41, 0.8), probe(2000, "70", 0.985, 0.992),
         probe(3000, "70", 0.9995, 0.998)),
    line("b", 0, "588", 4000, ("588", 0.9), probe(1000, "588", 0.2, 0.9, 0.95), probe(2000, "580", 0.975, 0.99, 0.98),
         probe(3000, "588", 0.9, 0.95, 0.97)),
    line("c", 0, "16", 1800, ("16", 0.97), probe(1000, "16", 0.965, 0.99)),
    line("a", 1, "70", 2000, ("71", 0.995), probe(1000, "70", 0.3, 0.5), probe(2000, "70", 0.962, 0.999)),
    line("b", 1, "588", 4000, ("\\frac{5", 0.5), probe(1000, "\\frac{5", 0.999, 0.999, 0.999, 0.999, closed=False),
         probe(2000, "5", 0.6), probe(3000, "588", 0.99, 0.995, 0.991)),
    line("c", 1, "16", 900, ("16", 0.9)),
)  # fmt: skip


def written(path: Path, *lines: Line) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


def imported(tmp_path: Path, *lines: Line) -> Store:
    import_run(written(tmp_path / "in.jsonl", *lines), tmp_path / "run")
    return Store.open(tmp_path / "run")


def test_the_worked_example(tmp_path: Path) -> None:
    came = import_run(written(tmp_path / "in.jsonl", *SIX), tmp_path / "run")
    assert (came.traces, came.questions, came.probes, came.interval) == (6, 3, 12, 1000)
    with Store.open(tmp_path / "run") as store:
        info, traces = store.info(), {(one.question_id, one.seed): one for one in store.recorded()}
    assert (info.budget, info.interval) == (4000, 1000)
    assert list(traces) == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0), ("c", 1)]
    first = traces["a", 0]
    assert [(p.at, p.answer, p.certainty, p.decoded) for p in first.probes] == [
        (1000, "12", 0.41, 3),
        (2000, "70", 0.985, 3),
        (3000, "70", 0.998, 3),
    ]
    assert (first.format, first.gold, first.ended, first.thinking_tokens) == ("integer", "70", "end_of_thinking", 3500)
    assert (first.final.at, first.final.answer, first.final.certainty, first.final.closed) == (3500, "70", 0.999, True)
    unclosed = traces["b", 1]
    assert (unclosed.probes[0].closed, unclosed.probes[0].decoded, unclosed.final.closed) == (False, 4, False)
    assert traces["c", 1].probes == ()


def test_certainty_replaces_missing_probabilities_of_a_final_answer(tmp_path: Path) -> None:
    """A replay aggregates the probabilities again and must give the same certainty."""
    with imported(tmp_path, SIX[5] | {"seed": 0}, SIX[5] | {"final_probabilities": [0.9, 0.95]}) as store:
        bare, full = store.recorded(None)
    assert (bare.final.probabilities, bare.final.decoded) == ((0.9,), 0)
    assert (full.final.probabilities, full.final.decoded) == ((0.9, 0.95), 3)


def test_an_empty_answer_has_no_certainty(tmp_path: Path) -> None:
    with imported(tmp_path, line("a", 0, "1", 900, ("", 0.0), probe(500, "", 0.9, 0.8))) as store:
        (found,) = store.recorded()
    (empty,) = found.probes
    assert (empty.certainty, empty.probabilities, empty.decoded, empty.valid) == (0.0, (), 3, False)
    assert found.final.valid is False


@pytest.mark.parametrize(
    ("golds", "format"),
    [(["7", "025"], "integer"), (["7", "1000"], "math"), (["7", "\\frac12"], "math"), (["7", None], "integer")],
)
def test_the_format_is_guessed_for_the_whole_file(tmp_path: Path, golds: list[str | None], format: str) -> None:
    lines = [line(f"q{number}", 0, gold, 900, ("7", 0.5)) for number, gold in enumerate(golds)]
    with imported(tmp_path, *lines) as store:
        assert {question.format for question in store.questions()} == {format}


def test_unusual_but_valid_lines_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    odd = line("a", 0, None, 900, ("7", 0.5)) | {"gold": 7, "question": "Find\u2028x", "final_answer": 7}
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(odd, ensure_ascii=False).encode() + b"\r\n\r\n\n")
    import_run(path, tmp_path / "run")
    with Store.open(tmp_path / "run") as store:
        (found,) = store.recorded(None)
    assert (found.gold, found.final.answer, found.question) == ("7", "7", "Find\u2028x")


def whole_run(folder: Path) -> Path:
    with Store.create(folder, CONFIG) as store:
        store.add_questions(QUESTIONS)
        store.add_probe_set(SET)
        store.add_probe_set(ProbeSet("wait", 0, SET.asking, "m", "abc"))
        for seed in (0, 1):
            store.add_trace(trace(seed=seed), prompt_ids=(5, 6), probe_set="default")
            store.add_probing(("b", seed), "wait", trace().probes[1:])
    return folder


@pytest.mark.parametrize("probe_set", [None, "wait"])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_round_trip_changes_nothing(tmp_path: Path, kind: str, probe_set: str | None) -> None:
    files = [tmp_path / f"{number}.{kind}" for number in range(2)]
    export_run(whole_run(tmp_path / "run"), files[0], probe_set=probe_set)
    import_run(files[0], tmp_path / "again")
    export_run(tmp_path / "again", files[1])
    assert files[0].read_bytes() == files[1].read_bytes()
    with Store.open(tmp_path / "run") as there, Store.open(tmp_path / "again") as here:
        assert here.config == there.config
        assert list(here.recorded(whole=True)) == list(there.recorded(probe_set or "default", whole=True))
        assert here.prompt_ids(("b", 1)) == (5, 6)


def test_an_imported_line_is_exported_with_the_same_values(tmp_path: Path) -> None:
    with imported(tmp_path, *SIX) as store:
        lines = list(exported(store))
    by_key = {(one["question_id"], one["seed"]): one for one in SIX}
    for one in lines:
        told = json.loads(one.model_dump_json(exclude_defaults=True))
        assert told | by_key[one.question_id, one.seed] == told


FORCED = trace(
    seed=2,
    logprobs=tuple(math.nan if 30 <= at < 32 else -at / 64 for at in range(70)),
    tops=tuple(math.nan if 30 <= at < 32 else -3 - at / 64 for at in range(70)),
    forced=((30, 2),),
)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_round_trip_keeps_forced_tokens_and_their_missing_log_probabilities(tmp_path: Path, kind: str) -> None:
    """A forced token was not sampled: its log-probability is NaN in the store and null in a file."""
    with Store.create(whole_run(tmp_path / "run"), CONFIG) as store:
        store.add_trace(FORCED, probe_set="default")
    files = [tmp_path / f"{number}.{kind}" for number in range(2)]
    export_run(tmp_path / "run", files[0])
    import_run(files[0], tmp_path / "again")
    export_run(tmp_path / "again", files[1])
    assert files[0].read_bytes() == files[1].read_bytes()
    with Store.open(tmp_path / "again") as store:
        found = next(one for one in store.recorded(whole=True) if one.seed == FORCED.seed)
    assert found.forced == FORCED.forced
    for values, expected in ((found.logprobs, FORCED.logprobs), (found.tops, FORCED.tops)):
        assert values == pytest.approx(expected, abs=0, rel=0, nan_ok=True)


async def test_a_forced_run_of_a_model_can_be_exported(model: Model, tmp_path: Path) -> None:
    """An easy problem, which the embedded model finishes before the budget: its thinking is forced to continue."""
    easy = (Question("e", "Find x, the last three digits of 313*21.", "573", "integer"),)
    settings = Settings(rule="budget-forcing", budget=1500, interval=500)
    await agenerate(tmp_path / "run", Plan(easy, 2, settings, probe=True, logprobs=True), model.engine, sessions=2)
    for kind in ("jsonl", "parquet"):
        export_run(tmp_path / "run", tmp_path / f"out.{kind}")
        import_run(tmp_path / f"out.{kind}", tmp_path / kind)
        with Store.open(tmp_path / "run") as there, Store.open(tmp_path / kind) as here:
            for one, other in zip(there.recorded(whole=True), here.recorded(whole=True), strict=True):
                assert one.forced
                assert other.logprobs == pytest.approx(one.logprobs, abs=0, rel=0, nan_ok=True)
                missing = {at for at, value in enumerate(other.logprobs) if math.isnan(value)}
                assert missing == {at for start, count in one.forced for at in range(start, start + count)}


def test_null_log_probabilities_in_a_line(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", CONFIG) as store:
        store.add_questions(QUESTIONS)
        store.add_trace(FORCED)
    export_run(tmp_path / "run", tmp_path / "out.jsonl")
    told = json.loads((tmp_path / "out.jsonl").read_text())
    assert (told["logprobs"][29:33], told["forced"]) == ([-29 / 64, None, None, -0.5], [[30, 2]])
    assert told["tops"][30] is None


def test_nan_in_a_parquet_file_of_another_program_is_null(tmp_path: Path) -> None:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    row = SIX[5] | {"probes": [], "thinking_tokens": 2, "ended": "end_of_thinking", "logprobs": [math.nan, -0.5]}
    schema = arrow.schema([(name, arrow.infer_type([value])) for name, value in row.items() if name != "probes"])
    table = arrow.Table.from_pylist([row], schema=schema.append(arrow.field("probes", arrow.list_(arrow.int64()))))
    parquet.write_table(table, tmp_path / "in.parquet")
    import_run(tmp_path / "in.parquet", tmp_path / "run")
    with Store.open(tmp_path / "run") as store:
        (found,) = store.recorded(None, whole=True)
    assert found.logprobs == pytest.approx((math.nan, -0.5), nan_ok=True)


def test_a_lone_surrogate_is_replaced(tmp_path: Path) -> None:
    with imported(tmp_path, SIX[5] | {"text": "a\ud800b"}) as store:
        assert store.trace(("c", 1)).text == "a?b"


def test_an_unknown_field_suggests_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path / "in.jsonl", SIX[5] | {"probe_set": {"asking": {"prefx": "{"}}})
    with pytest.raises(UsageError, match=r"there is no field 'probe_set.asking.prefx'") as refused:
        import_run(path, tmp_path / "run")
    assert refused.value.hint.startswith("Did you mean 'prefix'?")


def test_both_formats_hold_the_same(tmp_path: Path) -> None:
    run = whole_run(tmp_path / "run")
    for kind in ("jsonl", "parquet"):
        export_run(run, tmp_path / f"out.{kind}")
        import_run(tmp_path / f"out.{kind}", tmp_path / kind)
    with Store.open(tmp_path / "jsonl") as one, Store.open(tmp_path / "parquet") as other:
        assert list(one.recorded(whole=True)) == list(other.recorded(whole=True))


def test_thinking_can_be_left_out(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert export_run(whole_run(tmp_path / "run"), out, thinking=False) == 2
    told = json.loads(out.read_text().splitlines()[0])
    assert not {"ids", "text", "logprobs", "prompt_ids"} & told.keys()
    assert told["written"] == "so 7"


def test_a_run_without_probes_can_be_exported_and_imported(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", CONFIG) as store:
        store.add_questions(QUESTIONS)
        store.add_trace(trace())
    export_run(tmp_path / "run", tmp_path / "out.jsonl")
    import_run(tmp_path / "out.jsonl", tmp_path / "again")
    with Store.open(tmp_path / "again") as store:
        assert not store.probe_sets()
        assert list(store.recorded(None, whole=True)) == [trace(probes=())]


UNKNOWN = RunConfig(temperature=None, top_p=None, instruction=None, asking=UNKNOWN_ASKING, written_tokens=None)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (None, UNKNOWN),
        ({"model": "X"}, replace(UNKNOWN, model="X")),
        ({"model": "X", "temperature": 0.0}, replace(UNKNOWN, model="X", temperature=0.0)),
        ({"asking": {"prefix": "So {"}}, replace(UNKNOWN, asking=Asking(prefix="So {", close_think=None))),
    ],
)
def test_what_nobody_stated_stays_unknown(tmp_path: Path, block: Line | None, expected: RunConfig, kind: str) -> None:
    """In the store, in its description, and after a round trip."""
    lines = [one | {"run": block} for one in SIX] if block else SIX
    with imported(tmp_path, *lines) as store:
        assert store.config == replace(expected, budget=4000, interval=1000, source="in.jsonl")
        (probe_set,) = store.probe_sets().values()
        assert probe_set == ProbeSet("interval", 1000, expected.asking, expected.model)
        info = store.info()
    assert (info.temperature, info.prefix) == (expected.temperature, expected.asking.prefix)
    files = [tmp_path / f"{number}.{kind}" for number in range(2)]
    export_run(tmp_path / "run", files[0])
    import_run(files[0], tmp_path / "again")
    export_run(tmp_path / "again", files[1])
    assert files[0].read_bytes() == files[1].read_bytes()
    with Store.open(tmp_path / "run") as there, Store.open(tmp_path / "again") as here:
        assert (here.config, here.probe_sets()) == (there.config, there.probe_sets())


def test_a_known_temperature_is_exported_and_imported(tmp_path: Path) -> None:
    """Also if it is the usual one: a reader would take an absent field as unknown."""
    export_run(whole_run(tmp_path / "run"), tmp_path / "out.jsonl")
    told = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert (told["run"]["temperature"], told["probe_set"]["asking"]["prefix"]) == (0.6, PREFIX)


def test_a_run_without_probes_has_no_probe_set_and_no_interval(tmp_path: Path) -> None:
    with imported(tmp_path, SIX[5]) as store:
        assert (store.probe_sets(), store.config.interval) == ({}, 0)
        assert store.config.probe_interval == 125  # as many as in the paper's budget


def choice(seed: int, gold: str | None, *answers: str, text: str = "Which?") -> Line:
    probes = [probe(1000 * number, answer, 0.9) for number, answer in enumerate(answers, 1)]
    return line("a", seed, gold, 2500, (answers[-1], 0.9), *probes) | {"format": "choice", "question": text}


SHUFFLED = (choice(0, "B", "A", "B", text="Which? A) no B) yes"), choice(1, "A", "A", "B", text="Which? A) yes B) no"))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_choice_question_can_have_another_gold_with_another_seed(tmp_path: Path, kind: str) -> None:
    with imported(tmp_path, *SHUFFLED) as store:
        assert len(store.questions()) == 1
        found = list(store.recorded())
    assert [(one.gold, one.question) for one in found] == [(one["gold"], one["question"]) for one in SHUFFLED]
    columns = Run.open(tmp_path / "run").columns()
    assert columns.final_right.tolist() == [True, False]
    assert columns.right.tolist() == [[False, True], [True, False]]
    files = [tmp_path / f"{number}.{kind}" for number in range(2)]
    export_run(tmp_path / "run", files[0])
    import_run(files[0], tmp_path / "again")
    export_run(tmp_path / "again", files[1])
    assert files[0].read_bytes() == files[1].read_bytes()
    with Store.open(tmp_path / "again") as store:
        assert list(store.recorded()) == found


def test_a_gold_that_is_known_with_one_seed_only_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "in.jsonl", SHUFFLED[0], choice(1, None, "A", "B"))
    with pytest.raises(UsageError, match="line 2: question 'a' has another text, gold or format"):
        import_run(path, tmp_path / "run")


START = tuple(one | {"probes": [probe(0, "70" if one["seed"] else "588", 0.3), *one["probes"]]} for one in SIX)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_probes_before_the_thinking_are_a_set_of_their_own(tmp_path: Path, kind: str) -> None:
    with imported(tmp_path, *START) as store:
        assert {name: one.where for name, one in store.probe_sets().items()} == {"default": "interval", "start": "start"}
        assert {tuple(one.at for one in trace.probes) for trace in store.recorded("start")} == {(0,)}
        assert all(one.at for trace in store.recorded() for one in trace.probes)
    run = Run.open(tmp_path / "run")
    decided = run.decide(make_rule("no-thinking"))
    assert (decided.at.tolist(), decided.right.tolist()) == ([0] * 6, [False, True, True, False, False, False])
    assert run.decide(make_rule("cgr", interval=1000)).fired == 2
    files = [tmp_path / f"{number}.{kind}" for number in range(2)]
    export_run(tmp_path / "run", files[0])
    import_run(files[0], tmp_path / "again")
    export_run(tmp_path / "again", files[1])
    assert files[0].read_bytes() == files[1].read_bytes()
    with Store.open(tmp_path / "run") as there, Store.open(tmp_path / "again") as here:
        assert here.probe_sets() == there.probe_sets()
        assert list(here.recorded("start", whole=True)) == list(there.recorded("start", whole=True))


def test_a_set_of_probes_before_the_thinking_can_be_exported_alone(tmp_path: Path) -> None:
    imported(tmp_path, *START).close()
    export_run(tmp_path / "run", tmp_path / "out.jsonl", probe_set="start")
    import_run(tmp_path / "out.jsonl", tmp_path / "again")
    with Store.open(tmp_path / "run") as there, Store.open(tmp_path / "again") as here:
        assert list(here.probe_sets()) == ["start"]
        assert list(here.recorded("start", whole=True)) == list(there.recorded("start", whole=True))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"probes": SIX[0]["probes"]}, "line 2 has no probe at 0"),
        ({"probe_set": {"where": "start"}}, "line 2 has probes after 0"),
    ],
)
def test_probes_before_the_thinking_are_on_every_line_and_alone_in_their_set(
    tmp_path: Path, changes: Line, said: str
) -> None:
    first = START[1] | ({"probes": START[1]["probes"][:1]} | changes if "probe_set" in changes else {})
    path = written(tmp_path / "in.jsonl", first, START[0] | changes)
    with pytest.raises(UsageError, match=said):
        import_run(path, tmp_path / "run")


def without(name: str) -> Callable[[Line], Line]:
    return lambda one: {key: value for key, value in one.items() if key != name}


def but(**changes: Any) -> Callable[[Line], Line]:
    return lambda one: one | changes


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without("gold"), "the field 'gold' is missing"),
        (but(answer="7"), "there is no field 'answer'"),
        (but(seed="0"), "seed must be a whole number, not '0'"),
        (but(seed=True), "seed must be a whole number"),
        (but(budget=0), "budget must be 1 or more, not 0"),
        (but(ended="stop"), "ended must be 'end_of_thinking' or 'budget', not 'stop'"),
        (but(final_certainty=1.5), "final_certainty must be at most 1, not 1.5"),
        (but(final_certainty=None), "final_certainty must be a number"),
        (but(final_probabilities=[0.5]), "final_certainty is 0.999, which is not the certainty"),
        (but(thinking_tokens=5000), "contradict each other"),
        (but(ended="budget"), "contradict each other"),
        (but(ids=[1, 2]), "2 ids for 3500"),
        (but(ids=[2**32]), "ids must be less than 4294967296, not 4294967296"),
        (but(seed=2**63), "seed must be less than 9223372036854775808"),
        (but(tops=[None]), "1 tops for 3500"),
        (but(forced=[[1]]), "forced lacks a value"),
        (but(probes={}), "probes must be a list"),
        (but(probes=[probe(1000, "7")]), "in probe 1, the answer '7' has no probabilities"),
        (
            but(probes=[probe(1000, "7", 0.5), without("closed")(probe(2000, "7", 0.5))]),
            "probe 2, the field 'closed' is missing",
        ),
        (but(probes=[probe(1000, "7", 0.5) | {"closed": 1}]), "in probe 1, closed must be true or false, not 1"),
        (but(probes=[probe(1000, "7", 0.5)] * 2), "two probes at one position"),
        (but(probes=[probe(3600, "7", 0.5)]), "a probe at 3600 in a trace of 3500"),
        (but(gold=""), "gold is empty"),
        (but(format="choice", gold="2"), "the gold '2' does not have the format 'choice'"),
        (but(format="integer", gold="\\frac12"), "the gold '\\\\frac12' does not have the format 'integer'"),
        (but(probes=[probe(1000, "7", 0.5) | {"certainty": 0.5}]), "in probe 1, there is no field 'certainty'"),
        (but(run={"budget": 1}), "budget is 4000, but 1 in run"),
        (but(run={"budget": 4000, "temperature": "hot"}), "run.temperature must be a number, not 'hot'"),
        (but(run={"heat": 1}), "there is no field 'run.heat'"),
        (but(format="prose"), "format must be 'integer', 'number', 'choice' or 'math', not 'prose'"),
        (but(question_id="b", gold="588"), "question 'b' with seed 0 is already in line 1"),
        (but(seed=2, gold="71"), "question 'a' has another text, gold or format"),
        (but(budget=5000), "budget differs from the first line"),
        (but(run={"budget": 4000}), "run differs from the first line"),
    ],
)
def test_an_error_names_the_line_and_no_run_is_created(tmp_path: Path, spoil: Callable[[Line], Line], said: str) -> None:
    path = written(tmp_path / "in.jsonl", SIX[1], SIX[3], spoil(SIX[0]))
    with pytest.raises(UsageError) as refused:
        import_run(path, tmp_path / "run")
    assert refused.value.message.startswith(f"{path}, line 3: ")
    assert said in refused.value.message
    assert refused.value.hint
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "there are no traces"),
        (b"\n\n", "there are no traces"),
        (b"{}\n", "line 1: the field 'question_id' is missing"),
        (b"\n[1]\n", "line 2: a line must be a JSON object"),
        (b"{oops}\n", "line 1: this is not JSON"),
        (b'{"seed": NaN}\n', "line 1: the field 'question_id' is missing"),
        (b"\xff\xfe\n", "line 1: this is not JSON"),
    ],
)
def test_files_without_traces_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "in.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=said):
        import_run(tmp_path / "in.jsonl", tmp_path / "run")


def test_a_missing_probe_is_refused_unless_positions_are_irregular(tmp_path: Path) -> None:
    gap = SIX[0] | {"probes": [SIX[0]["probes"][0], SIX[0]["probes"][2]]}
    path = written(tmp_path / "in.jsonl", SIX[1], gap)
    with pytest.raises(UsageError, match="line 2 has no probe at 2000, but the probes have an interval of 1000"):
        import_run(path, tmp_path / "run")
    anywhere = {"probe_set": {"where": "anywhere"}}
    came = import_run(written(path, SIX[1] | anywhere, gap | anywhere), tmp_path / "run")
    assert (came.probes, came.interval) == (5, 0)


def test_missing_files_and_existing_runs_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        import_run(tmp_path / "none.jsonl", tmp_path / "run")
    with pytest.raises(NotARun):
        export_run(tmp_path / "run", tmp_path / "out.jsonl")
    path = written(tmp_path / "in.jsonl", *SIX)
    import_run(path, tmp_path / "run")
    with pytest.raises(UsageError, match="There is already a run in"):
        import_run(path, tmp_path / "run")
    with pytest.raises(UsageError, match="cannot be created"):
        export_run(tmp_path / "run", path / "below-a-file.jsonl")
    with pytest.raises(UnknownName, match="no probe set called 'wait'"):
        export_run(tmp_path / "run", tmp_path / "out.jsonl", probe_set="wait")
    assert {one.name for one in tmp_path.iterdir()} == {"in.jsonl", "run"}
    with pytest.raises(UsageError, match="not a Parquet file"):
        import_run(path, tmp_path / "other", "parquet")
