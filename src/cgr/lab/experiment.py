"""A recipe carried out: think, probe, report. Each stage makes what is missing; where nothing is, no model is loaded and
no report is written anew."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from cgr import __version__
from cgr.engines.base import Capabilities, Engine, ModelInfo
from cgr.errors import UsageError
from cgr.lab.config import ProbeSet, RunConfig, refuse_differences
from cgr.lab.forecast import described
from cgr.lab.probes import Wish, probe
from cgr.lab.progress import Progress
from cgr.lab.recipes import Recipe
from cgr.lab.report import FOLDER, JSON, WrittenReport, figures, write_report
from cgr.lab.report import page as pages
from cgr.lab.report.rows import Report
from cgr.lab.schema import FILE, NotARun
from cgr.lab.store import DEFAULT, Key, Store
from cgr.lab.traces import Plan, generate
from cgr.records import Record
from cgr.solve import Model, open_model

STAMP = "made.json"


def refuse_remote(recipe: Recipe) -> None:
    """The one place that knows that there is no engine for servers yet."""
    if recipe.base_url:
        raise UsageError(
            f"The recipe {recipe.name} is for a server at {recipe.base_url}, which this version cannot use.",
            "See its plan with --dry-run, or run it here on a GGUF file: --model FILE.gguf",
        )


@dataclass(frozen=True, slots=True)
class _Unloaded:
    """Of an engine, what a plan asks about before it is loaded."""

    info: ModelInfo
    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class Stamp(Record):
    """What a report was made of, kept beside it: written last, so that it means that the report is whole."""

    version: str
    run: str
    thresholds: tuple[float, ...]
    penalties: tuple[float, ...]
    numbers: str


class Experiment:
    """A recipe and its folder. `sessions`: traces in flight."""

    def __init__(self, recipe: Recipe, folder: Path, *, sessions: int = 1) -> None:
        refuse_remote(recipe)
        self.recipe, self.folder, self.sessions = recipe, folder, sessions
        self.plan: Plan = recipe.plan()

    def make(self, thinking: Progress, probing: Progress) -> None:
        """Every trace and probe that the run lacks. Interrupted, it goes on from there when called again."""
        if self._lacks_traces():
            generate(self.folder, self.plan, self._model, sessions=self.sessions, progress=thinking)
        probing.probe_set = DEFAULT
        if self._lacks_probes():
            probe(self.folder, Wish(name=DEFAULT), self._model, sessions=self.sessions, progress=probing)

    @cached_property
    def _model(self) -> Model:
        """Loaded when first needed: a whole run needs none."""
        recipe = self.recipe
        return open_model(
            recipe.model,
            sessions=self.sessions,
            budget=recipe.budget,
            threads=recipe.threads,
            think_tags=recipe.think_tags,
        )

    def _config(self) -> RunConfig:
        unloaded = _Unloaded(described(self.recipe.model), Capabilities(thinking_logprobs=True))
        return self.plan.config(cast(Engine, unloaded))

    def _lacks_traces(self) -> bool:
        """A run that was made otherwise is refused before a model is loaded for it."""
        if not (self.folder / FILE).is_file():
            return True
        try:
            with Store.open(self.folder) as store:
                hint = f"Choose another --out, remove {self.folder}, or make it as it was made."
                refuse_differences(f"The run in {self.folder}", store.config, self._config(), hint)
                return bool(set(self.plan.questions) - set(store.questions()) or self._missing(store))
        except NotARun:  # one that was killed while it was made, or something else: the store will tell
            return True

    def _missing(self, store: Store) -> set[Key]:
        return set(self.plan.wanted()) - set(store.made())

    def _lacks_probes(self) -> bool:
        """A set of that name that was made otherwise is refused."""
        if self.plan.probe:
            return False
        with Store.open(self.folder) as store:
            made, sets, run = set(store.made()), store.probe_sets(), store.config
            if DEFAULT not in sets:
                return bool(made)
            wanted = ProbeSet("interval", run.interval, run.asking, run.model, run.fingerprint)
            what, hint = f"The probe set {DEFAULT!r} of {self.folder}", "Choose another --out."
            refuse_differences(what, sets[DEFAULT], wanted, hint)
            return bool(made - store.probed(DEFAULT))

    def report(self) -> WrittenReport:
        """The report of the run, as it is if nothing has changed since it was written."""
        folder = self.folder / FOLDER
        stamp = folder / STAMP
        if there := self._unchanged(folder):
            return there
        stamp.unlink(missing_ok=True)
        written = write_report(
            [self.folder],
            folder,
            thresholds=self.recipe.thresholds,
            penalties=self.recipe.penalties,
            probe_set=DEFAULT,
        )
        stamp.write_text(self._stamp(folder).to_json() + "\n", encoding="utf-8")
        return written

    def _unchanged(self, folder: Path) -> WrittenReport | None:
        """What is there, if it was made of the same and nobody touched it."""
        stamp, numbers, page = folder / STAMP, folder / JSON, folder / pages.FILE
        wanted = (stamp, numbers, page, folder / "figures" / figures.LIST)
        if not all(path.is_file() for path in wanted):
            return None
        if stamp.read_text(encoding="utf-8").strip() != self._stamp(folder).to_json():
            return None
        return WrittenReport(folder, page, (Report.from_json(numbers.read_text(encoding="utf-8")),))

    def _stamp(self, folder: Path) -> Stamp:
        recipe, numbers = self.recipe, (folder / JSON).read_bytes()
        return Stamp(__version__, run_digest(self.folder), recipe.thresholds, recipe.penalties, _digest(numbers))


def run_digest(folder: Path) -> str:
    """Tells a run from what it was before: by what produced its rows, and which there are."""
    with Store.open(folder) as store:
        probed = {name: sorted(store.probed(name)) for name in store.probe_sets()}
        sets = {name: one.to_dict() for name, one in store.probe_sets().items()}
        questions = [question.to_dict() for question in store.questions()]
        parts = (store.config.to_dict(), questions, store.made(), sets, probed)
    return _digest(json.dumps(parts).encode())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
