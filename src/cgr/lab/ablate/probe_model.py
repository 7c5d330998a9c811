"""Ablation of the probe model: a smaller model is probed instead of the one that thinks.

The paper allows for this and does not try it. The prober decides when to stop, by the certainty of its own answer. The
answer is then either the generator's at that position, whose tokens are paid too, or the prober's. The prober also has to
read the whole trace; that cost is named in a note and is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from cgr.errors import NotRecorded
from cgr.lab.ablate.inputs import AblationInputs, stopping
from cgr.lab.ablate.rank import Presentation, RankedVariant, Variant, rank
from cgr.lab.ablate.result import Ablation, AblationResult
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.output import Head
from cgr.records import Record

CAPTION = "Another model as the prober, beside the model that thinks: saving at equal accuracy, AUROC and ECE."
HEADS = (Head("prober", "Prober"), Head("answers", "Whose answer"))
SHOWN = Presentation("prober", "Probe models", CAPTION, HEADS)
MISSING = "No other model was probed on these traces."
READS_TRACE = "A prober also reads the whole trace once; these tokens are not counted here."
SMALLER = "embedded-prober"


@dataclass(frozen=True, slots=True)
class ProberRow(Record):
    """One prober. `answers`: whose answer is given at a stop."""

    probe_set: str
    prober: str
    answers: str
    contender: RankedVariant


def ablate(inputs: AblationInputs) -> AblationResult:
    """The model itself, then every other prober, with the generator's answer and with its own."""
    names = other_models(inputs)
    if not names:
        raise NotRecorded(MISSING, inputs.command(f"--model {SMALLER} --set prober"))
    own, *others = inputs.together([inputs.main, *names])
    kinds = [(inputs.main, inputs.run.config.model, "itself")]
    variants = [Variant("the model itself", own, lambda level: stopping(own, level))]
    for name, probes in zip(names, others, strict=True):
        prober = _display_name(inputs.sets[name].model, name, inputs)
        kinds += [(name, prober, "the generator"), (name, prober, "the prober")]
        variants += _variants(prober, own, probes)
    ranked = rank(own, variants, inputs.threshold)
    rows = [(ProberRow(*kind, one), one) for kind, one in zip(kinds, ranked, strict=True)]
    return SHOWN.result(rows, inputs.threshold, (*inputs.missing_note([inputs.main, *names]), READS_TRACE))


def other_models(inputs: AblationInputs) -> list[str]:
    """The names of the probe sets that another model answered."""
    return [name for name, one in inputs.on_grid().items() if not inputs.is_own(one)]


def _display_name(model: str, name: str, inputs: AblationInputs) -> str:
    """The model without its folder; with the name of the probe set if the model has several."""
    short = PurePath(model).name
    alike = sum(inputs.sets[one].model == model for one in other_models(inputs))
    return short if alike == 1 else f"{short} ({name})"


def _variants(prober: str, own: Columns, probes: Columns) -> Sequence[Variant]:
    stops_only = replace(probes, right=own.right & probes.present)
    return (
        Variant(f"{prober} stops", stops_only, lambda level: answered_by(own, stopping(probes, level))),
        Variant(f"{prober} stops and answers", probes, lambda level: stopping(probes, level)),
    )


def answered_by(own: Columns, decided: Decisions) -> Decisions:
    """The same stops with the generator's answer at each; the tokens of that answer are added."""
    stops = np.unique(decided.at[decided.sure])
    if not stops.size:
        return decided
    place = own.on_grid(stops)[np.arange(len(own)), np.minimum(np.searchsorted(stops, decided.at), len(stops) - 1)]
    if (missing := decided.sure & (place < 0)).any():
        at = int(decided.at[np.argmax(missing)])
        raise NotRecorded(f"The generator was not probed at token {at}, where the prober was.", "cgr probe RUN")
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
