"""A checkup in words."""

from __future__ import annotations

from collections.abc import Iterator

from cgr.doctor import Checkup, Described, Tag
from cgr.doctor.cost import Cost
from cgr.doctor.integers import Integers
from cgr.doctor.machine import Machine
from cgr.doctor.noise import Noise

MILLI = 1000


def in_lines(checkup: Checkup) -> list[str]:
    """For a person: what there is, then each finding with what it means."""
    return [
        *_machine(checkup.machine),
        *_model(checkup.model),
        *_integers(checkup.integers),
        *_noise(checkup.noise),
        *_cost(checkup.cost),
    ]


def _line(what: str, said: str) -> str:
    return f"{what:<14}{said}"


def _machine(machine: Machine) -> Iterator[str]:
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages)
    yield _line("versions", f"cgr {machine.cgr}, Python {machine.python}, {packages}")
    yield _line("machine", f"{machine.system}, {machine.cores} cores, {machine.processor}")


def _model(model: Described) -> Iterator[str]:
    weights = f", weights {model.fingerprint}" if model.fingerprint else ""
    yield _line("model", f"{model.name} on {model.engine}, context {model.context:,}{weights}")
    has = [name if value is True else f"{name} {value}" for name, value in model.capabilities.items() if _given(value)]
    lacks = [name for name, value in model.capabilities.items() if not _given(value)]
    yield _line("can", ", ".join(has).replace("_", " ") or "nothing")
    if lacks:
        yield _line("cannot", ", ".join(lacks).replace("_", " "))
    yield _line("think tags", f"{_tag(model.opening)} and {_tag(model.closing)}")
    yield _line("template", f"{_opens(model.template_opens)}; a prompt ends in {model.prompt_end!r}")
    yield _line("unless told", f"budget {model.budget:,}, interval {model.interval:,}, L = {model.max_answer_tokens}")
    if model.dialect is not None:
        yield _line("dialect", ", ".join(f"{name} {_said(value)}" for name, value in model.dialect.items()))


def _given(value: object) -> bool:
    return value not in (False, "none")


def _tag(tag: Tag) -> str:
    return (
        f"{tag.text} (token {tag.ids[0]})" if len(tag.ids) == 1 else f"{tag.text} ({len(tag.ids)} tokens, watched as text)"
    )


def _opens(template_opens: bool | None) -> str:
    if template_opens is None:
        return "not seen"
    return "opens the thinking by itself" if template_opens else "does not open the thinking: cgr does"


def _said(value: object) -> str:
    return "unknown" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _integers(integers: Integers) -> Iterator[str]:
    counts = ", ".join(f"{count} take {tokens}" for tokens, count in integers.lengths)
    verdict = f"fit into L = {integers.allowed}" if integers.fit else f"DO NOT FIT into L = {integers.allowed}"
    yield _line("integers", f"0 to 999 with their brace {verdict}: {counts} tokens (such as {integers.longest})")
    if not integers.fit:
        yield _line("", f"use --max-answer-tokens {integers.needed}")
    elif integers.needed < integers.allowed:
        yield _line("", f"L = {integers.needed} would do for them")


def _noise(noise: Noise) -> Iterator[str]:
    yield _line("certainty", f"the same probe at {len(noise.cuts)} cuts, by {len(noise.ways)} ways:")
    first = noise.ways[0]
    for way in noise.ways:
        apart = max(abs(a - b) for a, b in zip(way.certainties, first.certainties, strict=True))
        others = sum(a != b for a, b in zip(way.answers, first.answers, strict=True))
        yield _line("", f"  {way.name:<28} {_apart(way.name, first.name, apart, others)}")
    yield from _verdict(noise)
    if not noise.trace_repeats:
        yield _line("", "the same seed did not give the same thinking twice: live runs will not equal their replay")


def _apart(name: str, first: str, apart: float, others: int) -> str:
    if name == first:
        return "(the others are compared with it)"
    return f"at most {apart:.1g} apart" + (f", {others} other answers" if others else "")


def _verdict(noise: Noise) -> Iterator[str]:
    if noise.exact:
        yield _line("", f"noise {noise.largest:.1g}: exact, a stop at any threshold repeats")
        return
    yield _line("", f"noise {noise.largest:.2g}: this engine does not repeat itself")
    yield _line(
        "",
        f"at threshold {noise.threshold:g}, a certainty from {noise.low:.4f} to {noise.high:.4f} may stop one run "
        "and not the next",
    )
    if noise.answers_changed or noise.moved:
        yield _line(
            "", f"here the answer changed at {noise.answers_changed} cuts, and a stop would have moved at {noise.moved}"
        )
    yield _line("", "use an F32 or F16 file where it matters, and calibrate thresholds on this very engine")


def _cost(cost: Cost) -> Iterator[str]:
    ratio = cost.probe_seconds / cost.token_seconds
    yield _line(
        "a probe",
        f"{cost.probe_seconds * MILLI:.1f} ms against {cost.token_seconds * MILLI:.2f} ms a thinking token "
        f"({ratio:.1f} tokens), answers of up to {cost.answer_tokens} tokens",
    )
    yield _line(
        "interval",
        f"{cost.interval} or more keeps probing within {cost.share:.0%} of thinking "
        f"(probe / (interval x token) <= {cost.share:g}); at {cost.own_interval:,} it takes {cost.own_share:.1%}",
    )
