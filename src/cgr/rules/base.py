"""What a rule is: from what has been seen so far to go on, stop, or keep thinking.

A rule is a frozen dataclass; its fields are its parameters and their defaults. It keeps no state: everything it may use is
in `Seen`, so that the same rule decides live and over a recording, and decides the same.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from importlib.metadata import entry_points
from typing import Any, ClassVar, Literal, Self, TypeVar

from cgr.errors import UnknownName, UsageError
from cgr.probing import Asks
from cgr.records import Probe
from cgr.rules.marks import Place

ENTRY_POINTS = "cgr.rules"
WAIT = "\nWait"
INTERVAL = 1000
THRESHOLD = 0.99
Forcing = Literal["replace", "ban"]


@dataclass(frozen=True, slots=True)
class Seen:
    """All that a rule may look at. `tops`: for each thinking token the mean of the 20 highest log-probabilities there, if
    the rule looks at them. `ids`: the thinking itself, if the rule needs `token_ids`; -1 for what was written into it."""

    at: int
    probes: tuple[Probe, ...] = ()
    forced: int = 0
    tops: tuple[float, ...] = ()
    ids: tuple[int, ...] = ()

    @property
    def last(self) -> Probe:
        return self.probes[-1]


@dataclass(frozen=True, slots=True)
class GoOn:
    """Think on; at the end of thinking: let it end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop here: the last probe's answer is the answer; a rule whose probes hold none has it asked for."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop here, and say that there is no answer: thinking on is not worth it."""


@dataclass(frozen=True, slots=True)
class KeepThinking:
    """Do not let thinking end: write this instead of the end tag."""

    text: str = WAIT


Action = GoOn | Stop | GiveUp | KeepThinking
GO_ON, STOP, GIVE_UP = GoOn(), Stop(), GiveUp()


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The rule that never interferes; others override what they need.

    `needs` names what an engine must give or a recording must hold. `probes_at_end` asks for a probe when the model wants
    to end its thinking. `bans_end` forbids the end tag while thinking. `thinks` is False for a rule that never thinks.
    `main` names the parameter that trades tokens for accuracy, and `grid` its values for a comparison, cautious ones last.

    `place`: ask at these marks in the thinking, from the position on that `next_probe` names. `answers` is False if a probe
    holds no answer: after a stop, the answer is asked for with the thinking closed. `inspect_every`: call
    `on_thought` after this many tokens of thinking; 0: never.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    probes_at_end: ClassVar[bool] = False
    thinks: ClassVar[bool] = True
    main: ClassVar[str | None] = None
    grid: ClassVar[tuple[float, ...]] = ()
    place: ClassVar[Place | None] = None
    answers: ClassVar[bool] = True
    inspect_every: ClassVar[int] = 0

    @property
    def asks(self) -> Asks:
        """How it asks, where it has a way of its own."""
        return Asks()

    @property
    def bans_end(self) -> bool:
        return False

    @property
    def sure_at(self) -> float | None:
        """The certainty below which a probe changes nothing, if there is one: lets the engine stop decoding early."""
        return None

    def next_probe(self, seen: Seen) -> int | None:
        """The next position after `seen.at` where a probe is wanted."""
        return None if self.place is None else seen.at + 1

    def on_thought(self, seen: Seen) -> Action:
        """What to do after `inspect_every` more tokens of thinking."""
        return GO_ON

    def on_probe(self, seen: Seen) -> Action:
        """What to do after the probe that is last in `seen`."""
        return GO_ON

    def on_end(self, seen: Seen) -> Action:
        """What to do when the model wants to end its thinking."""
        return GO_ON

    def check(self) -> None:
        """Refuse to begin without what it has to be told."""

    def within(self, budget: int) -> Self:
        """This rule under this budget: what it left open, as lengths of windows, is decided."""
        return self

    @classmethod
    def summary(cls) -> str:
        """The first sentence of the docstring: what `cgr rules` shows."""
        return (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        return {field.name: field.default for field in fields(cls)}


RuleType = TypeVar("RuleType", bound=type[Rule])
_rules: dict[str, type[Rule]] = {}


def rule(name: str) -> Callable[[RuleType], RuleType]:
    """Register a rule under a name: `@rule("mine")` above the dataclass is all it takes."""

    def register(cls: RuleType) -> RuleType:
        cls.name = name
        _rules[name] = cls
        return cls

    return register


def known_rules() -> dict[str, type[Rule]]:
    """Every rule by name: the built-in ones, those registered by a decorator, those of installed packages."""
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name not in _rules:
            rule(entry.name)(_checked(entry.name, entry.load()))
    return dict(sorted(_rules.items()))


def _checked(name: str, found: object) -> type[Rule]:
    if isinstance(found, type) and issubclass(found, Rule):
        return found
    raise UsageError(f"The entry point {name!r} is not a rule.", "It must name a subclass of cgr.rules.Rule.")


def make_rule(name: str, **parameters: Any) -> Rule:
    """A rule by name. Parameters that are None keep the rule's own defaults; those it does not have are refused."""
    rules = known_rules()
    if name not in rules:
        raise UnknownName.among("rule", name, rules)
    cls = rules[name]
    given = {key: value for key, value in parameters.items() if value is not None}
    for key in given:
        if key not in cls.parameters():
            raise UnknownName.among(f"parameter of {name}", key, cls.parameters())
    return cls(**given)


def read_parameters(name: str, given: Iterable[str]) -> dict[str, Any]:
    """Parameters of a rule as a person writes them: `agree=5`."""
    rules = known_rules()
    if name not in rules:
        raise UnknownName.among("rule", name, rules)
    known, hints, found = rules[name].parameters(), typing.get_type_hints(rules[name]), {}
    for one in given:
        key, equals, text = one.partition("=")
        if not (key and equals):
            raise UsageError(f"{one!r} sets nothing.", "Write it as in --set agree=5.")
        if key not in known:
            raise UnknownName.among(f"parameter of {name}", key, known)
        found[key] = _read(f"{key} of {name}", hints[key], text.strip())
    return found


def _read(what: str, hint: Any, text: str) -> Any:
    """A number for a parameter that is one, alone or beside None; several, with commas, for one that is several; else the
    text."""
    origin, kinds = typing.get_origin(hint), typing.get_args(hint) or (hint,)
    number = _truth if bool in kinds else float if float in kinds else int if int in kinds else str
    try:
        return tuple(map(number, text.split(","))) if origin is tuple else number(text)
    except ValueError as error:
        kind = "number" if number is float else "whole number" if number is int else "yes or no"
        raise UsageError(f"The {what} is a {kind}, not {text!r}.", "Write it as in --set agree=5.") from error


def _truth(text: str) -> bool:
    return ("no", "yes").index({"false": "no", "true": "yes"}.get(text.lower(), text.lower())) == 1


def next_multiple(at: int, interval: int) -> int:
    """The first multiple of the interval past this position."""
    return (at // interval + 1) * interval


def check_threshold(threshold: float) -> None:
    if not 0 <= threshold <= 1:
        raise UsageError(f"A threshold of {threshold:g} is not a certainty.", "Choose one from 0 to 1, such as 0.99.")


def check_at_least_one(what: str, value: int) -> None:
    if value < 1:
        raise UsageError(f"The {what} cannot be {value} tokens.", f"Set the {what} to 1 token or more.")
