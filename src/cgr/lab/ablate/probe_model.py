"""Another model to probe with, smaller than the one that thinks.

The paper allows for it and does not try it. The prober says when to stop, by its own certainty of its own answer; the
answer is then the generator's at that place. Beside it: what if the prober's answer were taken too. Its tokens count as any
others, and the generator's answer where it stops is paid as well; that it has to read the whole trace is said apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from cgr.errors import NotRecorded
from cgr.lab.ablate import rank as contenders
from cgr.lab.ablate.inputs import AblationInputs, stopping
from cgr.lab.ablate.rank import CHOSEN, HEADS, Contender, Way, contend
from cgr.lab.ablate.result import Ablated, Ablation
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.output.table import Head, Table
from cgr.records import Record

TITLE = "Who is asked"
CAPTION = "Another model as the prober: saved at equal accuracy, AUROC and ECE, beside the model that thinks."
MISSING = "No other model was asked about these traces."
READS = "A prober reads the whole trace as well, once; what it reads is not among the tokens here."
SMALLER = "embedded-prober"


@dataclass(frozen=True, slots=True)
class ProberRow(Record):
    """`answers`: whose answer is given at a stop."""

    probe_set: str
    prober: str
    answers: str
    contender: Contender


def ablate(evidence: AblationInputs) -> Ablated:
    names = others(evidence)
    if not names:
        raise NotRecorded(MISSING, evidence.command(f"--model {SMALLER} --set prober"))
    own, *seen = evidence.together([evidence.main, *names])
    kinds = [(evidence.main, evidence.run.config.model, "itself")]
    ways = [Way("the model itself", own, lambda level: stopping(own, level))]
    for name, one in zip(names, seen, strict=True):
        model = evidence.sets[name].model
        short = _short(model, name, evidence)
        kinds += [(name, short, "the generator"), (name, short, "the prober")]
        ways += _ways(short, own, one)
    them = contend(own, ways, evidence.threshold)
    rows = tuple(ProberRow(*kind, one) for kind, one in zip(kinds, them, strict=True))
    heads = (Head("prober", "Prober"), Head("answers", "Whose answer"), *HEADS)
    lines = tuple((row.prober, row.answers, *contenders.row(row.contender)) for row in rows)
    table = Table("prober", f"Over probing models, at a threshold of {evidence.threshold:g}", heads, lines)
    notes = (*evidence.without([evidence.main, *names]), READS, CHOSEN)
    return Ablated(contenders.conclude(them), rows, table, lambda: contenders.draw(them, TITLE), CAPTION, notes)


def others(evidence: AblationInputs) -> list[str]:
    return [name for name, one in evidence.on_grid().items() if not evidence.is_own(one)]


def _short(model: str, name: str, evidence: AblationInputs) -> str:
    """A file by its name; with the set's own name where one model was asked in several ways."""
    short = PurePath(model).name
    alike = sum(evidence.sets[one].model == model for one in others(evidence))
    return short if alike == 1 else f"{short} ({name})"


def _ways(prober: str, own: Columns, seen: Columns) -> Sequence[Way]:
    says_when = replace(seen, right=own.right & seen.present)
    return (
        Way(f"{prober} says when", says_when, lambda level: answered_by(own, stopping(seen, level))),
        Way(f"{prober} answers too", seen, lambda level: stopping(seen, level)),
    )


def answered_by(own: Columns, decided: Decisions) -> Decisions:
    """The same stops, with the generator's answer at each; what that answer took is paid on top."""
    wanted = np.unique(decided.at[decided.sure])
    if not wanted.size:
        return decided
    place = own.on_grid(wanted)[np.arange(len(own)), np.minimum(np.searchsorted(wanted, decided.at), len(wanted) - 1)]
    if (lacking := decided.sure & (place < 0)).any():
        at = int(decided.at[np.argmax(lacking)])
        raise NotRecorded(f"The generator was not asked at token {at}, where the prober was.", "cgr probe RUN")
    rows = np.arange(len(own))
    return replace(
        decided,
        certainty=np.where(decided.sure, own.certainty[rows, place], decided.certainty),
        closed=np.where(decided.sure, own.closed[rows, place], decided.closed),
        right=np.where(decided.sure, own.right[rows, place], decided.right),
        probe_tokens=decided.probe_tokens + np.where(decided.sure, own.decoded[rows, place], 0),
        suffix_tokens=decided.suffix_tokens + np.where(decided.sure, own.suffix[rows, place], 0),
    )


ABLATION = Ablation("prober", "A separate probing model", ablate)
