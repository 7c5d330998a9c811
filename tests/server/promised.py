"""Calibrations for tests of the server, written by the library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cgr.calibration import Calibration, SequenceStep
from tests.server.upstream import MODEL

INTERVAL, BUDGET = 20, 400
PASSED = (0.9999, 0.995, 0.99)  # the fake upstream is sure by 0.999


def calibration(passed: Sequence[float] = PASSED, **changes: Any) -> Calibration:
    """A promise for the fake upstream."""
    steps = (
        *(SequenceStep(one, 0.0, 0.01, True, 0.2, 0.04) for one in passed),
        SequenceStep(0.5, 0.2, 0.9, False, 0.4, 0.3),
    )
    given: dict[str, Any] = {
        "rule": "cgr",
        "parameter": passed[-1],
        "risk": "disagreement",
        "epsilon": 0.05,
        "delta": 0.05,
        "method": "ltt",
        "questions": 100,
        "losses": 0.0,
        "bound": 0.04,
        "sequence": steps,
        "saved_share": 0.2,
        "saved_share_ci95": (0.1, 0.3),
        "needed_questions": None,
        "possible_epsilon": 0.03,
        "model": MODEL,
        "fingerprint": "",
        "prompt": "{question}",
        "prefix": "Final Answer: \\boxed{",
        "interval": INTERVAL,
        "budget": BUDGET,
        "sampling": {"temperature": 0.6, "top_p": 1.0},
        "run": "0" * 64,
        "created": "2025-01-01T00:00:00+00:00",
        "version": "1.0",
        "main": "threshold",
        "probe": {"close_think": "never", "max_answer_tokens": 32, "aggregate": "min"},
        "kind": "exact",
    }
    return Calibration(**given | changes).signed()


def written(folder: Path, passed: Sequence[float] = PASSED, **changes: Any) -> Path:
    """The file of such a promise."""
    path = folder / "calibration.json"
    calibration(passed, **changes).write(path)
    return path
