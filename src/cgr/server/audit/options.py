"""What `cgr serve` can be told about a calibration and its audits, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cgr.calibration import Calibration
from cgr.errors import UsageError
from cgr.settings import Settings

OnBroken = Literal["warn", "tighten", "off"]
DELTA = 0.05  # for a promise without a confidence of its own (`crc`)
AUDITED = "disagreement"  # the risk that needs no known answers
SHARE_HINT = "Use a share of requests above 0 and at most 1, such as 0.02."
MOST_USUAL = 16  # sessions of audits, if nothing is given
AUDIT = ("audit", "audit_sessions", "audit_state", "on_broken")  # options of `cgr serve`


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """`share`: of the requests that the promise covers. `sessions`: audits at once, in each worker. `state`: the file that
    keeps what was found."""

    share: float
    sessions: int
    on_broken: OnBroken
    state: Path


@dataclass(frozen=True, slots=True)
class PromiseOptions:
    """The calibration that requests obey by default, the value of its parameter, and the audits, if there are any."""

    calibration: Calibration
    parameter: float
    audit: AuditOptions | None = None

    @property
    def delta(self) -> float:
        """The chance of a false alarm."""
        return DELTA if self.calibration.delta is None else self.calibration.delta

    @property
    def places(self) -> int:
        """Sessions that are kept for audits."""
        return self.audit.sessions if self.audit else 0


def with_promise(chosen: dict[str, Any], given: dict[str, Any], sessions: int) -> tuple[Settings, PromiseOptions | None]:
    """The defaults of requests, and the promise that they obey. `chosen`: fields of `Settings`; `given`: the options that
    `AUDIT` names, None for those that were not given. `sessions`: of clients."""
    _check_given(chosen["calibration"], given)
    if chosen["calibration"] is None:
        return Settings(instruction="", **chosen), None
    calibrated = Settings(**chosen)
    calibration = calibrated.promise
    if calibration.instruction is None:  # unknown: a client's messages are its own
        calibrated = replace(calibrated, instruction="")
    main = calibration.main
    parameter: Any = calibrated.threshold if main == "threshold" else calibrated.parameters[main]
    audit = None if given["audit"] is None else _audit(calibration, Path(chosen["calibration"]), sessions, **given)
    # requests may change what is promised: their replies then say that they are not covered
    return replace(calibrated, calibration=None), PromiseOptions(calibration, float(parameter), audit)


def _check_given(calibration: object, given: dict[str, Any]) -> None:
    """Raise `UsageError` for an option without the one that it needs."""
    if given["audit"] is not None and calibration is None:
        raise UsageError("--audit needs --calibration.", "Make a file with `cgr calibrate`, and give it to --calibration.")
    others = [name for name in AUDIT[1:] if given[name] is not None]
    if others and given["audit"] is None:
        option = others[0].replace("_", "-")
        raise UsageError(f"--{option} needs --audit.", "Give the share of requests to audit, such as --audit 0.02.")


def _audit(
    calibration: Calibration,
    file: Path,
    sessions: int,
    audit: float,
    audit_sessions: int | None,
    audit_state: Path | None,
    on_broken: OnBroken | None,
) -> AuditOptions:
    """The options of audits. `file`: of the calibration; `sessions`: of clients."""
    if not 0 < audit <= 1:  # also for "nan"
        raise UsageError(f"The share of audits cannot be {audit:g}.", SHARE_HINT)
    if calibration.risk != AUDITED:
        raise UsageError(
            f"The calibration is about the risk {calibration.risk!r}, which needs known answers: audits have none.",
            "Calibrate with --risk disagreement.",
        )
    state = audit_state or file.with_suffix(".audit.json")
    # a chosen request holds its place while it is answered, and about as long again
    usual = min(math.ceil(2 * audit * sessions), MOST_USUAL)
    return AuditOptions(audit, audit_sessions or usual, on_broken or "warn", state.absolute())
