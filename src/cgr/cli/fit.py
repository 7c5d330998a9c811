"""`cgr fit`: fit a rule to a recorded run and write it to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cgr.cli.main import say, say_json
from cgr.cli.shared.arguments import JSON_OPTION, PATH, check_installed
from cgr.errors import UsageError
from cgr.rules import files as rule_files
from cgr.rules import make_rule, read_parameters

if TYPE_CHECKING:
    from cgr.lab.fit import Fit


@click.command("fit")
@click.argument("run", type=PATH)
@click.option("--rule", "name", default="calibrated", show_default=True, help="The rule to fit; see `cgr rules`.")
@click.option("--set", "kept", multiple=True, help="A parameter to keep fixed, such as --set rare=3; may be repeated.")
@click.option("--out", type=PATH, help="File to write, ending in .json.  [default: RUN/RULE.json]")
@click.option("--share", type=float, default=1.0, show_default=True,
              help="Share of the questions to fit on; `cgr compare --tune-on SHARE` scores on the others.")  # fmt: skip
@click.option("--penalty", type=float, default=1.0, show_default=True, help="For give-up: penalty for a wrong answer.")
@click.option("--probe-set", help="Name of the probe set to read.  [default: default, or the run's first]")
@JSON_OPTION
def command(
    run: Path, name: str, kept: tuple[str, ...], out: Path | None, penalty: float, as_json: bool, **options: Any
) -> None:
    """Fit the parameters of a rule to the questions of a RUN, for use on other questions: `cgr solve --rule FILE`.

    The main parameter gets the value with the largest net savings at equal accuracy. The rule `calibrated` also learns its
    weights. The rule `give-up` gets the bound and the patience that suit the penalty.
    """
    check_installed("numpy")
    from cgr.lab import fit as fitting

    path = out or run / f"{name}{rule_files.SUFFIX}"
    if not rule_files.is_file(path.name):
        raise UsageError(f"{str(path)!r} does not end in .json.", "The name of a rule file ends in .json.")
    recorded = fitting.open_run(run, **options)
    columns = recorded.columns()
    parameters = read_parameters(name, kept)
    if "interval" in make_rule(name, **parameters).parameters():
        parameters.setdefault("interval", columns.info.interval)
    fitted = fitting.fit(make_rule(name, **parameters), recorded, penalty=penalty)
    about = {"run": columns.info.name, "questions": len(columns.questions), "traces": len(columns)}
    made = rule_files.RuleFile.of(fitted.rule, **about)
    made.write(path)
    if as_json:
        say_json({"rule": made.rule, "parameters": dict(made.parameters)})
    else:
        say(_summary(fitted, path))


def _summary(fitted: Fit[Any], path: Path) -> str:
    found, main = fitted.score, fitted.rule.main
    chosen = f"{main} {getattr(fitted.rule, main):g}" if main else "no main parameter"
    lines = [
        f"{fitted.rule.name}, {chosen}: {found.net:.1%} of the thinking saved, net of probes ({found.gross:.1%} gross)",
        f"  accuracy {found.accuracy:.1%}, {found.diff_points:+.2f} points [{found.low:+.2f}, {found.high:+.2f}]"
        " against the full budget",
    ]
    if not found.equal:
        lines.append("  not equal accuracy: the interval reaches below -1 point; more questions would narrow it")
    return "\n".join([*lines, str(path)])
