"""The words and tables of the model card."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.card import Card


def write(card: Card) -> str:
    return "\n".join([*_head(card), *_kinds(card), *_budgets(card), *_stopping(card), *_certainty(card)]) + "\n"


def _head(card: Card) -> list[str]:
    return [
        "# Model card: the embedded model",
        "",
        "A Llama of 1.9 million parameters that thinks about arithmetic, trained by this repository (see",
        "[training.md](training.md)). It demonstrates and tests certainty-guided reasoning and has no other use: it knows three",
        "families of problems and no language. Apache-2.0.",
        "",
        f"All figures: {card.problems} problems that training never saw, one seed each, temperature .6, budget 1280, a probe every",
        "32 tokens. `make model-card` measures everything again and writes this page.",
        "",
        "| | |",
        "|---|---|",
        f"| accuracy at the full budget | {card.accuracy:.1%} |",
        f"| certainty before any thinking (mean) | {card.certainty_before:.3f} |",
        f"| thinking tokens (mean) | {card.mean_tokens:.0f} |",
        f"| traces that reach the budget | {card.at_budget:.1%} |",
        f"| AUROC of certainty for correctness, all {card.probes.count} probes | {card.probes.auroc or 0:.3f} |",
        f"| expected calibration error, all probes | {card.probes.ece or 0:.3f} |",
        f"| answer correct and final after (mean, of {card.needed['traces']:.0f} solved) | {card.needed['needed']:.0f} tokens |",
        f"| the same traces end after (mean) | {card.needed['natural']:.0f} tokens |",
        "",
        "![accuracy and certainty over the budget, reliability, and tokens needed against length](images/model-card.png)",
        "",
    ]


def _kinds(card: Card) -> list[str]:
    levels = sorted(next(iter(card.by_family_and_level.values())))
    rows = [
        f"| {family} | " + " | ".join(f"{accuracy[level]:.0%}" for level in levels) + " |"
        for family, accuracy in card.by_family_and_level.items()
    ]
    head = "| family | " + " | ".join(f"level {level}" for level in levels) + " |"
    return ["## Accuracy by family and level", "", head, "|---" * (len(levels) + 1) + "|", *rows, ""]


def _budgets(card: Card) -> list[str]:
    rows = [
        f"| {row['budget']:.0f} | {row['accuracy']:.1%} | {row['certainty']:.3f} | {row['living']:.0f} |"
        for row in card.over_budget
    ]
    head = ["| budget | accuracy | mean certainty | still thinking |", "|---|---|---|---|"]
    return ["## Accuracy and certainty against the budget", "", *head, *rows, ""]


def _stopping(card: Card) -> list[str]:
    rows = [
        f"| {row['threshold']} | {row['accuracy']:.1%} | {row['diff_points']:+.2f} | {row['fired']:.1%} | {row['gross']:.1%} "
        f"| {row['net']:.1%} | {row['grade']:.0f} |"
        for row in card.thresholds
    ]
    return [
        "## Stopping at a threshold",
        "",
        "| threshold | accuracy | difference from the full budget, points | stopped early | tokens saved | net of probe tokens | Grade at penalty 1 |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        "Grade is the number of correct minus wrong answers; an answer below the threshold is not given. If everything is answered",
        f"at the full budget, it is {card.grade_of_all:.0f}.",
        "",
    ]


def _certainty(card: Card) -> list[str]:
    rows = [
        f"| {part.low:.1f} to {part.high:.1f} | {part.count} | {part.certainty:.3f} | {part.accuracy:.3f} |"
        for part in card.probes.reliability
    ]
    head = ["| certainty | probes | mean certainty | correct |", "|---|---|---|---|"]
    return ["## Calibration of certainty", "", *head, *rows]
