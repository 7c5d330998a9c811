"""`cgr doctor`: what an engine can do, and how far its certainty can be trusted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from cgr.cli.shared.model_options import model_options, open_given, refuse_probe_model
from cgr.engines.open import ModelOptions
from cgr.rules.base import THRESHOLD

if TYPE_CHECKING:
    from cgr.doctor import Checkup, CheckupOptions


@click.command("doctor")
@model_options
@click.option("--tokens", type=int, default=256, show_default=True, help="Thinking tokens to ask about.")
@click.option("--threshold", type=float, default=THRESHOLD, show_default=True, help="The threshold that is meant.")
@click.option("--share", type=float, default=0.05, show_default=True, help="What probing may add to thinking's time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(given: ModelOptions, tokens: int, threshold: float, share: float, as_json: bool) -> None:
    """Examine a model where it runs: what it can do, how noisy its certainty is, what a probe costs.

    The same cut of a trace is probed in several ways. Without --model: the embedded one.
    """
    from cgr.doctor import CheckupOptions
    from cgr.doctor.terminal import in_lines

    refuse_probe_model(given, f"Examine the other with --model {given.probe_model}")
    wish = CheckupOptions(tokens, threshold, share)
    checkup = asyncio.run(_examine(given, wish))
    click.echo(checkup.to_json() if as_json else "\n".join(in_lines(checkup)))


async def _examine(given: ModelOptions, wish: CheckupOptions) -> Checkup:
    """On the model, and, where we compute it ourselves on threads, on the same with another number of them."""
    from cgr.doctor import examine, other_threads

    async with open_given(given, sessions=wish.sessions, budget=wish.tokens) as model:
        threads = other_threads(model.engine)
        if threads is None:
            return await examine(model.engine, wish)
        other = replace(given, threads=threads)
        name = f"with {threads} thread{'s' if threads > 1 else ''}"
        return await examine(model.engine, wish, {name: lambda: open_given(other, budget=wish.tokens).engine})
