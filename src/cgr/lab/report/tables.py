"""The paper's tables and a few more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cgr.lab.output.table import Cell, Head, Table, write_table
from cgr.lab.report.result import Report, SpreadRow, labels

THRESHOLD = Head("threshold", "θ", "g")
ACCURACY = Head("correct_mean", "Acc.", ".2f")
RELATIVE = Head("accuracy", "Rel. Acc.", ".2f", 100, "%")
SPREAD = Head("sd", "SD over seeds", ".2f", 100)


def baseline(report: Report) -> Table:
    """The baseline and, below it, the rule: how accurate, and how far the seeds are apart."""
    heads = (
        Head("policy", "Policy"),
        THRESHOLD,
        Head("correct_mean", f"Accuracy (out of {report.questions})", ".2f"),
        Head("accuracy", "Accuracy (%)", ".2f", 100),
        Head("sd", "SD over seeds (points)", ".2f", 100),
        Head("low", "Lowest seed (%)", ".2f", 100),
        Head("high", "Highest seed (%)", ".2f", 100),
    )
    first = ("baseline", None, report.baseline.correct_mean, report.baseline.accuracy, *_ends(report.spread[0]))
    rest = [
        (report.rule, row.threshold, row.correct_mean, row.accuracy, *_ends(spread))
        for row, spread in zip(report.thresholds, report.spread[1:], strict=True)
    ]
    return Table("baseline", f"Baseline at {report.run.budget:,} thinking tokens, and {report.rule}", heads, (first, *rest))


def _ends(spread: SpreadRow) -> tuple[Cell, ...]:
    return spread.sd, spread.low, spread.high


def thresholds(report: Report) -> Table:
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
    rows = tuple(tuple(getattr(row, head.name) for head in heads) for row in report.thresholds)
    return Table("thresholds", f"{report.rule} across thresholds, over {_seeds(report)}", heads, rows)


def grade(report: Report) -> Table:
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
    rows = tuple(tuple(getattr(row, head.name) for head in heads) for row in report.grade)
    return Table("grade", f"Grade at {last} tokens and where it is largest, over {_seeds(report)}", heads, rows)


def savings(report: Report) -> Table:
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
    rows = tuple(tuple(getattr(row, head.name) for head in heads) for row in report.savings)
    return Table("savings", f"Thinking tokens saved across thresholds, over {_seeds(report)}", heads, rows)


def budget_sweep(report: Report) -> Table:
    heads = (
        Head("budget", "Budget", ",d"),
        ACCURACY,
        RELATIVE,
        SPREAD,
        Head("thinking_tokens_mean", "Tokens thought (mean)", ",.0f"),
        Head("ended_by_themselves", "Ended by themselves", ".1f", 100, "%"),
    )
    rows = tuple(tuple(getattr(row, head.name) for head in heads) for row in report.budget_sweep)
    return Table("budget_sweep", "The baseline under smaller budgets", heads, rows)


def selective(report: Report) -> Table:
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
    return Table("selective", "How well certainty tells right from wrong", heads, rows)


def models(reports: Sequence[Report]) -> Table:
    """The paper's Table 1, and beside it what the rule makes of each model at its own threshold."""
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
    return "1 seed" if report.size.seeds == 1 else f"{report.size.seeds} seeds"


TABLES: tuple[Callable[[Report], Table], ...] = (baseline, thresholds, grade, savings, budget_sweep, selective)


def write(report: Report, folder: Path) -> tuple[Path, ...]:
    """Every table of one run, three files each."""
    return tuple(path for make in TABLES for path in write_table(make(report), folder))
