"""The tables of a report: those of the paper and some more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cgr.lab.output.table import Cell, Head, Table, plural, write_table
from cgr.lab.report.result import Report, SpreadRow, labels

THRESHOLD = Head("threshold", "θ", "g")
ACCURACY = Head("correct_mean", "Acc.", ".2f")
RELATIVE = Head("accuracy", "Rel. Acc.", ".2f", 100, "%")
SPREAD = Head("sd", "SD over seeds", ".2f", 100)


def baseline(report: Report) -> Table:
    """Accuracy and its spread over seeds: the baseline, then the rule at each threshold."""
    heads = (
        Head("policy", "Policy"),
        THRESHOLD,
        Head("correct_mean", f"Accuracy (out of {report.questions})", ".2f"),
        Head("accuracy", "Accuracy (%)", ".2f", 100),
        Head("sd", "SD over seeds (points)", ".2f", 100),
        Head("low", "Lowest seed (%)", ".2f", 100),
        Head("high", "Highest seed (%)", ".2f", 100),
    )
    first = ("baseline", None, report.baseline.correct_mean, report.baseline.accuracy, *_spread(report.spread[0]))
    rest = [
        (report.rule, row.threshold, row.correct_mean, row.accuracy, *_spread(spread))
        for row, spread in zip(report.thresholds, report.spread[1:], strict=True)
    ]
    return Table("baseline", f"Baseline at {report.run.budget:,} thinking tokens, and {report.rule}", heads, (first, *rest))


def _spread(spread: SpreadRow) -> tuple[Cell, ...]:
    return spread.sd, spread.low, spread.high


def thresholds(report: Report) -> Table:
    """Accuracy of the rule at each threshold, against the baseline."""
    heads = (
        THRESHOLD,
        ACCURACY,
        RELATIVE,
        Head("diff_mean", "Diff.", "+.2f"),
        Head("ci95", "95% interval", "+.2f"),
        Head("diff_points", "Rel. Diff. (points)", "+.2f"),
        Head("diff_relative", "Rel. Diff. (ratio)", "+.2f", 100, "%"),
        Head("equal", "Equal", "d"),
        Head("better", "Better", "d"),
        Head("worse", "Worse", "d"),
        Head("ci95_seeds", "95% interval over seeds", "+.2f"),
        Head("fired", "Stopped early", ",d"),
    )
    caption = f"{report.rule} across thresholds, over {_seeds(report)}"
    return Table.of_records("thresholds", caption, heads, report.thresholds)


def grade(report: Report) -> Table:
    """Grade at each threshold and penalty."""
    last = f"{report.steps[-1]:,}" if report.steps else "no step"
    heads = (
        THRESHOLD,
        Head("penalty", "p", ".2f"),
        Head("final", "Final Grade", ".2f"),
        Head("baseline", "Baseline", ".2f"),
        Head("diff", "Diff.", "+.2f"),
        Head("diff_points", "Rel. Diff. (points)", "+.2f"),
        Head("max", "Max Grade", ".2f"),
        Head("step", "Step", ",d"),
        Head("at_budget", "At the budget", ".2f"),
        Head("answering", "Without abstention", ".2f"),
    )
    caption = f"Grade at {last} tokens and at its best step, over {_seeds(report)}"
    return Table.of_records("grade", caption, heads, report.grade)


def savings(report: Report) -> Table:
    """Thinking tokens saved at each threshold."""
    heads = (
        THRESHOLD,
        Head("total", "Total saved", ",d"),
        Head("per_seed", "Avg. per seed", ",.0f"),
        Head("per_question", "Avg. per question", ",.0f"),
        Head("share", "Share", ".1f", 100, "%"),
        Head("ci95_share", "95% interval", ".1f", 100),
        Head("probe_tokens", "Probe tokens", ",d"),
        Head("net_total", "Net", ",d"),
        Head("net_share", "Net share", ".1f", 100, "%"),
        Head("against_budget_total", "Against the budget", ",d"),
        Head("suffix_tokens", "Suffix tokens prefilled", ",d"),
    )
    caption = f"Thinking tokens saved across thresholds, over {_seeds(report)}"
    return Table.of_records("savings", caption, heads, report.savings)


def budget_sweep(report: Report) -> Table:
    """The baseline at every budget on the grid."""
    heads = (
        Head("budget", "Budget", ",d"),
        ACCURACY,
        RELATIVE,
        SPREAD,
        Head("thinking_tokens_mean", "Thinking tokens (mean)", ",.0f"),
        Head("ended_by_themselves", "Natural ends", ".1f", 100, "%"),
    )
    return Table.of_records("budget_sweep", "The baseline under smaller budgets", heads, report.budget_sweep)


def selective(report: Report) -> Table:
    """AURC, ECE and AUROC of certainty."""
    heads = (
        Head("among", "Among"),
        THRESHOLD,
        Head("count", "Answers", ",d"),
        RELATIVE,
        Head("aurc", "AURC", ".4f"),
        Head("e_aurc", "E-AURC", ".4f"),
        Head("ece", "ECE", ".4f"),
        Head("auroc", "AUROC", ".4f"),
    )
    names = [head.name for head in heads[2:]]
    rows = tuple((row.among, row.threshold, *(getattr(row.selective, name) for name in names)) for row in report.selective)
    return Table("selective", "How well certainty separates right from wrong", heads, rows)


def models(reports: Sequence[Report]) -> Table:
    """The paper's Table 1 (baseline of each model), with the rule at the shown threshold beside it."""
    heads = (
        Head("model", "Model"),
        Head("questions", "Questions", "d"),
        Head("seeds", "Seeds", "d"),
        Head("correct_mean", "Accuracy", ".2f"),
        Head("accuracy", "Accuracy (%)", ".2f", 100),
        Head("sd", "SD (points)", ".2f", 100),
        THRESHOLD,
        Head("rule_correct_mean", "With rule", ".2f"),
        Head("diff_mean", "Diff.", "+.2f"),
        Head("ci95", "95% interval", "+.2f"),
        Head("rule_sd", "SD with rule", ".2f", 100),
        Head("share", "Tokens saved", ".1f", 100, "%"),
        Head("net_share", "Net", ".1f", 100, "%"),
    )
    rows = tuple(_model_row(name, report) for name, report in zip(labels(reports), reports, strict=True))
    return Table("models", "Baseline performance, and the rule beside it", heads, rows)


def _model_row(name: str, report: Report) -> tuple[Cell, ...]:
    row, saved = report.at(report.shown), report.saved(report.shown)
    spread = {one.threshold: one.sd for one in report.spread}
    return (
        name,
        report.questions,
        report.size.seeds,
        report.baseline.correct_mean,
        report.baseline.accuracy,
        spread[None],
        report.shown,
        row.correct_mean,
        row.diff_mean,
        row.ci95,
        spread[report.shown],
        saved.share,
        saved.net_share,
    )


def _seeds(report: Report) -> str:
    return plural(report.size.seeds, "seed")


TABLES: tuple[Callable[[Report], Table], ...] = (baseline, thresholds, grade, savings, budget_sweep, selective)


def write(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write every table of one run, three files each; the paths."""
    return tuple(path for make in TABLES for path in write_table(make(report), folder))
