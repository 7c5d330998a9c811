"""A JSON object that is read field by field; what is missing, unknown or of the wrong kind is said by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cgr.errors import UnknownName, UsageError

SLACK = 1e-6  # rounding may lift a probability a hair above 1


class Fields:
    """Optional fields have defaults, given where they are read; required ones are there, or this is refused."""

    def __init__(self, value: Any, what: str, required: Sequence[str] = (), optional: Sequence[str] = ()) -> None:
        if not isinstance(value, dict):
            raise UsageError(f"a {what} must be an object, not {shown(value)}.")
        known = (*required, *optional)
        for name in required:
            if name not in value:
                raise UsageError(f"there is no {name}.", f"A {what} needs {', '.join(required)}.")
        for name in value:
            if name not in known:
                raise UsageError(f"a {what} has no field {name!r}.", UnknownName.among("field", name, known).hint)
        self.values: dict[str, Any] = value

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str, default: str = "") -> str:
        """A whole number is taken for its digits: many write their answers so."""
        value = self.values.get(name, default)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str):
            raise UsageError(f"{name} must be a text, not {shown(value)}.")
        return value

    def whole(self, name: str, default: int = 0, least: int | None = 0) -> int:
        return whole(self.values.get(name, default), name, least)

    def number(self, name: str, default: float = 0.0) -> float:
        return number(self.values.get(name, default), name)

    def share(self, name: str) -> float:
        return share(self.values.get(name), name)

    def truth(self, name: str, default: bool = False) -> bool:
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise UsageError(f"{name} must be true or false, not {shown(value)}.")
        return value

    def among(self, name: str, known: Iterable[str]) -> Any:
        value = self.values.get(name)
        if value not in (names := tuple(known)):
            raise UsageError(f"{name} must be {' or '.join(names)}, not {shown(value)}.")
        return value

    def many(self, name: str) -> list[Any]:
        value = self.values.get(name, [])
        if not isinstance(value, list):
            raise UsageError(f"{name} must be a list, not {shown(value)}.")
        return value

    def shares(self, name: str) -> tuple[float, ...]:
        return tuple(share(value, name) for value in self.many(name))

    def numbers(self, name: str) -> tuple[float, ...]:
        return tuple(number(value, name) for value in self.many(name))

    def ids(self, name: str) -> tuple[int, ...]:
        return tuple(whole(value, name, 0) for value in self.many(name))


def whole(value: Any, name: str, least: int | None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        at_least = "" if least is None else f" of {least} or more"
        raise UsageError(f"{name} must be a whole number{at_least}, not {shown(value)}.")
    return value


def number(value: Any, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UsageError(f"{name} must be a number, not {shown(value)}.")
    return float(value)


def share(value: Any, name: str) -> float:
    found = number(value, name)
    if not 0 <= found <= 1 + SLACK:
        raise UsageError(f"{name} must be from 0 to 1, not {shown(value)}.")
    return min(found, 1.0)


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
