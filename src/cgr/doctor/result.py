"""What a checkup finds: the description of the model, and all findings together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cgr.doctor.cost import Cost
from cgr.doctor.integers import Integers
from cgr.doctor.machine import Machine
from cgr.doctor.noise import Noise
from cgr.records import Record


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


@dataclass(frozen=True, slots=True)
class Checkup(Record):
    """All findings of `cgr doctor`."""

    machine: Machine
    model: ModelDescription
    integers: Integers
    noise: Noise
    cost: Cost
