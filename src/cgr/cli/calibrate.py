"""`cgr calibrate`: a threshold with a proof, from a recorded run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cgr import calibration
from cgr.calibration import FILE, METHODS, RISKS, Calibration
from cgr.cli.main import say, say_json
from cgr.cli.shared.options import JSON_OPTION, PATH, PROBES, ProbesCommand, check_installed
from cgr.errors import CgrError, UsageError
from cgr.lab.store.schema import folder_of
from cgr.rules import files as rule_files
from cgr.rules import make_rule, read_parameters

if TYPE_CHECKING:
    from cgr.lab.decide.run import Run
    from cgr.rules import Rule


@click.command("calibrate", cls=ProbesCommand)
@click.argument("run", type=PATH)
@click.option("--lose-at-most", "epsilon", type=float, default=0.01, show_default=True, help="The risk to promise.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="The confidence of the promise.")
@click.option("--risk", type=click.Choice(RISKS), default=RISKS[0], show_default=True,
              help="What a loss is: the answer changes (needs no known answers); a right answer is lost; a wrong answer "
              "among those given; Grade below that of answering everything.")  # fmt: skip
@click.option("--rule", "name", default="cgr", show_default=True, help="The rule, or a rule file of `cgr fit`.")
@click.option("--set", "kept", multiple=True, metavar="NAME=VALUE",
              help="A parameter of the rule, such as rare=3; may be repeated.")  # fmt: skip
@click.option("--method", type=click.Choice(METHODS), default=METHODS[0], show_default=True,
              help="Learn-then-Test, or conformal risk control, which has no confidence.")  # fmt: skip
@click.option("--penalty", type=float, default=1.0, show_default=True, help="For --risk grade: cost of a wrong answer.")
@click.option("--learn-on", type=float, default=0.5, show_default=True,
              help="For a rule with weights: share of the questions to learn them from.")  # fmt: skip
@click.option(PROBES, "probe_set", metavar="NAME",
              help="Name of the probe set to read.  [default: the set called default, or the run's first]")  # fmt: skip
@click.option("--out", type=PATH, help="File to write, ending in .json.  [default: RUN/calibration.json]")
@click.option("--check", "other", type=PATH, metavar="RUN", help="Test whether the promise in RUN holds on this other run.")
@JSON_OPTION
def command(run: Path, other: Path | None, out: Path | None, as_json: bool, **options: Any) -> int:
    """Find the cheapest threshold of a rule that a RUN proves to lose little, and write it to a file for `cgr solve
    --calibration` and `cgr serve`.

    With --check, the promise in RUN (a calibration file, or a folder with one) is tested on another run. Exit code 1:
    nothing can be promised, or the promise is broken. docs/calibrate.md explains the numbers.
    """
    check_installed("numpy", "matplotlib")
    try:
        return _made(run, out, as_json, options) if other is None else _check(run, other, options["probe_set"], as_json)
    except UsageError:
        raise
    except CgrError as error:  # exit code 1 is taken: nothing can be promised, or the promise is broken
        raise UsageError(error.message, error.hint) from error


def _made(run: Path, out: Path | None, as_json: bool, options: dict[str, Any]) -> int:
    """Make a promise and write it."""
    path = out or folder_of(run) / FILE
    if path.suffix != rule_files.SUFFIX:
        raise UsageError(f"{str(path)!r} does not end in .json.", "The name of a calibration file ends in .json.")
    found = _calibrated(run, **options)
    written = found.parameter is not None
    if written:
        from cgr.lab.calibrate import output

        found.write(path)
        output.draw(found, path)
    if as_json:
        say_json(found.to_json())
    else:
        say("\n".join(_lines(found, path)))
    return 0 if written else 1


def _calibrated(
    folder: Path,
    name: str,
    kept: tuple[str, ...],
    epsilon: float,
    confidence: float,
    learn_on: float,
    probe_set: str | None,
    **goal: Any,
) -> Calibration:
    from cgr.lab.calibrate import calibrate, open_finished
    from cgr.lab.calibrate.walk import Goal

    wanted = Goal(epsilon=epsilon, delta=round(1 - confidence, 12), **goal)
    recorded = open_finished(folder, probe_set)
    rule, fitted = _rule(name, kept, recorded)
    return calibrate(recorded, rule, wanted, learn_on=learn_on, fitted=fitted)


def _rule(name: str, kept: tuple[str, ...], recorded: Run) -> tuple[Rule, Any]:
    """The rule at the run's interval, and where its weights come from."""
    file = rule_files.read(name) if rule_files.is_file(name) else rule_files.RuleFile(name)
    parameters = {**file.parameters, **(read_parameters(file.rule, kept) if kept else {})}
    if "interval" in make_rule(file.rule, **parameters).parameters():
        parameters.setdefault("interval", recorded.interval)
    return make_rule(file.rule, **parameters), file.fitted


def _lines(found: Calibration, path: Path) -> list[str]:
    from cgr.lab.calibrate import output

    made = [f"{path}, {path.with_suffix('.png')}"] if found.parameter is not None else []
    notes = [f"Note: {note}" for note in found.notes]
    return [*output.prospects(found), "", *output.outcome(found), *notes, "", *output.table(found).lines(left=0), *made]


def _check(promised: Path, other: Path, probe_set: str | None, as_json: bool) -> int:
    from cgr.lab.calibrate import open_finished
    from cgr.lab.calibrate.check import BROKEN, check, sentences

    promise = calibration.read(promised / FILE if promised.is_dir() else promised)
    checked = check(promise, open_finished(other, probe_set))
    if as_json:
        say_json(checked.to_json())
    else:
        say("\n".join([f"The promise: {calibration.sentence(promise)}", *sentences(checked)]))
    return 1 if checked.verdict == BROKEN else 0
