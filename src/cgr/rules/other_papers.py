"""Rules from other papers. Each docstring names the paper and the public code. `deepconf` has its own module."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

from cgr.errors import NotRecorded
from cgr.probing import END_TAG, ProbeStyle
from cgr.records import Probe
from cgr.rules.base import CERTAINTY, COUNT, INTERVAL, SHARE, Limits, parameter, rule
from cgr.rules.level_rule import LevelRule
from cgr.rules.marks import Place
from cgr.rules.paper import Cgr
from cgr.rules.same_answer import same_answer

DEER_PREFIX = "\n**Final Answer**\n\\boxed"
DYNASOR_PREFIX = "... Oh, I suddenly got the answer to the whole problem, **Final Answer**\n\n\\[ \\boxed{"
HEDGES = re.compile(r"\b(?:wait|hold|but|okay|no|hmm)\b", re.IGNORECASE)


@rule("answer-consistency")
@dataclass(frozen=True, kw_only=True)
class AnswerConsistency(LevelRule):
    """Probe every `interval` tokens and stop when `agree` probes in a row give the same answer, at any certainty.

    Liu and Wang: Answer Convergence as a Signal for Early Stopping in Reasoning. The original probes at the end of each
    sentence and needs 10 in a row; on a grid of tokens the right number is to be chosen.
    """

    agree: int = 3
    interval: int = parameter(INTERVAL, COUNT)
    main: ClassVar[str | None] = "agree"
    grid: ClassVar[tuple[float, ...]] = (2, 3, 4, 5, 6, 8, 10)

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        return agreements(probes)


@rule("dynasor")
@dataclass(frozen=True, kw_only=True)
class Dynasor(LevelRule):
    """Probe every few tokens and stop when the last few answers are the same and none of them was hedged.

    Fu et al.: Efficiently Scaling LLM Reasoning with Certaindex (hao-ai-lab/Dynasor). An answer counts if it is not empty
    and the decoded text (up to 20 tokens, with what follows the answer) contains no hedge word: wait, hold, but, okay, no,
    hmm. `agree`: 8 is mild, 5 low, 3 mid, 2 high.
    """

    agree: int = 3
    every: int = parameter(32, COUNT)
    tokens: int = parameter(20, style="max_answer_tokens")
    prefix: str = parameter(DYNASOR_PREFIX, style="prefix")
    main: ClassVar[str | None] = "agree"
    grid: ClassVar[tuple[float, ...]] = (2, 3, 5, 8)
    spacing: ClassVar[str] = "every"
    style: ClassVar[ProbeStyle] = ProbeStyle(close_think="never", reads="text")

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        return agreements(probes, [HEDGES.search(probe.text) is None for probe in probes])


@rule("puma-verify")
@dataclass(frozen=True, kw_only=True)
class PumaVerify(Cgr):
    """Probe every `interval` tokens and stop when the next probe confirms a confident answer.

    The last step of PUMA (giovanni-vaccarino/PUMA). A probe whose geometric mean probability is at least the threshold is a
    candidate. The next probe confirms it by the same answer with a confidence at most `drop` lower.
    """

    threshold: float = parameter(0.98, CERTAINTY)
    drop: float = 0.03
    style: ClassVar[ProbeStyle] = ProbeStyle(aggregate="geometric-mean")

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        """At each probe, the confidence of the one before if this one confirms it, else -1."""
        confirmed = [one.certainty if self._confirms(one, two) else -1.0 for one, two in pairwise(probes)]
        return [-1.0, *confirmed] if probes else []

    def _confirms(self, candidate: Probe, probe: Probe) -> bool:
        near = probe.certainty >= candidate.certainty - self.drop
        return candidate.valid and probe.valid and near and same_answer(candidate.answer, probe.answer)


@rule("deer")
@dataclass(frozen=True, kw_only=True)
class Deer(LevelRule):
    """Probe before each "Wait" or "Alternatively" and stop when the mean probability of the answer exceeds the threshold.

    Yang et al.: Dynamic Early Exit in Reasoning Models (iie-ycx/DEER). The mean is arithmetic (`avg1`), over the answer's
    tokens after the opening brace; `avg2` takes the geometric mean, and 0 unless the model then ends its thinking. At most
    `trials` (10) probes are made. The original then closes the thinking and lets the model write its solution. Here the
    probe's answer is taken, as for every rule, so that no rule pays or saves the tokens of a solution.
    """

    threshold: float = parameter(0.95, CERTAINTY)
    average: Literal["avg1", "avg2"] = parameter("avg1", Limits(options=("avg1", "avg2")))
    trials: int = 10
    tokens: int = 20
    prefix: str = DEER_PREFIX
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    place: ClassVar[Place | None] = "wait"
    main: ClassVar[str | None] = "threshold"
    grid: ClassVar[tuple[float, ...]] = (0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)

    @property
    def probe_style(self) -> ProbeStyle:
        if self.average == "avg1":
            return ProbeStyle(self.prefix, self.tokens, "mean", "never")
        return ProbeStyle(self.prefix, self.tokens, "geometric-mean", "never", reads="text")

    @property
    def most_probes(self) -> int | None:
        return self.trials

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        if self.average == "avg1":
            return [probe.certainty for probe in probes]
        return [probe.certainty if probe.ended or END_TAG in probe.text else 0.0 for probe in probes]

    def enough(self, level: Any) -> Any:
        return level > self.threshold


@rule("conformal")
@dataclass(frozen=True, kw_only=True)
class Conformal(Cgr):
    """Stop when an exponential mean of the certainty is high, and give up when it is below a rising floor.

    Wang et al.: Conformal Thinking (xidulu/reasoning_risk_control). The newest certainty has the weight .95; an answer that
    did not close has certainty 0. The threshold (lambda) is meant to be calibrated on other questions
    (`cgr.lab.fit.calibrated_threshold`). In the first half of `over` tokens (by default the budget) there
    is no floor; then it rises linearly from 0 to `floor`. At or below it the rule gives up and abstains.
    """

    weight: float = parameter(0.95, SHARE)
    floor: float = parameter(0.1, CERTAINTY)
    over: int | None = None

    def within(self, budget: int) -> Self:
        return self if self.over is not None else replace(self, over=budget)

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        return exponential_means([probe.certainty if probe.closed else 0.0 for probe in probes], self.weight)

    def hopeless(self, level: Any, at: Any) -> Any:
        if not self.over:
            return super().hopeless(level, at)
        risen = 2 * at / self.over - 1
        return (risen > 0) & (level <= self.floor * risen)


@rule("eat")
@dataclass(frozen=True, kw_only=True)
class Eat(LevelRule):
    """Close the thinking on trial after each paragraph and stop when the entropy of the next token is stable.

    Wang et al.: Entropy After </Think> for reasoning model early exiting (xidulu/EAT). H is the entropy of the next token
    in bits. M is its exponential mean, starting at the first H: M = a H + (1 - a) M. V is the exponential variance,
    starting at 0: V = a (H - M)^2 + (1 - a) V. The rule stops when V < delta, from probe number `min_steps` on. A probe
    holds no answer, so the model is asked for one after the stop, with the thinking closed; its tokens count. If an engine
    gives only the likeliest tokens, H is a lower bound: the remaining probability counts as one token.
    """

    delta: float = 1e-4
    alpha: float = parameter(0.2, SHARE)
    min_steps: int = 4
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    place: ClassVar[Place | None] = "paragraph"
    answers: ClassVar[bool] = False
    main: ClassVar[str | None] = "delta"
    grid: ClassVar[tuple[float, ...]] = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
    style: ClassVar[ProbeStyle] = ProbeStyle(f"\n{END_TAG}\n", reads="entropy", close_think="never")

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        entropies = [_entropy(probe) for probe in probes]
        means = exponential_means(entropies, self.alpha)
        squares = [(entropy - mean) ** 2 for entropy, mean in zip(entropies, means, strict=True)]
        variances = exponential_means([0.0, *squares[1:]], self.alpha) if probes else []
        return [math.inf if number < self.min_steps else v for number, v in enumerate(variances, 1)]

    def enough(self, level: Any) -> Any:
        return level < self.delta


def _entropy(probe: Probe) -> float:
    if probe.entropy is None:
        raise NotRecorded(
            f"The probe at token {probe.at} has no entropy.", "Use an engine that gives it: see `cgr doctor`."
        )
    return probe.entropy


def agreements(probes: Sequence[Probe], counts: Sequence[bool] = ()) -> list[float]:
    """After each probe: how many in a row gave the same valid answer. `counts`: False where a probe does not count."""
    lengths: list[float] = []
    for number, probe in enumerate(probes):
        if not probe.valid or (counts and not counts[number]):
            lengths.append(0)
        elif number and lengths[-1] and same_answer(probes[number - 1].answer, probe.answer):
            lengths.append(lengths[-1] + 1)
        else:
            lengths.append(1)
    return lengths


def exponential_means(values: Sequence[float], weight: float) -> list[float]:
    """The exponential mean after each value. A new value has this weight; the first mean is the first value."""
    means: list[float] = []
    for value in values:
        means.append(weight * value + (1 - weight) * means[-1] if means else value)
    return means
