"""What a probe costs compared with a thinking token, and which probe interval keeps that cost low."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from cgr.doctor.sample import ProbeSetup, TimedTrace
from cgr.records import Record

GRID = 32  # engines think in chunks of 32 tokens: a multiple of it leaves no partial chunk


@dataclass(frozen=True, slots=True)
class Cost(Record):
    """Seconds per thinking token and per probe, measured up to position `at` with answers of up to `answer_tokens`. A
    probe includes the time to rewind the cache.

    `interval` is the smallest multiple of 32 with probe_seconds / (interval * token_seconds) <= share. `own_interval` is
    the default interval of the model, and `own_share` the ratio there.
    """

    at: int
    answer_tokens: int
    token_seconds: float
    probe_seconds: float
    share: float
    interval: int
    own_interval: int
    own_share: float


def measure(setup: ProbeSetup, plain: TimedTrace, probed: TimedTrace, share: float, own_interval: int) -> Cost:
    """The cost, from a trace without probes and the same trace with probes."""
    token = _token_seconds(plain.stretch_seconds, setup.steps)
    probe = _probe_seconds(plain, probed)
    return Cost(
        at=setup.cuts[-1],
        answer_tokens=setup.spec.max_answer_tokens,
        token_seconds=token,
        probe_seconds=probe,
        share=share,
        interval=interval_for(probe, token, share),
        own_interval=own_interval,
        own_share=probe / (own_interval * token),
    )


def interval_for(probe_seconds: float, token_seconds: float, share: float) -> int:
    """The smallest multiple of 32 at which probing takes at most this share of the thinking time."""
    return GRID * max(math.ceil(probe_seconds / (share * token_seconds * GRID)), 1)


def _token_seconds(stretches: Sequence[float], steps: Sequence[int]) -> float:
    """Median seconds per token. The first stretch is left out if there are more: it includes the prompt."""
    each = [seconds / step for seconds, step in zip(stretches, steps, strict=True)]
    return median(each[1:] or each)


def _probe_seconds(plain: TimedTrace, probed: TimedTrace) -> float:
    """Median seconds of a probe, plus what it adds to the next stretch of thinking by rewinding the cache."""
    rewinding = median(probed.stretch_seconds[1:] or [0.0]) - median(plain.stretch_seconds[1:] or [0.0])
    return median(probed.probe_seconds) + max(rewinding, 0.0)
