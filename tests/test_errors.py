"""Every error is one sentence and a hint, and survives a trip to another process."""

from __future__ import annotations

import pickle

import pytest

from cgr import errors
from cgr.errors import CgrError, UnknownName, UsageError

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
