"""The paper's ablations on a recorded run: threshold, interval, forcing, aggregation, how a probe asks, and who is asked.

Each is a small module: from what was recorded to a sentence, a table and a figure. What was not recorded is said by name,
with the command that records it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cgr.errors import NotRecorded, UnknownName, UsageError
from cgr.lab.ablate import aggregate as aggregation
from cgr.lab.ablate import forcing, interval, page, threshold
from cgr.lab.ablate import probe_model as prober
from cgr.lab.ablate import prompt as asking
from cgr.lab.ablate.inputs import Evidence, check_folders
from cgr.lab.ablate.result import Ablation, Ablations, Made, Missing
from cgr.lab.output import style
from cgr.lab.output.table import write_table
from cgr.lab.report import figures
from cgr.lab.store.schema import forced_run
from cgr.rules.base import THRESHOLD

ABLATIONS: tuple[Ablation, ...] = (
    threshold.ABLATION,
    interval.ABLATION,
    forcing.ABLATION,
    aggregation.ABLATION,
    asking.ABLATION,
    prober.ABLATION,
)
NAMES = tuple(one.name for one in ABLATIONS)
FOLDER, JSON = "ablations", "ablations.json"


@dataclass(frozen=True, slots=True)
class WrittenAblations:
    """Where they are, and what is in them."""

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
    """Every ablation (or `only` these) that the run in this folder allows, written as tables, figures and a page.

    `forced`: runs of the same questions and seeds that were forced on, beside the one in the run's own folder. `threshold`:
    where stopping is looked at.
    """
    run = Path(folder)
    beside = (forced_run(run),) if forced_run(run).is_dir() else ()
    found = measure(run, forced=tuple(dict.fromkeys((*beside, *map(Path, forced)))), only=only, threshold=threshold)
    place = Path(out) if out else run / FOLDER
    return WrittenAblations(place, write(found, place), found)


def measure(
    folder: Path, *, forced: Sequence[Path] = (), only: Sequence[str] | None = None, threshold: float = THRESHOLD
) -> Ablations:
    """The same, in numbers: nothing is written."""
    chosen = _chosen(only)
    check_folders(folder, forced)
    evidence = Evidence.of(folder, threshold=threshold, forced=forced)
    made, missing = [], []
    for one in chosen:
        try:
            made.append(Made(one.name, one.title, one.run(evidence)))
        except NotRecorded as error:
            missing.append(Missing(one.name, one.title, error.message, error.hint))
    columns = evidence.columns()
    size = len(columns.questions), len(columns.seeds)
    return Ablations(evidence.info, threshold, *size, tuple(made), tuple(missing))


def _chosen(only: Sequence[str] | None) -> tuple[Ablation, ...]:
    for name in only or ():
        if name not in NAMES:
            raise UnknownName.among("ablation", name, NAMES)
    if only is not None and not only:
        raise UsageError("There is no ablation to make.", f"Name some: --only {','.join(NAMES[:2])}.")
    return tuple(one for one in ABLATIONS if only is None or one.name in only)


def write(found: Ablations, folder: Path) -> Path:
    """Tables, figures, numbers, and last the page that shows them."""
    for one in found.made:
        write_table(one.ablated.table, folder / "tables")
        with style.styled():
            figures.save(one.ablated.draw(), one.name, folder / "figures")
    text = json.dumps(found.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / JSON).write_text(text + "\n", encoding="utf-8")
    return page.write(found, folder)


__all__ = ["ABLATIONS", "FOLDER", "JSON", "NAMES", "Ablations", "WrittenAblations", "ablate", "measure", "write"]
