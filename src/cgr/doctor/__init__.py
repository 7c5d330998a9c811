"""`cgr doctor`: what an engine can do, how far its certainty can be trusted, and how often it can afford to be asked."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from cgr.doctor import cost, integers, machine, noise
from cgr.doctor.cost import Cost
from cgr.doctor.integers import Integers
from cgr.doctor.machine import Machine
from cgr.doctor.noise import Noise, Others
from cgr.doctor.sample import Subject, think
from cgr.engines.base import Capabilities, Engine, ModelInfo
from cgr.errors import UsageError
from cgr.model.problems import unseen
from cgr.probing import ProbeSpec
from cgr.records import Record
from cgr.settings import Settings

CUTS = 8
TOKENS = 256
SHARE = 0.05
SESSIONS = 4


@dataclass(frozen=True, slots=True)
class Tag(Record):
    """A think tag and the tokens that it is."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Described(Record):
    """What the engine says of itself and its model. `template_opens`: the chat template opens the thinking by itself (None:
    not known); `prompt_end` is how a prompt ends in either case. `dialect`: what was found out about a server."""

    name: str
    engine: str
    context: int
    fingerprint: str
    capabilities: dict[str, Any]
    opening: Tag
    closing: Tag
    template_opens: bool | None
    prompt_end: str
    budget: int
    interval: int
    max_answer_tokens: int
    dialect: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Checkup(Record):
    """All that was found."""

    machine: Machine
    model: Described
    integers: Integers
    noise: Noise
    cost: Cost


@dataclass(frozen=True, slots=True)
class CheckupOptions:
    """How thorough to be: tokens of thinking to ask about, and the threshold and share of time that are meant."""

    tokens: int = TOKENS
    threshold: float = 0.99
    share: float = SHARE
    sessions: int = SESSIONS

    def __post_init__(self) -> None:
        Settings(threshold=self.threshold)
        if self.tokens < CUTS:
            raise UsageError(f"{self.tokens} tokens are too few to ask about.", f"Use --tokens {CUTS} or more.")
        if not 0 < self.share < 1:
            raise UsageError(f"Probing cannot take a share of {self.share:g}.", "Use --share 0.05, say.")

    @property
    def cuts(self) -> tuple[int, ...]:
        return tuple(self.tokens * k // CUTS for k in range(1, CUTS + 1))


class Speaks(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


@runtime_checkable
class HasDialect(Protocol):
    """An engine that found out how its server speaks."""

    @property
    def dialect(self) -> Speaks: ...


def other_threads(engine: Engine) -> int | None:
    """Another number of threads than this engine computes with; None where that is not ours to say."""
    threads = getattr(engine, "threads", None)
    return None if threads is None else 1 if threads > 1 else 2


async def examine(engine: Engine, wish: CheckupOptions = CheckupOptions(), others: Others | None = None) -> Checkup:
    """Look at an engine that has `wish.sessions` sessions. `others` open the same model otherwise, by what is other."""
    whole = replace(engine.info, context=_model_context(engine))
    resolved = Settings(threshold=wish.threshold).resolve(whole)
    spec = resolved.settings.spec()
    question = resolved.settings.prompt(next(itertools.islice(unseen(), 9, None)).text)
    described = await _describe(engine, spec, resolved.budget, resolved.interval, question)
    fit = await integers.measure(engine, spec.max_answer_tokens)
    short = replace(spec, max_answer_tokens=min(fit.needed, fit.allowed))  # the problem's answer is an integer
    subject = await Subject.of(engine, question, short, wish.cuts)
    sessions = min(wish.sessions, getattr(engine, "places", wish.sessions))
    plain, asked = await think(subject), await think(subject, ask=True)
    return Checkup(
        machine=machine.look(),
        model=described,
        integers=fit,
        noise=await noise.measure(subject, plain, asked, others or {}, wish.threshold, sessions),
        cost=cost.measure(subject, plain, asked, wish.share, resolved.interval),
    )


async def _describe(engine: Engine, spec: ProbeSpec, budget: int, interval: int, question: str) -> Described:
    info: ModelInfo = engine.info
    prompt = await engine.prompt(question)
    return Described(
        name=info.name,
        engine=info.engine,
        context=_model_context(engine),
        fingerprint=info.fingerprint,
        capabilities=_capabilities(engine.capabilities),
        opening=Tag(info.open_tag, await engine.encode(info.open_tag)),
        closing=Tag(info.close_tag, await engine.encode(info.close_tag)),
        template_opens=getattr(engine, "template_opens", None),
        prompt_end=await _prompt_end(engine, prompt),
        budget=budget,
        interval=interval,
        max_answer_tokens=spec.max_answer_tokens,
        dialect=engine.dialect.to_dict() if isinstance(engine, HasDialect) else None,
    )


def _model_context(engine: Engine) -> int:
    """The model's own where the engine tells it: it was opened here with as much as is needed."""
    return int(getattr(engine, "model_context", engine.info.context))


def _capabilities(capabilities: Capabilities) -> dict[str, Any]:
    return {name: getattr(capabilities, name) for name in capabilities.__slots__}


async def _prompt_end(engine: Engine, prompt: tuple[int, ...]) -> str:
    """The last few tokens one by one: a control token may have no text of its own."""
    return "".join([await engine.decode([token]) or f"<token {token}>" for token in prompt[-6:]])


__all__ = ["Checkup", "CheckupOptions", "examine", "other_threads"]
