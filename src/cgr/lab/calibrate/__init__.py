"""A threshold with a proof, from a recorded run: Learn-then-Test over questions, with a fixed sequence of thresholds.

The sequence is fixed before any data is seen, from the most cautious value down. Each value has a p-value for "the risk is
above epsilon". The walk goes down while p <= delta, and the last value that passed is promised. `crc` is conformal risk
control, which bounds the mean over calibration sets and gives no confidence.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from cgr import __version__
from cgr.calibration import QUESTION, Calibration
from cgr.errors import NotRecorded, UsageError
from cgr.lab.calibrate.losses import ABSTAINS, NEEDS_GOLDS, CalibrationQuestions, Losses
from cgr.lab.calibrate.walk import Goal, is_certainty, measure, sequence, walk
from cgr.lab.decide.columns import GOLD, Columns
from cgr.lab.decide.forcing import as_forced
from cgr.lab.decide.run import Run
from cgr.lab.fit import learn
from cgr.lab.score.accuracy import graded_questions, split_questions
from cgr.lab.score.adaptive import SURE, false_sure, headroom, plain_verdict
from cgr.lab.score.bounds import questions_for_risk
from cgr.lab.store.schema import is_being_written
from cgr.lab.types import Bools
from cgr.prompts import instructed
from cgr.rules import Rule
from cgr.rules import files as rule_files

LEARN_ON = 0.5
LEAST = 2  # questions
BY_GOLD = ("graded", "final_right", "written_right", "right")  # the columns that depend on golds


def open_finished(folder: Path, probe_set: str | None = None) -> Run:
    """The run in this folder. One that is being written is refused: its size must not depend on what was seen so far."""
    if is_being_written(folder):
        raise UsageError(
            f"Another process is writing {folder}: a promise needs a finished recording.",
            f"Wait until it has finished, or take a copy: cgr merge {folder} --out COPY.",
        )
    run = Run.open(folder, probe_set)
    if run.main is None or run.main not in run.filled:
        raise NotRecorded(f"The run in {folder} has no probes yet.", f"Make them with `cgr probe {folder}`.")
    return run


def calibrate(run: Run, rule: Rule, goal: Goal = Goal(), *, learn_on: float = LEARN_ON, fitted: Any = None) -> Calibration:
    """What can be promised for this rule from this run.

    `learn_on`: the share of the questions that weights are learned from, for a rule that has none yet; the promise comes
    from the others. `fitted`: what the file of the rule says about where its weights come from.
    """
    rule.check()
    rule = as_forced(rule, run.config, run.folder)
    rule, kept, notes = _apart(run, rule, learn_on, fitted or {})
    questions = CalibrationQuestions.of(run.rule_columns(), kept, goal.risk)
    _check_size(run, questions, goal)
    measured = [measure(questions, run.decide(one), one, goal) for one in sequence(rule)]
    passed = walk([one.passes(goal) for one in measured])
    steps = tuple(one.step(goal, ok) for one, ok in zip(measured, passed, strict=True))
    last = max((place for place, ok in enumerate(passed) if ok), default=-1)
    tested = [place for place, one in enumerate(measured) if one.is_tested(goal)] or [len(measured) - 1]
    useful = next((place for place in tested if measured[place].saved_share > 0), tested[0])
    found = measured[last if last >= 0 else useful]
    possible = max(steps[place].bound for place in tested if place <= useful)
    return _record(
        run,
        rule,
        parameter=found.value if last >= 0 else None,
        goal=goal,
        questions=questions,
        losses=found.losses,
        sequence=steps,
        bound=steps[last].bound if last >= 0 else None,
        saved_share=found.saved_share if last >= 0 else None,
        saved_share_ci95=found.saved_interval(questions) if last >= 0 else None,
        needed_questions=measured[useful].needed(goal) if last < 0 else None,
        possible_epsilon=float(min(possible, 1.0)),
        answered_share=found.answered_share if goal.risk in ABSTAINS else None,
        notes=notes,
    )


def _apart(run: Run, rule: Rule, learn_on: float, fitted: Any) -> tuple[Rule, Bools, tuple[str, ...]]:
    """The rule with its weights, and the questions that the promise may come from: none that weights were learned from.
    Without any gold answer, weights are learned from agreement with the final answers."""
    run = run if run.has_golds or not rule.learns else run.by_agreement()
    columns = run.rule_columns()
    everything = np.ones(len(columns.questions), dtype=np.bool_)
    if not rule.learns:
        return rule, everything, ()
    if rule.unfitted and not 0 < learn_on < 1:
        raise UsageError(
            f"Weights cannot be learned from a share of {learn_on:g} of the questions, with a promise from the others.",
            "Use more than 0 and less than 1, such as 0.5.",
        )
    share = learn_on if rule.unfitted else fitted.get("share", 1.0) if fitted.get("run") == run.info.name else 0.0
    if not share:
        return rule, everything, ()
    if not 0 < share < 1:
        raise UsageError(
            f"The weights of {rule.name!r} were learned from every question of this run.",
            f"Leave some out: cgr fit {run.folder} --share 0.5, or calibrate on another run.",
        )
    learning, others = split_questions(columns, share, run.questions)
    if (learning & others).any():
        raise UsageError(
            f"The run has too few questions to learn weights of {rule.name!r} on one part and promise on another.",
            f"Record more questions{' with known answers' * (run.reference == GOLD)}.",
        )
    kept = others | ~graded_questions(columns)
    note = f"Weights come from {int(learning.sum())} questions, the promise from {int(kept.sum())} others."
    return learn(rule, run.only(learning)) if rule.unfitted else rule, kept, (note,)


def _check_size(run: Run, questions: CalibrationQuestions, goal: Goal) -> None:
    if len(questions) >= LEAST:
        return
    needed = questions_for_risk(goal.epsilon, 0, goal.delta)
    if goal.risk in NEEDS_GOLDS and len(run.rule_columns().questions) >= LEAST:
        count = "No question has" if not len(questions) else "Only one question has"
        raise UsageError(
            f"{count} a known answer, which the risk {goal.risk!r} needs.", "Use --risk disagreement: it needs none."
        )
    raise UsageError(
        f"The run in {run.folder} has one question: nothing can be promised from it.",
        f"Record at least {needed:,} questions for a loss of at most {goal.epsilon:g}.",
    )


def _record(run: Run, rule: Rule, goal: Goal, questions: CalibrationQuestions, losses: Losses, **found: Any) -> Calibration:
    """The calibration with what it was made from."""
    config, columns = run.config, run.rule_columns()
    room, sure = headroom(columns), false_sure(columns, SURE)
    return Calibration(
        rule=rule.name,
        risk=goal.risk,
        epsilon=goal.epsilon,
        delta=goal.delta if goal.method == "ltt" else None,
        method=goal.method,
        questions=len(questions),
        losses=losses.count,
        kind=losses.kind,
        model=config.model,
        fingerprint=config.fingerprint,
        prompt=None if config.instruction is None else instructed(QUESTION, config.instruction),
        system=None if config.instruction is None else config.system,
        examples=config.examples,
        budget=config.budget,
        sampling={"temperature": config.temperature, "top_p": config.top_p},
        **_probing(run, rule),
        run=run_hash(columns),
        run_name=run.info.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        main=str(rule.main),
        parameters={name: value for name, value in rule_files.RuleFile.of(rule).parameters.items() if name != rule.main},
        traces=int(questions.traces.sum()),
        abstains=goal.risk in ABSTAINS and is_certainty(rule),
        penalty=goal.penalty if goal.risk == "grade" else None,
        headroom=room,
        false_sure=sure.to_dict(),
        verdict=plain_verdict(room, sure),
        **found,
    ).signed()


def _probing(run: Run, rule: Rule) -> dict[str, Any]:
    """How the probes were made that the rule reads: what a live probe must have in common with them."""
    own = run.sets[run.sets_for(rule)[0]]
    asking = own.asking if rule.probe_style.prefix is None else run.config.asking
    formats = {trace.format for trace in run.traces()}
    limits = {asking.spec(form).max_answer_tokens for form in formats}
    probe = {
        "close_think": asking.close_think,
        "max_answer_tokens": limits.pop() if len(limits) == 1 else None,
        "aggregate": asking.aggregate,
    }
    other = own.model if own.model != run.config.model and own.fingerprint != run.config.fingerprint else None
    interval = getattr(rule, "interval", 0) if own.where == "interval" else 0
    return {"prefix": asking.prefix, "interval": interval, "probe": probe, "probe_model": other}


def run_hash(columns: Columns) -> str:
    """A hash of what was recorded: questions, seeds, lengths, certainties, where answers change. Golds are left out: the
    same traces with other golds, or with none, prove nothing new."""
    found = sha256(repr((columns.questions, columns.seeds)).encode())  # repr escapes what UTF-8 cannot encode
    for one in fields(columns):
        value = getattr(columns, one.name)
        if isinstance(value, np.ndarray) and one.name not in BY_GOLD:
            found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()
