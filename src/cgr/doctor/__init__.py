"""`cgr doctor`: what an engine can do, how noisy its certainty is, and which probe interval it can afford."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from cgr.doctor.description import Integers, Machine, ModelDescription, count_integers, describe_machine, describe_model
from cgr.doctor.noise import Noise, OtherEngines, measure_noise
from cgr.doctor.sample import Cost, ProbeSetup, measure_cost, think
from cgr.engines.base import Engine
from cgr.errors import UsageError
from cgr.model.problems import unseen
from cgr.prompts import Examples
from cgr.records import Record
from cgr.settings import Settings

CUTS = 8


@dataclass(frozen=True, slots=True)
class CheckupOptions:
    """`tokens`: length of the trace that is probed. `threshold`: the one that the user plans to use. `share`: the largest
    accepted ratio of probing time to thinking time. `sessions`: the number of sessions that the engine has. `system` and
    `examples`: what is before the question."""

    tokens: int = 256
    threshold: float = 0.99
    share: float = 0.05
    sessions: int = 4
    system: str = ""
    examples: Examples = ()

    def __post_init__(self) -> None:
        _ = self.settings  # raises if one of them is wrong
        if self.tokens < CUTS:
            raise UsageError(f"{self.tokens} tokens are too few for {CUTS} cuts.", f"Use --tokens {CUTS} or more.")
        if not 0 < self.share < 1:
            raise UsageError(f"A share of {self.share:g} is not between 0 and 1.", "Use for example --share 0.05.")

    @property
    def settings(self) -> Settings:
        """The settings that the trace is made with."""
        return Settings(threshold=self.threshold, system=self.system, examples=self.examples)

    @property
    def cuts(self) -> tuple[int, ...]:
        """The positions where the trace is probed: evenly spaced, the last at its end."""
        return tuple(self.tokens * k // CUTS for k in range(1, CUTS + 1))


@dataclass(frozen=True, slots=True)
class Checkup(Record):
    """All findings of `cgr doctor`."""

    machine: Machine
    model: ModelDescription
    integers: Integers
    noise: Noise
    cost: Cost


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
    resolved = options.settings.resolve(whole)
    spec = resolved.settings.spec()
    question = resolved.settings.prompt(next(itertools.islice(unseen(), 9, None)).text)
    description = await describe_model(engine, whole, resolved, question)
    lengths = await count_integers(engine, spec.max_answer_tokens)
    short = replace(spec, max_answer_tokens=min(lengths.needed, lengths.allowed))  # the answer is an integer
    setup = await ProbeSetup.create(engine, question, short, options.cuts)
    sessions = min(options.sessions, info.sessions or options.sessions)
    plain, probed = await think(setup), await think(setup, probe=True)
    return Checkup(
        machine=describe_machine(),
        model=description,
        integers=lengths,
        noise=await measure_noise(setup, plain, probed, others or {}, options.threshold, sessions),
        cost=measure_cost(setup, plain, probed, options.share, resolved.interval),
    )


__all__ = ["Checkup", "CheckupOptions", "examine", "other_threads"]
