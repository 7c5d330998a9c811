"""The cost of a recipe, at most, before a model is loaded: traces, requests, tokens, probes and time."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from cgr.engines.open import tokens_per_request
from cgr.lab.questions import SOURCES, arithmetic
from cgr.lab.recipes.recipe import Recipe
from cgr.lab.store.config import Asking
from cgr.records import AnswerFormat, Record

MINUTE, DAY = 60, 86_400


@dataclass(frozen=True, slots=True)
class Costs:
    """Requests and tokens of one trace or of many."""

    requests: int
    thinking_tokens: int
    probes: int
    probe_tokens: int
    answer_tokens: int
    written_tokens: int
    reread_tokens: int

    @property
    def decoded(self) -> int:
        """All tokens that are decoded; tokens that are read again are not."""
        return self.thinking_tokens + self.probe_tokens + self.answer_tokens + self.written_tokens


@dataclass(frozen=True, slots=True)
class Forecast(Record):
    """Upper bounds: every trace thinks to the budget, and every answer has its maximum length.

    `reread_tokens` are read again by probes of saved traces. If the number of questions is not known, it and every total
    are None. `seconds` is None if no speed is given; without a reading speed, reading counts as free.
    """

    recipe: str
    model: str
    source: str
    run: str
    questions: int | None
    seeds: int
    traces: int | None
    budget: int
    interval: int
    requests: int | None
    thinking_tokens: int | None
    probes: int | None
    probe_tokens: int | None
    answer_tokens: int | None
    written_tokens: int | None
    reread_tokens: int | None
    tokens_per_second: float | None = None
    seconds: float | None = None
    base_url: str | None = None
    server: str | None = None
    further_sets: int = 0
    forced: bool = False


def forecast(recipe: Recipe, folder: Path | None = None) -> Forecast:
    """The forecast of a recipe. It loads no model, downloads nothing, and reads questions only from a local file."""
    info = recipe.expected_info()
    resolved = recipe.settings().resolve(info)
    questions, formats = _counted(recipe)
    asking = Asking.of(recipe.settings(), info)
    longest = max(asking.spec(one).max_answer_tokens for one in formats)
    traces = None if questions is None else questions * recipe.seeds
    costs = _total(_parts(recipe, resolved.budget, resolved.interval, longest), traces)
    same = ("model", "seeds", "tokens_per_second", "base_url", "server", "forced")
    copied: dict[str, Any] = {name: getattr(recipe, name) for name in same}
    copied |= {name: getattr(costs, name, None) for name in Costs.__slots__}
    return Forecast(
        recipe=recipe.name,
        source=recipe.questions,
        run=str(folder or recipe.folder),
        questions=questions,
        traces=traces,
        budget=resolved.budget,
        interval=resolved.interval,
        seconds=_seconds(costs, recipe) if costs else None,
        further_sets=len(recipe.further_probes),
        **copied,
    )


def _parts(recipe: Recipe, budget: int, interval: int, longest: int) -> list[Costs]:
    """What one trace costs: the trace and its probes, each further probe set, and the forced trace."""
    chunk = tokens_per_request(recipe.model, recipe.base_urls, recipe.chunk)
    thinking_requests = 1 if chunk is None else -(-budget // chunk)
    probed = _probed((budget - 1) // interval, longest)
    forced = replace(probed, requests=probed.requests + thinking_requests, thinking_tokens=budget)
    trace = replace(
        forced,
        requests=forced.requests + bool(recipe.written_tokens),
        written_tokens=recipe.written_tokens,
        reread_tokens=min(budget, probed.probes * interval) if recipe.probe == "afterwards" else 0,
    )
    further = [_probed((budget - 1) // (one.interval or interval), longest, budget) for one in recipe.further_probes]
    return [trace, *further, *([forced] if recipe.forced else [])]


def _probed(probes: int, longest: int, reread: int = 0) -> Costs:
    """The probes of one trace and its final answer."""
    return Costs(probes + 1, 0, probes, probes * longest, longest, 0, reread)


def _total(parts: list[Costs], traces: int | None) -> Costs | None:
    """The sum of the parts for all traces; None if the number of traces is not known."""
    if traces is None:
        return None
    return Costs(*(sum(column) * traces for column in zip(*map(astuple, parts), strict=True)))


def _seconds(costs: Costs, recipe: Recipe) -> float | None:
    if recipe.tokens_per_second is None:
        return None
    reading = costs.reread_tokens / recipe.prefill_tokens_per_second if recipe.prefill_tokens_per_second else 0.0
    return costs.decoded / recipe.tokens_per_second + reading


def _counted(recipe: Recipe) -> tuple[int | None, set[AnswerFormat]]:
    """The number of questions (None: not known) and their formats. A named data set is not loaded; a local file is read."""
    if recipe.questions == arithmetic.NAME:
        return recipe.limit or arithmetic.DEFAULT_COUNT, {"integer"}
    source = SOURCES.get(recipe.questions)
    if source is None or recipe.fields:
        questions = recipe.load_questions()
        return len(questions), {question.format for question in questions}
    bounds = [count for count in (recipe.limit, source.size) if count is not None]
    return min(bounds, default=None), {source.format}


def in_lines(plan: Forecast) -> list[str]:
    """The forecast as a table."""
    most = " at most"
    rows = [
        ("questions", _count(plan.questions), f" of {plan.source}"),
        ("seeds", f"{plan.seeds:,}", ""),
        ("traces", _count(plan.traces), f" of {plan.budget:,} thinking tokens{most}, probed every {plan.interval:,}"),
        ("further probes", f"{plan.further_sets:,}", " sets on the same traces; included below"),
        ("forced run", "1", " of as many traces, each to the budget; included below"),
        ("requests", _count(plan.requests), f"{most}: one for {_unit(plan)}, a probe, or an answer"),
        ("thinking tokens", _count(plan.thinking_tokens), most),
        ("probes", _count(plan.probes), most),
        ("probe tokens", _count(plan.probe_tokens), most),
        ("answer tokens", _count(plan.answer_tokens), f"{most}, for the final answer of each trace"),
        ("written tokens", _count(plan.written_tokens), f"{most}, written by the model after that"),
        ("tokens reread", _count(plan.reread_tokens), f"{most}, by probes of saved traces"),
        ("time", *_time(plan)),
    ]
    absent = {"further probes": not plan.further_sets, "forced run": not plan.forced}
    rows = [row for row in rows if not absent.get(row[0])]
    width = max(len(number) for _, number, _ in rows)
    table = [f"{name:<16}{number:>{width}}{rest}" for name, number, rest in rows]
    server = [f"server: {plan.server}"] if plan.server else []
    unknown = [f"The number of questions in {plan.source} is not known: set a limit."] if plan.questions is None else []
    return [f"{plan.recipe}: {plan.model}, into {plan.run}", *server, *table, *unknown]


def _count(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _unit(plan: Forecast) -> str:
    """What one request for thinking returns: a chunk if there are more requests than a stream for each trace needs."""
    streamed = (plan.probes or 0) + (plan.traces or 0) * (3 + plan.further_sets + 3 * plan.forced)
    return "a chunk of thinking" if (plan.requests or 0) > streamed else "the thinking of a trace"


def _time(plan: Forecast) -> tuple[str, str]:
    if plan.tokens_per_second is None:
        return "unknown", ": give --tokens-per-second"
    if plan.seconds is None:
        return "unknown", ""
    return duration(plan.seconds), f" at most, at {plan.tokens_per_second:,.0f} tokens a second"


def duration(seconds: float) -> str:
    """A duration in at most two units: `2 d 3 h`, `7 h 6 min`, `4 min`, `12 s`."""
    if seconds < MINUTE:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / MINUTE)
    days, hours, minutes = minutes // (DAY // MINUTE), minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
