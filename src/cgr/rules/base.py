"""Stopping rules: what a rule sees, what it may do, and how rules are registered and made by name.

A rule is a frozen dataclass. Its fields are its parameters. It keeps no state: all that it may use is in `Seen`, so the
same rule makes the same decision live and on a recording.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import entry_points
from typing import Any, ClassVar, Self, TypeVar

from cgr.errors import UnknownName, UsageError
from cgr.probing import ProbeStyle
from cgr.records import Probe
from cgr.rules.marks import Place

ENTRY_POINTS = "cgr.rules"
WAIT = "\nWait"
INTERVAL = 1000
THRESHOLD = 0.99
FORCINGS = ("replace", "ban")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a rule may look at: the position `at` in thinking tokens, the probes so far, and how often the end tag was
    replaced (`forced`).

    `tops`: for each thinking token the mean of its 20 highest log-probabilities, for rules with `inspect_every`. `ids`: the
    thinking tokens, for rules that need `token_ids`; -1 for tokens that were written in place of the end tag.
    """

    at: int
    probes: tuple[Probe, ...] = ()
    forced: int = 0
    tops: tuple[float, ...] = ()
    ids: tuple[int, ...] = ()

    @property
    def last(self) -> Probe:
        """The newest probe."""
        return self.probes[-1]


@dataclass(frozen=True, slots=True)
class GoOn:
    """Continue thinking. At the end of thinking: let it end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop thinking. The last probe's answer is the answer; if probes hold no answer, the model is asked for one."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop thinking, without an answer."""


@dataclass(frozen=True, slots=True)
class KeepThinking:
    """Do not let thinking end: write `text` in place of the end tag."""

    text: str = WAIT


Action = GoOn | Stop | GiveUp | KeepThinking
GO_ON, STOP, GIVE_UP = GoOn(), Stop(), GiveUp()


@dataclass(frozen=True, slots=True)
class Limits:
    """The values that a parameter may have: from `low` to `high`, with `above` not `low` itself, or one of `options`."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    options: tuple[str, ...] = ()

    def check(self, name: str, value: Any) -> None:
        """Raise `UsageError` if the value is not allowed."""
        if self.options and value not in self.options:
            raise UnknownName.among(f"value of {name}", value, self.options)
        if not self.options and (not self.low <= value <= self.high or (self.above and value == self.low)):
            least = f"{'more than' if self.above else 'at least'} {self.low:g}"
            most = "" if self.high == math.inf else f" and at most {self.high:g}"
            raise UsageError(f"The value of {name} cannot be {value:g}.", f"Use {least}{most}.")


def parameter(default: Any, limits: Limits | None = None, *, style: str = "") -> Any:
    """A field of a rule whose value is checked when the rule is made; None is not checked. `style`: the value is this field
    of the rule's probe style."""
    return field(default=default, metadata={"limits": limits, "style": style})


CERTAINTY, SHARE, COUNT = Limits(0, 1), Limits(0, 1, above=True), Limits(1)


