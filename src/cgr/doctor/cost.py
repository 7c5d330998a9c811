"""What a probe costs against a token of thinking, and how often one can afford it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from cgr.doctor.sample import Subject, Thought
from cgr.records import Record

GRID = 32  # intervals on the grid that thinking comes in waste no part of a chunk


@dataclass(frozen=True, slots=True)
class Cost(Record):
    """Seconds of a token and of a probe, the cost of winding the cache back included, after up to `at` tokens of thinking
    and for answers of up to `answer_tokens`.

    The `interval` recommended is the smallest multiple of 32 with probe_seconds / (interval * token_seconds) <= share.
    `own_interval` is the one in use unless another is given, and `own_share` what probing costs there.
    """

    at: int
    answer_tokens: int
    token_seconds: float
    probe_seconds: float
    share: float
    interval: int
    own_interval: int
    own_share: float


def measure(subject: Subject, plain: Thought, asked: Thought, share: float, own_interval: int) -> Cost:
    token = _token_seconds(plain.stretches, subject.steps)
    probe = _probe_seconds(plain, asked)
    return Cost(
        at=subject.cuts[-1],
        answer_tokens=subject.spec.max_answer_tokens,
        token_seconds=token,
        probe_seconds=probe,
        share=share,
        interval=interval_for(probe, token, share),
        own_interval=own_interval,
        own_share=probe / (own_interval * token),
    )


def interval_for(probe_seconds: float, token_seconds: float, share: float) -> int:
    """The smallest multiple of 32 at which probing takes at most this share of the time that thinking takes."""
    return GRID * max(math.ceil(probe_seconds / (share * token_seconds * GRID)), 1)


def _token_seconds(stretches: Sequence[float], steps: Sequence[int]) -> float:
    """The first stretch is left out, where there are more: it read the prompt."""
    each = [seconds / step for seconds, step in zip(stretches, steps, strict=True)]
    return median(each[1:] or each)


def _probe_seconds(plain: Thought, asked: Thought) -> float:
    """The probe itself, and what the stretch after it took longer for having to wind back."""
    winding = median(asked.stretches[1:] or [0.0]) - median(plain.stretches[1:] or [0.0])
    return median(asked.asking) + max(winding, 0.0)
