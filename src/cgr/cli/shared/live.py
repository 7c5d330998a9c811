"""The live display of `cgr solve`: the thinking, a line for each probe with a chart of certainties, and the result."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console
from rich.text import Text

from cgr.drive.events import Decided, Event, Probed, Thinking
from cgr.engines.base import ModelInfo
from cgr.records import Probe
from cgr.settings import Resolved
from cgr.solve import Solution

BARS = "▁▂▃▄▅▆▇█"
CHART_WIDTH = 32
REASONS = {
    "certainty": "the model was certain",
    "end_of_thinking": "the model ended its thinking",
    "budget": "the budget was spent",
    "gave_up": "the rule gave up",
}


class LiveDisplay:
    """Prints events as they arrive: in colour on a terminal, as plain text elsewhere, nothing if `quiet`."""

    def __init__(self, quiet: bool = False, file: TextIO | None = None) -> None:
        self.console = Console(file=file or sys.stdout, quiet=quiet, highlight=False, soft_wrap=True)
        self.probes: list[Probe] = []
        self.resolved: Resolved | None = None
        self._fresh_line = True

    def begin(self, question: str, resolved: Resolved, info: ModelInfo, own_problem: bool) -> None:
        """Print the question and the settings. `own_problem`: the question is a problem of the embedded model."""
        self.resolved = resolved
        if own_problem:
            self.console.print("No question was given: this is one of the embedded model's problems.", style="italic")
        self.console.print(Text(question.strip(), style="bold"))
        self.console.print(
            f"{info.name} on {info.engine}, rule {resolved.rule.name}, a probe every {resolved.interval} tokens, "
            f"budget {resolved.budget}\n",
            style="dim",
        )

    def show(self, event: Event) -> None:
        """Print one event of the driver."""
        match event:
            case Thinking(text, forced):
                self._write(text, "yellow" if forced else "dim")
            case Probed(probe):
                self._probed(probe)
            case Decided():
                self._end_line()

    def _write(self, text: str, style: str) -> None:
        self.console.print(Text(text, style=style), end="")
        self._fresh_line = text.endswith("\n")

    def _probed(self, probe: Probe) -> None:
        self.probes.append(probe)
        self._end_line()
        if probe.entropy is not None and not probe.answer and not probe.closed:
            self.console.print(f"  ? {probe.at:>6}  entropy of the next token = {probe.entropy:.3f} bits", style="cyan")
            return
        sign = "≤" if probe.bound else "="
        answer = probe.answer + ("…" if not probe.closed else "")
        line = Text.assemble(
            (f"  ? {probe.at:>6}  ", "cyan"),
            (f"{answer:<10} ", "bold" if probe.closed else ""),
            (f"certainty {sign} {probe.certainty:.3f}  ", self._colour(probe)),
            (certainty_chart(self.probes), self._colour(probe)),
        )
        self.console.print(line)

    def _colour(self, probe: Probe) -> str:
        threshold = self.resolved.threshold if self.resolved else 1.0
        return "green" if probe.closed and probe.certainty >= threshold else "yellow"

    def _end_line(self) -> None:
        if not self._fresh_line:
            self.console.print()
        self._fresh_line = True

    def end(self, solution: Solution, gold: str | None) -> None:
        """Print the answer, the stop cause and the token counts; `gold` is the correct answer, if known."""
        self.console.print()
        self.console.print(_answer_line(solution))
        left = solution.budget - solution.thinking_tokens
        rows = [
            ("Certainty", f"{solution.certainty:.4f} (threshold {solution.threshold:g})"),
            ("Stopped", f"because {REASONS[solution.stop_cause]}"),
            ("Thinking", f"{solution.thinking_tokens} tokens of the budget of {solution.budget}: {left} unused"),
            ("Probes", f"{len(solution.probes)}, which decoded {_tokens(solution.probe_tokens)}"),
            ("Answering", f"{_tokens(solution.answer_tokens)} more"),
        ]
        if solution.probe_model:
            rows.append(("Probed", f"{solution.probe_model}, instead of the model that thinks"))
        if solution.wasted_tokens:
            rows.append(("Wasted", f"{_tokens(solution.wasted_tokens)} generated after the stop"))
        if gold is not None:
            rows.append(("Correct", gold))
        for name, value in rows:
            self.console.print(f"{name:<11}{value}")

    def interrupted(self) -> None:
        """Print the last probe, the best answer so far, on standard error."""
        self._end_line()
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        if not self.probes:
            console.print("Interrupted before the first probe: there is no answer yet.")
            return
        last = self.probes[-1]
        console.print(
            f"Interrupted. The last probe, after {last.at} tokens, answered {last.answer!r} "
            f"with certainty {'at most ' if last.bound else ''}{last.certainty:.3f}."
        )


def _answer_line(solution: Solution) -> Text:
    if solution.stop_cause == "gave_up":
        return Text("Answer     none: the rule gave up on this question", style="bold")
    if solution.abstained:
        return Text(f"Answer     none: the certainty of {solution.certainty:.3f} is too low, so it abstains", style="bold")
    note = "" if solution.closed else "  (cut off: the closing brace is missing)"
    return Text(f"Answer     {solution.answer}{note}", style="bold green")


def _tokens(count: int) -> str:
    return f"{count} token" if count == 1 else f"{count} tokens"


def certainty_chart(probes: list[Probe]) -> str:
    """The last certainties as a row of bar characters."""
    return "".join(BARS[min(int(probe.certainty * len(BARS)), len(BARS) - 1)] for probe in probes[-CHART_WIDTH:])
