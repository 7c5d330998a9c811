"""What ablations read: a run with its probe sets, a threshold, and the forced runs of the same questions."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cgr.errors import NotRecorded, UsageError
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import decide
from cgr.lab.decide.run import Run, default_probe_set, is_grid, is_irregular, key_of
from cgr.lab.store import Key, Store
from cgr.lab.store.config import ProbeSet, same_model
from cgr.lab.store.recorded import RecordedTrace
from cgr.rules.base import THRESHOLD, check_threshold
from cgr.rules.cgr import Cgr


@dataclass(frozen=True, eq=False)
class AblationInputs:
    """A run, and what the ablations vary on it.

    `main`: the probe set that the others are compared with; its probes are on a grid if the run has such a set, else at
    irregular positions. `sets`: the probe sets that are not empty. `threshold`: where stopping is measured. `forced`:
    folders of forced runs of the same questions.
    """

    run: Run
    main: str
    sets: dict[str, ProbeSet]
    threshold: float = THRESHOLD
    forced: tuple[Path, ...] = ()

    @classmethod
    def open(cls, folder: Path, *, threshold: float = THRESHOLD, forced: Sequence[Path] = ()) -> AblationInputs:
        """The inputs in a run's folder. A folder that does not exist and a run without probes are refused."""
        check_threshold(threshold)
        for path in (folder, *forced):
            if not path.exists():
                raise UsageError(f"There is no run {str(path)!r}.", "Give the folder that `cgr generate --out` made.")
        with Store.open(folder) as store:
            filled = store.filled_sets()
            sets = {name: one for name, one in store.probe_sets().items() if name in filled}
        on_grid = {name: one for name, one in sets.items() if is_grid(one)}
        main = default_probe_set(on_grid or {name: one for name, one in sets.items() if is_irregular(one)}, filled)
        if main is None:
            raise NotRecorded(f"The run in {folder} has no probes with answers.", f"Make them with `cgr probe {folder}`.")
        return cls(Run.open(folder, main), main, sets, threshold, tuple(forced))

    def on_grid(self) -> dict[str, ProbeSet]:
        """The sets with answers at every multiple of an interval, the main one first."""
        names = sorted(self.sets, key=lambda name: name != self.main)
        return {name: self.sets[name] for name in names if is_grid(self.sets[name])}

    def is_own(self, probe_set: ProbeSet) -> bool:
        """Whether the model that produced the traces was probed."""
        return same_model(probe_set, self.run.config)

    def columns(self, name: str | None = None) -> Columns:
        """One probe set as columns; by default, the main one."""
        return self.together([name or self.main])[0]

    def together(self, names: Sequence[str]) -> tuple[Columns, ...]:
        """Several sets as columns of the traces that are in all of them, with probes at the positions of all of them."""
        common = self.common(names)
        irregular = any(is_irregular(self.sets[name]) for name in names)
        interval = 0 if irregular else math.lcm(*(self.sets[name].interval for name in names))
        info = replace(self.run.info, interval=interval)
        return tuple(
            Columns.of((_thinned(one, interval) for one in self.run.traces(name) if key_of(one) in common), info)
            for name in names
        )

    def common(self, names: Sequence[str]) -> set[Key]:
        """The traces that are in all of these sets; an error if there are none."""
        common = set.intersection(*({key_of(trace) for trace in self.run.traces(name)} for name in names))
        if not common:
            message = f"No trace of {self.run.folder} was probed in all of {', '.join(names)}."
            raise NotRecorded(message, self.command(f"--probes {names[-1]}"))
        return common

    def command(self, *options: str) -> str:
        """The command that records what is missing."""
        return " ".join(("cgr probe", shlex.quote(str(self.run.folder)), *options))

    def missing_note(self, names: Sequence[str]) -> tuple[str, ...]:
        """A note, if some traces are missing in these sets."""
        most = max(len(self.run.traces(name)) for name in names)
        short = most - len(self.common(names))
        return (f"{short} of {most} traces are not in all of these sets and are left out.",) if short else ()


def _thinned(trace: RecordedTrace, interval: int) -> RecordedTrace:
    kept = tuple(probe for probe in trace.probes if probe.at % interval == 0) if interval else trace.probes
    return replace(trace, probes=kept)


def stopping(columns: Columns, threshold: float, interval: int | None = None) -> Decisions:
    """What `cgr` decides at this threshold. `interval`: that of the recording by default; at irregular positions, every
    probe is read."""
    rule, step = Cgr(threshold=threshold), interval or columns.info.interval
    return decide(replace(rule, interval=step) if step else rule, columns)
