"""The values that a parameter of a rule may have."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from cgr.errors import UnknownName, UsageError


@dataclass(frozen=True, slots=True)
class Limits:
    """The values that a parameter may have: from `low` to `high`, with `above` not `low` itself, or one of `options`."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.options:
            return " or ".join(self.options)
        least = "" if self.low == -math.inf else f"{'more than' if self.above else 'at least'} {self.low:g}"
        most = "" if self.high == math.inf else f"at most {self.high:g}"
        return " and ".join(part for part in (least, most) if part)

    def check(self, name: str, value: Any) -> None:
        """Raise `UsageError` if the value is not allowed."""
        if self.options and value not in self.options:
            raise UnknownName.among(f"value of {name}", str(value), self.options)
        if not self.options and not isinstance(value, Real):
            raise UsageError(f"The value of {name} cannot be {value!r}.", "Use a number.")
        if not self.options and (not self.low <= value <= self.high or (self.above and value == self.low)):
            raise UsageError(f"The value of {name} cannot be {value:g}.", f"Use {str(self) or 'a number'}.")


def parameter(default: Any, limits: Limits | None = None, *, style: str = "") -> Any:
    """A field of a rule whose value is checked, unless it is None. `style`: the value is this field of the probe style."""
    return field(default=default, metadata={"limits": limits, "style": style})


CERTAINTY, SHARE, COUNT = Limits(0, 1), Limits(0, 1, above=True), Limits(1)
