"""Options that `cgr solve` and `cgr generate` share: how the model thinks and how it is probed."""

from __future__ import annotations

import click

from cgr import certainty, probing
from cgr.settings import Settings

DEFAULTS = Settings()
INTERVAL = click.option(
    "--interval", type=int, help="Thinking tokens between two probes.  [default: 1000, or the model's own]"
)
BUDGET = click.option(
    "--budget", type=int, help="Maximum number of thinking tokens.  [default: 32000, or what fits the model]"
)
AGGREGATE = click.option(
    "--aggregate",
    default=DEFAULTS.aggregate,
    show_default=True,
    help=f"How token probabilities become one certainty: {', '.join(certainty.AGGREGATES)}.",
)
TEMPERATURE = click.option(
    "--temperature", type=float, default=DEFAULTS.temperature, show_default=True, help="Sampling temperature; 0 is greedy."
)
TOP_P = click.option(
    "--top-p", type=float, default=DEFAULTS.top_p, show_default=True, help="Nucleus sampling: keep this probability mass."
)
PREFIX = click.option(
    "--prefix", default=DEFAULTS.prefix, show_default=True, help="Text that a probe appends to ask for the answer."
)
CLOSE_THINK = click.option(
    "--close-think",
    type=click.Choice(probing.CLOSE_THINK),
    default=DEFAULTS.close_think,
    show_default=True,
    help="Whether to write the end tag before the prefix; auto: only before the final answer.",
)
