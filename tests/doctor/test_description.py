"""The paper's check of a tokenizer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cgr.doctor.description import count_integers
from cgr.engines.scripted import ScriptedEngine
from tests.support import scripted


class Splitting(ScriptedEngine):
    """Tokenises by a function."""

    def __init__(self, split: Callable[[str], list[str]]) -> None:
        super().__init__((), lambda at, suffix: ())
        self.split = split

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(self.id_of, self.split(text)))


@pytest.mark.parametrize(
    ("split", "needed", "longest"),
    [
        (list, 4, "100}"),  # digit by digit, the brace apart
        (lambda text: [text], 1, "0}"),  # all glued
        (lambda text: [text[:-1], "}"], 2, "0}"),  # whole numbers
        (lambda text: [*text[:-2], text[-2:]], 3, "100}"),  # the brace with the last digit
    ],
)
async def test_the_longest_integer_sets_what_is_needed(
    split: Callable[[str], list[str]], needed: int, longest: str
) -> None:
    found = await count_integers(Splitting(split), 3)
    assert (found.needed, found.longest, found.fit) == (needed, longest, needed <= 3)
    assert sum(count for _, count in found.lengths) == 1000


async def test_every_length_is_counted() -> None:
    found = await count_integers(Splitting(list), 4)
    assert found.lengths == ((2, 10), (3, 90), (4, 900))


async def test_a_tokenizer_with_one_token_per_word() -> None:
    assert (await count_integers(scripted(""), 4)).needed == 1
