"""What can go wrong, and what to do about it. Every error is one sentence and a hint.

CgrError
├── UsageError              what was asked for cannot be: exit code 2
│   ├── UnknownName         no such rule, aggregate, policy, ...; the nearest is suggested
│   ├── ModelNotFound       no such file, no such hub id
│   ├── NotAModel           a file that is not what it says
│   ├── NoThinkTags         a model that does not say how it thinks
│   └── DoesNotFit          prompt, budget and answer exceed the model's context
├── EngineError             the engine failed us while we used it
│   ├── MissingCapability   a rule needs what this engine does not have
│   └── Busy                no session became free in time
└── NotRecorded             a replay was asked for what its recording does not hold
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class CgrError(Exception):
    """One sentence that says what is wrong, and a hint that says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __reduce__(self) -> tuple[type[CgrError], tuple[str, str]]:
        return type(self), (self.message, self.hint)


class UsageError(CgrError):
    """What was asked for cannot be."""


class UnknownName(UsageError):
    """A name that is not among the known ones."""

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str]) -> UnknownName:
        names = sorted(known)
        near = get_close_matches(name, names, n=1, cutoff=0.5)
        guess = f"Did you mean {near[0]!r}? " if near else ""
        return cls(f"There is no {kind} called {name!r}.", f"{guess}Known: {', '.join(names)}.")


class ModelNotFound(UsageError):
    """Neither a file nor a hub id leads to this model."""


class NotAModel(UsageError):
    """The file is there, but it is not a model that can be loaded."""


class NoThinkTags(UsageError):
    """The model's own files name no tags to think between."""


class DoesNotFit(UsageError):
    """Prompt, budget and answer together exceed the model's context."""


class EngineError(CgrError):
    """The engine failed while it was used."""


class MissingCapability(EngineError):
    """A rule needs something that this engine does not have."""


class Busy(EngineError):
    """All sessions of the engine are in use."""


class NotRecorded(CgrError):
    """A replay was asked for something that its recording does not hold."""
