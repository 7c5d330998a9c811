"""Whole experiments as readable TOML files: the questions, the model, how often, and what to report (docs/recipes.md)."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, to_json

from cgr.engines.base import ModelInfo
from cgr.engines.open import ModelOptions, describe_file, is_local_file
from cgr.errors import ModelNotFound, UnknownName, UsageError
from cgr.lab.questions import load_questions
from cgr.lab.record.generate import WRITTEN_TOKENS, Plan
from cgr.lab.report.numbers import THRESHOLDS, check_thresholds
from cgr.lab.score.accuracy import PENALTIES, check_penalties
from cgr.lab.store.config import DEFAULT, NATURAL, ProbeRequest, RunConfig
from cgr.lab.validation import UNKNOWN, sentence
from cgr.probing import PREFIX, CloseThink
from cgr.records import Question
from cgr.rules import make_rule
from cgr.settings import BUDGET, INSTRUCTION, PROMPT_ROOM, Settings
from cgr.solve import EMBEDDED

Probing = Literal["afterwards", "on-the-way"]
SEEDS = 64
RUNS = Path("runs")
RECIPES = Path("recipes")
SUFFIX = ".toml"
MODEL_KEYS = (  # options that hold only for the recipe's own model
    *("base_url", "server", "sessions", "threads", "think_tags", "tokenizer", "device", "dtype", "chunk", "dialect"),
    *("tokens_per_second", "prefill_tokens_per_second"),
)
# What a key must be, and an example: by key for lists and tables, by the type of the error for single values.
LISTS = {
    "thresholds": ("a list of numbers", "thresholds = [0.96, 0.99]"),
    "penalties": ("a list of numbers", "penalties = [0, 0.5]"),
    "dialect": ("a list of texts", 'dialect = ["stream=no"]'),
    "fields": ("a table of names", 'fields = { gold = "answer" }'),
    "examples": ("a list of files", 'examples = ["worked-examples/word-problems.toml"]'),
    "forcing": ("a table of parameters", 'forcing = { at_most = 1, text = "\\nWait" }'),
    "further_probes": ("a list of tables", '[[further_probes]], and below it: name = "every-16"'),
}
VALUES = {
    "int_type": ("a whole number", "{key} = 64"),
    "float_type": ("a number", "{key} = 0.6"),
    "bool_type": ("true or false", "{key} = true"),
    "string_type": ("text in quotes", '{key} = "..."'),
}


def _shared(part: ExtraProbes | Recipe, other: type[Any]) -> dict[str, Any]:
    """The values of those keys that are also fields of the other class."""
    return {one.name: getattr(part, one.name) for one in fields(other) if one.name in part.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraProbes:
    """Another probe set on the traces of a recipe. None means: as the recipe. `base_url`: the server of `model`, if any."""

    name: str
    interval: int | None = None
    prefix: str | None = None
    close_think: CloseThink | None = None
    max_answer_tokens: int | None = None
    model: str | None = None
    base_url: str | None = None
    think_tags: str | None = None

    def __post_init__(self) -> None:
        if not self.name or self.name == DEFAULT:
            raise UsageError(f"Further probes cannot be called {self.name!r}.", 'Name them, as in: name = "every-16"')
        if self.base_url and not self.model:
            raise UsageError(f"The set {self.name!r} has an address but no model.", 'Add: model = "ORG/NAME"')
        self.request()

    def request(self) -> ProbeRequest:
        """These probes as a request."""
        return ProbeRequest(**_shared(self, ProbeRequest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One experiment. Every field but `name` is a key of the file. None means: the model's default, or not applicable."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    name: str
    questions: str
    about: str = ""
    model: str = EMBEDDED
    base_url: str | None = None
    server: str | None = None
    limit: int | None = None
    question_seed: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    seeds: int = SEEDS
    budget: int | None = None
    temperature: float = 0.6
    top_p: float = 1.0
    instruction: str = INSTRUCTION
    system: str = ""
    examples: tuple[str, ...] = ()
    written_tokens: int = WRITTEN_TOKENS
    logprobs: bool = False
    probe: Probing = "afterwards"
    interval: int | None = None
    prefix: str = PREFIX
    close_think: CloseThink = "never"
    max_answer_tokens: int | None = None
    aggregate: str | None = None
    thresholds: tuple[float, ...] = THRESHOLDS
    penalties: tuple[float, ...] = PENALTIES
    ablations: bool = False
    further_probes: tuple[ExtraProbes, ...] = ()
    forced: bool = False
    forcing: dict[str, int | str] = field(default_factory=dict)
    sessions: int | None = None
    threads: int | None = None
    think_tags: str | None = None
    tokenizer: str | None = None
    device: str | None = None
    dtype: str | None = None
    chunk: int | None = None
    dialect: tuple[str, ...] = ()
    tokens_per_second: float | None = None
    prefill_tokens_per_second: float | None = None

    def __post_init__(self) -> None:
        check_thresholds(self.thresholds)
        check_penalties(self.penalties)
        self.settings()
        make_rule("budget-forcing", **self.forcing)
        if self.forcing and not self.forced:
            raise UsageError("There is no forced run, so forcing has no use.", "Add: forced = true")
        for what in ("seeds", "limit", "sessions", "threads", "chunk"):
            _check_count(what, getattr(self, what), least=1)
        _check_count("written_tokens", self.written_tokens, least=0)
        names = [one.name for one in self.further_probes]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"There are two further probe sets called {name!r}.", "Give each its own name.")
        for speed in (self.tokens_per_second, self.prefill_tokens_per_second):
            if speed is not None and not 0 < speed < math.inf:
                raise UsageError(f"{speed:g} tokens per second is not a speed.", "Give a measured speed, such as 1500.")

    @property
    def base_urls(self) -> tuple[str, ...]:
        """Each address of `base_url`."""
        return tuple((self.base_url or "").split())

    @property
    def folder(self) -> Path:
        """The default folder of the run."""
        return RUNS / self.name

    def settings(self) -> Settings:
        """The settings that the traces are generated with."""
        return Settings(**_shared(self, Settings), rule=NATURAL)

    def model_options(self) -> dict[str, Any]:
        """The options that the model is opened with."""
        return _shared(self, ModelOptions) | {"base_url": self.base_urls}

    def expected_info(self, stored: RunConfig | None = None) -> ModelInfo:
        """What is known about the model without loading it: from its file if that is local, else from the recipe. What the
        recipe leaves open is as in the `stored` run."""
        if is_local_file(self.model, self.base_urls):
            try:
                return describe_file(self.model)
            except ModelNotFound:
                if self.budget is None or self.interval is None:  # else a plan can be made without the file
                    raise
        run = stored or RunConfig()
        context = (max(self.budget or 0, run.budget) or BUDGET) + PROMPT_ROOM
        own = (run.interval, run.budget, run.asking.max_answer_tokens, run.fingerprint if self.model == run.model else "")
        return ModelInfo(self.model, run.engine, context, "", "", *own)

    def load_questions(self) -> tuple[Question, ...]:
        """The questions of the recipe."""
        return load_questions(self.questions, limit=self.limit, fields=self.fields, seed=self.question_seed)

    def plan(self) -> Plan:
        """The traces to generate. This loads the questions."""
        probe = self.probe == "on-the-way"
        questions = self.load_questions()
        return Plan(questions, self.seeds, self.settings(), self.questions, probe, self.logprobs, self.written_tokens)

    def forced_plan(self) -> Plan:
        """The same questions and seeds, forced to continue to the budget and probed while they are generated."""
        settings = replace(self.settings(), rule="budget-forcing", parameters=self.forcing)
        return replace(self.plan(), settings=settings, probe=True)

    def with_model(self, model: str) -> Recipe:
        """The same experiment on another model, without the options of the recipe's own model and server."""
        defaults: dict[str, Any] = {one.name: one.default for one in fields(Recipe) if one.name in MODEL_KEYS}
        here = tuple(one for one in self.further_probes if not one.base_url)
        return replace(self, **defaults | {"model": model, "further_probes": here})


