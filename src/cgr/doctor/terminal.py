"""A checkup as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from cgr.doctor.cost import Cost
from cgr.doctor.integers import Integers
from cgr.doctor.machine import Machine
from cgr.doctor.noise import Noise, ProbeSeries
from cgr.doctor.result import Checkup, EncodedTag, ModelDescription

MILLI = 1000


def checkup_lines(checkup: Checkup) -> list[str]:
    """The machine and the model, then each finding and what it means."""
    return [
        *_machine(checkup.machine),
        *_model(checkup.model),
        *_integers(checkup.integers),
        *_noise(checkup.noise),
        *_cost(checkup.cost),
    ]


def _line(label: str, text: str) -> str:
    return f"{label:<14}{text}"


def _machine(machine: Machine) -> Iterator[str]:
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages)
    yield _line("versions", f"cgr {machine.cgr}, Python {machine.python}, {packages}")
    yield _line("machine", f"{machine.system}, {machine.cores} cores, {machine.processor}")


def _model(model: ModelDescription) -> Iterator[str]:
    weights = f", weights {model.fingerprint}" if model.fingerprint else ""
    yield _line("model", f"{model.name} on {model.engine}, context {model.context:,}{weights}")
    has = [_capability(name, value) for name, value in model.capabilities.items() if _present(value)]
    lacks = [name for name, value in model.capabilities.items() if not _present(value)]
    yield _line("can", ", ".join(has).replace("_", " ") or "nothing")
    if lacks:
        yield _line("cannot", ", ".join(lacks).replace("_", " "))
    yield _line("think tags", f"{_tag(model.opening)} and {_tag(model.closing)}")
    yield _line("template", f"{_template(model.template_opens)}; a prompt ends in {model.prompt_end!r}")
    yield _line("defaults", f"budget {model.budget:,}, interval {model.interval:,}, L = {model.max_answer_tokens}")
    if model.dialect is not None:
        yield _line("dialect", ", ".join(f"{name} {_property(value)}" for name, value in model.dialect.items()))


def _present(value: object) -> bool:
    return value not in (False, "none", [])


def _capability(name: str, value: object) -> str:
    if isinstance(value, list):
        return f"{name} ({', '.join(value)})"
    return name if value is True else f"{name} {value}"


def _tag(tag: EncodedTag) -> str:
    tokens = f"token {tag.ids[0]}" if len(tag.ids) == 1 else f"{len(tag.ids)} tokens, detected as text"
    return f"{tag.text} ({tokens})"


def _template(opens: bool | None) -> str:
    if opens is None:
        return "unknown"
    return "writes the opening tag" if opens else "does not write the opening tag: cgr writes it"


def _property(value: object) -> str:
    return "unknown" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _integers(integers: Integers) -> Iterator[str]:
    counts = ", ".join(f"{count} take {tokens}" for tokens, count in integers.lengths)
    verdict = "fit into" if integers.fit else "DO NOT FIT into"
    verdict = f"{verdict} L = {integers.allowed}"
    yield _line("integers", f"0 to 999 with closing brace {verdict}: {counts} tokens (longest: {integers.longest})")
    if not integers.fit:
        yield _line("", f"use --max-answer-tokens {integers.needed}")
    elif integers.needed < integers.allowed:
        yield _line("", f"L = {integers.needed} is enough for them")


def _noise(noise: Noise) -> Iterator[str]:
    yield _line("certainty", f"the same probes at {len(noise.cuts)} cuts, computed in {len(noise.ways)} ways:")
    first, *others = noise.ways
    yield _line("", f"  {first.name:<28} (the others are compared with this)")
    for series in others:
        yield _line("", f"  {series.name:<28} {_difference(series, first)}")
    yield from _verdict(noise)
    if not noise.trace_repeats:
        yield _line("", "the same seed gave different thinking twice: live runs will differ from their replay")


def _difference(series: ProbeSeries, first: ProbeSeries) -> str:
    largest = max(abs(a - b) for a, b in zip(series.certainties, first.certainties, strict=True))
    changed = sum(a != b for a, b in zip(series.answers, first.answers, strict=True))
    return f"differs by at most {largest:.1g}" + (f", {changed} different answers" if changed else "")


def _verdict(noise: Noise) -> Iterator[str]:
    if noise.exact:
        yield _line("", f"noise {noise.largest:.1g}: exact, stops are reproducible at any threshold")
        return
    yield _line("", f"noise {noise.largest:.2g}: this engine is not reproducible")
    band = f"a certainty from {noise.low:.4f} to {noise.high:.4f} may stop one run and not the next"
    yield _line("", f"at threshold {noise.threshold:g}, {band}")
    if noise.answers_changed or noise.moved:
        yield _line("", f"the answer changed at {noise.answers_changed} cuts, and the decision to stop at {noise.moved}")
    yield _line("", "if this matters, use an F32 or F16 file, and calibrate thresholds on this engine")


def _cost(cost: Cost) -> Iterator[str]:
    probe, token = cost.probe_seconds * MILLI, cost.token_seconds * MILLI
    time = f"{probe:.1f} ms, as long as {probe / token:.1f} thinking tokens of {token:.2f} ms"
    yield _line("a probe", f"{time} (answers of up to {cost.answer_tokens} tokens)")
    yield _line(
        "interval",
        f"{cost.interval} or more keeps probing within {cost.share:.0%} of the thinking time "
        f"(probe / (interval x token) <= {cost.share:g}); at {cost.own_interval:,} it takes {cost.own_share:.1%}",
    )
