"""A promise about a stopping rule, as a file: `cgr calibrate` writes it, `cgr solve` and `cgr serve` obey it.

The promise holds for the model, prompt, probes, interval, budget and sampling that it was made with. Options that a user
leaves at their defaults are taken from the file; others must agree with it. This module needs no numpy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from cgr.engines.base import ModelInfo
from cgr.errors import UsageError
from cgr.files import write_text
from cgr.prompts import Example
from cgr.records import Record
from cgr.rules import Rule, make_rule

SCHEMA = 1
ADDED = ("system", "examples")
FILE = "calibration.json"
QUESTION = "{question}"
RISKS = ("disagreement", "lost", "wrong", "grade")
METHODS = ("ltt", "crc")
AGAIN = "Make a new one: cgr calibrate RUN."
Interval = tuple[float, float]


class NotCalibrated(UsageError):
    """A calibration file cannot be used here."""


@dataclass(frozen=True, slots=True)
class SequenceStep(Record):
    """One value of the main parameter: the loss that was seen, its upper bound, the p-value of "the risk is above epsilon"
    (None: not tested, or `crc`), whether it passed, and the share of thinking that is saved, net of probes."""

    parameter: float
    loss: float
    p_value: float | None
    passed: bool
    saved_share: float
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(Record):
    """What was promised, how it was proved, and for what. `parameter` None: nothing can be promised.

    `main`: the name of the parameter; `parameters`: the other parameters of the rule. `losses` counts questions; with
    several traces of a question, it is a sum of means. `bound`: the upper bound of the risk at the parameter. `kind`: of
    the bound, exact or betting. `prompt`: with `{question}` in the place of the question; `system` and `examples` are
    before it. `probe`: the other options of probes. `abstains`: answers below the threshold are withheld. `run`: a hash of
    the traces that were read; `digest`: a hash of this record. None in `prompt`, `system`, `prefix`, `sampling` and
    `probe`: unknown.
    """

    rule: str
    parameter: float | None
    risk: str
    epsilon: float
    delta: float | None
    method: str
    questions: int
    losses: float
    bound: float | None
    sequence: tuple[SequenceStep, ...]
    saved_share: float | None
    saved_share_ci95: Interval | None
    needed_questions: int | None
    possible_epsilon: float | None
    model: str
    fingerprint: str
    prompt: str | None
    prefix: str | None
    interval: int
    budget: int
    sampling: Mapping[str, float | None]
    run: str
    created: str
    version: str
    main: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    probe: Mapping[str, Any] = field(default_factory=dict)
    probe_model: str | None = None
    kind: str = ""
    traces: int = 0
    abstains: bool = False
    answered_share: float | None = None
    penalty: float | None = None
    headroom: float | None = None
    false_sure: Mapping[str, Any] = field(default_factory=dict)
    verdict: str | None = None
    notes: tuple[str, ...] = ()
    run_name: str = ""
    system: str | None = ""
    examples: tuple[Example, ...] = ()
    schema: int = SCHEMA
    digest: str = ""

    def signed(self) -> Calibration:
        """The same with its digest."""
        return replace(self, digest=self._digest())

    def _digest(self) -> str:
        content = {name: value for name, value in self.to_dict().items() if name != "digest"}
        for name in ADDED:  # the digest of a file without them is as it was before they existed
            if not content[name]:
                del content[name]
        return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def write(self, path: Path) -> None:
        """Write the file; its folder is created if needed."""
        write_text(path, json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n")

    @property
    def allowed(self) -> tuple[float, ...]:
        """The values of the parameter that the promise covers, the most cautious first."""
        return tuple(step.parameter for step in self.sequence if step.passed)

    @property
    def instruction(self) -> str | None:
        """The text after the question; None if it is unknown."""
        return None if self.prompt is None else self.prompt.removeprefix(QUESTION).removeprefix("\n")

    def stopping_rule(self, parameter: float | None = None) -> Rule:
        """The rule at the promised parameter, or at another value that the promise covers."""
        value = self.parameter if parameter is None else parameter
        given = {**self.parameters, self.main: value} | ({"interval": self.interval} if self.interval else {})
        return make_rule(self.rule, **given)

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of `cgr.Settings` that this promise fixes. `given`: those that a user set to something else than the
        default; `NotCalibrated` if one of them is outside the promise."""
        parameter = self._parameter(given)
        fixed = {
            "rule": self.rule,
            "interval": self.interval or None,
            "budget": self.budget,
            "prefix": self.prefix,
            "instruction": self.instruction,
            "system": self.system,
            "examples": None if self.system is None else self.examples,
            **self.sampling,
            **self.probe,
        }
        for name, value in fixed.items():
            if value is not None and name in given and given[name] != value:
                raise self._outside(name, value, given[name])
        if not self.interval and "interval" in make_rule(self.rule, **self.parameters).parameters():
            raise NotCalibrated("The calibration is of probes at irregular positions.", "Probe the run at an interval.")
        abstaining = dict.fromkeys(("at_budget", "at_end_of_thinking"), "abstain") if self.abstains else {}
        own = {"threshold": parameter} if self.main == "threshold" else {}
        parameters = {"parameters": {**self.parameters} | ({} if own else {self.main: parameter})}
        return {name: value for name, value in fixed.items() if value is not None} | abstaining | own | parameters

    def _outside(self, name: str, promised: Any, asked: Any) -> NotCalibrated:
        """The error for a setting that the promise does not cover."""
        if name == "examples":
            return NotCalibrated(
                "The calibration is for other worked examples.", "Leave --example out, or calibrate again."
            )
        return NotCalibrated(
            f"The calibration is for {name.replace('_', ' ')} {promised!r}, and this is {asked!r}.",
            f"Leave --{name.replace('_', '-')} out, or calibrate on a run that has it.",
        )

    def _parameter(self, given: Mapping[str, Any]) -> float:
        """The value of the main parameter: the promised one, or a more cautious one that was asked for."""
        asked = dict(given.get("parameters") or {})
        chosen: list[float] = [asked.pop(self.main)] if self.main in asked else []
        if self.main == "threshold" and "threshold" in given:
            chosen.append(given["threshold"])
        for value in chosen:
            if value not in self.allowed:
                shown = ", ".join(f"{one:g}" for one in self.allowed)
                raise NotCalibrated(f"The calibration does not cover {self.main} {value:g}.", f"It covers {shown}.")
        for name, value in asked.items():
            if name not in self.parameters or _as_json(self.parameters[name]) != _as_json(value):
                raise NotCalibrated(f"The calibration fixes the parameters of {self.rule!r}.", f"Leave out --set {name}.")
        return min(chosen, key=self.allowed.index) if chosen else self.allowed[-1]

    def check_model(self, info: ModelInfo) -> None:
        """Raise `NotCalibrated` for another model: other weights, or another name if those cannot be compared."""
        known = bool(self.fingerprint and info.fingerprint)
        if (self.fingerprint != info.fingerprint) if known else (self.model != info.name):
            other = "this one has other weights" if self.model == info.name else f"this is {info.name!r}"
            raise NotCalibrated(f"The calibration is for the model {self.model!r}; {other}.", AGAIN)

    def check_prober(self, info: ModelInfo | None) -> None:
        """Raise `NotCalibrated` if another model is probed than in the calibration."""
        name = info.name if info else None
        if name != self.probe_model:
            there, here = self.probe_model or "the model that thinks", name or "the model that thinks"
            raise NotCalibrated(f"The calibration was made with probes of {there}; here {here} is probed.", AGAIN)


