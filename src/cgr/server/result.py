"""The result of a request: the `cgr` object of a reply, and the token counts for `usage`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cgr.drive.driver import Outcome
from cgr.records import Probe
from cgr.server.config import ServeConfig
from cgr.server.generation import Generation
from cgr.settings import Resolved

if TYPE_CHECKING:
    from cgr.server.audit.promise import Coverage

VERSION = 1
StopWord = Literal["certain", "end_of_thinking", "budget", "gave_up", "loop", "client_stop", "not_probed", "error"]
STOP_WORDS: dict[str, StopWord] = {"certainty": "certain"}
DETAILS = {
    "certain": "a probe was certain enough",
    "end_of_thinking": "the model ended its thinking",
    "budget": "the thinking budget was spent",
    "gave_up": "the rule gave up",
    "loop": "the thinking repeated itself",
}
NO_THINKING = "the request asks for no thinking"


@dataclass(frozen=True, slots=True)
class Result:
    """How a request ended. `model`: without what an alias adds. `noted`: in shadow mode, the probe at which the rule would
    have stopped. `coverage`: whether a promise covers the reply; None if the server has no calibration."""

    request: Generation
    config: ServeConfig
    resolved: Resolved
    outcome: Outcome
    prompt_tokens: int
    overhead: float
    model: str
    noted: Probe | None = None
    coverage: Coverage | None = None

    @property
    def stop_cause(self) -> StopWord:
        """Why the thinking stopped, in the words of the API."""
        decision, rule = self.outcome.decision, self.resolved.rule
        if self.request.mode == "off":
            return "not_probed"
        if decision.stop_cause in ("certainty", "gave_up") and rule.name == "loop-breaker":
            last = decision.probes[-1] if decision.probes else None
            sure = last is not None and last.closed and last.certainty >= self.resolved.threshold
            return "certain" if sure else "loop"
        return STOP_WORDS.get(decision.stop_cause, decision.stop_cause)  # type: ignore[arg-type]

    @property
    def finish_reason(self) -> Literal["stop", "length"]:
        """In OpenAI's words: whether the answer is complete."""
        answer = self.outcome.answer
        return "length" if answer is not None and answer.stop == "limit" else "stop"

    @property
    def budget(self) -> int:
        """Thinking tokens that were allowed: none if the request asks for no thinking."""
        return self.resolved.budget if self.request.thinks else 0

    @property
    def thinking_tokens(self) -> int:
        """Thinking tokens that the reply holds."""
        return len(self.outcome.ids)

    @property
    def answer_tokens(self) -> int:
        """Tokens of the answer's text."""
        return self.outcome.answer.tokens if self.outcome.answer else 0

    @property
    def made(self) -> tuple[Probe, ...]:
        """All probes, the one for the final answer included."""
        final = self.outcome.decision.final
        return (*self.outcome.decision.probes, *((final,) if final else ()))

    @property
    def probe_tokens(self) -> dict[str, int]:
        """What the probes cost."""
        return {
            "cached": sum(probe.cached for probe in self.made),
            "prefilled": sum(probe.prefilled for probe in self.made),
            "decoded": sum(probe.decoded for probe in self.made),
        }

    @property
    def withheld(self) -> bool:
        """Whether answers must not be shown."""
        return self.outcome.decision.abstained and not self.config.show_withheld

    def usage(self) -> dict[str, Any]:
        """OpenAI's `usage`; the reasoning tokens are given in both ways that clients read."""
        completion = self.thinking_tokens + self.answer_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
            "completion_tokens_details": {"reasoning_tokens": self.thinking_tokens},
            "reasoning_tokens": self.thinking_tokens,
        }

    def cgr(self, mean: float | None = None) -> dict[str, Any]:
        """The `cgr` object. `mean`: mean thinking tokens without early stops, if known."""
        decision, probed = self.outcome.decision, self.request.mode != "off"
        cause, thinks = self.stop_cause, self.request.thinks
        saved = round(mean - self.thinking_tokens) if mean is not None and thinks else None
        result = {
            "object": "cgr.result",
            "version": VERSION,
            "rule": self.resolved.rule.name if probed else None,
            "threshold": self.resolved.threshold if probed else None,
            "answer": decision.answer if probed else None,
            "certainty": decision.certainty if probed else None,
            "stop_cause": cause,
            "stop_detail": self.request.detail or (DETAILS.get(cause, "") if thinks else NO_THINKING),
            "abstained": decision.abstained,
            "budget": self.budget,
            "calibration": self.coverage.promised if self.coverage else None,
            "seed": self.request.settings.seed,
            "usage": {
                "thinking_tokens": self.thinking_tokens,
                "answer_tokens": self.answer_tokens,
                "surplus_tokens": self.outcome.wasted_tokens,
                "probe_tokens": self.probe_tokens,
            },
            "saved": {"vs_budget": self.budget - self.thinking_tokens, "vs_mean": saved},
            "probes": [probe_row(probe, withheld=self.withheld) for probe in decision.probes],
        }
        if self.coverage and self.coverage.why:
            result["calibration_detail"] = self.coverage.why
        if self.request.mode == "shadow":
            result["shadow"] = {"would_stop": probe_row(self.noted) if self.noted else None}
        if decision.abstained and self.config.show_withheld and self.made:
            result["withheld"] = self.made[-1].answer
        return result


def probe_row(probe: Probe, *, withheld: bool = False) -> dict[str, Any]:
    """One probe in a list of them."""
    return {
        "at": probe.at,
        "answer": None if withheld else probe.answer,
        "certainty": probe.certainty,
        "closed": probe.closed,
        "bound": probe.bound,
        "cached_tokens": probe.cached if probe.cached or probe.prefilled else None,  # None: the server did not say
        "ms": round(probe.seconds * 1000, 3),
    }


def probe_event(probe: Probe) -> dict[str, Any]:
    """A probe that rides on a delta of a stream."""
    return {"object": "cgr.probe", **probe_row(probe)}


def not_probed(why: str) -> dict[str, Any]:
    """The `cgr` object of a reply that was passed through."""
    return {"object": "cgr.result", "version": VERSION, "stop_cause": "not_probed", "stop_detail": why}
