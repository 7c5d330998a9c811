"""Ablation of the probe's prompt: the prefix before the answer, and whether the end tag comes before it.

The paper appends "Final Answer: \\boxed{" and leaves the thinking open. Each other prompt is a probe set of its own on the
same traces. Where no probe is sure, the answer is the run's own final answer, so that the prompts differ only in their
stops. The accuracy of each prompt at the end of the thinking is shown separately.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cgr.errors import NotRecorded
from cgr.lab.ablate.inputs import AblationInputs, stopping
from cgr.lab.ablate.rank import Presentation, RankedVariant, Variant, rank
from cgr.lab.ablate.result import Ablation, AblationResult
from cgr.lab.decide.columns import Columns
from cgr.lab.output import Head
from cgr.lab.store.config import ProbeSet
from cgr.records import Record

CAPTION = "Other prefixes, with and without the end tag before them: saving at equal accuracy, AUROC and ECE."
HEADS = (Head("prefix", "Prefix"), Head("close_think", "close_think"), Head("ends", "At the end", ".1f", 100, "%"))
SHOWN = Presentation("asking", "Prompts of the probe", CAPTION, HEADS)
MISSING = "No other prefix and no other close_think was recorded on these traces."
OTHER_PROMPT = "--close-think always --set closed"


@dataclass(frozen=True, slots=True)
class AskingRow(Record):
    """One prompt. `ends`: accuracy of the answers at the end of the thinking with this prompt."""

    probe_set: str
    prefix: str
    close_think: str
    ends: float
    contender: RankedVariant


def ablate(inputs: AblationInputs) -> AblationResult:
    """Every prompt of the run's own model."""
    names = prompt_sets(inputs)
    if len(names) < 2:
        raise NotRecorded(MISSING, inputs.command(OTHER_PROMPT))
    columns = inputs.together(names)
    sets = [inputs.sets[name] for name in names]
    variants = [_variant(one, probes, columns[0]) for one, probes in zip(sets, columns, strict=True)]
    ranked = rank(columns[0], variants, inputs.threshold)
    records = [_row(*parts) for parts in zip(names, sets, columns, ranked, strict=True)]
    return SHOWN.result(list(zip(records, ranked, strict=True)), inputs.threshold, inputs.missing_note(names))


def prompt_sets(inputs: AblationInputs) -> list[str]:
    """The main probe set, then those of the same model with another prefix or end tag; one for each prompt."""
    found: dict[tuple[str, str], str] = {}
    main = inputs.main_set.asking
    for name, one in inputs.on_grid().items():
        with_main_prompt = replace(one.asking, prefix=main.prefix, close_think=main.close_think)
        if inputs.is_own(one) and with_main_prompt == main:
            found.setdefault((one.asking.prefix, one.asking.close_think), name)
    return list(found.values())


def _variant(probe_set: ProbeSet, columns: Columns, main: Columns) -> Variant:
    """The probes of a set with the final answers of the main one."""
    finals = {name: getattr(main, name) for name in ("final_certainty", "final_closed", "final_valid", "final_right")}
    probes = replace(columns, **finals)
    prefix, close_think = probe_set.asking.prefix.strip(), probe_set.asking.close_think
    name = prefix if close_think == "never" else f"{prefix} (close_think {close_think})"
    return Variant(name, probes, lambda level: stopping(probes, level))


def _row(name: str, probe_set: ProbeSet, columns: Columns, ranked: RankedVariant) -> AskingRow:
    ends = float(columns.final_right[columns.graded].mean())
    return AskingRow(name, probe_set.asking.prefix, probe_set.asking.close_think, ends, ranked)


ABLATION = Ablation("asking", "Prefix and close_think", ablate)
