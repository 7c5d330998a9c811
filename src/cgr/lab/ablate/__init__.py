"""The paper's ablations on a recorded run: threshold, interval, forcing, aggregation, prompt of the probe, probe model.

Each ablation is a function that turns recordings into a conclusion, a table and a figure. An ablation whose recordings are
missing is listed with the command that records them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cgr.errors import NotRecorded, UnknownName, UsageError
from cgr.lab.ablate import aggregate, forcing, grid, page, probe_sets
from cgr.lab.ablate.inputs import AblationInputs
from cgr.lab.ablate.result import Ablation, Ablations, MissingAblation
from cgr.lab.output import style, write_json, write_table
from cgr.lab.store.schema import forced_run
from cgr.rules.base import THRESHOLD

ABLATIONS = (
    Ablation("threshold", "Threshold", grid.ablate_threshold),
    Ablation("interval", "Interval between probes", grid.ablate_interval),
    Ablation("forcing", "Forcing", forcing.ablate),
    Ablation("aggregation", "Aggregation", aggregate.ablate),
    Ablation("asking", "Prefix and close_think", probe_sets.ablate_prompt),
    Ablation("prober", "A separate probing model", probe_sets.ablate_model),
)
NAMES = tuple(one.name for one in ABLATIONS)
FOLDER, JSON = "ablations", "ablations.json"


@dataclass(frozen=True, slots=True)
class WrittenAblations:
    """The folder and the page that were written, and the ablations in them."""

    folder: Path
    page: Path
    ablations: Ablations


def ablate(
    folder: Path | str,
    out: Path | str | None = None,
    *,
    forced: Sequence[Path | str] = (),
    only: Sequence[str] | None = None,
    threshold: float = THRESHOLD,
) -> WrittenAblations:
    """Carry out every ablation that the run allows (or `only` these); write tables, figures and a page.

    `forced`: forced runs of the same questions and seeds, in addition to the one in the run's folder. `threshold`: the
    threshold of every ablation that does not vary it.
    """
    run = Path(folder)
    beside = (forced_run(run),) if forced_run(run).is_dir() else ()
    found = measure(run, forced=tuple(dict.fromkeys((*beside, *map(Path, forced)))), only=only, threshold=threshold)
    place = Path(out) if out else run / FOLDER
    return WrittenAblations(place, write(found, place), found)


def measure(
    folder: Path, *, forced: Sequence[Path] = (), only: Sequence[str] | None = None, threshold: float = THRESHOLD
) -> Ablations:
    """The same without writing files."""
    chosen = _chosen(only)
    inputs = AblationInputs.open(folder, threshold=threshold, forced=forced)
    if not inputs.run.has_golds:
        raise UsageError(
            f"No question of {folder} has a known answer, and ablations measure accuracy.",
            f"What needs no known answers: cgr report {folder}, cgr compare {folder}.",
        )
    made, missing = [], []
    for one in chosen:
        try:
            made.append((one, one.run(inputs)))
        except NotRecorded as error:
            missing.append(MissingAblation(one.name, one.title, error.message, error.hint))
    if not made:
        raise UsageError(missing[0].why, f"Record it: {missing[0].command}")
    columns = inputs.columns()
    size = len(columns.questions), len(columns.seeds)
    return Ablations(inputs.run.info, threshold, *size, tuple(made), tuple(missing))


def _chosen(only: Sequence[str] | None) -> tuple[Ablation, ...]:
    for name in only or ():
        if name not in NAMES:
            raise UnknownName.among("ablation", name, NAMES)
    if only is not None and not only:
        raise UsageError("No ablation was named.", f"Name one or more: --only {','.join(NAMES[:2])}.")
    return tuple(one for one in ABLATIONS if only is None or one.name in only)


def write(found: Ablations, folder: Path) -> Path:
    """Write tables, figures and ablations.json, then the page that shows them; the path of the page."""
    for one, result in found.made:
        write_table(result.table, folder / "tables")
        style.write(one.name, result.caption, result.draw, folder / "figures")
    write_json(folder / JSON, found.to_dict())
    return page.write(found, folder)


__all__ = ["ABLATIONS", "FOLDER", "JSON", "NAMES", "Ablations", "WrittenAblations", "ablate", "measure", "write"]
