from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from cgr.errors import UsageError
from cgr.records import Probe, StopCause
from cgr.rules.actions import GIVE_UP, GO_ON, STOP, Action, ArrayDecisions
from cgr.rules.base import INTERVAL, Rule, Seen, rule
from cgr.rules.history import LEAST_EXAMPLES, STEPS, History, features, histories, history, hopeless_steps
from cgr.rules.level_rule import is_dry
from cgr.rules.limits import CERTAINTY, COUNT, Limits, parameter

AS_CERTAINTY = (0.0, 1.0, 0.0, 0.0, 0.0)
STATED = 3  # more weights, for where the answer stands in the thinking
NOT_STATED = (
    "the features `stated` were left out: the probes of this run do not say where their answers stand in the thinking "
    "(`cgr probe RUN --stated` adds it where token ids were recorded)"
)


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
    a logistic function (`answered`) of the certainty, of how long the answer has held, of the position, of how often the
    answer changed, and, with eight weights, of where the answer stands in the thinking. The share of the budget that
    stopping would save is a linear function (`left`) of the same. Without an answer there is a drought. The chance that no
    correct answer will come rises in steps (`hopeless`) with its length; the rest of the budget would be saved. The rule
    stops when the risk, 1 minus the chance, is at most `price` times the saving: with the answer, or after a drought with
    the last answer, if it closed (`then="give-up"`: without one). While the chance is below `near`, probes are `rare`
    intervals apart. `span`: the budget that all shares refer to; 0: the current budget. `low`: only certainties below it
    are a drought; 0: below `floor`. Unfitted, the chance is the certainty, the saving is a tenth, and no drought ends the
    thinking.
    """

    price: float = parameter(0.1, Limits(0))
    interval: int = parameter(INTERVAL, COUNT)
    rare: int = parameter(3, COUNT)
    near: float = parameter(0.8, CERTAINTY)
    floor: float = parameter(0.5, CERTAINTY)
    then: Literal["answer", "give-up"] = parameter("answer", Limits(options=("answer", "give-up")))
    low: float = parameter(0.0, CERTAINTY)
    span: int = parameter(0, Limits(0))
    answered: tuple[float, ...] = AS_CERTAINTY
    left: tuple[float, ...] = (0.1, 0.0, 0.0, 0.0, 0.0)
    hopeless: tuple[tuple[float, float], ...] = ()
    stop_text: ClassVar[str] = "more thinking was not worth its tokens"
    give_up_text: ClassVar[str] = "a correct answer became too unlikely"
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    main: ClassVar[str | None] = "price"
    grid: ClassVar[tuple[float, ...]] = (0.4, 0.3, 0.25, 0.2, 0.15, 0.125, 0.1, 0.085, 0.07, 0.06, 0.05, 0.035, 0.02, 0.01)
    allowed_loss: ClassVar[float | None] = 0.5
    learns: ClassVar[bool] = True
    any_position: ClassVar[bool] = True  # at irregular positions every probe is read, as if `rare` were 1

    def __post_init__(self) -> None:
        """Check the parameters, and make tuples of the lists that a file gives."""
        super().__post_init__()
        if self.low > self.floor:
            raise UsageError("The value of 'low' cannot be above that of 'floor'.", "Fit the rule: `cgr fit`.")
        known = (len(AS_CERTAINTY), len(AS_CERTAINTY) + STATED)
        for name, given in (("answered", self.answered), ("left", self.left)):
            if len(given) not in known or len(given) != len(self.answered):
                wrong = f"{name!r} takes {known[0]} or {known[1]} weights, as many as 'answered', not {len(given)}."
                raise UsageError(wrong, "Learn them with `cgr fit`.")
            if not all(map(math.isfinite, given)):
                raise UsageError(f"The weights in {name!r} must be numbers.", "Learn them with `cgr fit`.")
            object.__setattr__(self, name, tuple(map(float, given)))
        object.__setattr__(self, "hopeless", tuple((float(share), float(chance)) for share, chance in self.hopeless))

    @classmethod
    def upgraded(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        """A file of the first form of the rule has `hope`, the level of its droughts, after which it gave up."""
        given = dict(parameters)
        return {"low": given.pop("hope"), "then": "give-up"} | given if "hope" in given else given

    @property
    def probe_text(self) -> str:
        return f"probes at multiples of {self.interval} tokens"

    @property
    def sure_at(self) -> float | None:
        return self.low or self.floor

    def cut_below(self, seen: Seen) -> float | None:
        """After a drought the next answer may be given, however uncertain it is."""
        dry = Probe(seen.at, "", 0.0, closed=False)
        ends = self.then == "answer" and self._ends(*self.weigh(replace(seen, probes=(*seen.probes, dry))))
        return None if ends else self.sure_at

    def why(self, cause: StopCause, certainty: float = 0.0) -> str:
        return super().why("gave_up" if cause == "certainty" and certainty < self.floor else cause, certainty)

    @property
    def reads_stated(self) -> bool:
        return len(self.answered) > len(AS_CERTAINTY)

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
        if not self._ends(*self.weigh(seen)):
            return GO_ON
        if is_dry(seen.last, self.floor) and self.then == "give-up":
            return GIVE_UP
        return STOP if seen.last.closed else GO_ON

    def _ends(self, chance: Any, saving: Any) -> Any:
        """Whether stopping is worth its risk."""
        return (chance > 0) & (1 - chance <= self.price * saving)

    def weigh(self, seen: Seen) -> tuple[float, float]:
        """The chance that stopping at the newest probe loses nothing, and the share of the budget that it would save."""
        return self._weighed(history(seen.probes, self.floor, self.low or self.floor), seen.last.at)

    def _weighed(self, past: History, at: int) -> tuple[float, float]:
        span = self.span or STEPS * INTERVAL
        rest = max(1 - at / span, 0.0)
        if not past.strength:
            return max((chance for share, chance in self.hopeless if past.dry >= share * span > 0), default=0.0), rest
        values = features(past, at, span, stated=self.reads_stated)
        log_odds = max(-700.0, min(_sum(self.answered, values), 700.0))
        return 1 / (1 + math.exp(-log_odds)), min(max(_sum(self.left, values), 0.0), rest)

    @property
    def has_array_form(self) -> bool:
        return type(self).weigh is Calibrated.weigh and super().has_array_form

    def decide_all(self, recorded: Any) -> ArrayDecisions:
        self.check()
        without_price = replace(self, price=0.0)
        made, chance, saving, answered, missing_at = recorded.kept(without_price, lambda: without_price._paths(recorded))
        ends = made & self._ends(chance, saving)
        drought = ends & ~answered
        if self.then == "give-up":
            return ArrayDecisions(made, ends & answered, drought, missing_at=missing_at)
        return ArrayDecisions(made, ends & recorded.closed, made & False, whole=drought, missing_at=missing_at)

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
                if at not in places or (self.reads_stated and _lacks_stated(probes[at], self.floor)):
                    missing_at[row] = at
                    break
                walk = walk.after(probes[at], self.floor, self.low or self.floor)
                here = row, places[at]
                made[here], answered[here] = True, not is_dry(probes[at], self.floor)
                chance[here], saving[here] = self._weighed(walk, at)
                at = self._next(at, chance[here], known)
        return made, chance, saving, answered, missing_at

    @property
    def unfitted(self) -> bool:
        return not self.hopeless and self.answered == AS_CERTAINTY

    @property
    def fit_note(self) -> str:
        return NOT_STATED if self.answered != AS_CERTAINTY and not self.reads_stated else ""

    def learn(self, traces: Sequence[GradedTrace], budget: int, regression: Any) -> Self:
        """This rule with weights from these traces.

        Each probe with an answer is an example. For the chance it is good if stopping there loses nothing: its answer is
        right, or the final answer is wrong. For the saving its value is the rest of the thinking. Each trace is an example
        of how long its droughts were, and whether its final answer is wrong. Where answers stand in the thinking is used if
        every example says it.
        """
        found: list[tuple[History, int, bool, float]] = []
        droughts = []
        for trace in traces:
            pasts = histories(trace.probes, self.floor, self.low or self.floor)
            for probe, past, right in zip(trace.probes, pasts, trace.right, strict=False):
                if past.strength:
                    saved = (trace.tokens - probe.at) / budget
                    found.append((past, probe.at, right or not trace.final_right, saved))
            droughts.append(({past.dry for past in pasts}, not trace.final_right))
        rule = replace(self, span=budget, hopeless=hopeless_steps(droughts, budget, regression.isotonic))
        if len(found) < LEAST_EXAMPLES:
            return rule
        stated = all(past.stated is not None for past, *_ in found)
        values = [features(past, at, budget, stated=stated) for past, at, _, _ in found]
        answered = regression.logistic(values, [good for _, _, good, _ in found])
        return replace(rule, answered=answered, left=regression.linear(values, [saved for *_, saved in found]))


def _lacks_stated(probe: Probe, floor: float) -> bool:
    return probe.stated is None and not is_dry(probe, floor)


def _sum(weights: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(weight * value for weight, value in zip(weights, values, strict=True))
