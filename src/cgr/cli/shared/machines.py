"""Options for work on many machines: a part of a run, or engines on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from cgr.lab.store.shard import Shard

F = TypeVar("F", bound=Callable[..., Any])


def read_shard(context: click.Context, parameter: click.Parameter, value: str | None) -> Shard | None:
    """The value of --shard."""
    from cgr.lab.store.shard import Shard

    return None if value is None else Shard.parse(value)


def shard_option(help: str) -> Callable[[F], F]:
    """Add --shard to a command."""
    return click.option("--shard", callback=read_shard, metavar="I/N", help=help)


def cluster_options(command: F) -> F:
    """Add the options for engines on a Ray cluster to a command, which gets them as `ray`, `engines`, `gpus_per_engine`."""
    gpus = "GPUs of one engine.  [default: 1 for hf: and vllm: models where there are any]"
    engines = "Engines on the cluster.  [default: one for each server, else by its GPUs, else one for each machine]"
    ray = "Run on a Ray cluster: HOST:PORT of its head. Without an address: that of RAY_ADDRESS, or one on this machine."
    command = click.option("--gpus-per-engine", type=float, help=gpus)(command)
    command = click.option("--engines", type=int, help=engines)(command)
    return click.option("--ray", is_flag=False, flag_value="", metavar="[ADDRESS]", help=ray)(command)
