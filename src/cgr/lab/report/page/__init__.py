"""The report as one HTML file: the probes are inside it, and the browser recomputes the rule `cgr` from them.

The sources of the page are in `static/`: a template, style sheets, and scripts that are joined in the order below. What
other pages use too (colours, charts, numbers) is in `cgr/web/`. A run is stored as JSON columns; the flags of a probe are
bits, and its answer is an index into a list of answers.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from cgr.files import write_text
from cgr.lab.compare import tables
from cgr.lab.compare.result import Compared
from cgr.lab.decide.columns import Checker, agrees
from cgr.lab.store.recorded import HASHED, RecordedTrace, RunInfo
from cgr.records import Probe

PageRun = tuple[RunInfo, Sequence[RecordedTrace], Mapping[str, Any]]

FILE = "index.html"
SHARED = ("base.css", "chart.css", "thinking.css", "elements.js", "numbers.js", "chart.js")  # in cgr/web
STYLES = ("base.css", "chart.css", "thinking.css", "page.css", "tables.css", "media.css")
SCRIPTS = (
    *("data.js", "decide.js", "scores.js", "curves.js", "numbers.js", "elements.js", "chart.js", "headline.js", "hero.js"),
    *("figures.js", "figures-trust.js", "figures-tokens.js", "tables.js", "summary.js", "prospects.js", "compare.js"),
    *("oracle.js", "promise.js"),
    *("trace.js", "questions.js", "controls.js", "main.js"),
)
TEXT_LIMIT = 20_000_000
CLOSED, RIGHT, BOUND, AGREES = 1, 2, 4, 8
NATURAL, EOS, GRADED = 1, 2, 4
SLOT = re.compile(r"\{\{ (\w+) \}\}")


def write(
    folder: Path,
    runs: Sequence[PageRun],
    thresholds: Sequence[float],
    penalties: Sequence[float],
    comparisons: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write `index.html` and return its path. A run is (info, traces, report as a dictionary); `comparisons`: one for each
    run (see `comparison`), or none. The text of the thinking is left out if there is too much of it."""
    with_text = sum(len(trace.text) + len(trace.written) for _, traces, _ in runs for trace in traces) <= TEXT_LIMIT
    data = {
        "thresholds": list(thresholds),
        "penalties": list(penalties),
        "runs": [_run(*run) | {"texts": with_text} for run in runs],
        "comparisons": list(comparisons),
    }
    slots = {
        "title": html.escape(", ".join(info.name for info, _, _ in runs)),
        "style": "\n".join(map(_source, STYLES)),
        "data": _script(data),
        "texts": "\n".join(_texts(number, traces) for number, (_, traces, _) in enumerate(runs) if with_text),
        "script": "\n".join(map(_source, SCRIPTS)),
    }
    text = SLOT.sub(lambda slot: slots[slot[1]], _source("page.html"))
    write_text(folder / FILE, text)
    return folder / FILE


def comparison(compared: Compared | None, why_not: str = "") -> dict[str, Any]:
    """The comparison of rules that the page shows, with its sentences; or the reason why there is none."""
    if compared is None:
        return {"why": why_not}
    kept = {"rule", "parameter", "sweep", "shown", "equal", "figures", "frontier", "verdict", "tuning_verdict", "splits"}
    kept |= {"needed_questions", "oracle_share", "adaptive"}
    return {
        "entries": [{name: value for name, value in one.to_dict().items() if name in kept} for one in compared.entries],
        "baseline": compared.baseline.to_dict(),
        "whole": compared.whole_baseline.to_dict(),
        "chosen": tables.how_chosen(compared),
        "margin": compared.margin,
        "oracle": compared.oracle,
        "settled_by": tables.settled_by(compared),
        "verdicts": [
            [tables.label(one.measure, compared.reference), tables.verdict(compared, one)] for one in compared.winners
        ],
        "reference": compared.reference,
        "missing": tables.reasons(compared.missing),
        "notes": compared.notes,
    }


def _source(name: str) -> str:
    folder = files("cgr") / "web" if name in SHARED else files(__name__) / "static"
    return (folder / name).read_text("utf-8")


