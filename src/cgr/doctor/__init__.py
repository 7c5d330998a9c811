"""`cgr doctor`: what an engine can do, how noisy its certainty is, and which probe interval it can afford."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from cgr.doctor import cost, integers, machine, noise
from cgr.doctor.noise import OtherEngines
from cgr.doctor.result import Checkup, EncodedTag, ModelDescription
from cgr.doctor.sample import ProbeSetup, think
from cgr.engines.base import Engine, ModelInfo
from cgr.errors import UsageError
from cgr.model.problems import unseen
from cgr.settings import Resolved, Settings

CUTS = 8


@dataclass(frozen=True, slots=True)
class CheckupOptions:
    """`tokens`: length of the trace that is probed. `threshold`: the one that the user plans to use. `share`: the largest
    accepted ratio of probing time to thinking time. `sessions`: the number of sessions that the engine has."""

    tokens: int = 256
    threshold: float = 0.99
    share: float = 0.05
    sessions: int = 4

    def __post_init__(self) -> None:
        Settings(threshold=self.threshold)
        if self.tokens < CUTS:
            raise UsageError(f"{self.tokens} tokens are too few for {CUTS} cuts.", f"Use --tokens {CUTS} or more.")
        if not 0 < self.share < 1:
            raise UsageError(f"A share of {self.share:g} is not between 0 and 1.", "Use for example --share 0.05.")

    @property
    def cuts(self) -> tuple[int, ...]:
        """The positions where the trace is probed: evenly spaced, the last at its end."""
        return tuple(self.tokens * k // CUTS for k in range(1, CUTS + 1))


def other_threads(engine: Engine) -> int | None:
    """A number of threads different from the engine's; None if the engine does not compute on threads of this process."""
    threads = engine.info.threads
    return None if threads is None else 1 if threads > 1 else 2


async def examine(
    engine: Engine, options: CheckupOptions = CheckupOptions(), others: OtherEngines | None = None
) -> Checkup:
    """Check an engine that has `options.sessions` sessions. `others` open the same model in another way, by name."""
    info = engine.info
    whole = replace(info, context=info.model_context or info.context)  # the engine may have been opened with less
    resolved = Settings(threshold=options.threshold).resolve(whole)
    spec = resolved.settings.spec()
    question = resolved.settings.prompt(next(itertools.islice(unseen(), 9, None)).text)
    description = await _describe(engine, whole, resolved, question)
    lengths = await integers.measure(engine, spec.max_answer_tokens)
    short = replace(spec, max_answer_tokens=min(lengths.needed, lengths.allowed))  # the answer is an integer
    setup = await ProbeSetup.create(engine, question, short, options.cuts)
    sessions = min(options.sessions, info.sessions or options.sessions)
    plain, probed = await think(setup), await think(setup, probe=True)
    return Checkup(
        machine=machine.describe(),
        model=description,
        integers=lengths,
        noise=await noise.measure(setup, plain, probed, others or {}, options.threshold, sessions),
        cost=cost.measure(setup, plain, probed, options.share, resolved.interval),
    )


async def _describe(engine: Engine, info: ModelInfo, resolved: Resolved, question: str) -> ModelDescription:
    capabilities, dialect = engine.capabilities, getattr(engine, "dialect", None)
    return ModelDescription(
        name=info.name,
        engine=info.engine,
        context=info.context,
        fingerprint=info.fingerprint,
        capabilities={name: _plain(getattr(capabilities, name)) for name in capabilities.__slots__},
        opening=EncodedTag(info.open_tag, await engine.encode(info.open_tag)),
        closing=EncodedTag(info.close_tag, await engine.encode(info.close_tag)),
        template_opens=info.template_opens,
        prompt_end=await _prompt_end(engine, question),
        budget=resolved.budget,
        interval=resolved.interval,
        max_answer_tokens=resolved.settings.spec().max_answer_tokens,
        dialect=None if dialect is None else dialect.to_dict(),
    )


def _plain(value: Any) -> Any:
    """A value that JSON can hold: a set becomes a sorted list."""
    return sorted(value) if isinstance(value, frozenset) else value


async def _prompt_end(engine: Engine, question: str) -> str:
    """The last six tokens of the prompt, decoded one by one: a control token may have no text."""
    prompt = await engine.prompt(question)
    return "".join([await engine.decode([token]) or f"<token {token}>" for token in prompt[-6:]])


__all__ = ["Checkup", "CheckupOptions", "examine", "other_threads"]
