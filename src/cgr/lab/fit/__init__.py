"""Parameters of a rule, learned from the questions of a run for use on others.

Every rule with a main parameter can have that chosen: the largest net saving at equal accuracy. `calibrated` has its
weights learned as well, and `give-up` its bound and patience chosen for a penalty on wrong answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from cgr.errors import NotRecorded, UsageError
from cgr.lab.compare.choose import MARGIN, halves
from cgr.lab.decide.any_rule import decide_rule
from cgr.lab.decide.columns import Bools, Columns, Floats, Ints
from cgr.lab.decide.replay import Decided
from cgr.lab.decide.run import Run
from cgr.lab.score import accuracy as scores
from cgr.records import Probe
from cgr.rules import Calibrated, GiveUpEarly, Rule
from cgr.rules.calibrated import features
from cgr.rules.history import history

FOLDS = 5
RIDGE = 1.0
LEAST = 20  # examples; from fewer no weights are learned
FLOORS = (0.2, 0.3, 0.4, 0.5, 0.7)
R = TypeVar("R", bound=Rule)


def open_run(folder: Path, probe_set: str | None = None, *, share: float = 1.0) -> Run:
    """The run to fit a rule to, or this share of its questions: the share that `cgr compare --tune-on` chooses on."""
    if not 0 < share <= 1:
        raise UsageError(f"A share of {share:g} of the questions is none.", "Use more than 0 and at most 1.")
    run = Run.open(folder, probe_set)
    if run.main is None:
        raise NotRecorded(f"The run in {folder} has no probes yet.", f"Make them with `cgr probe {folder}`.")
    columns = run.columns()
    return run if share == 1 else run.only(halves(columns.questions, share, scores.graded_questions(columns))[0])


@dataclass(frozen=True, slots=True)
class Figures:
    """What a rule comes to: accuracy, points lost or won against the full budget with their interval, tokens saved."""

    accuracy: float
    diff_points: float
    low: float
    high: float
    gross: float
    net: float
    gave_up: int

    @property
    def equal(self) -> bool:
        """Equal accuracy: the interval of the difference stays above the margin."""
        return self.low > MARGIN


@dataclass(frozen=True, slots=True)
class Fit(Generic[R]):
    """A rule with its parameters chosen, and its figures on the questions that chose them, weights cross-fitted."""

    rule: R
    figures: Figures


def figures(columns: Columns, decided: Decided) -> Figures:
    compared, saved = scores.compare(columns, decided.right), scores.savings(columns, decided)
    accuracy, graded = scores.accuracy(columns, decided.right), int(columns.graded.sum())
    if accuracy is None or compared.ci95 is None or compared.diff_points is None:
        raise UsageError("Nothing can be fitted without known answers.", "Two questions with one are the least.")
    low, high = (100 * end * len(columns.seeds) / graded for end in compared.ci95)
    return Figures(accuracy, compared.diff_points, low, high, saved.share, saved.net_share, int(decided.gave_up.sum()))


def fit(rule: Rule, run: Run, *, penalty: float = 1.0) -> Fit[Any]:
    """This rule with the parameters that suit these traces; what is not fitted stays as it is given."""
    if isinstance(rule, Calibrated):
        return _calibrated(rule, run)
    if isinstance(rule, GiveUpEarly):
        return _give_up(rule, run, penalty)
    return equal_accuracy(rule, partial(decide_rule, run), run.columns())


def learned(rule: Rule, run: Run, *, penalty: float = 1.0) -> Rule:
    """The rule with all but its main parameter fitted: for a comparison, which sweeps that one itself."""
    if isinstance(rule, Calibrated):
        return learn(rule, run)
    return _give_up(rule, run, penalty).rule if isinstance(rule, GiveUpEarly) else rule


def equal_accuracy(rule: R, decide: Callable[[R], Decided], columns: Columns) -> Fit[R]:
    """The value of the main parameter that saves most at equal accuracy; where none does, the most cautious one."""
    if rule.main is None or not rule.grid:
        raise UsageError(f"The rule {rule.name!r} has no parameter to fit.", "`cgr rules --json` lists parameters.")
    tried = [Fit(one, figures(columns, decide(one))) for one in _sweep(rule, rule.main)]
    equal = [one for one in tried if one.figures.equal]
    return max(equal, key=lambda one: one.figures.net) if equal else tried[-1]


def _sweep(rule: R, main: str) -> Iterator[R]:
    kind = type(getattr(rule, main))
    return (replace(rule, **{main: kind(value)}) for value in rule.grid)


def _calibrated(rule: Calibrated, run: Run) -> Fit[Calibrated]:
    """Weights from all traces; the price from decisions by weights that never saw the question."""
    fold = np.arange(len(run.columns().questions)) % min(FOLDS, len(run.columns().questions))
    parts = [(run.only(fold == k), learn(rule, run.only(fold != k))) for k in np.unique(fold)]
    order = np.argsort(np.argsort(fold[run.columns().question], kind="stable"), kind="stable")

    def decide_apart(one: Calibrated) -> Decided:
        return joined([decide_rule(part, replace(weights, price=one.price)) for part, weights in parts], order)

    best = equal_accuracy(rule, decide_apart, run.columns())
    return replace(best, rule=replace(learn(rule, run), price=best.rule.price))


def joined(parts: Sequence[Decided], order: Ints) -> Decided:
    """What was decided part by part, as one; `order` says where each trace is among them."""
    names = Decided.__dataclass_fields__
    return Decided(**{name: np.concatenate([getattr(part, name) for part in parts])[order] for name in names})


def learn(rule: Calibrated, run: Run) -> Calibrated:
    """The rule with weights from these traces.

    Each probe with an answer is an example: of a chance, good if stopping there loses nothing (its answer is right, or that
    at the full budget is wrong), and of a saving, what of the budget was still thought. Each trace is an example of how
    long there may be no hope, good if its answer at the full budget is wrong.
    """
    rule, rows, droughts = replace(rule, span=run.columns().limit), [], []
    for probes, right, final_right, natural in _graded(run):
        pasts = [history(probes[:count], rule.floor, rule.hope) for count in range(1, len(probes) + 1)]
        for probe, past, good in zip(probes, pasts, right, strict=False):
            if past.strength:
                rows.append((good or not final_right, natural - probe.at, *features(past, probe.at, rule.span)))
        droughts.append(({past.dry for past in pasts}, not final_right))
    made = replace(rule, hopeless=_steps(droughts, rule.span))
    if len(rows) < LEAST:
        return made
    table = np.array(rows, dtype=np.float64)
    weights = logistic_regression(table[:, 2:], table[:, 0]), linear_regression(table[:, 2:], table[:, 1] / rule.span)
    return replace(made, answered=tuple(map(float, weights[0])), left=tuple(map(float, weights[1])))


def _graded(run: Run) -> Iterator[tuple[list[Probe], Bools, bool, int]]:
    """Of each trace with a known answer: its probes, which of them are right, whether the final answer is, its length."""
    columns = run.columns()
    for row, trace in enumerate(run.traces(whole=True)):
        if columns.graded[row]:
            kept = sorted((probe for probe in trace.probes if 0 < probe.at < trace.budget), key=lambda probe: probe.at)
            yield kept, columns.right[row], bool(columns.final_right[row]), int(columns.natural[row])


def _steps(droughts: Sequence[tuple[set[int], bool]], span: int) -> tuple[tuple[float, float], ...]:
    """From how long there was no hope to the chance that none comes: of the traces that had none for so long, the share
    that end wrong, made to rise; half a trace of either kind is added, so that a few are never certain.

    A trace is given as how long it had been without hope at each of its probes, and whether it ends wrong."""
    longest = np.array([max(lengths, default=0) for lengths, _ in droughts])
    wrong = np.array([ends_wrong for _, ends_wrong in droughts])
    lengths = sorted({length for found, _ in droughts for length in found if length})
    reached = [longest >= length for length in lengths]
    shares = [(wrong[there].sum() + 0.5) / (there.sum() + 1) for there in reached]
    risen = isotonic(np.array(shares), np.array([there.sum() for there in reached], dtype=np.float64))
    first: dict[float, float] = {}
    for length, chance in zip(lengths, risen.tolist(), strict=True):
        first.setdefault(round(chance, 9), length / span)
    return tuple((share, chance) for chance, share in first.items())


def isotonic(values: Floats, weights: Floats) -> Floats:
    """The nearest values that never fall, by pooling neighbours that do."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (low, light, few), (high, heavy, many) = blocks.pop(), blocks.pop()
            pooled = (low * light + high * heavy) / (light + heavy)
            blocks.append((pooled, light + heavy, few + many))
    return np.array([value for value, _, count in blocks for _ in range(count)], dtype=np.float64)


