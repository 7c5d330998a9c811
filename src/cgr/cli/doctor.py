"""`cgr doctor`: what an engine can do, and how reproducible its certainty is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from cgr.cli.main import say, say_json
from cgr.cli.shared.options import JSON_OPTION, open_given, refuse_probe_model, single_model_options
from cgr.engines.open import ModelOptions
from cgr.rules.base import THRESHOLD

if TYPE_CHECKING:
    from cgr.doctor import Checkup, CheckupOptions
    from cgr.solve import Model


@click.command("doctor")
@single_model_options
@click.option("--tokens", type=int, default=256, show_default=True, help="Thinking tokens of the trace that is probed.")
@click.option("--threshold", type=float, default=THRESHOLD, show_default=True, help="The threshold that you plan to use.")
@click.option(
    "--share",
    type=float,
    default=0.05,
    show_default=True,
    help="The largest share of the thinking time that probing may take.",
)
@JSON_OPTION
def command(given: ModelOptions, tokens: int, threshold: float, share: float, as_json: bool) -> None:
    """Check a model on its engine: capabilities, noise of the certainty, and cost of a probe.

    The same cuts of one trace are probed in several ways and the results are compared. Without --model, the embedded model
    is checked.
    """
    from cgr.doctor import CheckupOptions
    from cgr.doctor.terminal import checkup_lines

    refuse_probe_model(given, f"Check the probe model separately: --model {given.probe_model}")
    options = CheckupOptions(tokens, threshold, share)
    model = open_given(given, sessions=options.sessions, budget=options.tokens)
    checkup = asyncio.run(_examine(model, given, options))
    if as_json:
        say_json(checkup.to_json())
    else:
        say("\n".join(checkup_lines(checkup)))


async def _examine(model: Model, given: ModelOptions, options: CheckupOptions) -> Checkup:
    """The checkup; if the engine computes on threads of this process, also with another number of threads."""
    from cgr.doctor import examine, other_threads

    async with model:
        threads = other_threads(model.engine)
        if threads is None:
            return await examine(model.engine, options)
        other = replace(given, threads=threads, budget=options.tokens)
        name = f"with {threads} thread{'s' if threads > 1 else ''}"
        return await examine(model.engine, options, {name: other.engine})
