"""Ablation of the aggregate: how the probabilities of an answer's tokens become one certainty.

The paper takes the minimum. This compares it with the mean, the product and the geometric mean, each with and without the
probability of the token that closes the answer, computed from the recorded tokens of the same probes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from cgr import certainty
from cgr.errors import NotRecorded
from cgr.lab.ablate.inputs import AblationInputs
from cgr.lab.ablate.rank import Presentation, RankedVariant, Variant
from cgr.lab.ablate.result import AblationResult
from cgr.lab.decide.columns import Columns, counted_probes
from cgr.lab.output import Head
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.types import Floats
from cgr.probing import answer_span, open_braces
from cgr.records import Probe, Record, Token

CAPTION = "Each aggregate, with and without the probability of the closing brace: saving at equal accuracy, AUROC and ECE."
HEADS = (Head("aggregate", "Aggregate"), Head("brace", "Brace"))
SHOWN = Presentation("aggregation", "Certainty by aggregate of token probabilities", CAPTION, HEADS)


@dataclass(frozen=True, slots=True)
class AggregateRow(Record):
    """One aggregate. `brace`: whether the probability of the closing token is included."""

    aggregate: str
    brace: bool
    contender: RankedVariant


def ablate(inputs: AblationInputs) -> AblationResult:
    """Every aggregate on the main probe set."""
    columns, traces = inputs.columns(), inputs.run.traces(inputs.main, whole=True)
    check_recorded(inputs, traces)
    variants = [_variant(columns, traces, *kind) for kind in product(certainty.AGGREGATES, (False, True))]
    if any(probe.options for trace in traces for probe in trace.probes):
        variants.append(_variant(columns, traces, certainty.OPTIONS, brace=False))
    return SHOWN.result(columns, variants, inputs.threshold)


def check_recorded(inputs: AblationInputs, traces: Sequence[RecordedTrace]) -> None:
    """Raise `NotRecorded` if the probes have no tokens (imported runs)."""
    if not any(probe.tokens for trace in traces for probe in trace.probes):
        message = f"The probes in {inputs.run.folder} were recorded without their tokens."
        raise NotRecorded(message, inputs.command("--probes with-tokens"))


def _variant(columns: Columns, traces: Sequence[RecordedTrace], aggregate: str, brace: bool) -> Variant:
    probes = replace(columns, certainty=certainties(columns, traces, aggregate, brace))
    return Variant(f"{aggregate} with brace" if brace else aggregate, probes, partial(AggregateRow, aggregate, brace))


def certainties(columns: Columns, traces: Sequence[RecordedTrace], aggregate: str, brace: bool) -> Floats:
    """The certainty of each probe under another aggregate, in the shape of the columns."""
    found, step = np.zeros(columns.at.shape), columns.info.interval
    for row, trace in enumerate(traces):
        for place, probe in enumerate(one for one in counted_probes(trace) if not step or one.at % step == 0):
            counted = replace(probe, probabilities=probabilities(probe, brace))
            found[row, place] = certainty.of_probe(aggregate, counted)
    return found


def probabilities(probe: Probe, brace: bool) -> tuple[float, ...]:
    """The probabilities of the answer's tokens; with `brace`, also of the closing token if it is not part of the answer."""
    return (*probe.probabilities, *_closing(probe.tokens, open_braces(probe.suffix) > 0)) if brace else probe.probabilities


def _closing(tokens: Sequence[Token], opened: bool) -> tuple[float, ...]:
    """The probability of the closing token, if it is not counted as part of the answer already."""
    for end in range(1, len(tokens) + 1):
        span = answer_span(tokens[:end], opened)
        if span.closed:
            alone = len(span.probabilities) == len(answer_span(tokens[: end - 1], opened).probabilities)
            return (certainty.probability(tokens[end - 1].logprob),) if alone and span.answer else ()
    return ()
