"""The one loop. It reads like the paper's algorithms, and does no I/O.

`reason()` yields requests (`Think`, `Ask`, `Append`), is sent their results (`Thought`, `Probe`, a count), and returns a
`Decision`. It is driven by a live engine, a recording or a test; the decision is made here and nowhere else.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from cgr.errors import UnknownName, UsageError
from cgr.records import Decision, Probe, StopCause
from cgr.rules import GIVE_UP, STOP, Action, KeepThinking, Rule, Seen
from cgr.rules.marks import Place

AtEnd = Literal["answer", "abstain"]
POLICIES = ("answer", "abstain")
WRITTEN = -1  # in `Seen.ids`, a token that was written in place of the end tag


@dataclass(frozen=True, slots=True)
class Think:
    """Requests up to `tokens` more tokens of thinking, or, with `until`, as far as the next such mark if that is nearer."""

    tokens: int
    ban_end: bool = False
    until: Place | None = None


@dataclass(frozen=True, slots=True)
class Thought:
    """The result of `Think`: the number of tokens inside the tags, and whether the model then wanted to end. `marked`: the
    requested mark is here. `tops`: for each token the mean of the highest log-probabilities, if the rule inspects them.
    `ids`: the tokens themselves."""

    tokens: int
    ended: bool = False
    eos: bool = False
    marked: bool = False
    tops: tuple[float, ...] = ()
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """Requests a probe here, or the final answer after the cause `final`. `close_thinking`: the thinking is closed first.
    `cut_below`: decoding may stop once the certainty is below it. After the cause `certainty` a final answer is requested
    only if the probes hold no answer, or were made on another model."""

    at: int
    final: StopCause | None = None
    close_thinking: bool = False
    cut_below: float | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """Requests this text in place of the end tag, at most `at_most` tokens of it."""

    text: str
    at_most: int


Request = Think | Ask | Append
Reply = Thought | Probe | int


@dataclass(frozen=True, slots=True)
class Abstention:
    """When to abstain. Separate from the rule, since stopping and abstaining are different questions."""

    at_budget: AtEnd = "answer"
    at_end_of_thinking: AtEnd = "answer"
    threshold: float = 0.99

    def __post_init__(self) -> None:
        for policy in (self.at_budget, self.at_end_of_thinking):
            if policy not in POLICIES:
                raise UnknownName.among("abstention policy", policy, POLICIES)

    def abstains(self, cause: StopCause, final: Probe) -> bool:
        """Whether to give no answer after this cause with this final answer."""
        policy = self.at_budget if cause == "budget" else self.at_end_of_thinking
        sure = final.closed and final.certainty >= self.threshold
        return policy == "abstain" and not sure


def reason(
    rule: Rule,
    budget: int,
    abstention: Abstention = Abstention(),
    *,
    separate_prober: bool = False,
    positions: Sequence[int] | None = None,
) -> Generator[Request, Reply, Decision]:
    """Think, probe, and stop: when sure, when the model ends by itself, or when the budget is spent. `separate_prober`: the
    probes are made on another model; they say when to stop, and the model that thought is then asked for the answer.
    `positions`: probe here, in ascending order, in place of the rule's own positions; for recordings without a grid."""
    seen = Seen(at=0)
    limit = budget if rule.thinks else 0
    while seen.at < limit:
        due, until = _due(rule, seen, limit, positions)
        wanted = min(due - seen.at, rule.inspect_every or due)
        thought = cast(Thought, (yield Think(wanted, rule.bans_end, until)))
        seen = _with(seen, rule, thought)
        if rule.inspect_every and (action := rule.on_thought(seen)) in (STOP, GIVE_UP):
            return (yield from _settled(rule, seen, action, separate_prober))
        if thought.ended:
            if rule.probes_at_end:
                seen = yield from _probe(rule, seen)
            action = rule.on_end(seen)
            if action in (STOP, GIVE_UP):
                return (yield from _settled(rule, seen, action, separate_prober))
            if not isinstance(action, KeepThinking):
                return (yield from _answer(seen, "end_of_thinking", abstention, close_thinking=True, eos=thought.eos))
            written = cast(int, (yield Append(action.text, limit - seen.at)))
            if not written:
                raise UsageError(
                    f"The rule {rule.name!r} keeps thinking by writing nothing.", "Give it some text to write."
                )
            ids, tops = (*seen.ids, *(WRITTEN,) * written), (*seen.tops, *(math.nan,) * written)
            seen = replace(seen, at=seen.at + written, forced=seen.forced + 1, ids=ids, tops=tops)
        if (thought.marked or due <= seen.at) and seen.at < limit:
            seen = yield from _probe(rule, seen)
            action = rule.on_probe(seen)
            if action in (STOP, GIVE_UP):
                return (yield from _settled(rule, seen, action, separate_prober))
    return (yield from _answer(seen, "budget", abstention, close_thinking=not rule.thinks))


def _with(seen: Seen, rule: Rule, thought: Thought) -> Seen:
    """What the rule sees after this stretch of thinking; ids only for a rule that needs them."""
    ids = (*seen.ids, *thought.ids) if "token_ids" in rule.needs else ()
    return replace(seen, at=seen.at + thought.tokens, tops=(*seen.tops, *thought.tops), ids=ids)


def _due(rule: Rule, seen: Seen, limit: int, positions: Sequence[int] | None) -> tuple[int, Place | None]:
    """The position of the next probe, or the mark to stop at on the way."""
    due = rule.next_probe(seen)
    if rule.place is not None and due is not None:
        return limit, rule.place
    if positions is not None and due is not None:
        place = bisect_right(positions, seen.at)
        due = positions[place] if place < len(positions) else None
    return min(due or limit, limit), None


def _probe(rule: Rule, seen: Seen) -> Generator[Request, Reply, Seen]:
    """Probe here, unless this position was just probed."""
    if seen.probes and seen.last.at == seen.at:
        return seen
    probe = cast(Probe, (yield Ask(seen.at, cut_below=rule.cut_below(seen))))
    return replace(seen, probes=(*seen.probes, probe))


def _settled(rule: Rule, seen: Seen, action: Action, separate_prober: bool) -> Generator[Request, Reply, Decision]:
    """A sure probe's answer is the answer: nothing more is decoded, unless the probe holds no answer, was made on another
    model, or was not made at all. If the rule gave up, there is no answer."""
    if action == GIVE_UP:
        last = seen.last if seen.probes else Probe(seen.at, "", 0.0, closed=False)
        return _decision(seen, last, "gave_up", abstained=True)
    if rule.answers and seen.probes and not separate_prober:
        return _decision(seen, seen.last, "certainty")
    final = cast(Probe, (yield Ask(seen.at, final="certainty", close_thinking=not rule.answers)))
    return _decision(seen, final, "certainty", final=final)


def _answer(
    seen: Seen, cause: StopCause, abstention: Abstention, *, close_thinking: bool, eos: bool = False
) -> Generator[Request, Reply, Decision]:
    final = cast(Probe, (yield Ask(seen.at, final=cause, close_thinking=close_thinking)))
    abstained = abstention.abstains(cause, final)
    return _decision(seen, final, cause, abstained=abstained, final=final, eos=eos)


def _decision(seen: Seen, from_probe: Probe, cause: StopCause, abstained: bool = False, **more: Any) -> Decision:
    return Decision(
        stop_cause=cause,
        answer=None if abstained else from_probe.answer,
        certainty=from_probe.certainty,
        closed=from_probe.closed,
        abstained=abstained,
        thinking_tokens=seen.at,
        probes=seen.probes,
        forced=seen.forced,
        **more,
    )
