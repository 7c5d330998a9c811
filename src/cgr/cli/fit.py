"""`cgr fit`: a rule whose parameters suit a recorded run, as a small file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cgr.errors import UsageError
from cgr.rules import files as rule_files
from cgr.rules import make_rule, read_parameters

if TYPE_CHECKING:
    from cgr.lab.fit import Fit


@click.command("fit")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--rule", "name", default="calibrated", show_default=True, help="The rule to fit; see `cgr rules`.")
@click.option("--set", "given", multiple=True, help="A parameter that is not to be fitted: --set rare=3.")
@click.option("--out", type=click.Path(path_type=Path), help="Where to write the rule.  [default: RUN/RULE.json]")
@click.option("--share", type=float, default=1.0, show_default=True,
              help="Of the questions; `cgr compare --tune-on` the same share shows the others.")  # fmt: skip
@click.option("--penalty", type=float, default=1.0, show_default=True, help="For give-up: what a wrong answer costs.")
@click.option("--probe-set", help="The probes to read.  [default: default, or the run's first]")
@click.option("--json", "as_json", is_flag=True, help="Print the rule as JSON and nothing else.")
def command(
    run: Path,
    name: str,
    given: tuple[str, ...],
    out: Path | None,
    share: float,
    penalty: float,
    probe_set: str | None,
    as_json: bool,
) -> None:
    """Fit a rule to the questions of a RUN, for use on others: `cgr solve --rule FILE`.

    The main parameter is the one with the largest net saving at equal accuracy; the rule `calibrated` learns its weights
    too, and `give-up` chooses its bound and patience for a penalty on wrong answers.
    """
    from cgr.cli.report import check_installed

    check_installed("numpy")
    from cgr.lab import fit as fitting

    path = out or run / f"{name}{rule_files.SUFFIX}"
    if not rule_files.is_file(path.name):
        raise UsageError(f"{str(path)!r} does not end in .json.", "A rule is told from a file of one by that.")
    recorded = fitting.open_run(run, probe_set, share=share)
    columns = recorded.columns()
    parameters = read_parameters(name, given)
    if "interval" in make_rule(name, **parameters).parameters():
        parameters.setdefault("interval", columns.info.interval)
    fitted = fitting.fit(make_rule(name, **parameters), recorded, penalty=penalty)
    about = {"run": columns.info.name, "questions": len(columns.questions), "traces": len(columns)}
    made = rule_files.RuleFile.of(fitted.rule, **about)
    made.write(path)
    click.echo(json.dumps({"rule": made.rule, "parameters": dict(made.parameters)}) if as_json else _told(fitted, path))


def _told(fitted: Fit[Any], path: Path) -> str:
    found, main = fitted.score, fitted.rule.main
    chosen = f"{main} {getattr(fitted.rule, main):g}" if main else "as it is"
    equal = (
        "" if found.equal else "  not equal accuracy: the interval reaches below -1 point; more questions would narrow it\n"
    )
    return (
        f"{fitted.rule.name}, {chosen}: {found.net:.1%} of the thinking saved, net of probes ({found.gross:.1%} gross)\n"
        f"  accuracy {found.accuracy:.1%}, {found.diff_points:+.2f} points [{found.low:+.2f}, {found.high:+.2f}]"
        f" against the full budget\n{equal}{path}"
    )
