"""Measure the embedded model on unseen problems and write its card: `make model-card`.

The lab records a run of `arithmetic` questions, probed while thinking, and scores it, so that the figures are those of
`cgr generate`, `cgr probe` and `cgr report`. If it is interrupted, the same command continues.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import cgr
from cgr.lab.decide.arrays import at_budget, first_sure
from cgr.lab.decide.columns import Columns
from cgr.lab.questions import load_questions
from cgr.lab.record.generate import Plan, generate
from cgr.lab.record.jobs import Progress
from cgr.lab.score import accuracy as scores
from cgr.lab.score.adaptive import FixedBudgets, Gain
from cgr.lab.score.calibration import Selective, selective
from cgr.lab.store import Store
from cgr.model.problems import is_held_out
from cgr.records import Question
from training import card_figures, card_text
from training.outside import outside_unseen

THRESHOLDS = (0.96, 0.97, 0.98, 0.99)
OUTSIDE_QUESTIONS = 200
UNSURE = 0.5  # the certainty that a question outside the families should not reach


@dataclass(frozen=True)
class Card:
    """All figures of the card. The names of the fields are the keys of model-card.json."""

    problems: int
    accuracy: float
    by_family_and_level: dict[str, dict[int, float]]
    at_budget: float
    mean_tokens: float
    certainty_before: float
    over_budget: list[dict[str, float]]
    thresholds: list[dict[str, float]]
    grade_of_all: float
    probes: Selective
    needed: dict[str, float]
    adaptive: dict[float, Gain]
    outside: dict[str, float]
    interval: int
    budget: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0, help="seed of the unseen problems")
    parser.add_argument("--run", type=Path, default=Path("runs/card"))
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--model", default=None, help="another .gguf file")
    options = parser.parse_args()
    questions = load_questions("arithmetic", limit=options.problems, seed=options.seed)
    assert all(is_held_out(question.text) for question in questions)
    assert len({question.text for question in questions}) == len(questions)
    columns = record(options.run, questions, options.model)
    unknown = record(options.run.with_name(f"{options.run.name}-outside"), outside_questions(), options.model)
    before = asyncio.run(certainty_before([question.text for question in questions], options.model))
    card = measure(columns, unknown, before)
    (options.out / "images").mkdir(parents=True, exist_ok=True)
    card_figures.draw(columns, card.probes, options.out / "images" / "model-card.png")
    (options.out / "model-card.md").write_text(card_text.write(card))
    (options.out / "model-card.json").write_text(json.dumps(as_json(card), indent=1) + "\n")
    print(card_text.write(card))


def record(run: Path, questions: tuple[Question, ...], model: str | None) -> Columns:
    """Record a run of these questions, probed while thinking."""
    plan = Plan(questions, seeds=1, source="arithmetic", probe=True, written_tokens=0)
    generate(run, plan, cgr.open_model(model, sessions=8), sessions=8, progress=Progress())
    with Store.open(run) as store:
        return Columns.of(store.recorded(), store.info())


def outside_questions() -> tuple[Question, ...]:
    """Questions outside the families, which have no known answer here."""
    texts = islice(outside_unseen(), OUTSIDE_QUESTIONS)
    return tuple(Question(f"outside-{number:03}", text) for number, text in enumerate(texts, 1))


async def certainty_before(texts: list[str], model: str | None) -> float:
    """The mean certainty of an answer without thinking."""
    async with cgr.open_model(model, sessions=8) as loaded:
        work = (loaded.asolve(text, rule="no-thinking") for text in texts)
        return float(np.mean([solution.certainty for solution in await asyncio.gather(*work)]))


def measure(columns: Columns, unknown: Columns, before: float) -> Card:
    """The figures of a run and of one outside the families; `before` is the certainty without thinking."""
    probes, fixed = columns.present, FixedBudgets.of(columns)
    return Card(
        problems=len(columns),
        accuracy=float(columns.final_right.mean()),
        by_family_and_level=_by_kind(columns),
        at_budget=float((~columns.ended).mean()),
        mean_tokens=float(columns.natural.mean()),
        certainty_before=before,
        over_budget=[_at(columns, int(step)) for step in columns.steps[1::2]],
        thresholds=[_row(columns, threshold) for threshold in THRESHOLDS],
        grade_of_all=scores.grade(columns, columns.final_right, 1.0) or 0.0,
        probes=selective(columns.certainty[probes], columns.right[probes]),
        needed=_needed(columns),
        adaptive={threshold: fixed.gain(first_sure(columns, threshold)) for threshold in THRESHOLDS},
        outside=_outside(unknown),
        interval=columns.info.interval,
        budget=columns.limit,
    )


def _by_kind(columns: Columns) -> dict[str, dict[int, float]]:
    kinds = [name.split("-")[2:] for name in columns.questions]
    right: dict[str, dict[int, list[bool]]] = {}
    for index, correct in zip(columns.question, columns.final_right, strict=True):
        family, level = kinds[index]
        right.setdefault(family, {}).setdefault(int(level), []).append(bool(correct))
    return {family: {level: float(np.mean(r)) for level, r in sorted(levels.items())} for family, levels in right.items()}


def _at(columns: Columns, budget: int) -> dict[str, float]:
    """Accuracy with this budget, the mean certainty of its answers, and the number of traces that still think."""
    decided = at_budget(columns, budget)
    still_thinking = int((columns.natural >= budget).sum())
    return {
        "budget": budget,
        "accuracy": float(decided.right.mean()),
        "certainty": float(decided.certainty.mean()),
        "living": still_thinking,
    }


def _row(columns: Columns, threshold: float) -> dict[str, float]:
    decided = first_sure(columns, threshold)
    compared, saved = scores.compare(columns, decided.right), scores.savings(columns, decided)
    grade = scores.grade_over_budget(columns, decided, threshold, 1.0, columns.steps)
    assert compared.diff_points is not None
    return {
        "threshold": threshold,
        "accuracy": float(decided.right.mean()),
        "diff_points": compared.diff_points,
        "fired": decided.fired / len(columns),
        "gross": saved.share,
        "net": saved.net_share,
        "grade": float(grade[-1]),
    }


def _needed(columns: Columns) -> dict[str, float]:
    """Over traces with a correct final answer: the position from which on all answers are correct (mean and percentiles), and
    the mean position of the end."""
    first = card_figures.correct_from(columns)
    solved = columns.final_right
    return {
        **{f"percentile_{part}": float(np.percentile(first[solved], part)) for part in (10, 50, 90)},
        "traces": float(solved.sum()),
        "needed": float(first[solved].mean()),
        "natural": float(columns.natural[solved].mean()),
    }


def _outside(columns: Columns) -> dict[str, float]:
    """Of questions outside the families: the certainty of the last answers, and the highest while thinking."""
    highest = np.maximum(np.where(columns.present, columns.certainty, 0).max(axis=1, initial=0), columns.final_certainty)
    return {
        "questions": float(len(columns)),
        "mean": float(columns.final_certainty.mean()),
        "highest": float(highest.max()),
        "never_sure": float((highest < UNSURE).mean()),
    }


def as_json(card: Card) -> dict[str, Any]:
    """The content of model-card.json."""
    gains = {str(threshold): gain.to_dict() for threshold, gain in card.adaptive.items()}
    return {**vars(card), "probes": card.probes.to_dict(), "adaptive": gains}


if __name__ == "__main__":
    main()
