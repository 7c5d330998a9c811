"""The store: round trips, transactions, locks, and clear errors for everything that is wrong with a run."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr.errors import CgrError, EngineError, NotRecorded, UnknownName
from cgr.lab.store import DEFAULT, GENERATE, NotARun, Store, StoreError, checks, schema
from cgr.lab.store.config import Asking, OtherConfiguration, ProbeSet, RunConfig, differences
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Probe, Question, Token

CONFIG = RunConfig(model="m", engine="e", budget=96, interval=32, source="s", fingerprint="abc")
SET = ProbeSet("interval", 32, model="m", fingerprint="abc")
QUESTIONS = (Question("b", "Second?", "2", "integer"), Question("a", "First?", None, "math"))
TOKENS = (Token(7, "7", -0.25, ((7, -0.25), (8, -1.5))), Token(9, "}", -0.001))
FINAL = Probe(70, "7", 0.75, True, (0.75,), TOKENS, "P{", (1, 2), decoded=2)


def trace(question: str = "b", seed: int = 0, **changes: Any) -> RecordedTrace:
    probes = (
        Probe(32, "7", 0.5, True, (0.5,), TOKENS, "P{", (1, 2), entropy=0.5, prefilled=3, cached=4, decoded=2, seconds=0.1),
        Probe(64, "", 0.0, False, bound=True, decoded=1),
    )
    usual = RecordedTrace(question, seed, "2", 70, "end_of_thinking", 96, FINAL, probes, "Second?", eos=True)
    whole = replace(usual, ids=tuple(range(70)), text="think", written="so 7", logprobs=tuple(-n / 64 for n in range(70)))
    return replace(whole, **changes)


def made(folder: Path, *traces: RecordedTrace) -> Path:
    with Store.create(folder, CONFIG) as store:
        store.add_questions(QUESTIONS)
        store.add_probe_set(SET)
        for one in traces:
            store.add_trace(one, prompt_ids=(5, 6), probe_set=DEFAULT)
    return folder


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    with Store.open(made(tmp_path / "r", trace())) as store:
        assert list(store.recorded(whole=True)) == [trace()]
        assert store.prompt_ids(("b", 0)) == (5, 6)
        assert store.trace(("b", 0)) == trace(probes=())
        assert store.questions() == QUESTIONS
        info = store.info()
    assert (info.name, info.model, info.budget, info.interval, info.source) == ("r", "m", 96, 32, "s")


def test_long_fields_are_read_only_on_request(tmp_path: Path) -> None:
    with Store.open(made(tmp_path, trace())) as store:
        (found,) = store.recorded()
    bare = tuple(replace(probe, tokens=()) for probe in trace().probes)
    assert found == trace(ids=(), logprobs=(), probes=bare, final=replace(FINAL, tokens=()))


def test_traces_are_ordered_by_question_and_seed(tmp_path: Path) -> None:
    made(tmp_path, trace("a", 1), trace("b", 3), trace("a", 0), trace("b", 2))
    with Store.open(tmp_path) as store:
        keys = [(one.question_id, one.seed) for one in store.recorded()]
        assert keys == [("b", 2), ("b", 3), ("a", 0), ("a", 1)] == list(store.made())


def test_a_set_holds_only_the_traces_that_were_probed_in_it(tmp_path: Path) -> None:
    with Store.create(made(tmp_path, trace(seed=0)), CONFIG) as store:
        store.add_trace(trace(seed=1))
        name = store.add_probe_set(replace(SET, interval=16))
        other = replace(FINAL, certainty=0.25, tokens=())
        store.add_probing(("b", 1), name, trace().probes[:1], other)
        assert name == "every-16"
        assert [(one.seed, one.final) for one in store.recorded("every-16")] == [(1, other)]
        assert [(one.seed, len(one.probes), one.final) for one in store.recorded()] == [(0, 2, replace(FINAL, tokens=()))]
        assert [(one.seed, len(one.probes)) for one in store.recorded(None)] == [(0, 0), (1, 0)]
        assert store.probed("every-16") == {("b", 1)}
        assert store.info("every-16").interval == 16


def test_a_probe_set_is_identified_by_its_configuration(tmp_path: Path) -> None:
    with Store.create(made(tmp_path), CONFIG) as store:
        assert store.add_probe_set(SET) == DEFAULT
        assert store.add_probe_set(replace(SET, model="the same file elsewhere")) == DEFAULT
        assert store.add_probe_set(replace(SET, where="wait", interval=0)) == "wait"
        assert store.add_probe_set(replace(SET, where="wait", interval=0, asking=Asking(prefix="{"))) == "wait-2"
        with pytest.raises(OtherConfiguration, match="interval is 32 there and 8 here"):
            store.add_probe_set(replace(SET, interval=8), DEFAULT)
        with pytest.raises(UnknownName, match="no probe set called 'wiat'"):
            store.recorded("wiat")


def test_reading_probes_of_a_run_without_probes_is_an_error(tmp_path: Path) -> None:
    with Store.create(tmp_path, CONFIG) as store, pytest.raises(NotARun, match="no probes yet"):
        store.recorded()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"budget": 64}, "budget is 96 there and 64 here"),
        ({"temperature": 1.0, "top_p": 0.9}, "temperature is 0.6 there and 1.0 here and top p is 1.0 there and 0.9 here"),
        ({"asking": Asking(prefix="{")}, "prefix is 'Final Answer: \\\\boxed{' there and '{' here"),
        ({"fingerprint": "xyz"}, "the weights of 'm' have changed"),
        ({"fingerprint": "xyz", "model": "n"}, "model is 'm' there and 'n' here"),
        ({"probe": True}, "probe is False there and True here"),
    ],
)
def test_another_configuration_is_refused_with_the_difference_named(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    made(tmp_path)
    with pytest.raises(OtherConfiguration) as refused:
        Store.create(tmp_path, replace(CONFIG, **change))
    assert said in refused.value.message
    Store.create(tmp_path, CONFIG).close()  # and the refused one holds no lock


def test_models_are_compared_by_fingerprint_or_else_by_name() -> None:
    assert not differences(CONFIG, replace(CONFIG, model="other/path.gguf"))
    unseen = replace(CONFIG, fingerprint="")
    assert not differences(unseen, replace(unseen))
    assert differences(unseen, replace(unseen, model="n")) == ["model is 'm' there and 'n' here"]


def test_questions_can_be_added_but_not_changed(tmp_path: Path) -> None:
    with Store.create(made(tmp_path), CONFIG) as store:
        store.add_questions([QUESTIONS[1], Question("c", "Third?")])
        assert [question.id for question in store.questions()] == ["b", "a", "c"]
        with pytest.raises(OtherConfiguration, match="'a' is different"):
            store.add_questions([Question("d", "Fourth?"), replace(QUESTIONS[1], text="Else?")])
        assert len(store.questions()) == 3


def test_failures_are_kept_until_the_trace_succeeds(tmp_path: Path) -> None:
    with Store.create(made(tmp_path), CONFIG) as store:
        for message in ("Once.", "Again."):
            store.add_failure(("b", 0), GENERATE, EngineError(message, "Do."))
        store.add_failure(("a", 1), GENERATE, EngineError("Other."))
        assert [(f.question_id, f.seed, f.message, f.hint) for f in store.failures(GENERATE)] == [
            ("b", 0, "Again.", "Do."),
            ("a", 1, "Other.", ""),
        ]
        store.add_trace(trace())
        store.add_failure(("b", 0), "probe default", EngineError("Late."))
        assert [f.message for f in store.failures(GENERATE)] == ["Other."]
        store.add_probing(("b", 0), DEFAULT, ())
        assert [f.message for f in store.failures()] == ["Other."]


def test_a_trace_is_stored_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    with Store.create(made(tmp_path), CONFIG) as store:
        twice = trace(probes=(trace().probes[0], trace().probes[0]))
        with pytest.raises(StoreError):
            store.add_trace(twice, probe_set=DEFAULT)
        assert store.made() == ()
        store.add_trace(trace(), probe_set=DEFAULT)
        assert store.made() == (("b", 0),)


def test_a_transaction_stores_everything_or_nothing(tmp_path: Path) -> None:
    with Store.create(made(tmp_path), CONFIG) as store:
        with suppress(EngineError), store.at_once():
            store.add_trace(trace())
            assert store.made() == (("b", 0),)
            raise EngineError("Died.")
        assert store.made() == ()


def test_a_lone_surrogate_in_a_trace_is_replaced(tmp_path: Path) -> None:
    broken = trace(text="a\ud800b", written="\udfff")
    with Store.open(made(tmp_path, broken)) as store:
        assert store.trace(("b", 0)).text == "a?b"


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    with Store.open(made(tmp_path)) as store, pytest.raises(NotRecorded, match="Question 'b' with seed 4"):
        store.trace(("b", 4))


def test_one_writer_and_many_readers(tmp_path: Path) -> None:
    made(tmp_path, trace(seed=0))
    with Store.create(tmp_path, CONFIG) as writer:
        with pytest.raises(StoreError, match="Another process is writing"):
            Store.create(tmp_path, CONFIG)
        with pytest.raises(StoreError, match="Another process is writing"):
            Store.open(tmp_path, write=True)
        with Store.open(tmp_path) as reader:
            reading = reader.recorded()
            writer.add_trace(trace(seed=1), probe_set=DEFAULT)
            assert [one.seed for one in reading] == [0]
            assert [one.seed for one in reader.recorded()] == [0, 1]
    Store.open(tmp_path, write=True).close()


def test_the_lock_of_a_writer_is_one_file(tmp_path: Path) -> None:
    """Also while it is held: what there is when a process is killed stays."""
    held = schema.lock_writer(tmp_path)
    with pytest.raises(StoreError, match="Another process is writing"):
        schema.lock_writer(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == [schema.LOCK]
    held.close()
    schema.lock_writer(tmp_path).close()


def test_a_foreign_writer_is_an_error_after_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "BUSY_TIMEOUT", 0.05)
    with Store.create(made(tmp_path), CONFIG) as store:
        other = sqlite3.connect(tmp_path / schema.FILE, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="Another process is writing"):
            store.add_trace(trace())
        other.execute("ROLLBACK")
        other.close()
        store.add_trace(trace())


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    with Store.create(made(tmp_path, trace(seed=0)), CONFIG) as store:
        store._db.execute("PRAGMA max_page_count=1")  # as small as the file is already
        with pytest.raises(StoreError, match="disk is full") as full:
            store.add_trace(trace(seed=1, text="x" * 1_000_000))
        assert "it continues where it stopped" in full.value.hint
    with Store.open(tmp_path) as store:
        assert list(store.recorded(whole=True)) == [trace(seed=0)]


def not_a_database(folder: Path) -> None:
    (folder / schema.FILE).write_text("traces, traces, traces" * 100)


def another_database(folder: Path) -> None:
    with sqlite3.connect(folder / schema.FILE) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()


def newer_schema(folder: Path) -> None:
    made(folder)
    with sqlite3.connect(folder / schema.FILE) as other:
        other.execute(f"PRAGMA user_version={schema.VERSION + 1}")
    other.close()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: None, "There is no run in"),
        (not_a_database, "is not a run"),
        (another_database, "is a database, but not a run"),
        (newer_schema, f"has schema {schema.VERSION + 1}"),
    ],
)
def test_folders_that_are_not_runs_are_refused(tmp_path: Path, spoil: Any, said: str) -> None:
    spoil(tmp_path)
    with pytest.raises(NotARun, match=said):
        Store.open(tmp_path)


def test_a_file_is_not_overwritten_by_a_run(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(NotARun, match="a run is a folder"):
        Store.create(file, CONFIG)
    with pytest.raises(CgrError, match="cannot be created"):
        Store.create(file / "run", CONFIG)
    not_a_database(tmp_path)
    with pytest.raises(NotARun, match="is not a run"):
        Store.create(tmp_path, CONFIG)


def test_a_run_that_was_killed_during_creation_is_created_again(tmp_path: Path) -> None:
    (tmp_path / schema.FILE).touch()
    with Store.create(tmp_path, CONFIG) as store:
        assert store.made() == ()


def test_a_finished_run_is_one_plain_file(tmp_path: Path) -> None:
    made(tmp_path, trace())
    assert {path.name for path in tmp_path.iterdir()} == {schema.FILE, schema.LOCK}
    with Store.open(tmp_path / schema.FILE) as store:
        assert store.made() == (("b", 0),)


def downgrade(folder: Path, version: int) -> None:
    """Change a run on disk to an older schema."""
    with sqlite3.connect(folder / schema.FILE) as old:
        for since, table, column in schema.ADDED_COLUMNS:
            if since > version:
                old.execute(f"ALTER TABLE {table} DROP COLUMN {column.split()[0]}")
        if version < checks.SINCE:
            old.execute("DROP TABLE checks")
        old.execute(f"PRAGMA user_version={version}")
    old.close()


@pytest.mark.parametrize("version", range(1, schema.VERSION))
def test_a_run_with_an_older_schema_is_readable_and_is_upgraded_for_writing(tmp_path: Path, version: int) -> None:
    made(tmp_path, trace())
    with Store.open(tmp_path) as store:
        before = [list(store.recorded(None, whole=whole)) for whole in (True, False)]
    downgrade(tmp_path, version)
    with Store.open(tmp_path) as store:
        assert [list(store.recorded(None, whole=whole)) for whole in (True, False)] == before
        assert store._one("PRAGMA user_version") == version
    with Store.open(tmp_path, write=True) as store:
        assert store._one("PRAGMA user_version") == schema.VERSION
        assert list(store.recorded(None, whole=True)) == before[0]
        store.add_trace(replace(trace(seed=77, tops=(-1.5, -2.0), gold="3"), question="Other?"))
        again = [trace for trace in store.recorded(None, whole=True) if trace.seed == 77]
    assert again[0].tops == (-1.5, -2.0)
    assert (again[0].gold, again[0].question) == ("3", "Other?")


def test_forced_tokens_and_top_means_are_stored(tmp_path: Path) -> None:
    made(tmp_path)
    forced = trace(seed=78, tops=(-1.0, -2.0, -3.0, -4.0), forced=((1, 2), (3, 1)))
    with Store.open(tmp_path, write=True) as store:
        store.add_trace(forced)
    with Store.open(tmp_path) as store:
        whole = next(trace for trace in store.recorded(None, whole=True) if trace.seed == 78)
        plain = next(trace for trace in store.recorded(None) if trace.seed == 78)
    assert (whole.tops, whole.forced) == (forced.tops, forced.forced)
    assert (plain.tops, plain.forced) == ((), forced.forced)


@pytest.mark.parametrize(
    ("probe_set", "name"),
    [
        (ProbeSet("interval", 4), "default"),
        (ProbeSet("wait"), "wait"),
        (ProbeSet("interval", 4, Asking(reads="text")), "every-4-text"),
        (ProbeSet("paragraph", 0, Asking(reads="entropy")), "paragraph-entropy"),
    ],
)
def test_only_a_set_of_answers_at_an_interval_is_called_default(tmp_path: Path, probe_set: ProbeSet, name: str) -> None:
    with Store.create(tmp_path, CONFIG) as store:
        assert store.add_probe_set(probe_set) == name


# Each: SQL that changes something that a result depends on, and that SQLite does not notice.
CHANGES = {
    "configuration": "UPDATE run SET config = replace(config, '0', '1')",
    "question": "UPDATE questions SET gold = '9' || coalesce(gold, '') WHERE number = 1",
    "probe set": "UPDATE probe_sets SET spec = replace(spec, 'Final', 'Fatal')",
    "thinking": "UPDATE traces SET ids = zeroblob(length(ids)) WHERE length(ids)",
    "text": "UPDATE traces SET text = text || 'x'",
    "final answer": "UPDATE traces SET final = replace(final, '0.', '0.0')",
    "certainty": "UPDATE probes SET certainty = certainty / 2",
    "tokens of a probe": "UPDATE probes SET tokens = '[[1, \"x\", -1.0, []]]'",
    "lost probe": "DELETE FROM probes WHERE at = (SELECT max(at) FROM probes)",
    "lost probing": "UPDATE probings SET probe_set = 2 WHERE id = (SELECT max(id) FROM probings)",
    "lost check": "DELETE FROM checks WHERE kind = 'trace'",
}


@pytest.fixture
def two_traces(tmp_path: Path) -> Path:
    return made(tmp_path, trace(), trace("a", 1, gold="3"))


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_value_is_noticed(two_traces: Path, name: str) -> None:
    with Store.open(two_traces) as store:
        assert read_all(store)
    db = sqlite3.connect(two_traces / schema.FILE, isolation_level=None)
    db.execute(CHANGES[name])
    assert db.total_changes
    db.close()
    with pytest.raises(NotARun, match="is damaged"), Store.open(two_traces) as store:
        read_all(store)


def read_all(store: Store) -> list[object]:
    sets = [one for name in store.probe_sets() for one in store.recorded(name, whole=True)]
    prompts = [store.prompt_ids(key) for key in store.made()]
    return [store.config, store.questions(), *sets, *store.recorded(None, whole=True), *prompts]


def test_check_sums_are_computed_when_an_older_run_is_upgraded(two_traces: Path) -> None:
    downgrade(two_traces, checks.SINCE - 1)
    Store.open(two_traces, write=True).close()
    with Store.open(two_traces) as store:
        assert store._one("SELECT count(*) FROM checks") > 0
        assert read_all(store)


def test_a_run_that_is_being_written_is_never_taken_for_damaged(tmp_path: Path) -> None:
    """A reader sees each list and its check sums in one state."""
    made(tmp_path, trace())
    with Store.open(tmp_path, write=True) as writer, Store.open(tmp_path) as reader:
        for seed in range(100, 130):
            writer.add_trace(trace(seed=seed))
            assert len(reader.made()) == seed - 98


def test_a_damaged_description_of_a_table_is_one_sentence(two_traces: Path) -> None:
    """One flipped letter in `id INTEGER PRIMARY KEY`, and SQLite reads the numbers of the rows as unknown."""
    file = two_traces / schema.FILE
    file.write_bytes(
        file.read_bytes().replace(b"id INTEGER PRIMARY KEY, name TEXT", b"id INTEGES PRIMARY KEY, name TEXT", 1)
    )
    with pytest.raises(CgrError, match="damaged"), Store.open(two_traces) as store:
        list(store.recorded(DEFAULT))