def _script(data: object) -> str:
    """JSON in which `<` is escaped, so that it cannot end the script element or start a comment."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _texts(number: int, traces: Sequence[RecordedTrace]) -> str:
    """The text of the traces in an element of its own: the page parses it only when a trace is opened."""
    texts = _script([[trace.text, trace.written] for trace in traces])
    return f'<script type="application/json" id="texts-{number}">{texts}</script>'


def _run(info: RunInfo, traces: Sequence[RecordedTrace], report: Mapping[str, Any]) -> dict[str, Any]:
    packer, probes = _ProbePacker(), [_probes_below_budget(trace) for trace in traces]
    questions: dict[str, list[RecordedTrace]] = {}
    for trace in traces:
        questions.setdefault(trace.question_id, []).append(trace)
    order = {name: place for place, name in enumerate(questions)}
    seeds = {seed: place for place, seed in enumerate(sorted({trace.seed for trace in traces}))}
    return {
        "info": info.to_dict(),
        "report": report,
        "questions": [_question(of_question) for of_question in questions.values()],
        "seeds": list(seeds),
        "traces": {
            "question": [order[trace.question_id] for trace in traces],
            "seed": [seeds[trace.seed] for trace in traces],
            "tokens": [min(trace.thinking_tokens, trace.budget) for trace in traces],
            "budget": [trace.budget for trace in traces],
            "flags": [_flags(trace) for trace in traces],
            "probes": [len(made) for made in probes],
        },
        "finals": packer.columns((trace, trace.final) for trace in traces),
        "probes": packer.columns((trace, probe) for trace, made in zip(traces, probes, strict=True) for probe in made),
        "answers": list(packer.answers),
    }


def _question(traces: Sequence[RecordedTrace]) -> dict[str, Any]:
    """A question by its traces. A choice may have other options, and so another gold, with another seed."""
    first, by_seed = traces[0], sorted(traces, key=lambda trace: trace.seed)
    text, gold = first.question, first.gold
    if any(trace.question != text for trace in traces):
        text = "\n\n".join(f"Seed {trace.seed}: {trace.question}" for trace in by_seed)
    if any(trace.gold != gold for trace in traces):
        gold = ", ".join(f"{trace.gold} (seed {trace.seed})" for trace in by_seed)
    return {"id": first.question_id, "text": text, "gold": gold, "format": first.format}


def _flags(trace: RecordedTrace) -> int:
    return NATURAL * (trace.ended == "end_of_thinking") | EOS * trace.eos | GRADED * (trace.gold is not None)


def _probes_below_budget(trace: RecordedTrace) -> list[Probe]:
    """In order. A probe at the budget is not one: the end of the budget is its own event."""
    return sorted((probe for probe in trace.probes if probe.at < trace.budget), key=lambda probe: probe.at)


def _shown(trace: RecordedTrace, probe: Probe) -> str:
    """The answer of a probe. In place of a hash, a number: #1 is the final answer of the trace, #2 the first other one."""
    if not probe.answer.startswith(HASHED):
        return probe.answer
    found = dict.fromkeys(one.answer for one in (trace.final, *trace.probes) if one.answer)
    return f"#{list(found).index(probe.answer) + 1}"


class _ProbePacker:
    """Turns probes into columns. Each distinct answer is stored once."""

    def __init__(self) -> None:
        self.answers: dict[str, int] = {}
        self.checker = Checker()

    def columns(self, probes: Iterable[tuple[RecordedTrace, Probe]]) -> dict[str, list[Any]]:
        rows = [self._row(trace, probe) for trace, probe in probes]
        names = ("at", "answer", "certainty", "flags", "decoded")
        return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)) if rows else {name: [] for name in names}

    def _row(self, trace: RecordedTrace, probe: Probe) -> tuple[int, int, float, int, int]:
        answer = self.answers.setdefault(_shown(trace, probe), len(self.answers))
        right = self.checker.right(probe.answer, probe.closed, trace.gold, trace.format)
        flags = CLOSED * probe.closed | RIGHT * right | BOUND * probe.bound | AGREES * agrees(trace, probe)
        return probe.at, answer, probe.certainty, flags, probe.decoded
