"""`cgr solve`: answer one question and show the thinking, the probes with a chart of certainties, and the result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TextIO

import click
from rich.console import Console
from rich.text import Text

from cgr.calibration import sentence
from cgr.cli.main import say, say_json
from cgr.cli.shared.options import JSON_OPTION, model_options, open_given, settings_options
from cgr.drive.events import Decided, Event, Probed, Thinking
from cgr.engines.base import ModelInfo
from cgr.engines.open import ModelOptions
from cgr.errors import UsageError
from cgr.records import Probe, visible, visible_line
from cgr.rules import Rule, read_parameters
from cgr.settings import Resolved, Settings
from cgr.solve import Model, Solution, in_domain

BARS = "▁▂▃▄▅▆▇█"
CHART_WIDTH = 32
EXAMPLE = ("gcd",), (2,)  # family and level of the problem that is taken without a question: `cgr` stops early there
OUTSIDE = (
    "The embedded model knows three families of problems; this question is none of them, so its certainty means nothing "
    "here."
)


@click.command("solve")
@click.argument("question", required=False)
@settings_options("rule", "threshold")
@click.option("--set", "given_parameters", multiple=True,
              metavar="NAME=VALUE", help="A parameter of the rule, such as agree=5; may be repeated.")  # fmt: skip
@settings_options("interval", "budget", "max_answer_tokens", "aggregate", "temperature", "top_p", "seed")
@settings_options("at_budget", "at_end_of_thinking", "prefix", "close_think", "overlap", "full", "calibration")
@model_options
@JSON_OPTION
def command(
    question: str | None, given: ModelOptions, given_parameters: tuple[str, ...], as_json: bool, **options: Any
) -> int:
    """Answer one QUESTION and stop thinking when the model is certain.

    With `-`, the question is read from standard input. Without a QUESTION, the embedded model solves one of its arithmetic
    problems.
    """
    options["rule"], options["parameters"] = rule_and_parameters(options["rule"], given_parameters)
    settings = Settings.of(**options)
    text, gold = _question(question, given, settings.seed)
    settings.prompt(text)
    settings.spec(text)
    display = LiveDisplay(quiet=as_json)
    try:
        with open_given(given, overlap=settings.overlap, budget=settings.budget) as loaded:
            display.begin(text, settings.resolve(loaded.engine.info), loaded.engine.info, own_problem=gold is not None)
            solution = loaded.solve(text, on_event=display.show, **options)
            full = None if as_json or gold is None else _full_length(loaded, solution, settings)
    except KeyboardInterrupt:
        display.interrupted()
        return 130
    if as_json:
        say_json(solution.summary())
    else:
        display.end(solution, gold, full)
    return 0


def _full_length(model: Model, solution: Solution, settings: Settings) -> int:
    """The tokens of the same thinking if no rule stops it, for a model that needs a moment for this."""
    if solution.stop_cause != "certainty":
        return solution.thinking_tokens
    options = {name: getattr(settings, name) for name in settings.__dataclass_fields__}
    unstopped = options | {"rule": "fixed-budget", "parameters": {}, "threshold": None, "calibration": None}
    return model.solve(solution.question, **unstopped).thinking_tokens


def rule_and_parameters(name: str, given: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The name of the rule and its parameters: those of --set, after those of the file if `name` is a rule file."""
    fitted: dict[str, Any] = {}
    if name.endswith(".json"):
        from cgr.rules import files as rule_files

        name, fitted = rule_files.named(name)
    return name, fitted | (read_parameters(name, given) if given else {})


def _question(question: str | None, given: ModelOptions, seed: int) -> tuple[str, str | None]:
    """The question, and its correct answer if it is a problem of the embedded model."""
    if question == "-":
        return _standard_input(), None
    if question is not None:
        return question, None
    if not given.embedded:
        raise UsageError("There is no question.", f'Ask one: cgr solve "..." --model {given.model or "NAME"}')
    from cgr.model.problems import unseen

    problem = next(unseen(seed, *EXAMPLE))
    return problem.text, str(problem.answer)


def _standard_input() -> str:
    if sys.stdin is None:
        raise UsageError("Standard input is closed.", 'Give the question as an argument: cgr solve "..."')
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(
            "Standard input is not text in UTF-8.", "Convert it, or give the question as an argument."
        ) from error


