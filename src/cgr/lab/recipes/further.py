"""What a recipe records beside its own traces and probes, for ablations: further sets of probes, and a forced run."""

from __future__ import annotations

from dataclasses import dataclass

from cgr.errors import UsageError
from cgr.lab.record.probe import ProbeRequest
from cgr.lab.store import DEFAULT
from cgr.probing import CloseThink


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraProbes:
    """A set of probes on the recipe's traces. None means: as the recipe's own. `base_url`: where `model` is served, if not
    here."""

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
            raise UsageError(f"The set {self.name!r} has an address and no model.", 'Add: model = "ORG/NAME"')
        self.wish()

    def wish(self) -> ProbeRequest:
        return ProbeRequest(
            interval=self.interval,
            prefix=self.prefix,
            close_think=self.close_think,
            max_answer_tokens=self.max_answer_tokens,
            name=self.name,
        )
