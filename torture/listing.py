"""All knocks, in the order in which they are tried."""

from __future__ import annotations

from torture import damage
from torture.kills import kill
from torture.knocks import Knock


def known_knocks() -> list[Knock]:
    """Every knock."""
    return [kill, damage.cut, damage.flip, damage.newer]
