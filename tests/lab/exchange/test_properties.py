"""Traces made at random: the store and the exchange formats keep them; a line with anything in it is read or refused."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cgr.errors import UsageError
from cgr.lab.exchange import export_run, exported, import_run
from cgr.lab.exchange.line import TraceLine, from_json
from cgr.lab.store import DEFAULT, Store
from cgr.lab.store.codec import storable
from cgr.lab.store.config import ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Probe, Question, Token
from tests.lab.exchange.test_exchange import SIX

BUDGET = 100
CONFIG = RunConfig(model="m", engine="e", budget=BUDGET, interval=0, source="s", fingerprint="abc")
SET = ProbeSet("anywhere", 0, model="m", fingerprint="abc")
FEWER = settings().max_examples // 4  # each one writes files
NO_SHRINKING = (Phase.explicit, Phase.generate)  # which takes minutes where files are written
FLOAT32 = st.floats(-100, 0, width=32)
CHANCES = st.floats(0, 1)
COUNTS = st.integers(0, 2**40)
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
TOKENS = st.builds(
    Token,
    st.integers(0, 2**31),
    ANY_TEXT,
    FLOAT32,
    st.lists(st.tuples(st.integers(0, 2**31), FLOAT32), max_size=2).map(tuple),
)


@st.composite
def probes(draw: st.DrawFn, at: int) -> Probe:
    chances = tuple(draw(st.lists(CHANCES, max_size=4)))
    return Probe(
        at,
        f"a{draw(ANY_TEXT)}z" if chances else "",  # an answer has probabilities, and nothing else has
        min(chances, default=0.0),
        draw(st.booleans()),
        chances,
        tuple(draw(st.lists(TOKENS, max_size=2))),
        draw(ANY_TEXT),
        tuple(draw(st.lists(st.integers(0, 2**31), max_size=2))),
        draw(st.booleans()),
        draw(st.none() | st.floats(0, 20)),
        *draw(st.tuples(COUNTS, COUNTS, COUNTS, st.floats(0, 1e6))),
        stated=draw(st.none() | st.tuples(COUNTS, COUNTS)),
    )


@st.composite
def traces(draw: st.DrawFn, number: int = 0) -> RecordedTrace:
    length = draw(st.integers(1, 12))
    filled = draw(st.booleans())
    final = replace(draw(probes(length)), stated=None, bound=False)
    positions = sorted(draw(st.sets(st.integers(1, length), max_size=3)))
    several = st.lists(FLOAT32, min_size=length, max_size=length).map(tuple) | st.just(())
    return RecordedTrace(
        f"q{number}",
        draw(st.integers(-(2**63), 2**63 - 1)),
        draw(st.none() | st.text(min_size=1, max_size=5).map(storable)),
        length,
        "end_of_thinking",
        BUDGET,
        final,
        tuple(draw(probes(at)) for at in positions),
        draw(ANY_TEXT),
        "math",
        draw(st.booleans()),
        tuple(draw(st.lists(st.integers(0, 2**32 - 1), min_size=length, max_size=length))) if filled else (),
        draw(ANY_TEXT),
        draw(ANY_TEXT),
        draw(several),
        draw(several),
    )


@contextmanager
def stored(trace: RecordedTrace) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        with Store.create(Path(folder) / "run", CONFIG) as store:
            store.add_questions([Question(trace.question_id, storable(trace.question), trace.gold, "math")])
            store.add_probe_set(SET, DEFAULT)
            store.add_trace(trace, prompt_ids=(5, 6), probe_set=DEFAULT)
        yield Path(folder) / "run"


def cleaned(value: Any) -> Any:
    """A value as it can be stored: half of a surrogate pair is replaced in every text."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, tuple):
        return tuple(map(cleaned, value))
    if isinstance(value, RecordedTrace | Probe | Token):
        return replace(value, **{name: cleaned(getattr(value, name)) for name in value.__dataclass_fields__})
    return value


@settings(max_examples=FEWER, phases=NO_SHRINKING)
@given(traces())
def test_the_store_gives_back_what_it_was_given(trace: RecordedTrace) -> None:
    with stored(trace) as run, Store.open(run) as store:
        assert list(store.recorded(whole=True)) == [cleaned(trace)]


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet"])
@settings(max_examples=FEWER, phases=NO_SHRINKING)
@given(trace=traces())
def test_an_export_that_is_imported_and_exported_again_is_the_same(kind: str, trace: RecordedTrace) -> None:
    with stored(trace) as run:
        file = run.parent / f"out.{kind}"
        export_run(run, file)
        import_run(file, run.parent / "again")
        with Store.open(run) as store, Store.open(run.parent / "again") as again:
            assert list(map(_without_run, exported(again))) == list(map(_without_run, exported(store)))


def _without_run(line: TraceLine) -> dict[str, Any]:
    return line.model_dump(exclude={"run"})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(SIX), st.data(), VALUES)
def test_a_line_with_anything_in_it_is_read_or_refused_in_a_sentence(
    line: dict[str, Any], data: st.DataObject, value: object
) -> None:
    tree = json.loads(json.dumps(line))
    data.draw(st.sampled_from([*_places(tree)]))(value)
    _read_or_refused(json.dumps(tree).encode("utf-8", "replace"))


@given(
    st.binary(max_size=60)
    | VALUES.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
)
def test_any_bytes_are_read_or_refused_in_a_sentence(raw: bytes) -> None:
    _read_or_refused(raw)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _read_or_refused(raw: bytes) -> None:
    with suppress(UsageError):
        assert isinstance(from_json(raw), TraceLine)


def _places(node: Any) -> Iterator[Callable[[Any], None]]:
    """Every place of a tree, as a function that puts another value there."""
    for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield partial(operator.setitem, node, key)
        yield from _places(node[key])
