"""Parsers and checks that several commands share."""

from __future__ import annotations

import pytest

from cgr.cli.shared.options import check_installed, names_in, numbers_in
from cgr.errors import UsageError


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("", ()), ("0.96,0.99", (0.96, 0.99)), ("1 2", (1, 2)), ("1, 2", (1, 2))],
)
def test_numbers(text: str, numbers: tuple[float, ...]) -> None:
    assert numbers_in(text) == numbers


def test_a_text_is_not_a_number() -> None:
    with pytest.raises(UsageError, match=r"'0\.9,high' is not a list of numbers"):
        numbers_in("0.9,high")


@pytest.mark.parametrize(("text", "names"), [("", ()), ("deer,eat", ("deer", "eat")), ("deer, eat", ("deer", "eat"))])
def test_names(text: str, names: tuple[str, ...]) -> None:
    assert names_in(text) == names


def test_a_missing_package_is_named_with_how_to_install_it() -> None:
    check_installed("json", "click")
    with pytest.raises(UsageError, match="This command needs no_such_package") as caught:
        check_installed("json", "no_such_package")
    assert "[lab]" in caught.value.hint
