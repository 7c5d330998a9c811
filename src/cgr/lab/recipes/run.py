"""A recipe carried out: think, probe, report, and what it records beside for ablations. Each stage makes what is missing;
where nothing is, no model is loaded and no report is written anew."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from cgr import __version__
from cgr.engines.base import Capabilities, Engine, ModelInfo
from cgr.lab.ablate import WrittenAblations, ablate
from cgr.lab.output import style
from cgr.lab.recipes.forecast import described, is_file
from cgr.lab.recipes.further import ExtraProbes
from cgr.lab.recipes.recipe import Recipe
from cgr.lab.record.generate import Plan, generate
from cgr.lab.record.probe import ProbeRequest, probe
from cgr.lab.record.progress import Progress
from cgr.lab.report import FOLDER, JSON, WrittenReport, write_report
from cgr.lab.report import page as pages
from cgr.lab.report.result import Report
from cgr.lab.store import DEFAULT, Store
from cgr.lab.store.config import ProbeSet, RunConfig, refuse_differences
from cgr.lab.store.schema import FILE, NotARun, forced_run
from cgr.records import Record
from cgr.settings import PROMPT_ROOM
from cgr.solve import Model, open_model

STAMP = "made.json"


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
    """A recipe and its folder. `sessions`: traces in flight; `api_key`: of the recipe's server, if it wants one."""

    def __init__(self, recipe: Recipe, folder: Path, *, sessions: int = 1, api_key: str | None = None) -> None:
        self.recipe, self.folder, self.sessions, self.api_key = recipe, folder, sessions, api_key
        self.plan: Plan = recipe.plan()

    def make(
        self, thinking: Progress, probing: Progress, another: Callable[[], Progress] = lambda: Progress(quiet=True)
    ) -> None:
        """Every trace and probe that the run lacks. Interrupted, it goes on from there when called again. `another` gives
        progress for each further set of probes and the forced run."""
        if self._lacks_traces():
            generate(self.folder, self.plan, self._model, sessions=self.sessions, progress=thinking)
        probing.probe_set = DEFAULT
        if self._lacks_probes():
            probe(self.folder, ProbeRequest(name=DEFAULT), self._model, sessions=self.sessions, progress=probing)
        for further in self.recipe.further_probes:
            self._probe_further(further, another())
        if self.recipe.forced:
            self._force(another())

    def _probe_further(self, further: ExtraProbes, progress: Progress) -> None:
        if not self._lacks_further(further):
            return
        asked = self._other(further) if further.model else self._model
        probe(
            self.folder,
            further.wish(),
            asked,
            open_teller=lambda name: self._open(),
            sessions=self.sessions,
            progress=progress,
        )

    def _lacks_further(self, further: ExtraProbes) -> bool:
        with Store.open(self.folder) as store:
            made, sets = set(store.made()), store.probe_sets()
            if further.name not in sets:
                return bool(made)
            there, asked = sets[further.name], _asked(further, store.config, sets[further.name])
            wanted = further.wish().probe_set(store.config, cast(Engine, _Unloaded(asked, Capabilities())))
            what, hint = f"The probe set {further.name!r} of {self.folder}", "Give the recipe's set another name."
            refuse_differences(what, there, wanted, hint)
            return bool(made - store.probed(further.name))

    def _other(self, further: ExtraProbes) -> Model:
        """Another model, to be asked about these traces."""
        address = tuple((further.base_url or "").split())
        return open_model(
            further.model,
            sessions=self.sessions,
            budget=self.recipe.budget,
            threads=self.recipe.threads,
            think_tags=further.think_tags,
            base_url=address,
            api_key=self.api_key if address else None,
        )

    def _force(self, progress: Progress) -> None:
        folder, plan = forced_run(self.folder), self.recipe.forced_plan()
        if self._lacks_traces(folder, plan):
            generate(folder, plan, self._model, sessions=self.sessions, progress=progress)

    def ablate(self) -> WrittenAblations:
        """Every ablation that the run and what was recorded beside it allow."""
        return ablate(self.folder, threshold=max(self.recipe.thresholds))

    @cached_property
    def _model(self) -> Model:
        """Loaded when first needed: a whole run needs none."""
        return self._open()

    def _open(self) -> Model:
        recipe = self.recipe
        return open_model(
            recipe.model,
            sessions=self.sessions,
            budget=recipe.budget,
            threads=recipe.threads,
            think_tags=recipe.think_tags,
            base_url=recipe.base_urls,
            api_key=self.api_key,
            tokenizer=recipe.tokenizer,
            device=recipe.device,
            dtype=recipe.dtype,
            chunk=recipe.chunk,
            dialect=recipe.dialect,
        )

    def notes(self) -> tuple[str, ...]:
        """What a user should know of the model, if it was needed."""
        return getattr(self._model.engine, "notes", ()) if "_model" in self.__dict__ else ()

    def _config(self, plan: Plan, there: RunConfig) -> RunConfig:
        info = described(self.recipe.model) if is_file(self.recipe) else _as_recorded(self.recipe, there)
        return plan.config(cast(Engine, _Unloaded(info, Capabilities(thinking_logprobs=True))))

    def _lacks_traces(self, folder: Path | None = None, plan: Plan | None = None) -> bool:
        """A run that was made otherwise is refused before a model is loaded for it."""
        folder, plan = folder or self.folder, plan or self.plan
        if not (folder / FILE).is_file():
            return True
        try:
            with Store.open(folder) as store:
                hint = f"Choose another --out, remove {folder}, or make it as it was made."
                refuse_differences(f"The run in {folder}", store.config, self._config(plan, store.config), hint)
                return bool(set(plan.questions) - set(store.questions()) or set(plan.wanted()) - set(store.made()))
        except NotARun:  # one that was killed while it was made, or something else: the store will tell
            return True

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
        wanted = (stamp, numbers, page, folder / "figures" / style.LIST)
        if not all(path.is_file() for path in wanted):
            return None
        if stamp.read_text(encoding="utf-8").strip() != self._stamp(folder).to_json():
            return None
        return WrittenReport(folder, page, (Report.from_json(numbers.read_text(encoding="utf-8")),))

    def _stamp(self, folder: Path) -> Stamp:
        recipe, numbers = self.recipe, (folder / JSON).read_bytes()
        return Stamp(__version__, run_digest(self.folder), recipe.thresholds, recipe.penalties, _digest(numbers))


def _asked(further: ExtraProbes, run: RunConfig, there: ProbeSet) -> ModelInfo:
    """The model that a set is to be asked of; its weights are as they were, if it is the same by name."""
    if further.model is None:
        return ModelInfo(run.model, run.engine, 0, "", "", fingerprint=run.fingerprint)
    seen = there.fingerprint if further.model == there.model else ""
    return ModelInfo(further.model, run.engine, 0, "", "", fingerprint=seen)


def _as_recorded(recipe: Recipe, there: RunConfig) -> ModelInfo:
    """A model that cannot be looked at before it is reached: what the recipe leaves open is as it was."""
    return ModelInfo(
        name=recipe.model,
        engine=there.engine,
        context=max(recipe.budget or 0, there.budget) + PROMPT_ROOM,
        open_tag="",
        close_tag="",
        interval=there.interval,
        budget=there.budget,
        max_answer_tokens=there.asking.max_answer_tokens,
        fingerprint=there.fingerprint if recipe.model == there.model else "",
    )


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
