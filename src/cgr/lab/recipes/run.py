"""Runs a recipe: generate, probe, report, and record what ablations need.

Each stage makes only what is missing. If nothing is missing, no model is loaded and no report is written again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from cgr import __version__
from cgr.engines.base import Capabilities, ModelInfo
from cgr.files import write_text
from cgr.lab.ablate import WrittenAblations, ablate
from cgr.lab.output import style
from cgr.lab.recipes.recipe import ExtraProbes, Recipe
from cgr.lab.record.generate import Plan, generate
from cgr.lab.record.jobs import Progress
from cgr.lab.record.probe import probe_each
from cgr.lab.report import FOLDER, JSON, WrittenReport, write_report
from cgr.lab.report import page as pages
from cgr.lab.report.result import Report
from cgr.lab.store import DEFAULT, Store
from cgr.lab.store.config import ProbeRequest, ProbeSet, RunConfig, refuse_differences
from cgr.lab.store.schema import FILE, NotARun, forced_run
from cgr.solve import Model, open_model

STAMP = "made.json"  # what a report was made from; written last, so its existence means that the report is complete


class Experiment:
    """A recipe and the folder of its run. `sessions`: traces at once; `api_key`: for the recipe's server; `opening`: a
    context that is entered while the recipe's model is opened."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        *,
        sessions: int = 1,
        api_key: str | None = None,
        opening: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.recipe, self.folder, self.sessions, self.api_key, self.opening = recipe, folder, sessions, api_key, opening
        self.plan: Plan = recipe.plan()

    def make(
        self, thinking: Progress, probing: Progress, another: Callable[[], Progress] = lambda: Progress(quiet=True)
    ) -> None:
        """Make every missing trace and probe. After an interruption, the same call continues.

        `another` returns the progress for each further probe set and for the forced run.
        """
        self._generate(self.folder, self.plan, thinking)
        probing.begin_set(DEFAULT)
        if not self.plan.probe and self._lacks_probes(ProbeRequest(name=DEFAULT), None):
            self._probe(ProbeRequest(name=DEFAULT), self._model, probing)
        for further in self.recipe.further_probes:
            if self._lacks_probes(further.request(), further.model):
                model = self._other_model(further) if further.model else self._model
                self._probe(further.request(), model, another())
        if self.recipe.forced:
            self._generate(forced_run(self.folder), self.recipe.forced_plan(), another())

    def _generate(self, folder: Path, plan: Plan, progress: Progress) -> None:
        if self._lacks_traces(folder, plan):
            generate(folder, plan, self._model, sessions=self.sessions, progress=progress)

    def _probe(self, request: ProbeRequest, model: Model, progress: Progress) -> None:
        probe_each(
            self.folder, [request], model, open_generator=lambda _: self._open(), sessions=self.sessions, progress=progress
        )

    def _lacks_probes(self, request: ProbeRequest, model: str | None) -> bool:
        """Whether probes of a set are missing. A set with that name and another configuration is refused.

        `model`: the model that is probed, if it is not the recipe's own.
        """
        name = request.name or DEFAULT
        with Store.open(self.folder) as store:
            made, stored = set(store.made()), store.probe_sets().get(name)
            if stored is None:
                return bool(made)
            wanted = request.probe_set(store.config, _probed_info(model, store.config, stored))
            what, hint = f"The probe set {name!r} of {self.folder}", "Choose another --out, or another name for the set."
            refuse_differences(what, stored, wanted, hint)
            return bool(made - store.probed(name))

    def _other_model(self, further: ExtraProbes) -> Model:
        """The model that a further set is probed with."""
        recipe, addresses = self.recipe, tuple((further.base_url or "").split())
        same: dict[str, Any] = {"sessions": self.sessions, "budget": recipe.budget, "threads": recipe.threads}
        key = self.api_key if addresses else None
        return open_model(further.model, base_url=addresses, api_key=key, think_tags=further.think_tags, **same)

    def ablate(self) -> WrittenAblations:
        """Every ablation that the recorded runs allow."""
        return ablate(self.folder, threshold=max(self.recipe.thresholds))

    @cached_property
    def _model(self) -> Model:
        """The recipe's model, loaded when first needed: a complete run needs none."""
        return self._open()

    def _open(self) -> Model:
        """The recipe's model, with every key of the recipe that is an option of a model."""
        with self.opening():
            return open_model(**self.recipe.model_options() | {"sessions": self.sessions, "api_key": self.api_key})

    def notes(self) -> tuple[str, ...]:
        """What a user should know about the model, if it was loaded."""
        engine = self._model.engine if "_model" in self.__dict__ else None
        return (*engine.notes, *self.plan.notes(engine.capabilities)) if engine else ()

    def _lacks_traces(self, folder: Path, plan: Plan) -> bool:
        """Whether traces are missing. A run with another configuration is refused before a model is loaded."""
        if not (folder / FILE).is_file():
            return True
        try:
            with Store.open(folder) as store:
                hint = f"Choose another --out, remove {folder}, or use the configuration of the run."
                refuse_differences(f"The run in {folder}", store.config, self._config(plan, store.config), hint)
                return bool(set(plan.questions) - set(store.questions()) or set(plan.wanted()) - set(store.made()))
        except NotARun:  # the process was killed while it created the run, or the file is something else
            return True

    def _config(self, plan: Plan, stored: RunConfig) -> RunConfig:
        """The configuration that the plan has on the recipe's model."""
        return plan.config(self.recipe.expected_info(stored), Capabilities(thinking_logprobs=True), stored)

    def report(self) -> WrittenReport:
        """The report of the run. It is written again only if something has changed."""
        folder = self.folder / FOLDER
        if unchanged := self._unchanged(folder):
            return unchanged
        (folder / STAMP).unlink(missing_ok=True)
        written = write_report(
            [self.folder], folder, thresholds=self.recipe.thresholds, penalties=self.recipe.penalties, probe_set=DEFAULT
        )
        write_text(folder / STAMP, self._stamp(folder) + "\n")
        return written

    def _unchanged(self, folder: Path) -> WrittenReport | None:
        """The existing report, if it was made from the same run and has not been edited."""
        stamp, numbers, page = folder / STAMP, folder / JSON, folder / pages.FILE
        wanted = (stamp, numbers, page, folder / "figures" / style.LIST)
        if not all(path.is_file() for path in wanted):
            return None
        if stamp.read_text(encoding="utf-8").strip() != self._stamp(folder):
            return None
        return WrittenReport(folder, page, (Report.from_json(numbers.read_text(encoding="utf-8")),))

    def _stamp(self, folder: Path) -> str:
        recipe, run, numbers = self.recipe, run_digest(self.folder), _digest((folder / JSON).read_bytes())
        chosen = {"thresholds": recipe.thresholds, "penalties": recipe.penalties}
        return json.dumps({"version": __version__, "run": run, **chosen, "numbers": numbers})


def _probed_info(model: str | None, run: RunConfig, stored: ProbeSet) -> ModelInfo:
    """The model of a probe set, before it is loaded. A model with the recorded name has the recorded weights."""
    source = run if model is None else stored
    known = source.fingerprint if model in (None, source.model) else ""
    return ModelInfo(model or run.model, run.engine, 0, "", "", fingerprint=known)


def run_digest(folder: Path) -> str:
    """A digest of a run's configuration, questions, traces and probe sets. It changes when any of them is added."""
    with Store.open(folder) as store:
        probed = {name: sorted(store.probed(name)) for name in store.probe_sets()}
        sets = {name: one.to_dict() for name, one in store.probe_sets().items()}
        questions = [question.to_dict() for question in store.questions()]
        parts = (store.config.to_dict(), questions, store.made(), sets, probed)
    return _digest(json.dumps(parts).encode())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
