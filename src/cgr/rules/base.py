"""Stopping rules: what a rule sees, what it may override, its parameters, and how rules are registered and made by name.

A rule is a frozen dataclass. Its fields are its parameters. It keeps no state: all that it may use is in `Seen`, so the
same rule makes the same decision live and on a recording.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import entry_points
from typing import Any, ClassVar, Self, TypeVar

from cgr.errors import UnknownName, UsageError
from cgr.probing import ProbeStyle
from cgr.records import Probe, StopCause
from cgr.rules.actions import GO_ON, Action, KeepThinking
from cgr.rules.marks import Place

ENTRY_POINTS = "cgr.rules"
INTERVAL = 1000
THRESHOLD = 0.99


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


AT_MARKS = {"wait": 'a probe before each "Wait" or "Alternatively"', "paragraph": "a probe after each paragraph"}
ENDINGS: dict[StopCause, str] = {"end_of_thinking": "the model ended its thinking", "budget": "the budget was spent"}
DECIDING = ("next_probe", "on_thought", "on_probe", "on_end")  # the methods that make up a decision


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The rule that never intervenes. Other rules override what they need.

    `needs`: what an engine must provide or a recording must hold. `probes_at_end`: probe when the model ends its thinking.
    `thinks`: False for a rule that answers without thinking. `place`: probe at these marks in the thinking, from the
    position that `next_probe` returns. `answers`: False if probes hold no answer; the model is then asked for one after a
    stop. `inspect_every`: call `on_thought` after this many thinking tokens; 0: never. `style`: how probes ask, where that
    differs from the settings.

    `any_position`: the rule has no positions of its own to choose, so a recording with probes at irregular positions can
    decide it by all of them. False for a rule with a `next_probe` of its own, unless it says otherwise.

    `main`: the parameter that trades tokens for accuracy; `grid`: its values in a comparison, the most cautious last.
    `allowed_loss`: the points that the value chosen for it may lose where it is chosen; None: that accuracy is equal must
    be shown there. `sweeps_budget`: a comparison varies the budget instead. `learns`: the rule has weights, see `learn`.
    `stop_text` and `give_up_text`: why it stops or gives up, in words after "because", with parameters in braces.
    `example`: options for an example of `cgr solve`, if the main parameter is not enough.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    probes_at_end: ClassVar[bool] = False
    thinks: ClassVar[bool] = True
    main: ClassVar[str | None] = None
    grid: ClassVar[tuple[float, ...]] = ()
    allowed_loss: ClassVar[float | None] = None
    sweeps_budget: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    place: ClassVar[Place | None] = None
    any_position: ClassVar[bool] = False
    answers: ClassVar[bool] = True
    inspect_every: ClassVar[int] = 0
    style: ClassVar[ProbeStyle] = ProbeStyle()
    stop_text: ClassVar[str] = "the rule decided to stop"
    give_up_text: ClassVar[str] = "the rule gave up"
    example: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Check the parameters that were declared with `parameter`."""
        for one in fields(self):
            limits, value = one.metadata.get("limits"), getattr(self, one.name)
            if limits is not None and value is not None:
                limits.check(f"{one.name!r} of {getattr(self, 'name', type(self).__name__)!r}", value)

    @property
    def probe_style(self) -> ProbeStyle:
        """How its probes ask, where that differs from the settings."""
        own = {one.metadata["style"]: getattr(self, one.name) for one in fields(self) if one.metadata.get("style")}
        return replace(self.style, **own)

    asks = probe_style  # the former name; rules that override it still work

    def __init_subclass__(cls) -> None:
        for name in ("probe_style", "asks"):
            setattr(cls, name, vars(cls).get("asks", cls.probe_style))
        if "next_probe" in vars(cls) and "any_position" not in vars(cls):
            cls.any_position = False

    @property
    def probe_text(self) -> str:
        """Where the rule probes, in words."""
        first = self.next_probe(Seen(0)) if self.thinks else None
        return "no probes" if first is None else AT_MARKS[self.place] if self.place else f"a probe every {first} tokens"

    def why(self, cause: StopCause, certainty: float = 0.0) -> str:
        """Why the thinking stopped after a probe of this certainty, in words after "because"."""
        if cause in ENDINGS:
            return ENDINGS[cause] if self.thinks else "this rule does not let the model think"
        text = self.stop_text if cause == "certainty" else self.give_up_text
        filled = text.format(**{one.name: getattr(self, one.name) for one in fields(self)})
        return re.sub(r"^1 probes in a row (were|had|gave)", r"1 probe \1", filled).replace("1 probe were", "1 probe was")

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
    def needs_grid(self) -> bool:
        """Whether the rule chooses its own positions, so that probes at irregular positions cannot decide it."""
        chooses = self.thinks and self.place is None and not self.any_position
        return chooses and self.next_probe(Seen(0)) is not None

    @property
    def sure_at(self) -> float | None:
        """A probe below this certainty changes nothing, so an engine may stop decoding it early. None: there is none."""
        return None

    def cut_below(self, seen: Seen) -> float | None:
        """The same for the next probe, made at `seen.at`. None also where even an uncertain answer may be the answer."""
        return self.sure_at

    @property
    def reads_stated(self) -> bool:
        """Whether the rule reads `Probe.stated`: where answers stand in the thinking."""
        return False

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

    def on_recording(self, recorded: Any) -> Self:
        """The rule with what it derives from the arrays of a recording, without known answers; by default unchanged."""
        return self

    def within(self, budget: int) -> Self:
        """This rule with the parameters filled in that depend on the budget."""
        return self

    @property
    def has_array_form(self) -> bool:
        """Whether `decide_all` makes the same decisions as the loop. It does, unless a subclass changes how the class that
        wrote `decide_all` decides: such a rule is replayed by the loop."""
        author: type[Rule] = next(cls for cls in type(self).__mro__ if "decide_all" in vars(cls))
        methods = all(getattr(type(self), name) is getattr(author, name) for name in DECIDING)
        values = all(getattr(self, name) == getattr(author, name) for name in ("probes_at_end", "thinks", "inspect_every"))
        return methods and values and not self.bans_end and self.needs <= {"logprobs", *author.needs}

    def decide_all(self, recorded: Any) -> Any:
        """The `ArrayDecisions` on all traces (`cgr.lab.decide.arrays.ProbeArrays`) at once. None: it never intervenes."""
        return None

    def candidates(self, budget: int) -> Iterable[Self]:
        """Variants from which a fit takes the one with the best Grade; if there are none, it fits the main parameter."""
        return ()

    @property
    def unfitted(self) -> bool:
        """Whether the rule has weights and they were not learned yet."""
        return False

    @property
    def fit_note(self) -> str:
        """What a user should know about how the weights were learned; empty: nothing."""
        return ""

    def learn(self, traces: Sequence[Any], budget: int, regression: Any) -> Self:
        """This rule with weights from these traces (`GradedTrace`). `regression`: the module `cgr.lab.fit.regression`."""
        return self

    @classmethod
    def summary(cls) -> str:
        """The first sentence of the docstring, shown by `cgr rules`."""
        return (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """The parameters and their defaults."""
        return {field.name: field.default for field in fields(cls)}

    @classmethod
    def upgraded(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        """Parameters that an older version of the rule wrote to a file, as those of this version."""
        return parameters


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
            found = entry.load()
            if not (isinstance(found, type) and issubclass(found, Rule)):
                hint = "It must name a subclass of cgr.rules.Rule."
                raise UsageError(f"The entry point {entry.name!r} is not a rule.", hint)
            rule(entry.name)(found)
    return dict(sorted(_rules.items()))


def rule_class(name: str) -> type[Rule]:
    """The class of a rule by name. Installed packages are searched only for a name that is not known yet."""
    if name in _rules:
        return _rules[name]
    rules = known_rules()
    if name not in rules:
        raise UnknownName.among("rule", name, rules)
    return rules[name]


def make_rule(name: str, **parameters: Any) -> Rule:
    """A rule by name. Parameters that are None keep their defaults; unknown ones are refused."""
    cls = rule_class(name)
    given = cls.upgraded({key: value for key, value in parameters.items() if value is not None})
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
