"""GPQA Diamond: 198 graduate-level questions with four choices; the gold is a letter.

Rein et al.: GPQA: A Graduate-Level Google-Proof Q&A Benchmark (COLM 2024). On the hub as `Idavidrein/gpqa`, behind terms
that have to be accepted there. The right choice comes first in the data, so the four are shuffled, by a seed and the
question's id: the same question keeps its order whatever else is loaded.
"""

from __future__ import annotations

import random

from cgr.lab.questions.source import Fields, Row, Source

CHOICES = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
LETTERS = "ABCD"


def prepare(row: Row, seed: int) -> Row:
    """The question with its choices in lettered order, and the letter of the right one."""
    question, identity, *choices = (_text(row, name) for name in ("Question", "Record ID", *CHOICES))
    order = list(range(len(choices)))
    random.Random(f"gpqa:{seed}:{identity}").shuffle(order)
    lines = [f"{letter}) {choices[index]}" for letter, index in zip(LETTERS, order, strict=True)]
    text = "\n".join([question, "", *lines, "", "Choose one, and answer with its letter."])
    return Row(row.where, {"id": identity, "text": text, "gold": LETTERS[order.index(0)]})


def _text(row: Row, name: str) -> str:
    value = row.values.get(name)
    if not isinstance(value, str) or not value.strip():
        raise row.refuse(f"the field {name!r} is missing or empty.", "GPQA needs a question, its id and four choices.")
    return value.strip()


SOURCE = Source(
    name="gpqa",
    repo="Idavidrein/gpqa",
    config="gpqa_diamond",
    split="train",
    format="choice",
    fields=Fields(text="text", gold="gold", id="id"),
    prepare=prepare,
)
