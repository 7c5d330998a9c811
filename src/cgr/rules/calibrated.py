from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, ClassVar, Self

from cgr.errors import UsageError
from cgr.records import Probe
from cgr.rules.actions import GIVE_UP, GO_ON, STOP, Action, ArrayDecisions
from cgr.rules.base import CERTAINTY, COUNT, INTERVAL, Limits, Rule, Seen, parameter, rule
from cgr.rules.level_rule import is_dry
from cgr.rules.same_answer import same_answer

STEPS = 32  # probes in the paper's budget: the unit of "how long the answer has held"
SUREST = 1 - 1e-4  # differences above this certainty mean nothing
LEAST_EXAMPLES = 20  # with fewer examples no weights are learned
AS_CERTAINTY = (0.0, 1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class History:
    """The probes so far. `strength`: the certainty of the newest probe, 0 if it is dry. `held`: thinking tokens since the
    current answer was first given without interruption. `changes`: how often the answer changed. `dry`: thinking tokens
    since the last probe with hope. `answer`: the newest one; `since`: where it was first given, None after a dry probe;
    `hope_at`: the last probe with hope."""

    strength: float = 0.0
    held: int = 0
    changes: int = 0
    dry: int = 0
    answer: str | None = field(default=None, compare=False)
    since: int | None = field(default=None, compare=False)
    hope_at: int = field(default=0, compare=False)

    def after(self, probe: Probe, floor: float, hope: float) -> History:
        """The history with one more probe. From `floor` on, a probe has an answer; below `hope`, it has no hope."""
        hope_at = self.hope_at if is_dry(probe, hope) else probe.at
        if is_dry(probe, floor):
            return History(0.0, 0, self.changes, probe.at - hope_at, self.answer, None, hope_at)
        changed = self.answer is not None and not same_answer(self.answer, probe.answer)
        since = probe.at if self.since is None or changed else self.since
        changes = self.changes + changed
        return History(probe.certainty, probe.at - since, changes, probe.at - hope_at, probe.answer, since, hope_at)


@dataclass(frozen=True, slots=True)
class GradedTrace:
    """A trace to learn from: its probes, whether each of them and the final answer is right, and its thinking tokens."""

    probes: Sequence[Probe]
    right: Sequence[bool]
    final_right: bool
    tokens: int


@rule("calibrated")
@dataclass(frozen=True, kw_only=True)
class Calibrated(Rule):
    """Stop when what more thinking may still gain is not worth its tokens; `cgr fit` learns both from other questions.

    A probe that closed with a certainty of at least `floor` has an answer. The chance that stopping there loses nothing is
    a logistic function (`answered`) of the certainty, of how long the answer has held, of the position, and of how often
    the answer changed. The share of the budget that stopping would save is a linear function (`left`) of the same. A probe
    below `hope` has no hope. The chance that no answer will come rises in steps (`hopeless`) with how long there was no
    hope; the rest of the budget would be saved. The rule stops when the risk, 1 minus the chance, is at most `price` times
    the saving: with the answer, or by giving up. While the chance is below `near`, probes are `rare` intervals apart.
    `span`: the budget that all shares refer to; 0: the current budget. Unfitted, the chance is the certainty, the saving is
    a tenth, and the rule never gives up.
    """

    price: float = parameter(0.1, Limits(0))
    interval: int = parameter(INTERVAL, COUNT)
    rare: int = parameter(3, COUNT)
    near: float = parameter(0.8, CERTAINTY)
    floor: float = parameter(0.5, CERTAINTY)
    hope: float = parameter(0.15, CERTAINTY)
    span: int = parameter(0, Limits(0))
    answered: tuple[float, ...] = AS_CERTAINTY
    left: tuple[float, ...] = (0.1, 0.0, 0.0, 0.0, 0.0)
    hopeless: tuple[tuple[float, float], ...] = ()
    stop_text: ClassVar[str] = "more thinking was not worth its tokens"
    give_up_text: ClassVar[str] = "a correct answer became too unlikely"
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    main: ClassVar[str | None] = "price"
    grid: ClassVar[tuple[float, ...]] = (0.4, 0.3, 0.25, 0.2, 0.15, 0.125, 0.1, 0.085, 0.07, 0.06, 0.05, 0.035, 0.02, 0.01)
    learns: ClassVar[bool] = True
    any_position: ClassVar[bool] = True  # at irregular positions every probe is read, as if `rare` were 1

    def __post_init__(self) -> None:
        """Check the parameters, and make tuples of the lists that a file gives."""
        super().__post_init__()
        if self.hope > self.floor:
            raise UsageError("The value of 'hope' cannot be above that of 'floor'.", "Fit the rule: `cgr fit`.")
        for name, given in (("answered", self.answered), ("left", self.left)):
            if len(given) != len(AS_CERTAINTY):
                wrong = f"{name!r} takes {len(AS_CERTAINTY)} weights, not {len(given)}."
                raise UsageError(wrong, "Learn them with `cgr fit`.")
            if not all(map(math.isfinite, given)):
                raise UsageError(f"The weights in {name!r} must be numbers.", "Learn them with `cgr fit`.")
            object.__setattr__(self, name, tuple(map(float, given)))
        object.__setattr__(self, "hopeless", tuple((float(share), float(chance)) for share, chance in self.hopeless))

    @property
    def probe_text(self) -> str:
        return f"probes at multiples of {self.interval} tokens"

    @property
    def sure_at(self) -> float | None:
        return self.hope

    def within(self, budget: int) -> Self:
        return self if self.span else replace(self, span=budget)

    def next_probe(self, seen: Seen) -> int | None:
        chance = self.weigh(seen)[0] if seen.probes and self.rare > 1 else 0.0
        return self._next(seen.at, chance)

    def _next(self, at: int, chance: float, known: Sequence[int] | None = None) -> int | None:
        """The next position to probe at, if the newest probe gave this chance. `known`: all positions, if they are
        irregular; None after the last."""
        if known is not None:
            place = bisect_right(known, at)
            return known[place] if place < len(known) else None
        return (at // self.interval + (self.rare if chance < self.near else 1)) * self.interval

    def on_probe(self, seen: Seen) -> Action:
        chance, saving = self.weigh(seen)
        if not chance or 1 - chance > self.price * saving:
            return GO_ON
        return GIVE_UP if seen.last.certainty < self.floor or not seen.last.closed else STOP

    def weigh(self, seen: Seen) -> tuple[float, float]:
        """The chance that stopping at the newest probe loses nothing, and the share of the budget that it would save."""
        return self._weighed(history(seen.probes, self.floor, self.hope), seen.last.at)

    def _weighed(self, past: History, at: int) -> tuple[float, float]:
        span = self.span or STEPS * INTERVAL
        rest = max(1 - at / span, 0.0)
        if not past.strength:
            return max((chance for share, chance in self.hopeless if past.dry >= share * span > 0), default=0.0), rest
        values = features(past, at, span)
        log_odds = max(-700.0, min(_sum(self.answered, values), 700.0))
        return 1 / (1 + math.exp(-log_odds)), min(max(_sum(self.left, values), 0.0), rest)

    @property
    def has_array_form(self) -> bool:
        return type(self).weigh is Calibrated.weigh and super().has_array_form

    def decide_all(self, recorded: Any) -> ArrayDecisions:
        self.check()
        without_price = replace(self, price=0.0)
        made, chance, saving, answered, missing_at = recorded.kept(without_price, lambda: without_price._paths(recorded))
        ends = made & (chance > 0) & (1 - chance <= self.price * saving)
        return ArrayDecisions(made, ends & answered, ends & ~answered, missing_at=missing_at)

    def _paths(self, recorded: Any) -> tuple[Any, ...]:
        """Arrays of shape (traces, probes) that do not depend on the price: the probes that are made if nothing stops the
        thinking, the chance and the saving at each, and whether it has an answer. For each trace, the position of a probe
        that is missing; -1: none."""
        made, answered = recorded.present & False, recorded.present & False
        chance, saving = made * 1.0, made * 1.0
        missing_at = made.sum(axis=1) - 1
        for row, trace in enumerate(recorded.read(False)):
            probes = {probe.at: probe for probe in trace.probes}
            places = {at: place for place, at in enumerate(recorded.at[row].tolist())}
            known = sorted(places) if recorded.irregular else None  # padding is at -1
            walk = History()
            at = self._next(0, 0.0, known)
            while at is not None and at <= trace.thinking_tokens and at < trace.budget:
                if at not in places:
                    missing_at[row] = at
                    break
                walk = walk.after(probes[at], self.floor, self.hope)
                here = row, places[at]
                made[here], answered[here] = True, not is_dry(probes[at], self.floor)
                chance[here], saving[here] = self._weighed(walk, at)
                at = self._next(at, chance[here], known)
        return made, chance, saving, answered, missing_at

    @property
    def unfitted(self) -> bool:
        return not self.hopeless and self.answered == AS_CERTAINTY

    def learn(self, traces: Sequence[GradedTrace], budget: int, regression: Any) -> Self:
        """This rule with weights from these traces.

        Each probe with an answer is an example. For the chance it is good if stopping there loses nothing: its answer is
        right, or the final answer is wrong. For the saving its value is the rest of the thinking. Each trace is an example
        of how long there was no hope, and whether its final answer is wrong.
        """
        rule, rows, droughts = replace(self, span=budget), [], []
        for trace in traces:
            pasts = histories(trace.probes, self.floor, self.hope)
            for probe, past, right in zip(trace.probes, pasts, trace.right, strict=False):
                if past.strength:
                    loses_nothing = right or not trace.final_right
                    rows.append((features(past, probe.at, budget), loses_nothing, (trace.tokens - probe.at) / budget))
            droughts.append(({past.dry for past in pasts}, not trace.final_right))
        rule = replace(rule, hopeless=hopeless_steps(droughts, budget, regression.isotonic))
        if len(rows) < LEAST_EXAMPLES:
            return rule
        values, good, saved = zip(*rows, strict=True)
        return replace(rule, answered=regression.logistic(values, good), left=regression.linear(values, saved))


def histories(probes: Sequence[Probe], floor: float, hope: float) -> list[History]:
    """The history after each of these probes."""
    return list(accumulate(probes, lambda past, probe: past.after(probe, floor, hope), initial=History()))[1:]


def history(probes: Sequence[Probe], floor: float, hope: float) -> History:
    """The history after all of these probes."""
    return histories(probes, floor, hope)[-1] if probes else History()


def features(past: History, at: int, span: int) -> tuple[float, ...]:
    """A constant, the certainty (log odds), how long the answer has held, the position, how often the answer changed."""
    strength = min(past.strength, SUREST)
    certainty = math.log(strength / (1 - strength))
    return 1.0, certainty, math.log1p(STEPS * past.held / span), math.log(at / span), math.log1p(past.changes)


def hopeless_steps(droughts: Sequence[tuple[set[int], bool]], span: int, isotonic: Any) -> tuple[tuple[float, float], ...]:
    """Steps (share of the budget without hope, chance that the trace ends wrong).

    `droughts`: for each trace, how long it had been without hope at each of its probes, and whether it ends wrong. The
    chance at a length is the share of wrong traces among those that reached it, made monotonic by `isotonic`. Half a trace
    of either kind is added, so that few traces never give a chance of 0 or 1.
    """
    longest = [(max(lengths, default=0), ends_wrong) for lengths, ends_wrong in droughts]
    lengths = sorted({length for found, _ in droughts for length in found if length})
    reached = [[wrong for most, wrong in longest if most >= length] for length in lengths]
    shares = [(sum(wrong) + 0.5) / (len(wrong) + 1) for wrong in reached]
    first: dict[float, float] = {}
    for length, chance in zip(lengths, isotonic(shares, [len(wrong) for wrong in reached]), strict=True):
        first.setdefault(round(chance, 9), length / span)
    return tuple((share, chance) for chance, share in first.items())


def _sum(weights: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(weight * value for weight, value in zip(weights, values, strict=True))
