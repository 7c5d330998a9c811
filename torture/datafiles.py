"""Data files of every wrong kind: questions, exchanged traces, recipes, rules and promises, cut, flipped and edited."""

from __future__ import annotations

import csv
import importlib
import json
import operator
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cgr.lab.exchange import export_run, import_run, write_jsonl
from cgr.lab.exchange.line import to_line
from tests.lab.calibrate.promised import traces
from tests.lab.runs import six
from torture.knocks import Trial, Try, knock_of
from torture.processes import Child, called, limit_memory, preload, refused, succeed

STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, 10**30, -(10**30), 1e308, "", " ", "x", "\x1b[31m", "\ud800", "9" * 400, [], {}, [[]],
    [None], {"": None}, [0] * 300, {"a": {"a": {}}}, "</script>", "nan", "inf", "1e999", "\x00",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file: a good one, and the command that reads it (FILE, OUT and RUN are replaced)."""

    name: str
    command: tuple[str, ...]
    good: Path


def _kinds(folder: Path) -> list[Kind]:
    write_jsonl(folder / "six.jsonl", map(to_line, six()))
    import_run(folder / "six.jsonl", folder / "run")
    export_run(folder / "run", folder / "six.parquet")
    questions = [{"id": f"q{number}", "question": f"What is {number}+1?", "answer": str(number + 1)} for number in range(4)]
    (folder / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in questions))
    with (folder / "questions.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "question", "answer"])
        writer.writeheader()
        writer.writerows(questions)
    _parquet(folder / "questions.parquet", questions)
    recipe = Path(__file__).parent.parent / "recipes" / "embedded.toml"
    (folder / "recipe.toml").write_text(recipe.read_text())
    many = folder / "many.jsonl"
    write_jsonl(many, map(to_line, traces(60)))
    succeed("import", "many.jsonl", "many", folder=folder)
    succeed("fit", "run", "--rule", "cgr", "--out", "rule.json", folder=folder)
    succeed("calibrate", "many", "--lose-at-most", "0.2", "--out", "calibration.json", folder=folder)
    generate = ("generate", "--questions", "FILE", "--out", "OUT", "--budget", "8", "--limit", "1", "--quiet")
    solve = ("solve", "What is 1+1?", "--budget", "8")
    return [
        Kind("traces as JSONL", ("import", "FILE", "OUT"), folder / "six.jsonl"),
        Kind("traces as Parquet", ("import", "FILE", "OUT"), folder / "six.parquet"),
        Kind("questions as JSONL", generate, folder / "questions.jsonl"),
        Kind("questions as CSV", generate, folder / "questions.csv"),
        Kind("questions as Parquet", generate, folder / "questions.parquet"),
        Kind("a recipe", ("run", "FILE", "--dry-run"), folder / "recipe.toml"),
        Kind("a rule", (*solve, "--rule", "FILE"), folder / "rule.json"),
        Kind("a promise", (*solve, "--calibration", "FILE"), folder / "calibration.json"),
    ]


def _parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pyarrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


@knock_of(
    "data-files",
    "questions, traces, recipes, rules and promises, in JSON, CSV, TOML and Parquet: cut, flipped, with strange values",
    "one sentence, or the command does its work; a promise that was edited is refused",
    times=120,
    long=4000,
    mended=("a flipped bit at the end of a Parquet file of traces made `cgr import` end in an exception of pyarrow.",),
)
@contextmanager
def data_files(folder: Path) -> Iterator[Try]:
    """Kinds in turn."""
    preload()
    kinds = _kinds(folder)

    def one(trial: Trial) -> str:
        kind = kinds[trial.number % len(kinds)]
        spoil = trial.chance.choice((_cut, _flip, _edit, _edit))
        file = trial.folder / f"x{kind.good.suffix}"
        whole = kind.good.read_bytes()
        data = spoil(whole, trial.chance)
        file.write_bytes(data)
        places = {"FILE": str(file), "OUT": str(trial.folder / "out")}
        arguments = [places.get(part, part) for part in kind.command]
        inside = kind.command[0] in ("import", "run")  # without a model, so nothing that starts threads
        done = called(*arguments) if inside else Child(arguments, trial.folder, limit_memory).wait()
        no = refused(done)
        if kind.name == "a promise" and not no:
            assert _same_json(data, whole), "an edited promise was accepted"
        return f"{kind.name} {'refused' if no else 'used'}"

    yield one


def _same_json(a: bytes, b: bytes) -> bool:
    return bool(json.loads(a) == json.loads(b))


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def _flip(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 2, 8))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _edit(data: bytes, chance: random.Random) -> bytes:
    """A strange value at a random place of a line of JSON; in other files, a strange piece of text."""
    lines = data.split(b"\n")
    number = chance.randrange(len(lines))
    try:
        tree = json.loads(lines[number]) if data.startswith(b'{"') else json.loads(data)
    except ValueError:
        piece = str(chance.choice(STRANGE)).encode("utf-8", "surrogatepass")
        at = chance.randrange(len(data))
        return data[:at] + piece + data[at + chance.randrange(20) :]
    _strange_somewhere(tree, chance)
    text = json.dumps(tree).encode()
    return b"\n".join([*lines[:number], text, *lines[number + 1 :]]) if data.startswith(b'{"') else text


def _strange_somewhere(tree: Any, chance: random.Random) -> None:
    places: list[Callable[[Any], None]] = []

    def visit(node: Any) -> None:
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            places.append(partial(operator.setitem, node, key))
            visit(node[key])

    visit(tree)
    if places:
        chance.choice(places)(chance.choice(STRANGE))


@knock_of(
    "parquet-bomb",
    "a Parquet file of a few kilobytes that unfolds to hundreds of millions of rows, or to gigabytes of text",
    "one sentence before memory is used up",
    times=4,
    long=20,
    mended=("a small file of questions that unfolds to 200 million rows was read into memory as a whole.",),
)
@contextmanager
def parquet_bomb(folder: Path) -> Iterator[Try]:
    """As questions and as traces, in a child whose memory is limited."""
    pyarrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    preload()
    bomb = folder / "bomb.parquet"
    schema = pyarrow.schema([("question", pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))])
    with parquet.ParquetWriter(bomb, schema, compression="zstd") as writer:
        text = pyarrow.DictionaryArray.from_arrays(pyarrow.nulls(2_000_000, pyarrow.int32()).fill_null(0), ["x" * 1000])
        for _ in range(100):
            writer.write_table(pyarrow.table({"question": text}, schema=schema))

    def one(trial: Trial) -> str:
        generate = ("generate", "--questions", str(bomb), "--out", "out", "--budget", "8", "--limit", "1", "--quiet")
        arguments = generate if trial.number % 2 else ("import", str(bomb), "out")
        done = Child(arguments, trial.folder, limit_memory).wait()
        assert refused(done), done.out
        return f"{arguments[0]} refused"

    yield one
