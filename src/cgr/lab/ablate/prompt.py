"""How a probe asks: the words before the answer, and whether the end tag goes before them.

The paper appends "Final Answer: \\boxed{" and leaves the thinking open. Each other way is a set of probes of its own on the
same traces. Where none of them is sure, the answer is the run's own, so that they differ in their stops and nothing else;
how accurate the end of the thinking is when asked in each way is shown apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cgr.errors import NotRecorded
from cgr.lab.ablate import rank as contenders
from cgr.lab.ablate.inputs import AblationInputs, stopping
from cgr.lab.ablate.rank import CHOSEN, HEADS, Contender, Way, contend
from cgr.lab.ablate.result import Ablated, Ablation
from cgr.lab.decide.columns import Columns
from cgr.lab.output.table import Head, Table
from cgr.lab.store.config import ProbeSet
from cgr.records import Record

TITLE = "How a probe asks"
CAPTION = "Other words before the answer, and the end tag before them or not: saved at equal accuracy, AUROC and ECE."
MISSING = "No other prefix and no other close_think was tried on these traces."
OTHER = "--close-think always --set closed"


@dataclass(frozen=True, slots=True)
class AskingRow(Record):
    """`ends`: the accuracy of the answers at the end of the thinking, asked for in this way."""

    probe_set: str
    prefix: str
    close_think: str
    ends: float
    contender: Contender


def ablate(evidence: AblationInputs) -> Ablated:
    names = asked_otherwise(evidence)
    if len(names) < 2:
        raise NotRecorded(MISSING, evidence.command(OTHER))
    every = evidence.together(names)
    pairs = [(evidence.sets[name], seen) for name, seen in zip(names, every, strict=True)]
    them = contend(every[0], [_way(*pair, every[0]) for pair in pairs], evidence.threshold)
    rows = tuple(_row(name, *pair, one) for name, pair, one in zip(names, pairs, them, strict=True))
    ends = Head("ends", "At the end", ".1f", 100, "%")
    heads = (Head("prefix", "Prefix"), Head("close_think", "close_think"), ends, *HEADS)
    lines = tuple((row.prefix, row.close_think, row.ends, *contenders.row(row.contender)) for row in rows)
    table = Table("asking", f"Over ways to ask, at a threshold of {evidence.threshold:g}", heads, lines)
    notes = (*evidence.without(names), CHOSEN)
    return Ablated(contenders.conclude(them), rows, table, lambda: contenders.draw(them, TITLE), CAPTION, notes)


def asked_otherwise(evidence: AblationInputs) -> list[str]:
    """The main set, then those of the same model that differ in words or tag; of some that ask alike, the first."""
    found: dict[tuple[str, str], str] = {}
    for name, one in evidence.on_grid().items():
        alike = replace(
            one.asking, prefix=evidence.main_set.asking.prefix, close_think=evidence.main_set.asking.close_think
        )
        if evidence.is_own(one) and alike == evidence.main_set.asking:
            found.setdefault((one.asking.prefix, one.asking.close_think), name)
    return list(found.values())


def _way(probe_set: ProbeSet, asked: Columns, own: Columns) -> Way:
    ends = {name: getattr(own, name) for name in ("final_certainty", "final_closed", "final_valid", "final_right")}
    seen = replace(asked, **ends)
    words, closes = probe_set.asking.prefix.strip(), probe_set.asking.close_think
    name = words if closes == "never" else f"{words} (close_think {closes})"
    return Way(name, seen, lambda level: stopping(seen, level))


def _row(name: str, probe_set: ProbeSet, seen: Columns, contender: Contender) -> AskingRow:
    ends = float(seen.final_right[seen.graded].mean())
    return AskingRow(name, probe_set.asking.prefix, probe_set.asking.close_think, ends, contender)


ABLATION = Ablation("asking", "Prefix and close_think", ablate)
