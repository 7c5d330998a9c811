"""A Ray cluster: joining it, the resources of its engines, and replies from them. Ray is imported only here, when it is
used (extra `ray`)."""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from cgr.engines.open import ModelOptions
from cgr.errors import CgrError, EngineError, UsageError
from cgr.lab.record.actor import EngineActor

CONNECT_LIMIT = 10.0  # seconds to reach the address of a cluster
HEALTH_LIMIT = 30.0  # seconds for the cluster to say that it is well
HERE = ("", "auto", "local")  # addresses that are looked up on this machine
ON_GPU = ("hf:", "vllm:")
MAX_ENGINES = 10_000


class EngineEnded(EngineError):
    """The process of an engine ended, or its machine is gone."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the engines run. `address`: of a Ray cluster, empty for the one of this machine or a new one. `engines` and
    `gpus` (of one engine) are chosen by what the cluster has if they are None."""

    address: str = ""
    engines: int | None = None
    gpus: float | None = None

    def __post_init__(self) -> None:
        if self.engines is not None and not 1 <= self.engines <= MAX_ENGINES:
            raise UsageError(f"A cluster cannot run {self.engines} engines.", f"Use --engines 1 to {MAX_ENGINES}.")
        if self.gpus is not None and not 0 <= self.gpus <= MAX_ENGINES:
            raise UsageError(f"An engine cannot have {self.gpus:g} GPUs.", "Use --gpus-per-engine 1, or leave it out.")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that was joined, and the options of each engine in it."""

    options: tuple[ModelOptions, ...]
    gpus: float

    @classmethod
    def join(cls, placement: Placement, options: ModelOptions) -> Cluster:
        """Join the cluster, or start one on this machine, and divide the work into engines."""
        if importlib.util.find_spec("ray") is None:
            raise UsageError("--ray needs Ray.", "pip install 'certainty-guided-reasoning[ray]'")
        _check_address(placement.address)
        _init(placement)
        import ray

        try:
            gpus = _gpus(placement, options, ray.cluster_resources())
            machines = sum(node["Alive"] for node in ray.nodes())
            count = placement.engines or _engines(options, gpus, machines, ray.cluster_resources())
            _check_resources(count, gpus, ray.cluster_resources())
        except BaseException:
            ray.shutdown()
            raise
        return cls(tuple(_options(options, number, count) for number in range(count)), gpus)

    def starts(self) -> list[Callable[[], Any]]:
        """For each engine, the function that starts it."""
        return [partial(self._start, options) for options in self.options]

    def _start(self, options: ModelOptions) -> Any:
        import ray

        # a process that ends is replaced by cluster.py, which can give its work to another engine meanwhile
        settings = {"num_cpus": 1, "num_gpus": self.gpus, "max_restarts": 0, "max_task_retries": 0}
        return ray.remote(EngineActor).options(**settings, max_concurrency=options.sessions + 16).remote(options)

    def kill(self, actor: Any) -> None:
        """End the process of an engine, if it runs."""
        import ray

        with suppress(Exception):  # it is gone, or so is the cluster
            ray.kill(actor)

    def leave(self) -> None:
        """Leave the cluster; a cluster that was started here ends."""
        import ray

        ray.shutdown()


async def reply(reference: Awaitable[Any]) -> Any:
    """The value that an engine sends. Its errors for users are raised here; `EngineEnded` if its process ended."""
    from ray.exceptions import RayError, RayTaskError

    try:
        value = await reference
    except RayTaskError:  # a defect: shown as one
        raise
    except RayError as error:
        hint = "Check the memory of its machine, and `ray logs`."
        raise EngineEnded(f"The process of an engine ended ({type(error).__name__}).", hint) from error
    if isinstance(value, CgrError):
        raise value
    return value


def _check_address(address: str) -> None:
    """Ray waits for minutes for an address that nobody answers at, so it is tried first."""
    if address in HERE:
        return
    hint = "Give HOST:PORT of its head, which has port 6379 by default, or start one: ray start --head."
    unreachable = UsageError(f"There is no Ray cluster at {address!r:.80}.", hint)
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
        if not (host and port):
            raise unreachable
        socket.create_connection((host, port), CONNECT_LIMIT).close()
    except (OSError, ValueError) as error:
        raise unreachable from error
    if parts.scheme:  # ray://: the client of Ray has a limit of its own
        return
    call = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        healthy = subprocess.run(call, capture_output=True, timeout=HEALTH_LIMIT, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        healthy = False
    if not healthy:
        raise unreachable


def _init(placement: Placement) -> None:
    """Join the cluster, quietly."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)  # after the import, which sets it
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    known = placement.address or os.environ.get("RAY_ADDRESS", "")
    cores = max(os.cpu_count() or 1, placement.engines or 1)
    here = {"address": "local", "num_cpus": cores, "include_dashboard": False}
    try:
        ray.init(**({"address": known} if known and known != "local" else here), **quiet)
    except Exception as error:  # Ray raises whatever went wrong, also plain `Exception`
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
        raise UsageError(f"The Ray cluster cannot be used: {reason}.", "Check it with `ray status`.") from error


def _gpus(placement: Placement, options: ModelOptions, resources: dict[str, float]) -> float:
    """GPUs for each engine: as given, else 1 for a model that runs on one, where there are any."""
    if placement.gpus is not None:
        return placement.gpus
    return float(bool(resources.get("GPU")) and (options.model or "").startswith(ON_GPU))


def _engines(options: ModelOptions, gpus: float, machines: int, resources: dict[str, float]) -> int:
    """As many engines as there are servers, else as the GPUs allow, else one for each machine."""
    if options.addresses:
        return len(options.addresses)
    return max(int(resources.get("GPU", 0) // gpus), 1) if gpus else max(machines, 1)


def _check_resources(count: int, gpus: float, resources: dict[str, float]) -> None:
    for name, wanted in (("GPU", count * gpus), ("CPU", float(count))):
        if wanted > (there := resources.get(name, 0.0)):
            raise UsageError(
                f"{count} engines need {wanted:g} {name}s, but the cluster has {there:g}.",
                "Use fewer --engines, or set --gpus-per-engine.",
            )


def _options(options: ModelOptions, number: int, count: int) -> ModelOptions:
    """The options of one engine. Several share the servers; what the environment of this process says goes with them."""
    addresses = options.addresses
    own = addresses[number::count] or addresses[number % len(addresses) : number % len(addresses) + 1] if addresses else ()
    return replace(options, base_url=own, api_key=options.api_key or os.environ.get("CGR_API_KEY") or None)
