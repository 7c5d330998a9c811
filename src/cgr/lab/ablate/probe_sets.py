"""Ablations that read further probe sets on the same traces: another prompt of the probe, and another model that is probed.

The paper appends "Final Answer: \\boxed{" and leaves the thinking open. Another prompt has another prefix, or the end tag
before it. Where no probe is sure, the answer is the run's own final answer, so that the prompts differ only in their
stops. The accuracy of each prompt at the end of the thinking is shown separately.

The paper allows for a smaller model that is probed instead of the one that thinks, and does not try it. The prober decides
when to stop, by the certainty of its own answer. The answer is then either the generator's at that position, whose tokens
are paid too, or the prober's. The prober also has to read the whole trace; that cost is named in a note and is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath

import numpy as np

from cgr.errors import NotRecorded
from cgr.lab.ablate.inputs import AblationInputs, stopping
from cgr.lab.ablate.rank import Presentation, RankedVariant, Variant
from cgr.lab.ablate.result import AblationResult
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.output import Head
from cgr.records import Record

PROMPTS = Presentation(
    "asking",
    "Prompts of the probe",
    "Other prefixes, with and without the end tag before them: saving at equal accuracy, AUROC and ECE.",
    (Head("prefix", "Prefix"), Head("close_think", "close_think"), Head("ends", "At the end", ".1f", 100, "%")),
)
MODELS = Presentation(
    "prober",
    "Probe models",
    "Another model as the prober, beside the model that thinks: saving at equal accuracy, AUROC and ECE.",
    (Head("prober", "Prober"), Head("answers", "Whose answer")),
)
NO_PROMPT = "No other prefix and no other close_think was recorded on these traces."
NO_MODEL = "No other model was probed on these traces."
READS_TRACE = "A prober also reads the whole trace once; these tokens are not counted here."


@dataclass(frozen=True, slots=True)
class AskingRow(Record):
    """One prompt. `ends`: accuracy of the answers at the end of the thinking with this prompt."""

    probe_set: str
    prefix: str | None
    close_think: str | None
    ends: float
    contender: RankedVariant


@dataclass(frozen=True, slots=True)
class ProberRow(Record):
    """One prober. `answers`: whose answer is given at a stop."""

    probe_set: str
    prober: str
    answers: str
    contender: RankedVariant


def ablate_prompt(inputs: AblationInputs) -> AblationResult:
    """Every prompt of the run's own model."""
    names = prompt_sets(inputs)
    if len(names) < 2:
        raise NotRecorded(NO_PROMPT, inputs.command("--close-think always --probes closed"))
    main, *others = inputs.together(names)
    variants = [_prompt(inputs, *pair, main) for pair in zip(names, (main, *others), strict=True)]
    return PROMPTS.result(main, variants, inputs.threshold, inputs.missing_note(names))


def prompt_sets(inputs: AblationInputs) -> list[str]:
    """The main probe set, then those of the same model with another prefix or end tag; one for each prompt."""
    found: dict[tuple[str | None, str | None], str] = {}
    main = inputs.sets[inputs.main].asking
    for name, one in inputs.on_grid().items():
        with_main_prompt = replace(one.asking, prefix=main.prefix, close_think=main.close_think)
        if inputs.is_own(one) and with_main_prompt == main:
            found.setdefault((one.asking.prefix, one.asking.close_think), name)
    return list(found.values())


def _prompt(inputs: AblationInputs, probe_set: str, columns: Columns, main: Columns) -> Variant:
    """The probes of a set with the final answers of the main one."""
    asking, ends = inputs.sets[probe_set].asking, float(columns.final_right[columns.graded].mean())
    finals = {name: getattr(main, name) for name in ("final_certainty", "final_closed", "final_valid", "final_right")}
    prefix, close_think = "unknown" if asking.prefix is None else asking.prefix.strip(), asking.close_think
    name = prefix if close_think in (None, "never") else f"{prefix} (close_think {close_think})"
    return Variant(name, replace(columns, **finals), partial(AskingRow, probe_set, asking.prefix, close_think, ends))


def ablate_model(inputs: AblationInputs) -> AblationResult:
    """The model itself, then every other prober, with the generator's answer and with its own."""
    names = other_models(inputs)
    if not names:
        raise NotRecorded(NO_MODEL, inputs.command("--model embedded-prober --probes prober"))
    own, *others = inputs.together([inputs.main, *names])
    variants = [Variant("the model itself", own, partial(ProberRow, inputs.main, inputs.run.config.model, "itself"))]
    for name, probes in zip(names, others, strict=True):
        variants += _probers(name, _display_name(inputs.sets[name].model, name, inputs), own, probes)
    notes = (*inputs.missing_note([inputs.main, *names]), READS_TRACE)
    return MODELS.result(own, variants, inputs.threshold, notes)


def other_models(inputs: AblationInputs) -> list[str]:
    """The names of the probe sets that another model answered."""
    return [name for name, one in inputs.on_grid().items() if not inputs.is_own(one)]


def _display_name(model: str, name: str, inputs: AblationInputs) -> str:
    """The model without its folder; with the name of the probe set if the model has several."""
    short = PurePath(model).name
    alike = sum(inputs.sets[one].model == model for one in other_models(inputs))
    return short if alike == 1 else f"{short} ({name})"


def _probers(probe_set: str, prober: str, own: Columns, probes: Columns) -> tuple[Variant, Variant]:
    stops_only = replace(probes, right=own.right & probes.present)
    row = partial(ProberRow, probe_set, prober)
    return (
        Variant(f"{prober} stops", stops_only, partial(row, "the generator"), partial(_stopped_by_prober, own)),
        Variant(f"{prober} stops and answers", probes, partial(row, "the prober")),
    )


def _stopped_by_prober(own: Columns, probes: Columns, threshold: float) -> Decisions:
    return answered_by(own, stopping(probes, threshold))


def answered_by(own: Columns, decided: Decisions) -> Decisions:
    """The same stops with the generator's answer at each; the tokens of that answer are added."""
    stops = np.unique(decided.at[decided.sure])
    if not stops.size:
        return decided
    rows = np.arange(len(own))
    place = own.on_grid(stops)[rows, np.minimum(np.searchsorted(stops, decided.at), len(stops) - 1)]
    if (missing := decided.sure & (place < 0)).any():
        at = int(decided.at[np.argmax(missing)])
        raise NotRecorded(f"The generator was not probed at token {at}, where the prober was.", "cgr probe RUN")
    return replace(
        decided,
        certainty=np.where(decided.sure, own.certainty[rows, place], decided.certainty),
        closed=np.where(decided.sure, own.closed[rows, place], decided.closed),
        right=np.where(decided.sure, own.right[rows, place], decided.right),
        probe_tokens=decided.probe_tokens + np.where(decided.sure, own.decoded[rows, place], 0),
        suffix_tokens=decided.suffix_tokens + np.where(decided.sure, own.suffix[rows, place], 0),
    )