def _check_count(what: str, value: int | None, *, least: int) -> None:
    if value is not None and value < least:
        raise UsageError(f"{what} cannot be {value}.", f"Set {what} to {least} or more.")


def read_recipe(path: Path) -> Recipe:
    """The recipe in a TOML file; a `UsageError` names the key that is unknown, missing or has the wrong type."""
    values = _parsed(path)
    if isinstance(files := values.get("examples"), list):  # beside the recipe, wherever it is called from
        values["examples"] = [str(path.parent / one) if isinstance(one, str) else one for one in files]
    if "name" in values:  # the file's own name is the name of the recipe
        raise _unknown_key(f"{path}", "name", Recipe)
    try:
        return TypeAdapter(Recipe).validate_json(to_json({"name": path.stem, **values}, inf_nan_mode="constants"))
    except ValidationError as error:
        raise _error(path, error.errors()[0]) from error
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from error


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise _not_found(path) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Give the file of a recipe.") from error
    except ValueError as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error).rstrip(".")
        raise UsageError(f"{path} is not TOML: {reason}.", "Write one key per line, as in: seeds = 64") from error


def _not_found(path: Path) -> UsageError:
    """Suggests the recipes in the same folder and in `recipes/`."""
    known = {str(one) for folder in (path.parent, RECIPES) for one in folder.glob(f"*{SUFFIX}")}
    usual = RECIPES / f"{path.name.removesuffix(SUFFIX)}{SUFFIX}"
    if str(usual) in known:
        return UsageError(f"There is no recipe {str(path)!r}.", f"Did you mean {str(usual)!r}?")
    if known:
        return UnknownName.among("recipe", str(path), known)
    return UsageError(f"There is no recipe {str(path)!r}.", "Give a .toml file; its keys are in docs/recipes.md.")


def _error(path: Path, problem: ErrorDetails) -> UsageError:
    """A validation error as one sentence that names the key, with an example or the nearest known key."""
    names = [one for one in problem["loc"] if isinstance(one, str)]
    nested = len(names) > 1 and names[0] == "further_probes"
    part, where = (ExtraProbes, f"a [[further_probes]] of {path}") if nested else (Recipe, f"{path}")
    key = names[1] if nested else names[0]
    if problem["type"] in UNKNOWN:
        return _unknown_key(where, key, part)
    if problem["type"] == "missing":
        return UsageError(f"{where} has no {key}.", f'Add a line such as: {key} = "{"every-16" if nested else "aime2025"}"')
    if problem["type"] == "literal_error":
        choices = re.findall("'(.*?)'", problem["ctx"]["expected"])
        return UsageError(f"{path}: {sentence(problem, key)}", UnknownName.among(key, str(problem["input"]), choices).hint)
    expected, example = LISTS.get(key) or VALUES.get(problem["type"]) or (None, "{key} = ...")
    hint = f"Write it as in: {example.replace('{key}', key)}"
    return UsageError(f"{path}: {sentence(problem, key, expected)}", hint)


def _unknown_key(where: str, key: str, part: type[Any]) -> UnknownName:
    known = [one.name for one in fields(part) if part is ExtraProbes or one.name != "name"]
    return UnknownName.among(f"key in {where}", key, known)
