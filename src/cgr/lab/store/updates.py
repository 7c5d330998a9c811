"""What may be added to stored probes after they were made."""

from __future__ import annotations

import json
from collections.abc import Mapping

from cgr.lab.store import Key, Store

SET_STATED = (
    "UPDATE probes SET stated = ? WHERE at = ? AND probing = (SELECT p.id FROM probings p "
    "JOIN probe_sets s ON s.id = p.probe_set WHERE s.name = ? AND p.trace = ?)"
)


def set_stated(store: Store, key: Key, probe_set: str, found: Mapping[int, tuple[int, int]]) -> None:
    """Set `Probe.stated` of the probes of a trace, by position, in one transaction."""
    trace = store._trace_id(key)
    with store.at_once():
        store._db.executemany(SET_STATED, [(json.dumps(one), at, probe_set, trace) for at, one in found.items()])
