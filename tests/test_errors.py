"""Every error is one sentence and a hint, and survives a trip to another process."""

from __future__ import annotations

import errno
import json
import pickle
import sqlite3
from collections.abc import Callable

import pytest

from cgr import errors
from cgr.errors import CgrError, UnknownName, UsageError, explained

TREE = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, CgrError)]


@pytest.mark.parametrize("cls", TREE)
def test_errors_travel(cls: type[CgrError]) -> None:
    error = pickle.loads(pickle.dumps(cls("It is so.", "Do this.")))
    assert type(error) is cls
    assert (error.message, error.hint, str(error)) == ("It is so.", "Do this.", "It is so.")


@pytest.mark.parametrize("cls", TREE)
def test_the_tree_in_the_docstring_is_whole(cls: type[CgrError]) -> None:
    assert cls.__name__ in (errors.__doc__ or "")


def test_the_nearest_name_is_suggested() -> None:
    error = UnknownName.among("fruit", "aple", ["pear", "apple"])
    assert isinstance(error, UsageError)
    assert error.message == "There is no fruit called 'aple'."
    assert error.hint == "Did you mean 'apple'? Known: apple, pear."


def test_nothing_near_is_not_guessed() -> None:
    assert UnknownName.among("fruit", "xyz", ["pear", "apple"]).hint == "Known: apple, pear."


def raised(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whichever it is
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "a.txt"),
            "a.txt cannot be used: No space left",
            "Free some space",
        ),
        (OSError(errno.EROFS, "Read-only file system", b"a.txt"), "a.txt cannot be used: Read-only", "can only be read"),
        (OSError("no number"), "Input or output failed: no number", "Check"),
        (raised(b"ab\xff".decode), "The input is not UTF-8: byte 2 is 0xff.", "Convert it"),
        (raised("\ud800".encode), "not a character", "UTF-8"),
        (MemoryError(), "not enough memory", "fewer sessions"),
        (RecursionError(), "nested too deeply", "fewer levels"),
        (raised(lambda: json.loads("{")), "The input is not JSON: ", "Check the file"),
        (raised(lambda: sqlite3.connect(":memory:").execute("x")), "cannot be used: near", "complete"),
        (ModuleNotFoundError("No module named 'x'"), "A package cannot be imported: No module named 'x'", "Install"),
        (
            ExceptionGroup("several", [ExceptionGroup("more", [UsageError("It is so.", "Do this.")])]),
            "It is so.",
            "Do this.",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_of_the_system_are_explained(error: BaseException, message: str, hint: str) -> None:
    told = explained(error)
    assert told is not None
    assert message in told.message
    assert hint in told.hint


def test_a_bug_is_not_explained() -> None:
    assert explained(KeyError("x")) is None
