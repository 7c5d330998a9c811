"""Shadow mode: a rule whose probes are made and whose stops are only noted."""

from __future__ import annotations

import dataclasses
from typing import Any

from cgr.records import Probe
from cgr.rules import GO_ON, STOP, Action, Rule, Seen

_shadows: dict[str, type[Any]] = {}


def shadowed(rule: Rule) -> Rule:
    """The same rule, which never intervenes; for one request."""
    kind = _shadows.get(rule.name) or _shadows.setdefault(rule.name, _shadow_class(type(rule)))
    shadow: Rule = kind(**{one.name: getattr(rule, one.name) for one in dataclasses.fields(rule)})
    object.__setattr__(shadow, "stops", [])  # a rule is frozen; this is a note beside it
    return shadow


def _shadow_class(kind: type[Rule]) -> type[Any]:
    """A subclass that never stops. It keeps how the rule probes; `on_end` allows the end, as the model wants it."""

    def note_stop(self: Any, seen: Seen) -> Action:
        if not self.stops and kind.on_probe(self, seen) == STOP:
            self.stops.append(seen.last)
        return GO_ON

    def never_stop(self: Any, seen: Seen) -> Action:
        return GO_ON

    changed = {"on_probe": note_stop, "on_thought": never_stop, "on_end": Rule.on_end, "bans_end": False}
    return dataclasses.dataclass(frozen=True, kw_only=True)(type(kind.__name__, (kind,), changed))


def noted_stop(rule: Rule) -> Probe | None:
    """The probe at which a shadowed rule would have stopped; None if it would not have, or is not shadowed."""
    stops: list[Probe] = getattr(rule, "stops", [])
    return stops[0] if stops else None
