"""What a checkup finds before any thinking: the machine, the model, and how many tokens integers take."""

from __future__ import annotations

import asyncio
import os
import platform
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cgr import __version__
from cgr.engines.base import Engine, ModelInfo
from cgr.records import Conversation, Record
from cgr.settings import Resolved

PACKAGES = ("xllamacpp", "aiohttp", "torch", "transformers", "vllm", "numpy")
LARGEST = 999
MAX_IN_FLIGHT = 32


@dataclass(frozen=True, slots=True)
class Machine(Record):
    """The machine and its software. `packages`: the installed ones of PACKAGES, with their versions."""

    cgr: str
    python: str
    system: str
    processor: str
    cores: int
    packages: tuple[tuple[str, str], ...]


def describe_machine() -> Machine:
    """The machine that this process runs on."""
    packages: list[tuple[str, str]] = []
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            packages.append((name, version(name)))
    system, cores = f"{platform.system()} {platform.machine()}", os.cpu_count() or 1
    return Machine(__version__, platform.python_version(), system, _processor(), cores, tuple(packages))


def _processor() -> str:
    """The name of the processor. On Linux only /proc/cpuinfo has it."""
    names: list[str] = []
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.processor()


@dataclass(frozen=True, slots=True)
class EncodedTag(Record):
    """A think tag and its token ids."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelDescription(Record):
    """What the engine reports about itself and its model. `template_opens`: whether the chat template writes the opening
    tag (None: unknown). `prompt_end`: the last tokens of a prompt, as text. `dialect`: what was detected about a server."""

    name: str
    engine: str
    context: int
    fingerprint: str
    capabilities: dict[str, Any]
    opening: EncodedTag
    closing: EncodedTag
    template_opens: bool | None
    prompt_end: str
    budget: int
    interval: int
    max_answer_tokens: int
    dialect: dict[str, Any] | None = None


async def describe_model(engine: Engine, info: ModelInfo, resolved: Resolved, question: Conversation) -> ModelDescription:
    """The description of this engine. The end of the prompt is decoded token by token: a control token may have no text."""
    capabilities, dialect = asdict(engine.capabilities), getattr(engine, "dialect", None)
    prompt_end = [await engine.decode([token]) or f"<token {token}>" for token in (await engine.prompt(question))[-6:]]
    return ModelDescription(
        name=info.name,
        engine=info.engine,
        context=info.context,
        fingerprint=info.fingerprint,
        capabilities=capabilities | {"sampling": sorted(capabilities["sampling"])},
        opening=EncodedTag(info.open_tag, await engine.encode(info.open_tag)),
        closing=EncodedTag(info.close_tag, await engine.encode(info.close_tag)),
        template_opens=info.template_opens,
        prompt_end="".join(prompt_end),
        budget=resolved.budget,
        interval=resolved.interval,
        max_answer_tokens=resolved.settings.spec().max_answer_tokens,
        dialect=None if dialect is None else dialect.to_dict(),
    )


@dataclass(frozen=True, slots=True)
class Integers(Record):
    """The paper's check of a tokenizer: how many tokens the integers 0 to 999 take as answers.

    `needed`: tokens of the longest integer with its closing brace; `longest`: that integer. `allowed`: the current maximum.
    `lengths`: pairs of a number of tokens and how many integers take it.
    """

    needed: int
    allowed: int
    longest: str
    lengths: tuple[tuple[int, int], ...]

    @property
    def fit(self) -> bool:
        """Whether every integer fits into the allowed tokens."""
        return self.needed <= self.allowed


async def count_integers(engine: Engine, allowed: int) -> Integers:
    """Encode every integer with its closing brace and count the tokens."""
    limit = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def length(number: int) -> int:
        async with limit:
            return len(await engine.encode(f"{number}}}"))

    lengths = await asyncio.gather(*map(length, range(LARGEST + 1)))
    needed = max(lengths)
    return Integers(needed, allowed, f"{lengths.index(needed)}}}", tuple(sorted(Counter(lengths).items())))
