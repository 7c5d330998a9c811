"""The exceptions of cgr. Each has one sentence that says what is wrong, and a hint that says what to do.

CgrError
├── UsageError              the request cannot be carried out: exit code 2
│   ├── UnknownName         no such rule, aggregate, policy, ...; the nearest is suggested
│   ├── ModelNotFound       no such file, no such hub id
│   ├── NotAModel           a file that is not a model
│   ├── NoThinkTags         a model without think tags
│   └── DoesNotFit          prompt, budget and answer exceed the model's context
├── EngineError             the engine failed while it was used
│   ├── Refused             a server says that a request is wrong
│   ├── MissingCapability   a rule needs something that this engine does not have
│   └── Busy                no session became free in time
└── NotRecorded             a replay needs something that its recording does not hold
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable
from difflib import get_close_matches

OS_HINTS = {
    errno.ENOSPC: "Free some space, or choose another place.",
    errno.EDQUOT: "Free some space, or choose another place.",
    errno.EFBIG: "The system limits the size of files here; choose another place.",
    errno.EROFS: "This place can only be read; choose another one.",
    errno.EACCES: "Check the permissions, or choose another place.",
    errno.EPERM: "Check the permissions, or choose another place.",
    errno.ENAMETOOLONG: "Use a shorter name.",
    errno.EISDIR: "Give the path of a file.",
    errno.ENOTDIR: "A part of the path is a file; choose another path.",
    errno.ENOENT: "Check the path.",
    errno.EMFILE: "Too many files are open: use fewer sessions, or raise the limit with `ulimit -n`.",
}


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


class Refused(EngineError):
    """A server says that a request is wrong: trying again would not help."""


class MissingCapability(EngineError):
    """A rule needs something that this engine does not have."""


class Busy(EngineError):
    """All sessions of the engine are in use."""


class NotRecorded(CgrError):
    """A replay needs something that its recording does not hold."""


def refused_by_system(error: OSError, what: str) -> UsageError:
    """The error of the operating system as a sentence; `what` begins it, such as "x.json cannot be written"."""
    reason = error.strerror or str(error) or type(error).__name__
    return UsageError(f"{what}: {reason}.", OS_HINTS.get(error.errno or 0, "Check the path and the disk."))


def explained(error: BaseException) -> CgrError | None:
    """An error of Python or of the system as a sentence and a hint; None if it is a bug."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case CgrError():
            return error
        case OSError():
            name = error.filename.decode(errors="replace") if isinstance(error.filename, bytes) else error.filename
            return refused_by_system(error, f"{name} cannot be used" if name else "Input or output failed")
        case UnicodeDecodeError():
            byte = error.object[error.start]
            return UsageError(f"The input is not UTF-8: byte {error.start} is 0x{byte:02x}.", "Convert it to UTF-8.")
        case UnicodeEncodeError():
            return UsageError("The text contains something that is not a character.", "Use text in UTF-8.")
        case MemoryError():
            return UsageError("There is not enough memory.", "Use fewer sessions, a smaller context or a smaller model.")
        case RecursionError():
            return UsageError("The input is nested too deeply.", "Use input with fewer levels.")
        case json.JSONDecodeError():
            return UsageError(f"The input is not JSON: {error}.", "Check the file.")
        case ImportError():
            return UsageError(f"A package cannot be imported: {error}.", "Install cgr again, with the extra that you need.")
    if type(error).__module__ == "sqlite3":
        return UsageError(f"The file of a run cannot be used: {error}.", "Check that it is complete.")
    return None
