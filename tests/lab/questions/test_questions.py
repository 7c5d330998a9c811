"""Question sources. The problems are invented; their fields are those of the real data sets."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cgr.errors import UnknownName, UsageError
from cgr.lab.questions import NAMES, SOURCES, load_questions, named_questions
from cgr.model.problems import is_held_out, unseen
from cgr.records import Question

pyarrow = import_module("pyarrow")
parquet = import_module("pyarrow.parquet")
datasets = import_module("datasets")

AIME = [
    {"id": "0", "problem": "Find the number of days in a week.", "answer": "7"},
    {"id": "1", "problem": "Find the last two digits of $5^{9}$.", "answer": "025"},
    {"id": "2", "problem": "Find the degree measure of $\\frac{14}{15}$ of a turn.", "answer": "336^\\circ"},
]
GSM8K = [
    {"question": "Ann has 2 crates of 600 pears. How many pears?", "answer": "2*600=<<2*600=1200>>1,200\n#### 1,200"},
    {"question": "Bo owes 10 coins and has none. What is his balance?", "answer": "0-10=-10\n#### -10"},
]
GPQA = [
    {
        "Record ID": f"rec{number}",
        "Question": f"Which is prime, in test {number}?",
        "Correct Answer": "seven",
        "Incorrect Answer 1": "four",
        "Incorrect Answer 2": "six",
        "Incorrect Answer 3": "nine",
        "Writer's Difficulty Estimate": "easy",
    }
    for number in range(40)
]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write(folder: Path, content: str | bytes, name: str = "my.jsonl") -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def refusal(source: str, **options: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        load_questions(source, **options)
    assert caught.value.hint
    return caught.value


# Named sets


def test_aime2025(tmp_path: Path) -> None:
    questions = load_questions(f"aime2025:{jsonl(tmp_path / 'copy.jsonl', AIME)}")
    assert [(question.id, question.gold, question.format) for question in questions] == [
        ("0", "7", "integer"),
        ("1", "25", "integer"),
        ("2", "336", "integer"),
    ]
    assert questions[0].text == AIME[0]["problem"]


def test_aime2024_has_ids_that_are_numbers_and_solutions_that_are_not_golds(tmp_path: Path) -> None:
    row = {
        "id": 60,
        "problem": "Find $5\\cdot 5$.",
        "solution": "It is \\boxed{26}, no, $25$.",
        "answer": "025",
        "year": "2024",
    }
    assert load_questions(f"aime2024:{jsonl(tmp_path / 'a.jsonl', [row])}") == (
        Question("60", "Find $5\\cdot 5$.", "25", "integer"),
    )


def test_amc23_has_numbers_of_any_size(tmp_path: Path) -> None:
    rows = [
        {"id": n, "question": f"What is {a}?", "answer": a, "url": ""}
        for n, a in enumerate(["27.0", "3159.0", "-1.0", 0.5])
    ]
    questions = load_questions(f"amc23:{jsonl(tmp_path / 'a.jsonl', rows)}")
    assert [question.gold for question in questions] == ["27", "3159", "-1", "0.5"]
    assert {question.format for question in questions} == {"number"}


def test_math500_keeps_latex(tmp_path: Path) -> None:
    row = {
        "problem": "Turn $(0,2)$ into polar coordinates.",
        "solution": "...",
        "answer": "\\left( 2, \\frac{\\pi}{2} \\right)",
        "subject": "Precalculus",
        "level": 2,
        "unique_id": "test/precalculus/0.json",
    }
    assert load_questions(f"math500:{jsonl(tmp_path / 'a.jsonl', [row])}") == (
        Question("test/precalculus/0.json", row["problem"], row["answer"], "math"),  # type: ignore[arg-type]
    )


def test_gsm8k_has_its_gold_after_the_hashes(tmp_path: Path) -> None:
    questions = load_questions(f"gsm8k:{jsonl(tmp_path / 'a.jsonl', GSM8K)}")
    assert [(question.id, question.gold, question.format) for question in questions] == [
        ("gsm8k-1", "1200", "number"),
        ("gsm8k-2", "-10", "number"),
    ]


def test_gpqa_shuffles_its_choices_by_seed_and_id(tmp_path: Path) -> None:
    source = f"gpqa:{jsonl(tmp_path / 'a.jsonl', GPQA)}"
    questions = load_questions(source)
    assert {question.format for question in questions} == {"choice"}
    assert {question.gold for question in questions} == set("ABCD")
    for question in questions:
        assert f"\n{question.gold}) seven\n" in question.text
        assert all(choice in question.text for choice in ("four", "six", "nine"))
    assert load_questions(source) == questions
    assert load_questions(source, seed=1) != questions
    alone = f"gpqa:{jsonl(tmp_path / 'b.jsonl', GPQA[7:8])}"
    assert load_questions(alone) == questions[7:8]


def test_gpqa_reads_its_own_csv(tmp_path: Path) -> None:
    path = tmp_path / "diamond.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, GPQA[0].keys())
        writer.writeheader()
        writer.writerows(GPQA)
    assert load_questions(f"gpqa:{path}") == load_questions(f"gpqa:{jsonl(tmp_path / 'a.jsonl', GPQA)}")


def test_gpqa_without_a_choice_is_refused_by_line(tmp_path: Path) -> None:
    error = refusal(f"gpqa:{jsonl(tmp_path / 'a.jsonl', [GPQA[0], {**GPQA[1], 'Incorrect Answer 2': ''}])}")
    assert error.message == "a.jsonl, line 2: the field 'Incorrect Answer 2' is missing or empty."


def test_a_local_copy_may_have_other_field_names(tmp_path: Path) -> None:
    source = f"gsm8k:{jsonl(tmp_path / 'a.jsonl', [{'id': 'one', 'problem': 'What is 1 + 2?', 'answer': '3'}])}"
    assert load_questions(source) == (Question("one", "What is 1 + 2?", "3", "number"),)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 1, "problem": "Find 10^3.", "answer": "1,000"}, "the gold '1,000' is not an integer 0..999"),
        ({"id": 1, "problem": "Find -1.", "answer": -1}, "the gold '-1' is not an integer 0..999"),
        ({"id": 1, "problem": "Find 1/2.", "answer": 0.5}, "the gold '0.5' is not an integer 0..999"),
        ({"id": 1, "problem": "Find x.", "answer": None}, "there is no gold answer"),
        ({"id": 1, "problem": " ", "answer": 5}, "the question ('problem') is missing or empty"),
    ],
)
def test_a_named_set_refuses_invalid_rows(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    error = refusal(f"aime2025:{jsonl(tmp_path / 'a.jsonl', [{'id': 0, 'problem': 'Find 1.', 'answer': '1'}, row])}")
    assert error.message.startswith(f"a.jsonl, line 2: {message}")


def test_a_named_set_without_any_gold_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, '{"problem": "Find x."}')
    assert "line 1: there is no gold" in refusal(f"aime2025:{path}").message


def test_the_fields_of_named_sets_cannot_be_renamed() -> None:
    assert "aime2025" in refusal("aime2025", fields={"text": "x"}).message
    assert "arithmetic" in refusal("arithmetic", format="math").message


# The hub


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


@pytest.mark.usefixtures("cache")
def test_rows_are_read_by_the_datasets_library(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    jsonl(folder / "test.jsonl", GSM8K)
    source = replace(SOURCES["gsm8k"], repo=str(folder), config=None)
    questions = named_questions(source, source.fetch())
    assert [question.gold for question in questions] == ["1200", "-10"]


@pytest.mark.usefixtures("cache")
def test_a_set_that_cannot_be_loaded_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        replace(SOURCES["gpqa"], repo=str(tmp_path / "nothing"), config=None).fetch()
    assert "gpqa:FILE" in caught.value.hint


@pytest.mark.usefixtures("cache")
def test_an_unknown_split_is_refused(tmp_path: Path) -> None:
    jsonl(tmp_path / "test.jsonl", AIME)
    with pytest.raises(UsageError, match="cannot be loaded"):
        replace(SOURCES["aime2024"], repo=str(tmp_path)).fetch()


def test_without_datasets_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'certainty-guided-reasoning[hub]'" in refusal("aime2025").hint


def test_without_pyarrow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "pip install 'certainty-guided-reasoning[lab]'" in refusal(write(tmp_path, b"PAR1", "my.parquet")).hint


# Local files


@pytest.mark.parametrize(
    ("row", "question"),
    [
        ({"problem": "P?", "answer": "1/2"}, Question("my-1", "P?", "1/2", "number")),
        ({"question": "P?", "gold": "x^2"}, Question("my-1", "P?", "x^2", "math")),
        ({"text": "P?", "solution": "so it is \\boxed{\\frac{1}{x}}."}, Question("my-1", "P?", "\\frac{1}{x}", "math")),
        (
            {"text": "P?", "solution": "\\boxed{-1}, \\boxed{2} and $\\boxed{-2}$."},
            Question("my-1", "P?", "-1, 2, -2", "math"),
        ),
        ({"text": "P?", "solution": "not \\boxed{3}, but then \\boxed{4}"}, Question("my-1", "P?", "4", "integer")),
        ({"Question": "P?", "Answer": " B "}, Question("my-1", "P?", "B", "choice")),
        ({"prompt": "P?", "target": [12]}, Question("my-1", "P?", "12", "integer")),
        ({"problem": 7, "question": "P?", "answer": 1.0}, Question("my-1", "P?", "1", "integer")),
        ({"id": 3, "question": "P?", "answer": 0.10}, Question("3", "P?", "0.1", "number")),
        ({"id": "a", "question": " P? ", "answer": "7", "format": "math"}, Question("a", "P?", "7", "math")),
        ({"id": "a", "question": "P?", "answer": "7", "format": "PDF"}, Question("a", "P?", "7", "integer")),
        ({"question": "P?"}, Question("my-1", "P?", None, "math")),
    ],
)
def test_fields_are_guessed(tmp_path: Path, row: dict[str, Any], question: Question) -> None:
    assert load_questions(str(jsonl(tmp_path / "my.jsonl", [row]))) == (question,)


@pytest.mark.parametrize(
    ("golds", "format"),
    [
        (["0", "999", "025", "336^\\circ"], "integer"),
        (["1", "1,000"], "number"),
        (["1", "-1"], "number"),
        (["50%", "1"], "number"),
        (["A", "D"], "choice"),
        (["A", "x"], "math"),
        (["1", "\\sqrt{2}"], "math"),
    ],
)
def test_the_format_is_the_narrowest_that_fits_every_gold(tmp_path: Path, golds: list[str], format: str) -> None:
    path = str(jsonl(tmp_path / "my.jsonl", [{"question": "P?", "answer": gold} for gold in golds]))
    assert {question.format for question in load_questions(path)} == {format}
    assert {question.format for question in load_questions(path, limit=1)} == {format}


def test_fields_and_format_can_be_named(tmp_path: Path) -> None:
    row = {"question": "wrong", "q": "P?", "answer": "wrong", "a": "7", "key": "k"}
    path = str(jsonl(tmp_path / "my.jsonl", [row]))
    named = {"text": "q", "gold": "a", "id": "key"}
    assert load_questions(path, fields=named) == (Question("k", "P?", "7", "integer"),)
    assert load_questions(path, fields=named, format="math") == (Question("k", "P?", "7", "math"),)


@pytest.mark.parametrize(
    ("fields", "hint"), [({"text": "qestion"}, "Did you mean 'question'?"), ({"golden": "answer"}, "Did you mean 'gold'?")]
)
def test_an_unknown_field_is_refused(tmp_path: Path, fields: Mapping[str, str], hint: str) -> None:
    error = refusal(write(tmp_path, '{"question": "P?", "answer": 1}'), fields=fields)
    assert isinstance(error, UnknownName)
    assert hint in error.hint


def test_every_file_type_gives_the_same_questions(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "question": 'He said: "one,\ntwo".\u2028What?', "answer": "12"},
        {"id": "b", "question": "Zwölf\x85?\x0b\x1c", "answer": "025"},
    ]
    path = tmp_path / "my.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "my.parquet")
    lines = "\r\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    loaded = load_questions(write(tmp_path, "\ufeff" + lines))
    assert [question.gold for question in loaded] == ["12", "25"]
    assert "\u2028" in loaded[0].text
    assert load_questions(str(path)) == loaded
    assert load_questions(str(tmp_path / "my.parquet")) == loaded


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"question": "a", "answer": 1}\n{"question": "b", "answer"',
            "my.jsonl, line 2 is not JSON: Expecting ':' delimiter at column 27",
        ),
        ('{"question": "a\u2028b", "answer": 1}\n\n[1]', "my.jsonl, line 3 is not a JSON object"),
        ('{"question": "a", "answer": NaN}', "my.jsonl, line 1 is not JSON: NaN"),
        (b'{"question": "a"}\n{"question": "\xff"}', "my.jsonl, line 2 is not UTF-8"),
        ('{"question": "a"}'.encode("utf-16"), "my.jsonl, line 1 is not UTF-8"),
        ("[" * 100_000, "my.jsonl, line 1 is not JSON"),
        ('{"question": "a", "answer": 1}\n{"question": "b"}', "my.jsonl, line 2: there is no gold answer"),
        ('{"question": "a", "answer": 1}\n{"question": "b", "answer": " "}', "my.jsonl, line 2: there is no gold answer"),
        ('{"question": "a", "answer": true}', "my.jsonl, line 1: the field 'answer' contains bool"),
        ('{"question": "a", "answer": [1, 2]}', "my.jsonl, line 1: the field 'answer' contains list"),
        ('{"question": "a", "answer": 1e999999}', "my.jsonl, line 1: the number 1E+999999 is out of range"),
        (
            '{"question": "a\\ud800", "answer": 1}',
            "my.jsonl, line 1: the field 'question' contains an incomplete character",
        ),
        ('{"question": "a"}\n{"question": ""}', "my.jsonl, line 2: the question ('question') is missing or empty"),
        (
            '{"id": 1, "question": "a"}\n\n{"id": "1", "question": "b"}',
            "my.jsonl, line 3: the id '1' is also the id of my.jsonl, line 1",
        ),
        (
            '{"question": "a", "format": "math"}\n{"question": "b", "format": "maths"}',
            "my.jsonl, line 2: there is no answer format 'maths'",
        ),
        (
            '{"question": "a", "answer": "x", "format": "number"}',
            "my.jsonl, line 1: the gold 'x' is not of the format 'number'",
        ),
        ('{"q": "a"}', "No field of my.jsonl looks like the text of a question"),
        ("", "{path} contains no questions"),
        ("\n \r\n\n", "{path} contains no questions"),
    ],
)
def test_a_bad_jsonl_file_is_refused_with_the_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path, content)
    assert refusal(path).message.startswith(message.format(path=path) if "{path}" in message else message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "{path} contains no questions"),
        ("question,answer\n", "{path} contains no questions"),
        ('question,answer\n"a\nb",1\nc\n', "my.csv, line 4 has 1 cells, the header 2"),
        ("question,answer\na,1,2\n", "my.csv, line 2 has 3 cells, the header 2"),
        ('question,answer\na,1\n"b,2\nc,3\n', "my.csv, line 3 is not CSV"),
        ("question,answer,question\na,1,b\n", "my.csv, line 1: the field 'question' is named twice"),
        (b"question,answer\na,1\n\xff,2\n", "my.csv, line 3 is not UTF-8"),
        ("question,answer\na,1\n\nb,\n", "my.csv, line 4: there is no gold answer"),
    ],
)
def test_a_bad_csv_file_is_refused_with_the_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path, content, "my.csv")
    assert refusal(path).message.startswith(message.format(path=path))


def test_a_bad_parquet_file_is_refused(tmp_path: Path) -> None:
    assert "is not a Parquet file" in refusal(write(tmp_path, "question,answer\n", "my.parquet")).message
    table = pyarrow.Table.from_pylist([{"question": "a", "answer": 1.5}, {"question": "b", "answer": float("nan")}])
    parquet.write_table(table, tmp_path / "gap.parquet")
    assert refusal(str(tmp_path / "gap.parquet")).message.startswith("gap.parquet, row 2: there is no gold answer")


def test_missing_golds_can_be_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, '{"question": "a", "answer": 1}\n{"question": "b"}')
    questions = load_questions(path, allow_missing_golds=True)
    assert [(question.gold, question.format) for question in questions] == [("1", "integer"), (None, "integer")]


def test_a_chosen_format_refuses_other_golds(tmp_path: Path) -> None:
    path = write(tmp_path, '{"question": "a", "answer": 1}\n{"question": "b", "answer": "1,000"}')
    assert "line 2: the gold '1,000' is not an integer 0..999" in refusal(path, format="integer").message
    assert [question.gold for question in load_questions(path, format="number")] == ["1", "1000"]


def test_a_number_in_a_file_keeps_every_digit(tmp_path: Path) -> None:
    path = write(tmp_path, '{"question": "a", "answer": 0.1000000000000000000001}\n{"question": "b", "answer": 1e3}')
    assert [question.gold for question in load_questions(path)] == ["0.1000000000000000000001", "1000"]


# Unknown sources


def test_an_unknown_name_suggests_the_nearest() -> None:
    error = refusal("aime25")
    assert isinstance(error, UnknownName)
    assert "Did you mean 'aime2025'?" in error.hint
    assert all(name in error.hint for name in NAMES)


def test_unusable_paths_are_refused(tmp_path: Path) -> None:
    assert "is a folder" in refusal(str(tmp_path)).message
    assert "There is no file" in refusal(str(tmp_path / "nothing.jsonl")).message
    assert "There is no file" in refusal("nothing.txt").message
    assert "unknown file type" in refusal(write(tmp_path, "x", "my.txt")).message
    assert "There is no file" in refusal(f"gsm8k:{tmp_path / 'nothing.jsonl'}").message


def test_a_limit_selects_the_first_questions(tmp_path: Path) -> None:
    path = str(jsonl(tmp_path / "my.jsonl", AIME))
    assert load_questions(path, limit=2) == load_questions(path)[:2]
    assert len(load_questions(path, limit=99)) == 3
    assert "leaves no questions" in refusal(path, limit=0).message


# Arithmetic


def test_arithmetic_problems_depend_on_the_seed_and_are_not_in_the_training_data() -> None:
    questions = load_questions("arithmetic")
    assert len(questions) == 30
    assert len({question.id for question in questions}) == len({question.text for question in questions}) == 30
    assert all(is_held_out(question.text) for question in questions)
    assert all(question.format == "integer" and 0 <= int(question.gold or "-1") <= 999 for question in questions)
    assert load_questions("arithmetic", limit=5) == questions[:5]
    assert len(load_questions("arithmetic", limit=40)) == 40


def test_another_seed_gives_other_arithmetic_problems() -> None:
    first, second = load_questions("arithmetic", seed=1), load_questions("arithmetic", seed=2)
    assert not {question.id for question in first} & {question.id for question in second}
    assert [question.text for question in first] != [question.text for question in second]


def test_importing_questions_imports_no_large_package() -> None:
    script = (
        "import sys, cgr.lab.questions; print([n for n in ('datasets', 'pyarrow', 'numpy', 'sympy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_arithmetic_problems_of_different_seeds_share_no_text() -> None:
    """Before, a fifth of the texts of two seeds were the same at 800 problems."""
    texts = {seed: {one.text for one in load_questions("arithmetic", limit=800, seed=seed)} for seed in (0, 1, 2, 7, 2026)}
    for seed, found in texts.items():
        assert len(found) == 800
        others = set().union(*(other for number, other in texts.items() if number != seed))
        assert not found & others
    raw = [{one.text for one in islice(unseen(seed), 800)} for seed in (0, 7)]
    assert raw[0] & raw[1]


def test_arithmetic_problems_are_those_of_the_generator_without_what_belongs_to_another_seed() -> None:
    """Seed 0 is unchanged; other seeds keep their problems and the numbers of these."""
    plain = [one.text for one in islice(unseen(0), 60)]
    assert [one.text for one in load_questions("arithmetic", limit=60, seed=0)] == plain
    numbered = {
        f"s7-{number:02d}-{one.family}-{one.level}": one.text for number, one in enumerate(islice(unseen(7), 200), 1)
    }
    for one in load_questions("arithmetic", limit=60, seed=7):
        assert numbered[one.id] == one.text
