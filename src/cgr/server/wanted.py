"""What a request says about probes: in the field `cgr`, in headers, or by an alias of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cgr.records import Message
from cgr.server.config import Mode
from cgr.server.faults import bad_field
from cgr.server.protocol import CgrOptions


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whether a request is to be probed and how. `asked`: it says so itself. `model`: without the alias. `recorded`: the
    messages, if it is answered plainly and recorded."""

    mode: Mode
    asked: bool
    model: str
    options: CgrOptions
    why: str = ""
    recorded: tuple[Message, ...] = ()


def body_mode(given: Any) -> Mode | None:
    """The mode that the field `cgr` of a body asks for."""
    if given is None:
        return None
    if given == "shadow":
        return "shadow"
    return "off" if given is False else "on"


def options_from_headers(headers: Mapping[str, str]) -> tuple[Mode | None, CgrOptions]:
    """`X-CGR`, `X-CGR-Threshold` and `X-CGR-Budget`."""
    text = headers.get("x-cgr", "").strip().lower()
    if text and text not in ("on", "off", "shadow"):
        raise bad_field("X-CGR", "The header X-CGR must be on, off or shadow.")
    threshold, budget = (headers.get(f"x-cgr-{name}") for name in ("threshold", "budget"))
    options = CgrOptions()
    if threshold is not None:
        options.threshold = to_number(threshold, "X-CGR-Threshold")
        if not 0 <= options.threshold <= 1:
            raise bad_field("X-CGR-Threshold", "The header X-CGR-Threshold must be between 0 and 1.")
    if budget is not None:
        if not budget.strip().isdecimal() or not 0 < int(budget) < 1 << 31:
            raise bad_field("X-CGR-Budget", "The header X-CGR-Budget must be a whole number of at least 1.")
        options.budget = int(budget)
    asked = text or ("on" if threshold is not None or budget is not None else None)
    return asked, options  # type: ignore[return-value]


def to_number(text: str, field: str) -> float:
    """A number in a text; an error names the field."""
    try:
        return float(text)
    except ValueError:
        raise bad_field(field, f"{field}: {text[:32]!r} is not a number.") from None
