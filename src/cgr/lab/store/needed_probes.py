"""Which probe sets a rule needs, and whether a run has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from cgr.errors import UnknownName
from cgr.lab.store.config import ALL, Asking, ProbeRequest, ProbeSet, RunConfig
from cgr.rules import Rule, Seen, known_rules, make_rule
from cgr.rules.base import rule_class


def requests_of(rule: Rule) -> tuple[ProbeRequest, ...]:
    """The probe sets that a rule reads: its own and, if that holds no answers, one with answers at the same positions."""
    if not rule.thinks:
        return (ProbeRequest("start", close_think="always"),)
    first = rule.next_probe(Seen(0))
    if first is None:
        return ()
    asks, where = rule.probe_style, rule.place or "interval"
    interval = getattr(rule, "interval", first) if rule.place is None else None
    own = ProbeRequest(where, interval, **asdict(asks) | {"reads": asks.reads or "answer"}, anywhere=rule.any_position)
    return (own,) if rule.answers else (own, ProbeRequest(where, interval, close_think="always"))


def requests_for(
    names: Iterable[str], config: RunConfig, stored: Iterable[ProbeSet] = (), interval: int | None = None
) -> list[ProbeRequest]:
    """The requests for every probe set that these rules (or `all`) read, each once.

    A suitable set of the run (`stored`) is continued in place of a new one; imported probes at irregular positions are
    complete. Rules without probes are skipped, and so are rules that need another run (forced, or with log-probabilities of
    the thinking). `interval`: for rules that leave it open; by default that of the run.
    """
    known, sets = known_rules(), [*stored]
    chosen = [one for name in names for one in (known if name == ALL else [name])]
    found: dict[ProbeRequest, None] = {}
    for name in chosen:
        if name not in known:
            raise UnknownName.among("rule", name, [*known, ALL])
        rule = rule_at_interval(name, interval or config.probe_interval)
        for request in () if rule.forces else requests_of(rule):
            suitable = next((one for one in sets if satisfies(one, request, config)), None)
            if suitable is None:
                suitable = ProbeSet(request.where, request.interval or 0, request.asking(config.asking))
                sets.append(suitable)
            if suitable.where != "anywhere" or suitable.interval:
                found[ProbeRequest.matching(suitable)] = None
    return [*found]


def rule_at_interval(name: str, interval: int) -> Rule:
    """A rule by name, with this interval if it has one."""
    known = rule_class(name).parameters()
    return make_rule(name, **({"interval": interval} if "interval" in known and interval >= 1 else {}))


def satisfies(stored: ProbeSet, request: ProbeRequest, config: RunConfig) -> bool:
    """Whether a set holds the requested probes: the same options, at all of the positions.

    The aggregate does not matter: it is recomputed from the probabilities.
    """
    if _decoding_options(stored.asking) != _decoding_options(request.asking(config.asking)):
        return False
    return has_positions(stored, request, config)


def has_positions(stored: ProbeSet, request: ProbeRequest, config: RunConfig) -> bool:
    """Whether a set has probes at all of the requested positions."""
    if stored.where == "anywhere":
        return request.where == "interval" and request.anywhere
    if request.where != "interval" or stored.where != "interval":
        return stored.where == request.where
    return stored.interval > 0 and (request.interval or config.probe_interval) % stored.interval == 0


def _decoding_options(asking: Asking) -> tuple[object, ...]:
    """The options that change what a probe decodes. Unknown ones count as the usual ones."""
    known = asking.known()
    return known.prefix, known.max_answer_tokens, known.reads, known.close_think == "always"
