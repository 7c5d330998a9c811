"""Questions that the embedded model does not know: other arithmetic, forms close to its own, word questions, random text.

Training uses the forms of `TAUGHT`; the model card also uses those of `NEVER_TAUGHT`, which training never contains.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator

from cgr.model.problems import is_held_out

_NAMES = ("Anna", "Ben", "Carla", "David", "Emma", "Frank", "Grace", "Henry", "Ida", "Jonas", "Kim", "Leo", "Mia", "Noah")
_THINGS = ("apples", "books", "coins", "pencils", "eggs", "stamps", "cards", "chairs", "cups", "keys", "nuts", "shells")
_PLACES = ("France", "Peru", "Japan", "Kenya", "Norway", "Chile", "Egypt", "India", "Canada", "Spain", "Cuba", "Nepal")
_WORDS = [
    "a",
    "river",
    "house",
    "green",
    "runs",
    "slowly",
    "why",
    "because",
    "under",
    "the",
    "moon",
    "small",
    "never",
    "seven",
    "old",
    "machine",
    "paper",
    "writes",
    "blue",
    "we",
    "they",
    "would",
    "sing",
    "over",
    "bread",
    "and",
    "mountain",
    "letter",
    "cold",
    "nine",
    "open",
    "door",
    "history",
    "music",
    "number",
    "often",
    "quick",
    "table",
    "winter",
]

# Fields: n, m of one to three digits, k of one digit, b of four or five digits, name, thing, place, words, noise.
TAUGHT = (
    "What is {n} times {m}?",
    "What is {n}+{m}?",
    "Calculate {n}-{m}.",
    "What is {b} divided by {k}?",
    "Compute {n}*{m}+{n}.",
    "{n}*{m}=",
    "Find x, the least common multiple of {n} and {m}.",
    "Find x, the first three digits of {n}*{m}*{n}.",
    "Find x, the last two digits of {n}*{m}.",
    "Find x, the greatest common divisor of {b} and {b}.",
    "Find x, the sum of {n} and {m}.",
    "Find x if {k}x+{n}={b}.",
    "Start with x={n}. Apply x=({k}x-{m}) mod 1000, {k} times. Find x.",
    "Start with x={n}. Apply x=(x*x+{m}) mod {n}, {k} times. Find x.",
    "Start with y={n}. Add {m}, {k} times. Find y.",
    "Is {n} a prime number?",
    "How many digits has {b}?",
    "{name} has {n} {thing} and gives {m} to {name}. How many are left?",
    "{name} buys {k} boxes of {n} {thing}. How many {thing} are there?",
    "What is the capital of {place}?",
    "How many people live in {place}?",
    "Who wrote about {thing} in {place}?",
    "Why do {thing} {words}?",
    "{words}.",
    "{words}?",
    "{words} {n} {words}.",
    "{noise}",
    "{noise} {n}",
    "Tell me about {words}.",
    "Hello, {name}.",
)
NEVER_TAUGHT = (
    "What is the square root of {b}?",
    "Divide {b} by {m} and give the remainder.",
    "Find x, the product of the digits of {b}.",
    "Find x, the smallest prime above {n}.",
    "Begin with x={n}. Double it {k} times. Find x.",
    "Find x, the last three digits of {n}+{m}+{n}.",
    "A train goes {n} miles in {k} hours. How fast is it?",
    "{name} is {n} years older than {name}. Together they are {b}. How old is {name}?",
    "Which is larger, {n} or {m}?",
    "In which year was {place} founded?",
    "Write a poem about {thing}.",
    "Translate: {words}.",
)


def outside(rng: random.Random, forms: tuple[str, ...] = TAUGHT) -> str:
    """A random question of one of these forms."""
    return _Fields(rng).fill(rng.choice(forms))


def outside_for_training(rng: random.Random) -> str:
    """A random question of a taught form that is not held out."""
    while True:
        if not is_held_out(text := outside(rng)):
            return text


def outside_unseen(seed: int = 0) -> Iterator[str]:
    """Different held-out questions for a seed, of taught forms and of others in turn."""
    rng, seen = random.Random(f"outside:{seed}"), set[str]()
    while True:
        for forms in (TAUGHT, NEVER_TAUGHT):
            while (text := outside(rng, forms)) in seen or not is_held_out(text):
                pass
            seen.add(text)
            yield text


class _Fields:
    """Draws a new value for every field of a form."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def fill(self, form: str) -> str:
        """The form with its fields filled in."""
        return "".join(text + (getattr(self, f"_{field}")() if field else "") for text, field in _parts(form))

    def _n(self) -> str:
        return str(self._rng.randrange(10 ** self._rng.randint(1, 3)))

    _m = _n

    def _k(self) -> str:
        return str(self._rng.randint(2, 9))

    def _b(self) -> str:
        return str(self._rng.randint(1000, 99_999))

    def _name(self) -> str:
        return self._rng.choice(_NAMES)

    def _thing(self) -> str:
        return self._rng.choice(_THINGS)

    def _place(self) -> str:
        return self._rng.choice(_PLACES)

    def _words(self) -> str:
        return " ".join(self._rng.choices(_WORDS, k=self._rng.randint(2, 7)))

    def _noise(self) -> str:
        return "".join(self._rng.choices(string.ascii_letters + string.digits + " .,=*+()", k=self._rng.randint(3, 40)))


def _parts(form: str) -> Iterator[tuple[str, str | None]]:
    for text, field, _, _ in string.Formatter().parse(form):
        yield text, field