def linear_regression(features: Floats, values: Floats, ridge: float = RIDGE) -> Floats:
    """Weights by least squares, held back by a ridge on the standardised features; the first feature is the constant."""
    middle, width = _scale(features)
    scaled = (features - middle) / width
    curve = scaled.T @ scaled + ridge * np.eye(features.shape[1])
    return _plain(np.asarray(np.linalg.solve(curve, scaled.T @ values), dtype=np.float64), middle, width)


def logistic_regression(features: Floats, good: Floats, ridge: float = RIDGE, steps: int = 100) -> Floats:
    """The same for chances, by Newton's method."""
    middle, width = _scale(features)
    scaled = (features - middle) / width
    weights = np.zeros(features.shape[1])
    for _ in range(steps):
        chance = 1 / (1 + np.exp(-np.clip(scaled @ weights, -700, 700)))
        slope = scaled.T @ (good - chance) - ridge * weights
        curve = (scaled * (chance * (1 - chance))[:, None]).T @ scaled + ridge * np.eye(features.shape[1])
        step = np.linalg.solve(curve, slope)
        weights += step
        if np.abs(step).max() < 1e-10:
            break
    return _plain(weights, middle, width)


def _scale(features: Floats) -> tuple[Floats, Floats]:
    middle, width = features.mean(axis=0), features.std(axis=0)
    middle[0], width[width == 0] = 0.0, 1.0
    return middle, width


def _plain(weights: Floats, middle: Floats, width: Floats) -> Floats:
    """For features as they are, not standardised."""
    plain: Floats = weights / width
    plain[0] -= float((plain * middle).sum())
    return plain


def _give_up(rule: GiveUpEarly, run: Run, penalty: float) -> Fit[GiveUpEarly]:
    """The bound and patience with the best Grade; among equals, the fewest tokens."""
    columns = run.columns()
    most = max(2, columns.limit // rule.interval)
    patiences = sorted({max(1, round(most * share)) for share in (0.125, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8, 1)})
    best: tuple[float, int] = (-np.inf, 0)
    chosen: Fit[GiveUpEarly] | None = None
    for one in (replace(rule, floor=floor, patience=patience) for floor in FLOORS for patience in patiences):
        decided = decide_rule(run, one)
        grade = scores.grade(columns, decided.right, penalty, ~decided.gave_up)
        spent = int((decided.at + decided.probe_tokens).sum())
        if grade is not None and (grade, -spent) > best:
            best, chosen = (grade, -spent), Fit(one, figures(columns, decided))
    if chosen is None:
        raise UsageError("Nothing can be fitted without known answers.", "Two questions with one are the least.")
    return chosen
