"""The promise of a calibration, as requests meet it: the settings that they get, and whether their replies are covered."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from cgr.calibration import NotCalibrated
from cgr.engines.base import Engine
from cgr.server.audit.options import PromiseOptions
from cgr.server.audit.state import AuditState, StateFile
from cgr.server.generation import Generation
from cgr.settings import Resolved, Settings

NOT_COVERED_MODES = {"off": "the request is not probed", "shadow": "nothing is stopped in shadow mode"}
BROKEN_OFF = "the promise of the calibration is broken, and --on-broken off stops nothing any more"
EXHAUSTED = "the promise of the calibration is broken at its strictest threshold"
FREE = ("seed", "overlap", "full", "calibration")  # settings that change nothing about the risk


@dataclass(frozen=True, slots=True)
class Coverage:
    """Whether the promise covers a reply. `why`: if it does not, the reason. `watched`: the request has the value of the
    parameter that is watched now."""

    promised: dict[str, Any] | None
    why: str = ""
    watched: bool = False


class Promise:
    """What a server promises. `state` is None if nothing is audited."""

    def __init__(self, options: PromiseOptions, settings: Settings) -> None:
        self.options, self.calibration = options, options.calibration
        self._settings = {options.parameter: settings}
        audit = options.audit
        self.state = StateFile(audit.state, self.calibration.digest, options.parameter) if audit else None

    def check(self, engine: Engine) -> None:
        """Raise `NotCalibrated` for a model that the promise is not for."""
        self.calibration.check_model(engine.info)
        self.calibration.check_prober(engine.prober.info if engine.prober else None)

    @property
    def found(self) -> AuditState | None:
        """What the audits found so far."""
        return self.state.read() if self.state else None

    @property
    def parameter(self) -> float:
        """The value of the main parameter that requests get by default."""
        found = self.found
        return self.options.parameter if found is None or found.parameter is None else found.parameter

    @property
    def settings(self) -> Settings:
        """The defaults of requests."""
        value = self.parameter
        if value not in self._settings:
            chosen = {"threshold": value} if self.calibration.main == "threshold" else {"parameters": {self.main: value}}
            usual = self._settings[self.options.parameter]
            self._settings[value] = replace(usual, **self.calibration.settings(chosen))
        return self._settings[value]

    @property
    def main(self) -> str:
        """The name of the parameter."""
        return self.calibration.main

    @property
    def why_not_stopping(self) -> str:
        """Why nothing is stopped any more; empty while requests are stopped."""
        found, audit = self.found, self.options.audit
        if found is None or audit is None or found.broken is None:
            return ""
        return EXHAUSTED if found.parameter is None else BROKEN_OFF if audit.on_broken == "off" else ""

    def coverage(self, request: Generation, resolved: Resolved) -> Coverage:
        """Whether the reply to this request is covered, before anything is known about it."""
        if why := NOT_COVERED_MODES.get(request.mode) or self._outside(request, resolved):
            return Coverage(None, why)
        found = self.found
        return Coverage(
            {
                "hash": self.calibration.digest,
                "risk": self.calibration.risk,
                "epsilon": self.calibration.epsilon,
                "delta": self.calibration.delta,
                "broken": bool(found and found.broken),
            },
            watched=self._value(resolved) == self.parameter,
        )

    def _value(self, resolved: Resolved) -> Any:
        return getattr(resolved.rule, self.main, None)

    def _outside(self, request: Generation, resolved: Resolved) -> str:
        """What about a request is outside the promise, in words."""
        if request.raw:
            return "a prompt without the chat template is outside the calibration"
        if filters := sorted(request.sampling.filters() - {"stop"}):
            return f"the calibration is for sampling without {filters[0]}"
        given = {one.name: getattr(resolved.settings, one.name) for one in fields(Settings) if one.name not in FREE}
        if self.main != "threshold":
            given.pop("threshold")
        try:
            self.calibration.settings(given)
        except NotCalibrated as error:
            return error.message
        if not self._has_rule(resolved):  # a request's parameters replace all of those of the file
            return f"the calibration is for {self.calibration.rule!r} with other parameters"
        usual = self.settings
        changed = [name for name in ("at_budget", "at_end_of_thinking") if given[name] != getattr(usual, name)]
        return f"the calibration is for {changed[0]} {getattr(usual, changed[0])!r}" if changed else ""

    def _has_rule(self, resolved: Resolved) -> bool:
        """Whether the rule is that of the calibration, at a value that it covers."""
        value = self._value(resolved)
        covered = value in self.calibration.allowed
        return covered and resolved.rule == self.calibration.stopping_rule(value).within(resolved.budget)

    def summary(self) -> dict[str, Any]:
        """The state of the promise, for `/health` and the page."""
        calibration, audit, found = self.calibration, self.options.audit, self.found
        told: dict[str, Any] = {
            "hash": calibration.digest,
            "risk": calibration.risk,
            "epsilon": calibration.epsilon,
            "delta": calibration.delta,
            "parameter": self.parameter,
            "audited": audit is not None,
            "stopping": not self.why_not_stopping,
        }
        if audit is None or found is None:
            return told
        lower, upper = found.bounds(self.options.delta)
        return told | {
            "broken": found.broken is not None,
            "broken_at": found.broken.at if found.broken else None,
            "on_broken": audit.on_broken,
            "share": audit.share,
            "audits": found.audits,
            "losses": found.losses,
            "risk_lower": lower,
            "risk_upper": upper,
        }

    def stricter(self, value: float) -> float | None:
        """The next more cautious value of the sequence that passed; None if there is none."""
        allowed = self.calibration.allowed
        place = allowed.index(value) if value in allowed else 0
        return allowed[place - 1] if place else None
