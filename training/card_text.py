"""The words and tables of the model card."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cgr.lab.score.adaptive import Gain
    from training.card import Card


def write(card: Card) -> str:
    return (
        "\n".join([*_head(card), *_kinds(card), *_budgets(card), *_stopping(card), *_adaptive(card), *_certainty(card)])
        + "\n"
    )


def _head(card: Card) -> list[str]:
    return [
        "# Model card: the embedded model",
        "",
        "A Llama of 1.9 million parameters that thinks about arithmetic, trained by this repository (see",
        "[training.md](training.md)). It demonstrates and tests certainty-guided reasoning and has no other use: it knows three",
        "families of problems and no language. Apache-2.0.",
        "",
        f"All figures: {card.problems} problems that training and calibration never saw, all different, one seed each, temperature .6,",
        f"budget {card.budget:,}, a probe every {card.interval} tokens. `make model-card` measures everything again and writes this page.",
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
        f"| the same, 10th, 50th and 90th percentile | {_percentiles(card)} tokens |",
        f"| the same traces end after (mean) | {card.needed['natural']:.0f} tokens |",
        f"| {card.outside['questions']:.0f} questions outside its families: mean certainty of the last answer | {card.outside['mean']:.3f} |",
        f"| the same: certainty below .5 at every probe | {card.outside['never_sure']:.1%} |",
        "",
        "![accuracy and certainty over the budget, reliability, and tokens needed against length](images/model-card.png)",
        "",
    ]


def _percentiles(card: Card) -> str:
    return ", ".join(f"{card.needed[f'percentile_{part}']:.0f}" for part in (10, 50, 90))


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


def _adaptive(card: Card) -> list[str]:
    rows = [
        f"| {threshold} | {gain.cost_mean:.0f} | {gain.accuracy:.1%} | {gain.fixed_accuracy:.1%} | {gain.gain_points:+.1f} "
        f"[{gain.ci95[0]:+.1f}, {gain.ci95[1]:+.1f}] | {_cost(gain)} |"
        for threshold, gain in card.adaptive.items()
        if gain.ci95 is not None
    ]
    return [
        "## Beside a fixed budget of the same cost",
        "",
        "Cost: thinking tokens and tokens that probes decoded, mean of all traces. The interval is a paired bootstrap over questions.",
        "",
        "| threshold | cost | accuracy | of a fixed budget of this cost | gain, points | fixed cost for the same accuracy |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
    ]


def _cost(gain: Gain) -> str:
    cost = gain.fixed_cost_for_same_accuracy
    return "none is enough" if cost is None else f"{cost:.0f}"


def _certainty(card: Card) -> list[str]:
    rows = [
        f"| {part.low:.1f} to {part.high:.1f} | {part.count} | {part.certainty:.3f} | {part.accuracy:.3f} |"
        for part in card.probes.reliability
    ]
    head = ["| certainty | probes | mean certainty | correct |", "|---|---|---|---|"]
    return ["## Calibration of certainty", "", *head, *rows]
