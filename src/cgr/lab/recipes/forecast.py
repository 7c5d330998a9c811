"""What a recipe will come to, at most, before anything is loaded: traces, requests, tokens, probes and time."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from cgr.engines.base import ModelInfo
from cgr.engines.completions.engine import CHUNK
from cgr.engines.llama.download import is_hub_id
from cgr.engines.llama.engine import NAME, fingerprint
from cgr.engines.llama.header import read_head
from cgr.engines.open import ENGINES, find_model, server_addresses
from cgr.lab.questions import SOURCES, arithmetic
from cgr.lab.recipes.recipe import Recipe
from cgr.lab.store.config import Asking
from cgr.records import AnswerFormat, Record
from cgr.settings import BUDGET, PROMPT_ROOM

SIZES = {"aime2025": 30, "aime2024": 30, "amc23": 40, "math500": 500, "gsm8k": 1319, "gpqa": 198}
MINUTE, HOUR, DAY = 60, 3600, 86_400


@dataclass(frozen=True, slots=True)
class Forecast(Record):
    """Upper bounds: every trace thinks to the budget, every answer is as long as it may be. `reread_tokens` are read again
    by probes that come afterwards. `seconds` is None where no speed is given; without a speed of reading, reading is free.
    """

    recipe: str
    model: str
    source: str
    run: str
    questions: int
    seeds: int
    traces: int
    budget: int
    interval: int
    requests: int
    thinking_tokens: int
    probes: int
    probe_tokens: int
    answer_tokens: int
    written_tokens: int
    reread_tokens: int
    tokens_per_second: float | None = None
    seconds: float | None = None
    base_url: str | None = None
    server: str | None = None
    further_sets: int = 0
    forced: bool = False


def forecast(recipe: Recipe, folder: Path | None = None) -> Forecast:
    """The plan of a recipe. It loads no model, downloads nothing, and needs no data set but a local file."""
    info = foreseen(recipe)
    resolved = recipe.settings().resolve(info)
    questions, longest = _asked(recipe, Asking.of(recipe.settings(), info))
    traces, each = questions * recipe.seeds, (resolved.budget - 1) // resolved.interval
    afterwards = recipe.probe == "afterwards"
    plan = Forecast(
        recipe=recipe.name,
        model=recipe.model,
        source=recipe.questions,
        run=str(folder or recipe.folder),
        questions=questions,
        seeds=recipe.seeds,
        traces=traces,
        budget=resolved.budget,
        interval=resolved.interval,
        requests=traces * (_thinking_requests(recipe, resolved.budget) + each + 1 + bool(recipe.written_tokens)),
        thinking_tokens=traces * resolved.budget,
        probes=traces * each,
        probe_tokens=traces * each * longest,
        answer_tokens=traces * longest,
        written_tokens=traces * recipe.written_tokens,
        reread_tokens=traces * min(resolved.budget, each * resolved.interval) if afterwards else 0,
        tokens_per_second=recipe.tokens_per_second,
        base_url=recipe.base_url,
        server=recipe.server,
    )
    plan = _with_forced(_with_further(plan, recipe, longest), recipe, longest)
    return replace(plan, seconds=_seconds(plan, recipe))


def _with_further(plan: Forecast, recipe: Recipe, longest: int) -> Forecast:
    """And the further sets of probes: each goes through every trace once, and asks at its end."""
    steps = [one.interval or plan.interval for one in recipe.further_probes]
    probes = plan.traces * sum((plan.budget - 1) // step for step in steps)
    ends = plan.traces * len(steps)
    return replace(
        plan,
        further_sets=len(steps),
        requests=plan.requests + probes + ends,
        probes=plan.probes + probes,
        probe_tokens=plan.probe_tokens + probes * longest,
        answer_tokens=plan.answer_tokens + ends * longest,
        reread_tokens=plan.reread_tokens + ends * plan.budget,
    )


def _with_forced(plan: Forecast, recipe: Recipe, longest: int) -> Forecast:
    """And the forced run: each trace thinks to the budget and is probed on the way."""
    traces = plan.traces if recipe.forced else 0
    probes = traces * ((plan.budget - 1) // plan.interval)
    return replace(
        plan,
        forced=recipe.forced,
        requests=plan.requests + traces * (_thinking_requests(recipe, plan.budget) + 1) + probes,
        thinking_tokens=plan.thinking_tokens + traces * plan.budget,
        probes=plan.probes + probes,
        probe_tokens=plan.probe_tokens + probes * longest,
        answer_tokens=plan.answer_tokens + traces * longest,
    )


def _thinking_requests(recipe: Recipe, budget: int) -> int:
    """One stream a trace on a server; chunks elsewhere."""
    if recipe.chunk is None and not is_file(recipe) and not is_hub_file(recipe):
        return 1
    return -(-budget // (recipe.chunk or CHUNK))


def _seconds(plan: Forecast, recipe: Recipe) -> float | None:
    if recipe.tokens_per_second is None:
        return None
    decoded = plan.thinking_tokens + plan.probe_tokens + plan.answer_tokens + plan.written_tokens
    reading = plan.reread_tokens / recipe.prefill_tokens_per_second if recipe.prefill_tokens_per_second else 0.0
    return decoded / recipe.tokens_per_second + reading


def _asked(recipe: Recipe, asking: Asking) -> tuple[int, int]:
    """How many questions there are, and how long an answer may be."""
    count, formats = _known(recipe) or _counted(recipe)
    return count, max(asking.spec(one).max_answer_tokens for one in formats)


def _known(recipe: Recipe) -> tuple[int, set[AnswerFormat]] | None:
    """Of a named set, without it."""
    name = recipe.questions
    if name == arithmetic.NAME:
        return recipe.limit or arithmetic.LIMIT, {"integer"}
    if name in SOURCES and not recipe.fields:
        return min(recipe.limit or SIZES[name], SIZES[name]), {SOURCES[name].format}
    return None


def _counted(recipe: Recipe) -> tuple[int, set[AnswerFormat]]:
    questions = recipe.load_questions()
    return len(questions), {question.format for question in questions}


def foreseen(recipe: Recipe) -> ModelInfo:
    """What is known of a model without fetching or loading it: all where its file is here, else what the recipe says."""
    if not is_file(recipe):
        room = (recipe.budget or BUDGET) + PROMPT_ROOM
        return ModelInfo(recipe.model, NAME, room, "", "")
    return described(recipe.model)


def is_file(recipe: Recipe) -> bool:
    """Whether the model is a file here, which can be looked at without loading it."""
    if server_addresses(recipe.model, recipe.base_urls) or recipe.model.startswith(tuple(ENGINES)):
        return False
    return not is_hub_id(recipe.model) or os.path.exists(recipe.model)


def is_hub_file(recipe: Recipe) -> bool:
    """Whether the model is a file yet to be fetched."""
    return not server_addresses(recipe.model, recipe.base_urls) and is_hub_id(recipe.model)


def described(model: str) -> ModelInfo:
    """A model by its file, as an engine would describe it; its tags are left to the engine."""
    path = find_model(model)
    head = read_head(path)
    return ModelInfo(
        name=model,
        engine=NAME,
        context=head.context,
        open_tag="",
        close_tag="",
        interval=head.interval,
        budget=head.budget,
        max_answer_tokens=head.max_answer_tokens,
        fingerprint=fingerprint(path),
    )


def in_lines(plan: Forecast) -> list[str]:
    """A table for a person."""
    most = " at most"
    rows = [
        ("questions", f"{plan.questions:,}", f" of {plan.source}"),
        ("seeds", f"{plan.seeds:,}", ""),
        ("traces", f"{plan.traces:,}", f" of {plan.budget:,} thinking tokens{most}, probed every {plan.interval:,}"),
        *_beside(plan),
        ("requests", f"{plan.requests:,}", f"{most}: one for {_stretch(plan)}, a probe, or an answer"),
        ("thinking tokens", f"{plan.thinking_tokens:,}", most),
        ("probes", f"{plan.probes:,}", most),
        ("probe tokens", f"{plan.probe_tokens:,}", most),
        ("answer tokens", f"{plan.answer_tokens:,}", f"{most}, decoded at the end of each trace"),
        ("written tokens", f"{plan.written_tokens:,}", f"{most}, by the model itself after that"),
        ("tokens reread", f"{plan.reread_tokens:,}", f"{most}, by probes made afterwards"),
        ("time", *_time(plan)),
    ]
    width = max(len(number) for _, number, _ in rows)
    table = [f"{name:<16}{number:>{width}}{rest}" for name, number, rest in rows]
    server = [f"server: {plan.server}"] if plan.server else []
    return [f"{plan.recipe}: {plan.model}, into {plan.run}", *server, *table]


def _beside(plan: Forecast) -> list[tuple[str, str, str]]:
    """What is recorded for ablations, where something is."""
    rows = [
        ("further probes", f"{plan.further_sets:,}", " sets on the same traces; all is counted below"),
        ("forced run", "1", " of as many traces, to the end of the budget; all is counted below"),
    ]
    return [row for row, there in zip(rows, (plan.further_sets, plan.forced), strict=True) if there]


def _stretch(plan: Forecast) -> str:
    few = plan.probes + plan.traces * (3 + plan.further_sets + 3 * plan.forced)
    chunked = plan.requests > few
    return f"{CHUNK} thinking tokens" if chunked else "a trace's thinking"


def _time(plan: Forecast) -> tuple[str, str]:
    if plan.seconds is None or plan.tokens_per_second is None:
        return "unknown", ": give --tokens-per-second"
    return duration(plan.seconds), f" at most, at {plan.tokens_per_second:,.0f} tokens a second"


def duration(seconds: float) -> str:
    """Two units at most: `2 d 3 h`, `7 h 6 min`, `4 min`, `12 s`."""
    if seconds < MINUTE:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / MINUTE)
    days, hours, minutes = minutes // (DAY // MINUTE), minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