DECIDING = ("next_probe", "on_thought", "on_probe", "on_end")  # the methods that make up a decision


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The rule that never intervenes. Other rules override what they need.

    `needs`: what an engine must provide or a recording must hold. `probes_at_end`: probe when the model ends its thinking.
    `thinks`: False for a rule that answers without thinking. `place`: probe at these marks in the thinking, from the
    position that `next_probe` returns. `answers`: False if probes hold no answer; the model is then asked for one after a
    stop. `inspect_every`: call `on_thought` after this many thinking tokens; 0: never. `style`: how probes ask, where that
    differs from the settings.

    `main`: the parameter that trades tokens for accuracy; `grid`: its values in a comparison, the most cautious last.
    `sweeps_budget`: a comparison varies the budget instead. `learns`: the rule has weights, see `learn`.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    probes_at_end: ClassVar[bool] = False
    thinks: ClassVar[bool] = True
    main: ClassVar[str | None] = None
    grid: ClassVar[tuple[float, ...]] = ()
    sweeps_budget: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    place: ClassVar[Place | None] = None
    answers: ClassVar[bool] = True
    inspect_every: ClassVar[int] = 0
    style: ClassVar[ProbeStyle] = ProbeStyle()

    def __post_init__(self) -> None:
        """Check the parameters that were declared with `parameter`."""
        for one in fields(self):
            limits, value = one.metadata.get("limits"), getattr(self, one.name)
            if limits is not None and value is not None:
                limits.check(f"{one.name!r} of {getattr(self, 'name', type(self).__name__)!r}", value)

    @property
    def probe_style(self) -> ProbeStyle:
        """How its probes ask, where that differs from the settings."""
        if type(self).asks is not Rule.asks:
            return self.asks
        own = {one.metadata["style"]: getattr(self, one.name) for one in fields(self) if one.metadata.get("style")}
        return replace(self.style, **own)

    @property
    def asks(self) -> ProbeStyle:
        """The former name of `probe_style`; rules that override it still work."""
        return self.probe_style

    @property
    def bans_end(self) -> bool:
        """Whether the end tag is forbidden while the model thinks."""
        return False

    @property
    def forces(self) -> bool:
        """Whether the rule keeps a model thinking that wants to end and is not certain."""
        unsure = Seen(1, (Probe(1, "", 0.0, False),))
        return self.bans_end or isinstance(self.on_end(unsure), KeepThinking)

    @property
    def sure_at(self) -> float | None:
        """A probe below this certainty changes nothing, so an engine may stop decoding it early. None: there is no such
        certainty."""
        return None

    def next_probe(self, seen: Seen) -> int | None:
        """The position of the next probe, after `seen.at`; None: no more probes."""
        return None if self.place is None else seen.at + 1

    def on_thought(self, seen: Seen) -> Action:
        """What to do after `inspect_every` more thinking tokens."""
        return GO_ON

    def on_probe(self, seen: Seen) -> Action:
        """What to do after the newest probe."""
        return GO_ON

    def on_end(self, seen: Seen) -> Action:
        """What to do when the model wants to end its thinking."""
        return GO_ON

    def check(self) -> None:
        """Raise `UsageError` if a parameter is missing that only the user can give."""

    def within(self, budget: int) -> Self:
        """This rule with the parameters filled in that depend on the budget."""
        return self

    @property
    def has_array_form(self) -> bool:
        """Whether `decide_all` makes the same decisions as the loop. It does, unless a subclass changes how the class that
        wrote `decide_all` decides: such a rule is replayed by the loop."""
        cls = type(self)
        author: type[Rule] = next(one for one in cls.__mro__ if "decide_all" in vars(one))
        kept = all(getattr(cls, name) is getattr(author, name) for name in DECIDING)
        values = ("probes_at_end", "thinks", "inspect_every")
        same = all(getattr(self, name) == getattr(author, name) for name in values)
        return kept and same and not self.bans_end and self.needs <= {"logprobs", *author.needs}

    def decide_all(self, recorded: Any) -> Any:
        """What this rule decides on all traces of a recording (`cgr.lab.decide.arrays.ProbeArrays`) at once, as
        `cgr.rules.level_rule.ArrayDecisions`. None: it never intervenes."""
        return None

    def candidates(self, budget: int) -> Iterable[Self]:
        """Variants of this rule from which a fit takes the one with the best Grade. None: its main parameter is fitted."""
        return ()

    @property
    def unfitted(self) -> bool:
        """Whether the rule has weights and they were not learned yet."""
        return False

    def learn(self, traces: Sequence[Any], budget: int, regression: Any) -> Self:
        """This rule with weights from these traces (`cgr.rules.calibrated.GradedTrace`). `regression`: the functions of
        `cgr.lab.fit.regression`."""
        return self

    @classmethod
    def summary(cls) -> str:
        """The first sentence of the docstring, shown by `cgr rules`."""
        return (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """The parameters and their defaults."""
        return {field.name: field.default for field in fields(cls)}


RuleType = TypeVar("RuleType", bound=type[Rule])
_rules: dict[str, type[Rule]] = {}


def rule(name: str) -> Callable[[RuleType], RuleType]:
    """Register a rule under a name: write `@rule("mine")` above the dataclass."""

    def register(cls: RuleType) -> RuleType:
        cls.name = name
        _rules[name] = cls
        return cls

    return register


def known_rules() -> dict[str, type[Rule]]:
    """All rules by name: built-in, registered by the decorator, and from entry points of installed packages."""
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name not in _rules:
            rule(entry.name)(_checked(entry.name, entry.load()))
    return dict(sorted(_rules.items()))


def _checked(name: str, found: object) -> type[Rule]:
    if isinstance(found, type) and issubclass(found, Rule):
        return found
    raise UsageError(f"The entry point {name!r} is not a rule.", "It must name a subclass of cgr.rules.Rule.")


def rule_class(name: str) -> type[Rule]:
    """The class of a rule by name."""
    rules = known_rules()
    if name not in rules:
        raise UnknownName.among("rule", name, rules)
    return rules[name]


def make_rule(name: str, **parameters: Any) -> Rule:
    """A rule by name. Parameters that are None keep their defaults; unknown ones are refused."""
    cls = rule_class(name)
    given = {key: value for key, value in parameters.items() if value is not None}
    for key in given:
        if key not in cls.parameters():
            raise UnknownName.among(f"parameter of {name}", key, cls.parameters())
    return cls(**given)


def next_multiple(at: int, interval: int) -> int:
    """The first multiple of the interval after this position."""
    return (at // interval + 1) * interval


def check_threshold(threshold: float) -> None:
    """Raise `UsageError` unless the threshold is a certainty."""
    if not 0 <= threshold <= 1:
        raise UsageError(f"A threshold of {threshold:g} is not a certainty.", "Choose one from 0 to 1, such as 0.99.")


def check_at_least_one(what: str, value: int) -> None:
    """Raise `UsageError` unless this number of tokens is 1 or more."""
    if value < 1:
        raise UsageError(f"The {what} cannot be {value} tokens.", f"Set the {what} to 1 token or more.")
