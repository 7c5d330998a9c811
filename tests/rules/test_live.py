"""The rivals on a real model: what they decide live is what they decide on its recording."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cgr import Model
from cgr.lab.decide.run import Run
from cgr.lab.record.generate import agenerate
from cgr.lab.record.probe import aprobe
from cgr.lab.store import Store
from cgr.lab.store.needed_probes import requests_for
from cgr.records import Question
from cgr.rules import make_rule
from tests.lab.record.test_generate import plan
from tests.support import OTHERS, QUESTION

BUDGET, INTERVAL = 320, 32
ASKED = tuple(Question(f"p{number}", text, "1", "integer") for number, text in enumerate((QUESTION, OTHERS[0])))
RULES: dict[str, dict[str, Any]] = {
    "deer": {"threshold": 0.5},
    "dynasor": {"agree": 2},
    "eat": {"delta": 0.5, "min_steps": 2},
    "answer-consistency": {"agree": 2},
    "puma-verify": {"threshold": 0.8},
    "deepconf": {"floor": 12.0, "window": 40},
    "conformal": {"threshold": 0.9},
    "no-thinking": {},
}


async def test_live_is_replayed(model: Model, tmp_path: Path) -> None:
    """By mechanics only: whether a rule stops here or not is the model's business."""
    wanted = plan(ASKED, budget=BUDGET, interval=INTERVAL, logprobs=True, probe=True)
    await agenerate(tmp_path, wanted, model.engine, sessions=2)
    with Store.open(tmp_path) as store:
        wishes = requests_for(RULES, store.config, store.probe_sets().values())
    for wish in wishes:
        await aprobe(tmp_path, wish, model.engine, sessions=2)
    recordings = await asyncio.to_thread(Run.open, tmp_path)
    for name, parameters in RULES.items():
        given = {**parameters, **({"interval": INTERVAL} if "interval" in make_rule(name).parameters() else {})}
        decided = recordings.decide(make_rule(name, **given))
        for row, question in enumerate(ASKED):
            threshold = parameters.get("threshold")
            others = {key: value for key, value in parameters.items() if key != "threshold"}
            made = await model.asolve(
                question.text,
                rule=name,
                threshold=threshold,
                parameters=others,
                budget=BUDGET,
                interval=INTERVAL,
                full=True,
            )
            assert made.thinking_tokens == decided.at[row], name
            assert (made.stop_cause == "certainty", made.stop_cause == "gave_up") == (
                decided.sure[row],
                decided.gave_up[row],
            )
            assert made.certainty == pytest.approx(decided.certainty[row], abs=1e-4), name
            if name == "eat":
                assert all(probe.entropy is not None and probe.entropy >= 0 for probe in made.probes)
