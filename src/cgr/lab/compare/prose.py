"""A comparison in sentences: who does best by each measure, and what could not be compared."""

from __future__ import annotations

from collections.abc import Sequence

from cgr.lab.compare.result import ACCURACY, AREA, SAVING, Compared, Entry, Missing, Winner
from cgr.lab.store.config import in_words
from cgr.lab.types import Interval

LABELS = {
    SAVING: "Most tokens saved at equal accuracy",
    AREA: "Largest area under the frontier",
    ACCURACY: "Best accuracy",
}
NAMED = 3  # of the rules that cannot be told apart
MINUS = "−"


def label(measure: str) -> str:
    return LABELS.get(measure) or f"Best {measure.capitalize()}"


def value(parameter: str | None, at: float | None) -> str:
    """`threshold 0.99`; nothing for a rule without a parameter."""
    return "" if parameter is None or at is None else f"{parameter} {number(at)}"


def number(at: float) -> str:
    """A parameter's value, as short as it can be told."""
    return f"{at:,.0f}" if at == int(at) and abs(at) >= 1000 else f"{at:g}"


def percent(share: float) -> str:
    return _signed(f"{100 * share:.1f}") + "%"


def points(span: Interval) -> str:
    return f"[{', '.join(_signed(f'{100 * end:.1f}') for end in span)}]"


def _signed(text: str) -> str:
    return text.lstrip("-") if not text.strip("-0.") else text.replace("-", MINUS)


def sentences(compared: Compared) -> tuple[str, ...]:
    """One for each measure."""
    return tuple(f"{label(one.measure)}: {verdict(compared, one)}" for one in compared.winners)


def verdict(compared: Compared, winner: Winner) -> str:
    if winner.first is None or winner.figure is None:
        where = "where it was chosen and where it is shown" if compared.split.apart else "on these questions"
        return f"no rule; none is sure to stay within {-compared.margin:g} point of the baseline's accuracy {where}."
    best = compared.entry(winner.first)
    lead = f"{winner.first}, {percent(winner.figure)}{_chosen(best, winner.measure)}"
    if winner.second is None or winner.difference is None or winner.ci95_difference is None:
        return f"{lead}; no other rule comes into it."
    if winner.tied:
        return f"no clear winner; {lead}, leads, but its interval overlaps with {_some(winner.tied)}."
    ahead = f"{_signed(f'{100 * winner.difference:.1f}')} points {points(winner.ci95_difference)}"
    return f"{lead}; ahead of {winner.second} by {ahead}."


def _chosen(entry: Entry, measure: str) -> str:
    found = value(entry.parameter, entry.by(measure).value)
    return f" at {found}" if found else ""


def _some(names: tuple[str, ...]) -> str:
    if len(names) <= NAMED + 1:
        return in_words(names)
    return in_words([*names[:NAMED], f"{len(names) - NAMED} others"])


def lacking(missing: Sequence[Missing]) -> tuple[tuple[str, str], ...]:
    """Why rules are not there, or not at some values, and what to do about it; those with one reason together."""
    named: dict[tuple[str, str], list[str]] = {}
    for one in missing:
        where = f" at {', '.join(number(at) for at in one.values)}" if one.values else ""
        named.setdefault((one.why, one.hint), []).append(one.rule + where)
    return tuple((f"{in_words(names)}: {why}", hint) for (why, hint), names in named.items())


def how_chosen(compared: Compared) -> str:
    split = compared.split
    if not split.apart:
        return f"Parameters chosen and shown on the same {split.shown} questions."
    return f"Parameters chosen on {split.tuning} questions; what is shown is from the other {split.shown}."
