"""Whole experiments as readable files: what to ask whom, how often, and what to report. docs/recipes.md has every key."""

from __future__ import annotations

import math
import tomllib
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal

from cgr.certainty import DEFAULT as AGGREGATE
from cgr.errors import UnknownName, UsageError
from cgr.lab.questions import load_questions
from cgr.lab.recipes.further import ExtraProbes
from cgr.lab.record.generate import WRITTEN_TOKENS, Plan
from cgr.lab.report.numbers import THRESHOLDS, check_thresholds
from cgr.lab.score.accuracy import PENALTIES, check_penalties
from cgr.probing import PREFIX, CloseThink
from cgr.records import Question
from cgr.settings import INSTRUCTION, Settings
from cgr.solve import EMBEDDED

Probing = Literal["afterwards", "on-the-way"]
PROBING = ("afterwards", "on-the-way")
SEEDS = 64
RUNS = Path("runs")
HERE = Path("recipes")
ENDING = ".toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One experiment. Every field but `name` is a key of the file; None means: what fits the model, or does not apply."""

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
    written_tokens: int = WRITTEN_TOKENS
    logprobs: bool = False
    probe: Probing = "afterwards"
    interval: int | None = None
    prefix: str = PREFIX
    close_think: CloseThink = "never"
    max_answer_tokens: int | None = None
    aggregate: str = AGGREGATE
    thresholds: tuple[float, ...] = THRESHOLDS
    penalties: tuple[float, ...] = PENALTIES
    ablations: bool = False
    further_probes: tuple[ExtraProbes, ...] = ()
    forced: bool = False
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
        if self.probe not in PROBING:
            raise UnknownName.among("time to probe", self.probe, PROBING)
        check_thresholds(self.thresholds)
        check_penalties(self.penalties)
        self.settings()
        for what in ("seeds", "limit", "sessions", "threads", "chunk"):
            _check_count(what, getattr(self, what), least=1)
        _check_count("written_tokens", self.written_tokens, least=0)
        _check_apart([one.name for one in self.further_probes])
        _check_speed(self.tokens_per_second)
        _check_speed(self.prefill_tokens_per_second)

    @property
    def base_urls(self) -> tuple[str, ...]:
        """Each address of `base_url`."""
        return tuple((self.base_url or "").split())

    @property
    def folder(self) -> Path:
        """Where the run goes unless said otherwise."""
        return RUNS / self.name

    def settings(self) -> Settings:
        return Settings(
            rule="fixed-budget",
            interval=self.interval,
            budget=self.budget,
            max_answer_tokens=self.max_answer_tokens,
            aggregate=self.aggregate,
            temperature=self.temperature,
            top_p=self.top_p,
            prefix=self.prefix,
            close_think=self.close_think,
            instruction=self.instruction,
        )

    def load_questions(self) -> tuple[Question, ...]:
        return load_questions(self.questions, limit=self.limit, fields=self.fields, seed=self.question_seed)

    def plan(self) -> Plan:
        """What is to be made: the questions are loaded."""
        on_the_way = self.probe == "on-the-way"
        questions = self.load_questions()
        return Plan(questions, self.seeds, self.settings(), self.questions, on_the_way, self.logprobs, self.written_tokens)

    def forced_plan(self) -> Plan:
        """The same questions and seeds, forced on to the budget and probed on the way."""
        return replace(self.plan(), settings=replace(self.settings(), rule="budget-forcing"), probe=True)

    def with_model(self, model: str) -> Recipe:
        """The same experiment on another model, here: what was said of the recipe's own server does not hold for it."""
        return replace(
            self,
            model=model,
            base_url=None,
            server=None,
            sessions=None,
            threads=None,
            think_tags=None,
            tokenizer=None,
            device=None,
            dtype=None,
            chunk=None,
            dialect=(),
            further_probes=tuple(one for one in self.further_probes if not one.base_url),
            tokens_per_second=None,
            prefill_tokens_per_second=None,
        )


def _check_count(what: str, value: int | None, *, least: int) -> None:
    if value is not None and value < least:
        raise UsageError(f"{what} cannot be {value}.", f"Set {what} to {least} or more.")


def _check_apart(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"There are two further sets of probes called {name!r}.", "Give each a name of its own.")


