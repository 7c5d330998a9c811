"""What rules need recorded, beyond what every run holds: which sets of probes each of them reads."""

from __future__ import annotations

from collections.abc import Iterable

from cgr.errors import UnknownName
from cgr.lab.record.probe import ProbeRequest
from cgr.lab.store.config import Asking, ProbeSet, RunConfig
from cgr.records import Probe
from cgr.rules import KeepThinking, Rule, Seen, known_rules, make_rule

ALL = "all"


def asked_by(rule: Rule) -> tuple[ProbeRequest, ...]:
    """The sets of probes that a rule reads: its own, and, if those hold no answer, one with the answers at its places."""
    if not rule.thinks:
        return (ProbeRequest("start", close_think="always"),)
    first = rule.next_probe(Seen(0))
    if first is None:
        return ()
    ways, where = rule.probe_style, rule.place or "interval"
    interval = getattr(rule, "interval", first) if rule.place is None else None
    tokens, reads = ways.max_answer_tokens, ways.reads or "answer"
    own = ProbeRequest(where, interval, ways.prefix, ways.close_think, tokens, ways.aggregate, reads=reads)
    return (own,) if rule.answers else (own, ProbeRequest(where, interval, close_think="always"))


def wishes_for(
    names: Iterable[str], config: RunConfig, there: Iterable[ProbeSet] = (), interval: int | None = None
) -> list[ProbeRequest]:
    """What these rules (or `all`) need recorded in a run, each set once; one that serves and is `there` is gone on with.

    Rules that need no probes are passed over, and so are those that need another run (forced, or with log-probabilities of
    the thinking): they say so when they are asked. `interval`: for rules that leave it open; by default, the run's.
    """
    known, kept = known_rules(), [*there]
    chosen = [one for name in names for one in (known if name == ALL else [name])]
    found: dict[ProbeRequest, None] = {}
    for name in chosen:
        if name not in known:
            raise UnknownName.among("rule", name, [*known, ALL])
        rule = on_grid(name, interval or config.interval)
        for wish in () if forces(rule) else asked_by(rule):
            serving = next((one for one in kept if serves(one, wish, config)), None)
            if serving is None:
                serving = ProbeSet(wish.where, wish.interval or 0, wish.asking(config.asking))
                kept.append(serving)
            found[_wish(serving)] = None
    return [*found]


def _wish(there: ProbeSet) -> ProbeRequest:
    asking = there.asking
    return ProbeRequest(
        there.where,
        there.interval or None,
        asking.prefix,
        asking.close_think,
        asking.max_answer_tokens,
        asking.aggregate,
        reads=asking.reads,
    )


def on_grid(name: str, interval: int) -> Rule:
    """A rule that asks every so many tokens, if it leaves open how many; else as it is."""
    known = known_rules()[name].parameters()
    return make_rule(name, **({"interval": interval} if "interval" in known and interval >= 1 else {}))


def serves(there: ProbeSet, wish: ProbeRequest, config: RunConfig) -> bool:
    """Whether a set holds what is wished for: the same way of asking, at all of the places. The aggregate is no matter: it
    is computed anew from the probabilities."""
    if way(there.asking) != way(wish.asking(config.asking)):
        return False
    if there.where == "anywhere":
        return wish.where == "interval"
    if wish.where != "interval" or there.where != "interval":
        return there.where == wish.where
    return there.interval > 0 and (wish.interval or config.interval) % there.interval == 0


def way(asking: Asking) -> tuple[object, ...]:
    """What tells one way of asking at a probe from another."""
    return asking.prefix, asking.max_answer_tokens, asking.reads, asking.close_think == "always"


def forces(rule: Rule) -> bool:
    """Whether it keeps a model thinking that wants to end and is not sure."""
    unsure = Seen(1, (Probe(1, "", 0.0, False),))
    return rule.forces or rule.bans_end or isinstance(rule.on_end(unsure), KeepThinking)