def read(path: str | Path) -> Calibration:
    """The calibration in this file. It is refused if it is incomplete, changed, or of a newer version."""
    data = _content(Path(path))
    if isinstance(data.get("schema"), int) and data["schema"] > SCHEMA:
        made = f"cgr {data.get('version', '')}".strip()
        raise NotCalibrated(f"{str(path)!r} was made by {made}, which is newer than this one.", "Update cgr.")
    try:
        found = Calibration.from_dict(data)
        genuine = found.digest == found._digest()
    except (TypeError, ValueError, AttributeError) as error:
        raise NotCalibrated(f"{str(path)!r} is not a complete calibration.", AGAIN) from error
    if not genuine:
        raise NotCalibrated(f"{str(path)!r} was changed after `cgr calibrate` wrote it.", AGAIN)
    if found.parameter is None or found.allowed[-1:] != (found.parameter,):
        raise NotCalibrated(f"{str(path)!r} promises nothing.", AGAIN)
    return found


def _content(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotCalibrated(f"The calibration {str(path)!r} cannot be read: {error.strerror}.", AGAIN) from error
    except ValueError as error:
        raise NotCalibrated(f"{str(path)!r} is not a complete JSON file.", AGAIN) from error
    if not isinstance(data, dict) or "sequence" not in data:
        raise NotCalibrated(f"{str(path)!r} is not a calibration.", AGAIN)
    return data


def sentence(found: Calibration) -> str:
    """The promise as one sentence."""
    if found.parameter is None:
        return "Nothing can be promised."
    how = "On average over calibration sets," if found.delta is None else f"With {percent(1 - found.delta)} confidence"
    parts = [f"{how} {_promise(found)}"]
    if found.answered_share is not None:
        parts.append(f"{percent(found.answered_share)} of the questions are answered")
    return "; ".join([*parts, f"{percent(found.saved_share or 0.0)} of the thinking tokens are saved, net of probes."])


def _promise(found: Calibration) -> str:
    most = percent(found.epsilon)
    return {
        "disagreement": f"at most {most} of answers change",
        "lost": f"at most {most} of answers turn from right to wrong",
        "wrong": f"at most {most} of the answers given are wrong",
        "grade": f"Grade is at most {found.epsilon:g} a question below that of answering everything",
    }[found.risk]


def percent(share: float) -> str:
    """A share as a percentage with as many digits as it needs, at most three."""
    return f"{100 * share:.3g}%"


def _as_json(value: Any) -> str:
    return json.dumps(value)
