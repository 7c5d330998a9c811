"""The aggregate: how the probabilities of an answer's tokens become one certainty.

The paper takes the smallest. Beside it: the mean, the product and the geometric mean, each with and without the probability
of the token that closes the answer, from the recorded tokens of the same probes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cgr import certainty
from cgr.errors import NotRecorded
from cgr.lab.ablate import rank as contenders
from cgr.lab.ablate.inputs import AblationInputs, stopping
from cgr.lab.ablate.rank import CHOSEN, HEADS, Contender, Way, contend
from cgr.lab.ablate.result import Ablated, Ablation
from cgr.lab.decide.columns import Columns
from cgr.lab.output.table import Head, Table
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.types import Floats
from cgr.probing import answer_span, open_braces
from cgr.records import Probe, Record, Token

TITLE = "How certainty is made of token probabilities"
CAPTION = "Each aggregate, with the closing brace's probability and without: saved at equal accuracy, AUROC and ECE."


@dataclass(frozen=True, slots=True)
class AggregateRow(Record):
    aggregate: str
    brace: bool
    contender: Contender


def ablate(evidence: AblationInputs) -> Ablated:
    columns, traces = evidence.columns(), evidence.traces(evidence.main, whole=True)
    check_recorded(evidence, traces)
    kinds = [(name, brace) for name in certainty.AGGREGATES for brace in (False, True)]
    them = contend(columns, [_way(columns, traces, *kind) for kind in kinds], evidence.threshold)
    rows = tuple(AggregateRow(*kind, one) for kind, one in zip(kinds, them, strict=True))
    heads = (Head("aggregate", "Aggregate"), Head("brace", "Brace"), *HEADS)
    lines = tuple((row.aggregate, "with" if row.brace else "without", *contenders.row(row.contender)) for row in rows)
    table = Table("aggregation", f"Over aggregates, at a threshold of {evidence.threshold:g}", heads, lines)
    return Ablated(contenders.conclude(them), rows, table, lambda: contenders.draw(them, TITLE), CAPTION, (CHOSEN,))


def check_recorded(evidence: AblationInputs, traces: Sequence[RecordedTrace]) -> None:
    if not any(probe.tokens for trace in traces for probe in trace.probes):
        raise NotRecorded(
            f"The probes in {evidence.run.folder} came without their tokens.", evidence.command("--set with-tokens")
        )


def _way(columns: Columns, traces: Sequence[RecordedTrace], aggregate: str, brace: bool) -> Way:
    seen = replace(columns, certainty=certainties(columns, traces, aggregate, brace))
    return Way(f"{aggregate}, brace too" if brace else aggregate, seen, lambda level: stopping(seen, level))


def certainties(columns: Columns, traces: Sequence[RecordedTrace], aggregate: str, brace: bool) -> Floats:
    """What each probe's certainty would have been, in the places of the columns."""
    found, step = np.zeros(columns.at.shape), columns.info.interval
    for row, trace in enumerate(traces):
        made = [probe for probe in trace.probes if 0 < probe.at < trace.budget and probe.at % step == 0]
        for place, probe in enumerate(sorted(made, key=lambda probe: probe.at)):
            found[row, place] = certainty.aggregate(aggregate, probabilities(probe, brace))
    return found


def probabilities(probe: Probe, brace: bool) -> tuple[float, ...]:
    """Of the content; with the `brace`, also of the token that closed the answer, where it had nothing else in it."""
    return (*probe.probabilities, *_closing(probe.tokens, open_braces(probe.suffix) > 0)) if brace else probe.probabilities


def _closing(tokens: Sequence[Token], opened: bool) -> tuple[float, ...]:
    """The probability of the closing token if the content does not count it already."""
    for end in range(1, len(tokens) + 1):
        span = answer_span(tokens[:end], opened)
        if span.closed:
            alone = len(span.probabilities) == len(answer_span(tokens[: end - 1], opened).probabilities)
            return (certainty.probability(tokens[end - 1].logprob),) if alone and span.answer else ()
    return ()


ABLATION = Ablation("aggregation", "Aggregation", ablate)
