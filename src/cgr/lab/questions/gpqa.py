"""GPQA Diamond: 198 graduate-level questions with four choices; the gold is a letter.

Rein et al.: GPQA: A Graduate-Level Google-Proof Q&A Benchmark (COLM 2024). On the hub as `Idavidrein/gpqa`, where its
terms have to be accepted. The correct choice is the first in the data, so the four are shuffled by a seed and the
question's id: a question has the same order whatever else is loaded.
"""

from __future__ import annotations

import random

from cgr.lab.questions.source import Source, SourceRow

CHOICES = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
LETTERS = "ABCD"


def prepare(row: SourceRow, seed: int) -> SourceRow:
    """A row with the question, its four lettered choices in shuffled order, and the letter of the correct one."""
    question, identity, *choices = (_text(row, name) for name in ("Question", "Record ID", *CHOICES))
    order = list(range(len(choices)))
    random.Random(f"gpqa:{seed}:{identity}").shuffle(order)
    lines = [f"{letter}) {choices[index]}" for letter, index in zip(LETTERS, order, strict=True)]
    text = "\n".join([question, "", *lines, "", "Choose one, and answer with its letter."])
    return SourceRow(row.where, {"id": identity, "problem": text, "answer": LETTERS[order.index(0)]})


def _text(row: SourceRow, name: str) -> str:
    value = row.values.get(name)
    if not isinstance(value, str) or not value.strip():
        raise row.error(f"the field {name!r} is missing or empty.", "A GPQA row needs a question, its id and four choices.")
    return value.strip()


SOURCE = Source("gpqa", "Idavidrein/gpqa", "choice", split="train", size=198, config="gpqa_diamond", prepare=prepare)
