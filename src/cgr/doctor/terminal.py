"""A checkup as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from cgr.doctor import Checkup
from cgr.doctor.description import EncodedTag, Integers, Machine, ModelDescription
from cgr.doctor.noise import Noise, ProbeSeries
from cgr.doctor.sample import Cost

Lines = Iterator[tuple[str, str]]  # a label, which may be empty, and a text
TEMPLATE = {None: "unknown", True: "writes the opening tag", False: "does not write the opening tag: cgr writes it"}


def checkup_lines(checkup: Checkup) -> list[str]:
    """The machine and the model, then each finding and what it means."""
    model, noise = _model(checkup.model), _noise(checkup.noise)
    lines = chain(_machine(checkup.machine), model, _integers(checkup.integers), noise, _cost(checkup.cost))
    return [f"{label:<14}{text}" for label, text in lines]


def _machine(machine: Machine) -> Lines:
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages)
    yield "versions", f"cgr {machine.cgr}, Python {machine.python}, {packages}"
    yield "machine", f"{machine.system}, {machine.cores} cores, {machine.processor}"


def _model(model: ModelDescription) -> Lines:
    weights = f", weights {model.fingerprint}" if model.fingerprint else ""
    yield "model", f"{model.name} on {model.engine}, context {model.context:,}{weights}"
    has = [_capability(name, value) for name, value in model.capabilities.items() if _present(value)]
    lacks = [name for name, value in model.capabilities.items() if not _present(value)]
    yield "can", ", ".join(has).replace("_", " ") or "nothing"
    if lacks:
        yield "cannot", ", ".join(lacks).replace("_", " ")
    yield "think tags", f"{_tag(model.opening)} and {_tag(model.closing)}"
    yield "template", f"{TEMPLATE[model.template_opens]}; a prompt ends in {model.prompt_end!r}"
    yield "defaults", f"budget {model.budget:,}, interval {model.interval:,}, L = {model.max_answer_tokens}"
    if model.dialect is not None:
        yield "dialect", ", ".join(f"{name} {_property(value)}" for name, value in model.dialect.items())


def _present(value: object) -> bool:
    return value not in (False, "none", [])


def _capability(name: str, value: object) -> str:
    if isinstance(value, list):
        return f"{name} ({', '.join(value)})"
    return name if value is True else f"{name} {value}"


def _tag(tag: EncodedTag) -> str:
    tokens = f"token {tag.ids[0]}" if len(tag.ids) == 1 else f"{len(tag.ids)} tokens, detected as text"
    return f"{tag.text} ({tokens})"


def _property(value: object) -> str:
    return "unknown" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _integers(integers: Integers) -> Lines:
    counts = ", ".join(f"{count} take {tokens}" for tokens, count in integers.lengths)
    verdict = f"{'fit' if integers.fit else 'DO NOT FIT'} into L = {integers.allowed}"
    yield "integers", f"0 to 999 with closing brace {verdict}: {counts} tokens (longest: {integers.longest})"
    if not integers.fit:
        yield "", f"use --max-answer-tokens {integers.needed}"
    elif integers.needed < integers.allowed:
        yield "", f"L = {integers.needed} is enough for them"


def _noise(noise: Noise) -> Lines:
    yield "certainty", f"the same probes at {len(noise.cuts)} cuts, computed in {len(noise.ways)} ways:"
    first, *others = noise.ways
    yield "", f"  {first.name:<28} (the others are compared with this)"
    for series in others:
        yield "", f"  {series.name:<28} {_difference(series, first)}"
    yield from _verdict(noise)
    if not noise.trace_repeats:
        yield "", "the same seed gave different thinking twice: live runs will differ from their replay"


def _difference(series: ProbeSeries, first: ProbeSeries) -> str:
    largest = max(abs(a - b) for a, b in zip(series.certainties, first.certainties, strict=True))
    changed = sum(a != b for a, b in zip(series.answers, first.answers, strict=True))
    return f"differs by at most {largest:.1g}" + (
        f", {changed} different {'answer' if changed == 1 else 'answers'}" if changed else ""
    )


def _verdict(noise: Noise) -> Lines:
    if noise.exact:
        yield "", f"noise {noise.largest:.1g}: exact, stops are reproducible at any threshold"
        return
    yield "", f"noise {noise.largest:.2g}: this engine is not reproducible"
    band = f"a certainty from {noise.low:.4f} to {noise.high:.4f} may stop one run and not the next"
    yield "", f"at threshold {noise.threshold:g}, {band}"
    if noise.answers_changed or noise.moved:
        cuts = "1 cut" if noise.answers_changed == 1 else f"{noise.answers_changed} cuts"
        yield "", f"the answer changed at {cuts}, and the decision to stop at {noise.moved}"
    yield "", "if this matters, use an F32 or F16 file, and calibrate thresholds on this engine"


def _cost(cost: Cost) -> Lines:
    probe, token = 1000 * cost.probe_seconds, 1000 * cost.token_seconds
    time = f"{probe:.1f} ms, as long as {probe / token:.1f} thinking tokens of {token:.2f} ms"
    yield "a probe", f"{time} (answers of up to {cost.answer_tokens} tokens)"
    limit = f"{cost.interval} or more keeps probing within {cost.share:.0%} of the thinking time"
    own = f"at {cost.own_interval:,} it takes {cost.own_share:.1%}"
    yield "interval", f"{limit} (probe / (interval x token) <= {cost.share:g}); {own}"
