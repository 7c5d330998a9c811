"""The machine and the versions of the packages that matter."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from cgr import __version__
from cgr.records import Record

PACKAGES = ("xllamacpp", "aiohttp", "torch", "transformers", "vllm", "numpy")


@dataclass(frozen=True, slots=True)
class Machine(Record):
    """The machine and its software. `packages`: the installed ones of PACKAGES, with their versions."""

    cgr: str
    python: str
    system: str
    processor: str
    cores: int
    packages: tuple[tuple[str, str], ...]


def describe() -> Machine:
    """The machine that this process runs on."""
    return Machine(
        cgr=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=os.cpu_count() or 1,
        packages=tuple((name, found) for name in PACKAGES if (found := _version(name))),
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """The name of the processor. On Linux only /proc/cpuinfo has it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor()