def _check_speed(value: float | None) -> None:
    if value is not None and not 0 < value < math.inf:
        raise UsageError(f"{value:g} tokens per second is no speed.", "Give what the engine says it does, such as 1500.")


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file. A key that is unknown, missing or of the wrong kind is refused by name."""
    values = _parsed(path)
    hints = _hints()
    for key in values:
        if key not in hints:
            raise UnknownName.among(f"key in {path}", key, hints)
    if "questions" not in values:
        raise UsageError(f"{path} does not say what to ask.", 'Add a line such as: questions = "aime2025"')
    checked = {key: _read(path, key, hints[key], value) for key, value in values.items()}
    recipe: Recipe = _made(path, Recipe, {"name": path.stem, **checked})
    return recipe


def _hints() -> dict[str, Any]:
    types = typing.get_type_hints(Recipe)
    return {one.name: types[one.name] for one in fields(Recipe) if one.name != "name"}


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise _not_there(path) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Give the file of a recipe.") from error
    except ValueError as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error).rstrip(".")
        raise UsageError(f"{path} is not TOML: {reason}.", "Write one key a line, as in: seeds = 64") from error


def _not_there(path: Path) -> UsageError:
    """With the recipes that are there, beside it and in the usual place."""
    known = {str(one) for folder in (path.parent, HERE) for one in folder.glob(f"*{ENDING}")}
    usual = HERE / f"{path.name.removesuffix(ENDING)}{ENDING}"
    if str(usual) in known:
        return UsageError(f"There is no recipe {str(path)!r}.", f"Did you mean {str(usual)!r}?")
    return UnknownName.among("recipe", str(path), known) if known else _no_recipes(path)


def _no_recipes(path: Path) -> UsageError:
    return UsageError(f"There is no recipe {str(path)!r}.", "Give a .toml file; docs/recipes.md says what goes into it.")


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a value must be, in words and by example; how it is told, and how it is taken."""

    words: str
    example: str
    fits: Callable[[Any], bool]
    take: Callable[[Any], Any]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TEXT = _Kind("text in quotes", '"..."', lambda value: isinstance(value, str), str)
_KINDS: Mapping[Any, _Kind] = {
    str: _TEXT,
    bool: _Kind("true or false", "true", lambda value: isinstance(value, bool), bool),
    int: _Kind("a whole number", "64", lambda value: type(value) is int, int),
    float: _Kind("a number", "0.6", _is_number, float),
    tuple[float, ...]: _Kind(
        "a list of numbers",
        "[0.96, 0.99]",
        lambda value: isinstance(value, list) and all(map(_is_number, value)),
        lambda value: tuple(map(float, value)),
    ),
    tuple[str, ...]: _Kind(
        "a list of texts",
        '["stream=no"]',
        lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
        tuple,
    ),
    dict[str, str]: _Kind(
        "a table of names",
        '{ gold = "answer" }',
        lambda value: isinstance(value, dict) and all(isinstance(name, str) for name in value.values()),
        dict,
    ),
}


_TABLES = {tuple[ExtraProbes, ...]: ExtraProbes}


def _read(path: Path, key: str, hint: Any, value: Any) -> Any:
    if hint in _TABLES:
        return _read_tables(path, key, _TABLES[hint], value)
    inner = typing.get_args(hint)[0] if isinstance(hint, UnionType) else hint
    kind = _KINDS.get(inner, _TEXT)  # what is neither is one of a few words
    if not kind.fits(value):
        raise UsageError(f"{path}: {key} must be {kind.words}, not {value!r}.", f"Write it as in: {key} = {kind.example}")
    return kind.take(value)


def _read_tables(path: Path, key: str, kind: type[Any], value: Any) -> tuple[Any, ...]:
    """Each `[[key]]` of the file, its own keys checked as those of the file are."""
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise UsageError(f"{path}: {key} must be a list of tables, not {value!r}.", f"Begin each with a line: [[{key}]]")
    hints = typing.get_type_hints(kind)
    needed = {one.name for one in fields(kind) if one.default is MISSING}
    tables = []
    for table in value:
        for name in table:
            if name not in hints:
                raise UnknownName.among(f"key in a [[{key}]] of {path}", name, hints)
        for name in needed - table.keys():
            raise UsageError(f"{path}: a [[{key}]] has no {name}.", f'Add a line such as: {name} = "..."')
        tables.append(_made(path, kind, {name: _read(path, name, hints[name], one) for name, one in table.items()}))
    return tuple(tables)


def _made(path: Path, kind: type[Any], values: dict[str, Any]) -> Any:
    try:
        return kind(**values)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from error
