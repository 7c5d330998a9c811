"""`cgr fit`: fit a rule to a recorded run and write it to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cgr.cli.main import say, say_json
from cgr.cli.shared.options import JSON_OPTION, PATH, PROBES, ProbesCommand, check_installed
from cgr.errors import UsageError
from cgr.rules import files as rule_files
from cgr.rules import make_rule, read_parameters

if TYPE_CHECKING:
    from cgr.lab.fit import Fit, FitScore


@click.command("fit", cls=ProbesCommand)
@click.argument("run", type=PATH)
@click.option("--rule", "name", default="calibrated", show_default=True, help="The rule to fit; see `cgr rules`.")
@click.option("--set", "kept", multiple=True, metavar="NAME=VALUE",
              help="A parameter to keep fixed, such as rare=3; may be repeated.")  # fmt: skip
@click.option("--out", type=PATH, help="File to write, ending in .json.  [default: RUN/RULE.json]")
@click.option("--share", type=float, default=1.0, show_default=True,
              help="Share of the questions to fit on; `cgr compare --tune-on SHARE` scores on the others.")  # fmt: skip
@click.option("--penalty", type=float, default=1.0, show_default=True, help="For give-up: penalty for a wrong answer.")
@click.option(
    PROBES,
    "probe_set",
    metavar="NAME",
    help="Name of the probe set to read.  [default: the set called default, or the run's first]",
)
@JSON_OPTION
def command(
    run: Path, name: str, kept: tuple[str, ...], out: Path | None, penalty: float, as_json: bool, **options: Any
) -> None:
    """Fit the parameters of a rule to the questions of a RUN, for use on other questions: `cgr solve --rule FILE`.

    The main parameter gets the value with the largest net savings at equal accuracy; for `calibrated` and `cgr-drought`,
    among those that lose at most half a point here. The rule `calibrated` also learns its weights. The rule `give-up` gets
    the floor and the patience that suit the penalty. Without known answers, agreement with the final answer of each trace
    takes the place of accuracy.
    """
    check_installed("numpy")
    from cgr.lab import fit as fitting
    from cgr.lab.decide.columns import GOLD
    from cgr.lab.score.accuracy import check_penalties

    (penalty,) = check_penalties([penalty])
    path = out or run / f"{name}{rule_files.SUFFIX}"
    if not rule_files.is_file(path.name):
        raise UsageError(f"{str(path)!r} does not end in .json.", "The name of a rule file ends in .json.")
    recorded = fitting.open_run(run, **options)
    columns = recorded.rule_columns()
    parameters = read_parameters(name, kept)
    if "interval" in make_rule(name, **parameters).parameters():
        parameters.setdefault("interval", recorded.interval)
    fitted = fitting.fit(make_rule(name, **parameters), recorded, penalty=penalty)
    size = {"questions": len(columns.questions), "traces": len(columns), "share": options["share"]}
    about = {"run": columns.info.name, **size} | ({"reference": columns.reference} if columns.reference != GOLD else {})
    made = rule_files.RuleFile.of(fitted.rule, **about)
    made.write(path)
    if as_json:
        say_json({"rule": made.rule, "parameters": dict(made.parameters), "notes": _notes(fitted, columns.reference)})
    else:
        say(_summary(fitted, path, columns.reference))


def _notes(fitted: Fit[Any], reference: str) -> list[str]:
    from cgr.lab.decide.columns import FINAL
    from cgr.lab.score.agreement import NO_GOLDS

    return [*([NO_GOLDS] if reference == FINAL else []), *([fitted.rule.fit_note] if fitted.rule.fit_note else [])]


def _summary(fitted: Fit[Any], path: Path, reference: str) -> str:
    from cgr.lab.score.agreement import worded

    found, main = fitted.score, fitted.rule.main
    chosen = f"{main} {getattr(fitted.rule, main):g}" if main else "no main parameter"
    lines = [
        f"{fitted.rule.name}, {chosen}: {found.net:.1%} of the thinking saved, net of probes ({found.gross:.1%} gross)",
        f"  accuracy {found.accuracy:.1%}, {found.diff_points:+.2f} points [{found.low:+.2f}, {found.high:+.2f}]"
        " against the full budget",
    ]
    notes = [f"  note: {note}" for note in _notes(fitted, reference)]
    said = worded("\n".join([*lines, f"  {_verdict(found)}"]), reference)
    return "\n".join([said, *notes, str(path)])


def _verdict(found: FitScore) -> str:
    """Whether accuracy is equal, as a sentence."""
    low, high = found.bound
    proof = f"with 95% confidence the difference is from {low:+.2f} to {high:+.2f} points"
    if found.equal:
        return f"accuracy is equal within 1 point: {proof}"
    if found.verdict == "worse":
        return f"accuracy is worse: {proof}"
    needed = found.needed_questions
    count = f"about {needed:,} questions" if needed else "more than 100,000 questions"
    return f"whether accuracy is equal cannot be told: {proof}; {count} would settle it at the rates seen"
