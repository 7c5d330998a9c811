"""Shared by the tests: scripted answers, a rule that only watches, and the command by its real entry point."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cgr import GO_ON, Rule, Seen, Solution, Token, next_multiple, rule
from cgr.drive.driver import Driver, Outcome
from cgr.engines.base import Sampling
from cgr.engines.scripted import Answers, ScriptedEngine
from cgr.probing import ProbeSpec
from cgr.reason import Abstention
from cgr.rules import Action

CGR = Path(sys.executable).parent / "cgr"
QUESTION = "Start with x=864. Apply x=(8x+97) mod 1000, 2 times. Find x."
OTHERS = (
    "Start with x=123. Apply x=(3x+45) mod 1000, 3 times. Find x.",
    "Find x, the last three digits of 317*29.",
    "Find x, the greatest common divisor of 84 and 126.",
)
JSON_KEYS = {
    "question",
    "answer",
    "certainty",
    "abstained",
    "stop_cause",
    "rule",
    "threshold",
    "interval",
    "budget",
    "seed",
    "model",
    "engine",
    "thinking_tokens",
    "probe_tokens",
    "answer_tokens",
    "probes",
    "thinking",
}
SURE = (("7", 0.999), ("}", 0.999))
UNSURE = (("3", 0.25), ("}", 0.999))
UNCLOSED = (("1", 0.999), ("2", 0.999), ("3", 0.999), ("4", 0.999), ("}", 0.999))
EMPTY = (("}", 0.999),)


@rule("only-watches")
@dataclass(frozen=True, kw_only=True)
class OnlyWatches(Rule):
    """Probes every few tokens, in full, and never stops: what a recording is made with."""

    interval: int = 32

    def next_probe(self, seen: Seen) -> int | None:
        return next_multiple(seen.at, self.interval)

    def on_probe(self, seen: Seen) -> Action:
        return GO_ON


def sure_from(position: int) -> Answers:
    """Unsure answers first, sure ones from here on."""
    return lambda at, suffix: SURE if at >= position else UNSURE


def scripted(thinking: str, answers: Answers = sure_from(1 << 30)) -> ScriptedEngine:
    return ScriptedEngine(thinking.split(), answers)


def spec(**changes: Any) -> ProbeSpec:
    return ProbeSpec(**({"max_answer_tokens": 4} | changes))


async def run(engine: ScriptedEngine, rule: Rule, budget: int, **options: Any) -> Outcome:
    """A rule on a script. Options are those of the driver, and `spec` and `abstention`."""
    probing = options.pop("spec", None) or spec()
    abstention = options.pop("abstention", None) or Abstention()
    session = await engine.open("", Sampling())
    return await Driver(engine, session, probing, **options).run(rule, budget, abstention)


def story(engine: ScriptedEngine) -> str:
    """What was asked of a scripted engine, shortly: t4 (think), T4 (with the end banned), p4 (probe after 4 tokens), P4
    (the same with thinking closed first), a2 (append)."""
    return " ".join(_short(entry) for entry in engine.log if entry != "close")


def _short(entry: str) -> str:
    verb, number, *more = entry.split()
    letter = {"think": "t", "probe": "p", "append": "a"}[verb]
    return (letter.upper() if more[:1] in (["ban"], ["</think>"]) else letter) + number


def tokens_of(*pieces: str | tuple[str, float]) -> tuple[Token, ...]:
    """Tokens from texts, or texts with their probabilities."""
    pairs = [(piece, 0.5) if isinstance(piece, str) else piece for piece in pieces]
    return tuple(Token(number, text, math.log(p)) for number, (text, p) in enumerate(pairs))


def gist(solution: Solution) -> tuple[object, ...]:
    """All of a solution that must not depend on how it was come by."""
    return (
        solution.thinking,
        solution.answer,
        solution.stop_cause,
        solution.thinking_tokens,
        solution.forced,
        solution.eos,
        [(probe.at, probe.answer, probe.closed, probe.bound) for probe in solution.probes],
    )


def command(*arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`cgr` as a user runs it."""
    return subprocess.run(
        [CGR, *arguments], input=stdin, capture_output=True, text=True, check=False, env=environment(env or {})
    )


def python(code: str, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter."""
    call = [sys.executable, "-c", code, *arguments]
    return subprocess.run(call, capture_output=True, text=True, check=False, env=environment(env or {}))


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Ours, without the network: no test may reach for the hub."""
    return {**os.environ, "HF_HUB_OFFLINE": "1", **more}


def certainties(solution: Solution) -> Sequence[float]:
    return [solution.certainty, *(probe.certainty for probe in solution.probes)]
