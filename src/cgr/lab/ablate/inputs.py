"""What there is to ablate with: a run, its sets of probes, and the runs that were forced on from the same questions."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cgr.errors import NotRecorded, UsageError
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import Decided, decide
from cgr.lab.store import DEFAULT, Key, Store
from cgr.lab.store.config import ProbeSet, RunConfig, same_model
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.rules.base import THRESHOLD, check_threshold
from cgr.rules.cgr import Cgr

FORCED = "forced"


@dataclass(eq=False)
class Evidence:
    """A run as ablations read it. `main` is the set of probes that the others are held against."""

    folder: Path
    info: RunInfo
    config: RunConfig
    sets: dict[str, ProbeSet]
    main: str
    threshold: float = THRESHOLD
    forced: tuple[Path, ...] = ()
    _traces: dict[tuple[str, bool], list[RecordedTrace]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, *, threshold: float = THRESHOLD, forced: Sequence[Path] = ()) -> Evidence:
        check_threshold(threshold)
        with Store.open(folder) as store:
            sets = {name: one for name, one in store.probe_sets().items() if store.probed(name)}
            on_grid = [name for name, one in sets.items() if _is_grid(one)]
            if not on_grid:
                raise NotRecorded(f"The run in {folder} has no probes on a grid.", f"Make them with `cgr probe {folder}`.")
            main = DEFAULT if DEFAULT in on_grid else on_grid[0]
            return cls(folder, store.info(main), store.config, sets, main, threshold, tuple(forced))

    @property
    def asked(self) -> ProbeSet:
        """How the main set was made."""
        return self.sets[self.main]

    def on_grid(self) -> dict[str, ProbeSet]:
        """The sets whose probes lie every so many tokens, the main one first."""
        names = sorted(self.sets, key=lambda name: name != self.main)
        return {name: self.sets[name] for name in names if _is_grid(self.sets[name])}

    def is_own(self, probe_set: ProbeSet) -> bool:
        """Whether the model that thought was asked."""
        return same_model(probe_set, self.config)

    def columns(self, name: str | None = None) -> Columns:
        return self.together([name or self.main])[0]

    def together(self, names: Sequence[str]) -> tuple[Columns, ...]:
        """Several sets as columns of the same traces, with probes at the same places: what is in all of them."""
        common = self.common(names)
        interval = math.lcm(*(self.sets[name].interval for name in names))
        info = replace(self.info, interval=interval)
        return tuple(
            Columns.of((_thinned(one, interval) for one in self.traces(name) if key_of(one) in common), info)
            for name in names
        )

    def common(self, names: Sequence[str]) -> set[Key]:
        common = set.intersection(*({key_of(trace) for trace in self.traces(name)} for name in names))
        if not common:
            raise NotRecorded(
                f"No trace of {self.folder} was probed in all of {', '.join(names)}.", self.command(f"--set {names[-1]}")
            )
        return common

    def made(self) -> set[Key]:
        """Every trace of the main set."""
        return {key_of(trace) for trace in self.traces(self.main)}

    def traces(self, name: str, *, whole: bool = False) -> list[RecordedTrace]:
        if (name, whole) not in self._traces:
            with Store.open(self.folder) as store:
                self._traces[name, whole] = list(store.recorded(name, whole=whole))
        return self._traces[name, whole]

    def command(self, *options: str) -> str:
        """How to record what is missing, to be copied."""
        return " ".join(("cgr probe", shlex.quote(str(self.folder)), *options))

    def without(self, names: Iterable[str]) -> tuple[str, ...]:
        """A note, if some traces are missing in these sets."""
        chosen = list(names)
        most = max(len(self.traces(name)) for name in chosen)
        short = most - len(self.common(chosen))
        return (f"{short} of {most} traces are not in all of these sets and are left out.",) if short else ()


def _is_grid(one: ProbeSet) -> bool:
    """Answers, every so many tokens."""
    return one.where == "interval" and one.interval >= 1 and one.asking.reads == "answer"


def _thinned(trace: RecordedTrace, interval: int) -> RecordedTrace:
    return replace(trace, probes=tuple(probe for probe in trace.probes if probe.at % interval == 0))


def key_of(trace: RecordedTrace) -> Key:
    return trace.question_id, trace.seed


def stopping(columns: Columns, threshold: float, interval: int | None = None) -> Decided:
    """`cgr` on these probes, asked at each multiple of an interval: by default, that of the recording."""
    return decide(Cgr(threshold=threshold, interval=interval or columns.info.interval), columns)


def forced_run(run: Path) -> Path:
    """The folder of the forced run that belongs to a run."""
    return run / FORCED


def check_folders(folder: Path, forced: Sequence[Path]) -> None:
    for path in (folder, *forced):
        if not path.exists():
            raise UsageError(f"There is no run {str(path)!r}.", "Give the folder that `cgr generate --out` made.")
