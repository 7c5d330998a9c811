"""docs/reliability.json, and the table in docs/reliability.md that is made from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cgr.files import write_text
from torture.knocks import Knock, Outcome

DOCS = Path(__file__).parent.parent / "docs"
FIGURES, PAGE = DOCS / "reliability.json", DOCS / "reliability.md"
BEGIN, END = "<!-- the table: written by python -m torture --write -->", "<!-- end of the table -->"


def write(outcomes: Sequence[Outcome]) -> None:
    """Replace the figures of these knocks, and the table."""
    from torture.listing import known_knocks

    figures: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for one in outcomes:
        if not one.skipped:
            figures[one.knock] = {
                "seed": one.seed,
                "tried": one.tried,
                "lost": len(one.lost),
                "seen": dict(sorted(one.seen.items())),
            }
    knocks = known_knocks()
    kept = {knock.name: figures[knock.name] for knock in knocks if knock.name in figures}
    write_text(FIGURES, json.dumps(kept, indent=1) + "\n")
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    write_text(PAGE, f"{before}{BEGIN}\n{table(knocks, kept)}\n{END}{after}")


def table(knocks: Sequence[Knock], figures: dict[str, Any]) -> str:
    """The table of all knocks that were tried."""
    lines = ["| knock | what happens | what must hold | tried | lost | mended |", "|---|---|---|---:|---:|---:|"]
    for knock in knocks:
        if found := figures.get(knock.name):
            counts = f"{found['tried']:,} | {found['lost']} | {len(knock.mended)}"
            lines.append(f"| `{knock.name}` | {knock.what} | {knock.promise} | {counts} |")
    mended = [f"- `{knock.name}`: {one}" for knock in knocks for one in knock.mended]
    return "\n".join([*lines, "", "Mended:", "", *mended])
