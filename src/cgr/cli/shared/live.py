"""What a person sees while a model thinks: dimmed thinking, a line for each probe with its curve, and how it ended."""

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
CURVE = 32
WHY = {
    "certainty": "it was sure",
    "end_of_thinking": "it ended its thinking by itself",
    "budget": "the budget was spent",
    "gave_up": "it gave up",
}


class Watcher:
    """Prints events as they come: in colour on a terminal, as plain text elsewhere, nothing when quiet."""

    def __init__(self, quiet: bool = False, file: TextIO | None = None) -> None:
        self.console = Console(file=file or sys.stdout, quiet=quiet, highlight=False, soft_wrap=True)
        self.probes: list[Probe] = []
        self.resolved: Resolved | None = None
        self._fresh_line = True

    def begin(self, question: str, resolved: Resolved, info: ModelInfo, own: bool) -> None:
        self.resolved = resolved
        if own:
            self.console.print("No question was given, so here is one of the embedded model's own.", style="italic")
        self.console.print(Text(question.strip(), style="bold"))
        self.console.print(
            f"{info.name} on {info.engine}, rule {resolved.rule.name}, asked every {resolved.interval} tokens, "
            f"budget {resolved.budget}\n",
            style="dim",
        )

    def see(self, event: Event) -> None:
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
            self.console.print(f"  ? {probe.at:>6}  next token's entropy = {probe.entropy:.3f} bits", style="cyan")
            return
        sign = "≤" if probe.bound else "="
        answer = probe.answer + ("…" if not probe.closed else "")
        line = Text.assemble(
            (f"  ? {probe.at:>6}  ", "cyan"),
            (f"{answer:<10} ", "bold" if probe.closed else ""),
            (f"certainty {sign} {probe.certainty:.3f}  ", self._colour(probe)),
            (curve(self.probes), self._colour(probe)),
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
        self.console.print()
        if solution.stop_cause == "gave_up":
            self.console.print("Answer     none: the rule gave this line of thought up", style="bold")
        elif solution.abstained:
            self.console.print(f"Answer     none: it was not sure ({solution.certainty:.3f}), and abstains", style="bold")
        else:
            note = "" if solution.closed else "  (cut off: it did not close)"
            self.console.print(Text(f"Answer     {solution.answer}{note}", style="bold green"))
        self.console.print(f"Certainty  {solution.certainty:.4f} (sure from {solution.threshold:g})")
        self.console.print(f"Stopped    because {WHY[solution.stop_cause]}")
        left = solution.budget - solution.thinking_tokens
        self.console.print(
            f"Thinking   {solution.thinking_tokens} tokens of the {solution.budget} that the budget allowed: {left} unspent"
        )
        self.console.print(f"Probes     {len(solution.probes)}, which decoded {_tokens(solution.probe_tokens)}")
        self.console.print(f"Answering  {_tokens(solution.answer_tokens)} more")
        if solution.probe_model:
            self.console.print(f"Asked      {solution.probe_model}, which said when to stop")
        if solution.wasted_tokens:
            self.console.print(f"Wasted     {_tokens(solution.wasted_tokens)} thought past the end")
        if gold is not None:
            self.console.print(f"The truth  {gold}")

    def interrupted(self) -> None:
        """What is known so far, on standard error: the answer, if there is one, is only the last probe's."""
        self._end_line()
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        if not self.probes:
            console.print("Interrupted before the first probe: nothing is known yet.")
            return
        last = self.probes[-1]
        console.print(
            f"Interrupted. The last probe, after {last.at} tokens, said {last.answer!r} "
            f"with certainty {'at most ' if last.bound else ''}{last.certainty:.3f}."
        )


def _tokens(count: int) -> str:
    return f"{count} token" if count == 1 else f"{count} tokens"


def curve(probes: list[Probe]) -> str:
    """The last certainties as a row of bars."""
    return "".join(BARS[min(int(probe.certainty * len(BARS)), len(BARS) - 1)] for probe in probes[-CURVE:])
