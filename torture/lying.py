"""Engines that lie: NaN for a log-probability, other tokens than asked for, events twice, another model in mid-run."""

from __future__ import annotations

import json
import logging
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cgr.engines.completions.policy import RetryPolicy
from tests.server.upstream import FakeUpstream, Trouble, fake_upstream
from torture.knocks import Trial, Try, knock_of
from torture.processes import called, refused

QUESTION = "What is x? Put it into \\boxed{}."
Piece = dict[str, Any]
Lie = Callable[[Piece, random.Random], Iterator[Piece]]


def _changed(name: str) -> Callable[[Any], Lie]:
    """A lie that replaces a field of the choice."""

    def with_value(value: Any) -> Lie:
        def lie(piece: Piece, chance: random.Random) -> Iterator[Piece]:
            piece["choices"][0][name] = value
            yield piece

        return lie

    return with_value


def _logprob(value: Any) -> Lie:
    """A lie about every log-probability."""

    def lie(piece: Piece, chance: random.Random) -> Iterator[Piece]:
        if found := piece["choices"][0].get("logprobs"):
            found["token_logprobs"] = [value]
            found["top_logprobs"] = [dict.fromkeys(found["top_logprobs"][0], value)]
        yield piece

    return lie


def _reordered(piece: Piece, chance: random.Random) -> Iterator[Piece]:
    """The alternatives in another order: allowed, since they have names."""
    if found := piece["choices"][0].get("logprobs"):
        pairs = list(found["top_logprobs"][0].items())
        chance.shuffle(pairs)
        found["top_logprobs"] = [dict(pairs)]
    yield piece


def _twice(piece: Piece, chance: random.Random) -> Iterator[Piece]:
    yield piece
    yield piece


def _too_many(piece: Piece, chance: random.Random) -> Iterator[Piece]:
    """More tokens than were asked for: the end is never reported."""
    piece["choices"][0]["finish_reason"] = None
    yield piece
    if piece.get("usage"):
        for _ in range(50):
            yield piece


def _no_choices(piece: Piece, chance: random.Random) -> Iterator[Piece]:
    yield chance.choice(({}, {"choices": []}, {"choices": [None]}, {"choices": [{}]}, {"error": "no"}, {"choices": "x"}))


def _lost_cache(piece: Piece, chance: random.Random) -> Iterator[Piece]:
    if piece.get("usage"):
        piece["usage"] = chance.choice(
            ({}, {"prompt_tokens": -1}, {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}},
             {"prompt_tokens": "x"}, {"prompt_tokens": 5, "prompt_tokens_details": None})
        )  # fmt: skip
    yield piece


def _other_model(piece: Piece, chance: random.Random) -> Iterator[Piece]:
    yield piece | {"model": "another-model", "id": "x", "system_fingerprint": str(chance.random())}


LIES: dict[str, tuple[Lie, bool]] = {  # each with whether the right answer is still to be expected
    "NaN": (_logprob(math.nan), False),
    "infinite": (_logprob(-math.inf), False),
    "positive": (_logprob(0.5), False),
    "text for a number": (_logprob("x"), False),
    "null": (_logprob(None), False),
    "no log-probabilities": (_changed("logprobs")(None), False),
    "log-probabilities of another kind": (_changed("logprobs")([1, 2]), False),
    "other token ids": (_changed("token_ids")([-1]), False),
    "no token ids": (_changed("token_ids")(None), False),
    "token ids of another kind": (_changed("token_ids")("x"), False),
    "text of another kind": (_changed("text")(5), False),
    "unknown end": (_changed("finish_reason")("sleepy"), False),
    "alternatives in another order": (_reordered, True),
    "events twice": (_twice, False),
    "too many tokens": (_too_many, False),
    "no choices": (_no_choices, False),
    "strange usage": (_lost_cache, True),
    "another model": (_other_model, True),
}
DEATHS = ("reset", "half", "garbage", "500", "503", "hang")
HASTY = RetryPolicy(pause=0.05, longest=0.1, stall=0.5)  # a server that hangs is given up after half a second, not a minute


@dataclass
class LyingUpstream(FakeUpstream):
    """A fake upstream that begins to lie after some events, and in one trial of three fails too."""

    lie: Lie | None = None
    left: int = 0
    chance: random.Random = random.Random(0)  # noqa: RUF009 - replaced in each trial

    def _pieces(self, kind: str, ids: Sequence[int], body: dict[str, Any]) -> Iterator[Piece]:
        for piece in super()._pieces(kind, ids, body):
            self.left -= 1
            if self.lie is None or self.left > 0 or not body.get("stream"):
                yield piece
            else:
                yield from self.lie(json.loads(json.dumps(piece)), self.chance)


@knock_of(
    "engine-lies",
    "a server that sends NaN, other tokens, reordered or missing log-probabilities, events twice, another model, no cache; "
    "or dies or hangs in the middle",
    "`cgr solve` and `cgr generate` give a valid result or a sentence; harmless differences change nothing",
    times=36,
    long=1000,
)
@contextmanager
def engine_lies(folder: Path) -> Iterator[Try]:
    """Lies in turn, from the first event on or from a later one."""
    fake = LyingUpstream()
    logging.getLogger("aiohttp.server").disabled = True  # the fake fails at what it is given back, and would print that
    defaults = tuple(getattr(HASTY, one.name) for one in fields(RetryPolicy))
    with fake_upstream(fake=fake), patch.object(RetryPolicy.__init__, "__defaults__", defaults):

        def one(trial: Trial) -> str:
            name = [*LIES][trial.number % len(LIES)]
            fake.reset()
            fake.lie, right = LIES[name]
            fake.left, fake.chance = trial.chance.choice((0, 60, 120, 200)), trial.chance
            if trial.chance.random() < 0.3:
                kind = trial.chance.choice(("think", "probe", "answer"))
                what = trial.chance.choice(DEATHS)
                fake.troubles = [Trouble(kind, what, trial.chance.randrange(what == "hang", 3))]
            solve = ("solve", QUESTION, "--base-url", fake.address, "--budget", "150", "--interval", "32", "--json")
            done = called(*solve)
            if not refused(done):
                _check(json.loads(done.out, parse_constant=_refuse), right)
            elif right:
                raise AssertionError(f"refused, though the answer is right: {done.err}")
            run = ("generate", "--questions", "arithmetic", "--limit", "1", "--budget", "64", "--out")
            again = called(*run, str(trial.folder / "run"), "--base-url", fake.address, "--quiet")
            return f"{name}: {'refused' if done.code else 'answered'}, {'refused' if refused(again) else 'recorded'}"

        yield one


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} in the result")


def _check(found: dict[str, Any], right: bool) -> None:
    for level in (found["certainty"], *(probe["certainty"] for probe in found["probes"])):
        assert level is None or 0 <= level <= 1, f"a certainty of {level}"
    assert found["thinking_tokens"] <= 150, "more thinking than the budget"
    if right:
        assert found["answer"] == "42", found["answer"]
