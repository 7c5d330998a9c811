"""The split of questions into those that values are chosen on and those that are shown."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from cgr.lab.decide.columns import Columns
from cgr.lab.score import accuracy as scores
from cgr.lab.types import Bools

LEAST = 2  # questions on a side; there is no interval for one


def split_questions(columns: Columns, share: float, names: Sequence[str] = (), seed: int = 0) -> tuple[Bools, Bools]:
    """The graded questions to choose parameters on, and those to show: two flags for each question.

    The split is made by a hash of all `names` (by default, the questions of the columns), graded or not, so that two
    commands on the same run split alike. Both parts are all graded questions if the share is 0 or leaves fewer than two on
    a side. `seed`: another split for each; 0 is the one of `cgr fit --share`.
    """
    everything, salt = names or columns.questions, seed.to_bytes(8, "big")
    ranked = sorted(everything, key=lambda name: blake2b(name.encode(), salt=salt).digest())
    chosen, graded = set(ranked[: round(share * len(ranked))]), scores.graded_questions(columns)
    tuning = np.array([name in chosen for name in columns.questions], dtype=np.bool_)
    parts = tuning & graded, ~tuning & graded
    return parts if share > 0 and min(part.sum() for part in parts) >= LEAST else (graded, graded)