class LiveDisplay:
    """Prints events as they arrive: in colour on a terminal, as plain text elsewhere, nothing if `quiet`."""

    def __init__(self, quiet: bool = False, file: TextIO | None = None) -> None:
        plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "soft_wrap": True}
        self.console = Console(file=file or sys.stdout, quiet=quiet, **plain)
        self.probes: list[Probe] = []
        self.threshold = 1.0
        self.rule = Rule()
        self._fresh_line = True

    def begin(self, question: str, resolved: Resolved, info: ModelInfo, own_problem: bool) -> None:
        """Print the question and the settings. `own_problem`: the question is a problem of the embedded model."""
        self.threshold, self.rule = resolved.threshold, resolved.rule
        if own_problem:
            self.console.print("No question was given: this is one of the embedded model's problems.", style="italic")
        self.console.print(Text(visible(question.strip()), style="bold"))
        self.console.print(
            f"{visible_line(info.name)} on {info.engine}, rule {resolved.rule.name}, {resolved.rule.probe_text}, "
            f"budget {resolved.budget}\n",
            style="dim",
        )
        if resolved.settings.calibration is not None:
            self.console.print(f"{sentence(resolved.settings.promise)}\n", style="dim")
        if in_domain(question, info) is False:
            self.console.print(f"{OUTSIDE}\n", style="yellow")

    def show(self, event: Event) -> None:
        """Print one event of the driver."""
        match event:
            case Thinking(text, forced):
                self.console.print(Text(visible(text), style="yellow" if forced else "dim"), end="")
                self._fresh_line = text.endswith("\n")
            case Probed(probe):
                self._probed(probe)
            case Decided():
                self._end_line()

    def _probed(self, probe: Probe) -> None:
        self.probes.append(probe)
        self._end_line()
        if probe.entropy is not None and not probe.answer and not probe.closed:
            self.console.print(f"  ? {probe.at:>6}  entropy of the next token = {probe.entropy:.3f} bits", style="cyan")
            return
        sign = "≤" if probe.bound else "="
        answer = visible_line(probe.answer) + ("" if probe.closed else "…")
        certainty = f"certainty {sign} {probe.certainty:.3f}  {certainty_chart(self.probes)}"
        colour = "green" if probe.closed and probe.certainty >= self.threshold else "yellow"
        shown = (f"{answer:<10} ", "bold" if probe.closed else "")
        self.console.print(Text.assemble((f"  ? {probe.at:>6}  ", "cyan"), shown, (certainty, colour)))

    def _end_line(self) -> None:
        if not self._fresh_line:
            self.console.print()
        self._fresh_line = True

    def end(self, solution: Solution, gold: str | None, full: int | None = None) -> None:
        """Print the answer, the stop cause and the token counts. `gold` is the correct answer and `full` the length of the
        thinking if nothing stops it, if known."""
        self.console.print()
        self.console.print(_answer_line(solution))
        compared = "threshold" in self.rule.parameters() or (solution.abstained and solution.stop_cause != "gave_up")
        certainty = f"{solution.certainty:.4f}" + (f" (threshold {solution.threshold:g})" if compared else "")
        certainty += "" if solution.in_domain is not False else ", which means nothing here"
        probed = solution.probes or solution.stop_cause != "gave_up"
        decoded = f"{len(solution.probes)}, which decoded {_tokens(solution.probe_tokens)}"
        rows = [
            ("Certainty", certainty if probed else "unknown: nothing was probed"),
            ("Stopped", f"because {self.rule.why(solution.stop_cause, solution.certainty)}"),
            ("Thinking", f"{_tokens(solution.thinking_tokens)} of the budget of {solution.budget}"),
            ("Probes", decoded if solution.probes else "none"),
            ("Answering", f"{_tokens(solution.answer_tokens)} more"),
        ]
        if solution.probe_model:
            rows.append(("Probed", f"{solution.probe_model}, instead of the model that thinks"))
        if solution.wasted_tokens:
            rows.append(("Wasted", f"{_tokens(solution.wasted_tokens)} generated after the stop"))
        if gold is not None:
            rows.append(("Correct", gold))
        rows.append(("In full", _in_full(solution, full)))
        for name, value in rows:
            self.console.print(f"{name:<11}{visible_line(value)}")

    def interrupted(self) -> None:
        """Print the last probe, the best answer so far, on standard error."""
        self._end_line()
        if not self.probes:
            say("Interrupted before the first probe: there is no answer yet.", err=True)
            return
        last = self.probes[-1]
        certainty = f"{'at most ' if last.bound else ''}{last.certainty:.3f}"
        probed = f"The last probe, after {last.at} tokens, answered {last.answer!r} with certainty {certainty}."
        say(f"Interrupted. {probed}", err=True)


def _answer_line(solution: Solution) -> Text:
    if solution.stop_cause == "gave_up":
        return Text("Answer     none: the rule gave up on this question", style="bold")
    if solution.abstained:
        return Text(f"Answer     none: the certainty of {solution.certainty:.3f} is too low, so it abstains", style="bold")
    note = "" if solution.closed else "  (cut off: the closing brace is missing)"
    answer = visible_line(solution.answer or "")
    if solution.in_domain is False:
        return Text(f"Answer     {answer}{note}  (not to be trusted: see the note above)", style="bold yellow")
    return Text(f"Answer     {answer}{note}", style="bold green")


def _in_full(solution: Solution, full: int | None) -> str:
    """What the thinking would have taken without a stop, or what the budget allowed."""
    if solution.stop_cause == "end_of_thinking":
        return "the model ended its thinking by itself: nothing was saved"
    if full is None or solution.stop_cause != "certainty":
        return f"not known: the budget allowed {_tokens(solution.budget)}"
    saved = full - solution.thinking_tokens
    net = f"{saved - solution.probe_tokens} after those of the probes"
    return f"the same thinking takes {_tokens(full)}: {saved} saved ({saved / max(full, 1):.0%}), {net}"


def _tokens(count: int) -> str:
    return f"{count} token" if count == 1 else f"{count} tokens"


def certainty_chart(probes: list[Probe]) -> str:
    """The last certainties as a row of bar characters."""
    return "".join(BARS[min(int(probe.certainty * len(BARS)), len(BARS) - 1)] for probe in probes[-CHART_WIDTH:])
