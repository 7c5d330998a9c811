"""What a knock is, and the loop that tries one again and again and counts what is lost."""

from __future__ import annotations

import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path


class Skipped(Exception):
    """The knock cannot be tried on this machine; the text says why."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One try of a knock: its number, its own source of chance, and an empty folder."""

    number: int
    chance: random.Random
    folder: Path


Try = Callable[[Trial], str]  # returns what happened in a word or two; an exception means that something was lost
Setup = Callable[[Path], AbstractContextManager[Try]]


@dataclass(frozen=True, slots=True)
class Knock:
    """A knock. `promise`: what must hold in every trial. `times`: trials of a usual run; `long`: of a long one. `mended`: a
    sentence for each failure that this knock found and that was mended since."""

    name: str
    what: str
    promise: str
    setup: Setup
    times: int
    long: int
    mended: tuple[str, ...] = ()


@dataclass(slots=True)
class Outcome:
    """What the trials of a knock came to. `lost`: how to repeat each trial that failed, and why it failed."""

    knock: str
    seed: int
    tried: int = 0
    lost: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    skipped: str = ""


def knock_of(
    name: str, what: str, promise: str, *, times: int, long: int, mended: tuple[str, ...] = ()
) -> Callable[[Setup], Knock]:
    """A decorator for the setup of a knock: a context manager that gives the function for one trial."""
    return lambda setup: Knock(name, what, promise, setup, times, long, mended)


def tried(knock: Knock, seed: int, numbers: range, on_loss: Callable[[str], None]) -> Outcome:
    """Try a knock with these trial numbers. The chances of a trial depend on the seed and its number only."""
    outcome, start = Outcome(knock.name, seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"torture-{knock.name}-") as folder:
        try:
            # after Ctrl-C the trials so far count, and what is checked after all of them
            with knock.setup(Path(folder)) as one, suppress(KeyboardInterrupt):
                for trial in _trials(knock, seed, numbers, Path(folder)):
                    _try(one, trial, outcome, on_loss)
        except Skipped as reason:
            outcome.skipped = str(reason)
        except Exception as error:  # noqa: BLE001 - a check after all trials, or the setup
            _lose(outcome, f"--times {len(numbers)}", error, on_loss)
    outcome.seconds = time.monotonic() - start
    return outcome


def _try(one: Try, trial: Trial, outcome: Outcome, on_loss: Callable[[str], None]) -> None:
    try:
        outcome.seen[one(trial)] += 1
    except Exception as error:  # noqa: BLE001 - every failure of a trial is counted, and the next is tried
        _lose(outcome, f"--trial {trial.number}", error, on_loss)
    outcome.tried += 1


def _trials(knock: Knock, seed: int, numbers: range, folder: Path) -> Iterator[Trial]:
    for number in numbers:
        own = folder / f"trial-{number}"
        own.mkdir()
        yield Trial(number, random.Random(f"{knock.name} {seed} {number}"), own)


def _lose(outcome: Outcome, which: str, error: Exception, on_loss: Callable[[str], None]) -> None:
    again = f"python -m torture --only {outcome.knock} --seed {outcome.seed} {which}"
    outcome.lost.append(f"{again}: {type(error).__name__}: {error}"[:2000])
    on_loss(f"LOST {again}\n{''.join(traceback.format_exception(error))}")
