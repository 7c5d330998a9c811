"""Whether a promise holds on new data: the same rule, at the promised value, on another run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cgr.calibration import QUESTION, Calibration, NotCalibrated, percent
from cgr.lab.calibrate.losses import CalibrationQuestions
from cgr.lab.calibrate.walk import Goal, measure
from cgr.lab.decide.run import Run
from cgr.lab.score.bounds import DELTA
from cgr.lab.types import Interval
from cgr.prompts import instructed
from cgr.records import Record

HOLDS, BROKEN, OPEN = "holds", "broken", "cannot be told"
NEW_RUN = "Give a run of new questions with the same model, prompt and interval."


@dataclass(frozen=True, slots=True)
class Checked(Record):
    """The promise on new questions: the loss seen and its bounds, each with the confidence of the promise. `verdict`: the
    promise holds (the upper bound is at most epsilon), is broken (the lower bound is above it), or neither can be told.
    `needed_questions`: what would settle it at the rate seen."""

    run: str
    questions: int
    loss: float
    losses: float
    lower: float
    upper: float
    p_value: float
    epsilon: float
    delta: float
    verdict: str
    needed_questions: int | None
    saved_share: float
    saved_share_ci95: Interval | None


def check(promise: Calibration, run: Run) -> Checked:
    """The promise on this run, which must be another one than it was made from."""
    _check_origin(promise, run)
    rule, columns = promise.stopping_rule(), run.rule_columns()
    delta = DELTA if promise.delta is None else promise.delta
    goal = Goal(promise.epsilon, delta, promise.risk, penalty=promise.penalty or 0.0)
    kept = np.ones(len(columns.questions), dtype=np.bool_)
    questions = CalibrationQuestions.of(columns, kept, promise.risk)
    if not len(questions):
        raise NotCalibrated(f"The run in {run.folder} has no question with a known answer.", NEW_RUN)
    found = measure(questions, run.decide(rule), rule, goal)
    losses, lower, upper = found.losses, found.losses.lower(delta), found.losses.upper(delta)
    p_value = losses.p_value(goal.epsilon, delta)
    verdict = HOLDS if p_value <= delta else BROKEN if lower > goal.epsilon else OPEN
    return Checked(
        run=run.info.name,
        questions=len(questions),
        loss=losses.mean,
        losses=losses.count,
        lower=lower,
        upper=upper,
        p_value=p_value,
        epsilon=goal.epsilon,
        delta=delta,
        verdict=verdict,
        needed_questions=losses.needed(goal.epsilon, delta) if verdict == OPEN else None,
        saved_share=found.saved_share,
        saved_share_ci95=found.saved_interval(questions),
    )


def _check_origin(promise: Calibration, run: Run) -> None:
    """Raise `NotCalibrated` for the run of the promise, and for a run of another model, prompt, interval or budget."""
    from cgr.lab.calibrate import run_hash

    if run_hash(run.rule_columns()) == promise.run:
        raise NotCalibrated(f"The promise was made from the run in {run.folder}: it proves nothing new.", NEW_RUN)
    config = run.config
    known = bool(promise.fingerprint and config.fingerprint)
    if (promise.fingerprint != config.fingerprint) if known else (promise.model != config.model):
        raise NotCalibrated(f"The promise is for the model {promise.model!r}; the run is of {config.model!r}.", NEW_RUN)
    stated = config.instruction is not None
    prompt = instructed(QUESTION, config.instruction) if config.instruction is not None else None
    for name, there, here in (
        ("prompt", promise.prompt, prompt),
        ("system message", promise.system, config.system if stated else None),
        ("prefix", promise.prefix, run.info.prefix),
        ("budget", promise.budget, config.budget),
        ("temperature", promise.sampling.get("temperature"), config.temperature),
        ("top-p", promise.sampling.get("top_p"), config.top_p),
    ):
        if None not in (there, here) and there != here:
            raise NotCalibrated(f"The promise is for the {name} {there!r}; the run has {here!r}.", NEW_RUN)
    if stated and promise.system is not None and promise.examples != config.examples:
        raise NotCalibrated("The promise is for other worked examples than those of the run.", NEW_RUN)
    if promise.interval and run.info.interval and promise.interval % run.info.interval:
        raise NotCalibrated(
            f"The promise is for the interval {promise.interval}; the run was probed every {run.info.interval}.", NEW_RUN
        )


def sentences(checked: Checked) -> list[str]:
    """The outcome in words."""
    ends = f"at least {percent(checked.lower)} and at most {percent(checked.upper)}"
    bounds = f"{ends}, each with {percent(1 - checked.delta)} confidence"
    seen = f"On {checked.questions:,} new questions the loss is {percent(checked.loss)}: {bounds}."
    saved = f"{percent(checked.saved_share)} of the thinking tokens are saved, net of probes."
    return [_verdict(checked), seen, saved]


def _verdict(checked: Checked) -> str:
    most = percent(checked.epsilon)
    if checked.verdict == HOLDS:
        return f"The promise holds here: the loss is at most {most}."
    if checked.verdict == BROKEN:
        return f"The promise is broken here: the loss is above {most}. Calibrate again on this traffic."
    needed = checked.needed_questions
    more = f"about {needed:,} questions would settle it at the rate seen" if needed else "more questions are needed"
    return f"Whether the promise holds here cannot be told: {more}."
