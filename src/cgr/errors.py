"""The exceptions of cgr. Each has one sentence that says what is wrong, and a hint that says what to do.

CgrError
├── UsageError              the request cannot be carried out: exit code 2
│   ├── UnknownName         no such rule, aggregate, policy, ...; the nearest is suggested
│   ├── ModelNotFound       no such file, no such hub id
│   ├── NotAModel           a file that is not a model
│   ├── NoThinkTags         a model without think tags
│   └── DoesNotFit          prompt, budget and answer exceed the model's context
├── EngineError             the engine failed while it was used
│   ├── MissingCapability   a rule needs something that this engine does not have
│   └── Busy                no session became free in time
└── NotRecorded             a replay needs something that its recording does not hold
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class CgrError(Exception):
    """An error with a message (one sentence) and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __reduce__(self) -> tuple[type[CgrError], tuple[str, str]]:
        return type(self), (self.message, self.hint)


class UsageError(CgrError):
    """The request cannot be carried out."""


class UnknownName(UsageError):
    """A name that is not known."""

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str]) -> UnknownName:
        """The error for an unknown name, with the nearest known one as a suggestion."""
        names = sorted(known)
        near = get_close_matches(name, names, n=1, cutoff=0.5)
        guess = f"Did you mean {near[0]!r}? " if near else ""
        return cls(f"There is no {kind} called {name!r}.", f"{guess}Known: {', '.join(names)}.")


class ModelNotFound(UsageError):
    """There is no file, hub id or server for this model."""


class NotAModel(UsageError):
    """The file exists, but it is not a model that can be loaded."""


class NoThinkTags(UsageError):
    """The model's files name no think tags."""


class DoesNotFit(UsageError):
    """Prompt, budget and answer together exceed the model's context."""


class EngineError(CgrError):
    """The engine failed while it was used."""


class MissingCapability(EngineError):
    """A rule needs something that this engine does not have."""


class Busy(EngineError):
    """All sessions of the engine are in use."""


class NotRecorded(CgrError):
    """A replay needs something that its recording does not hold."""
