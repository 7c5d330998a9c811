"""Measurements without a model: scoring a large recording, and the imports of `cgr --help`."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from benchmarks import replay
from benchmarks.rows import Results, Row
from cgr.lab.decide.columns import Columns

HEAVY = {"xllamacpp", "aiohttp", "httpx", "torch", "transformers", "vllm", "numpy", "matplotlib", "plotly", "jinja2"}


def scoring(results: Results) -> None:
    """Time to score 8 rules at 16 thresholds over 1,920 traces of 32 probes, and to write all tables."""
    columns = Columns.of(list(replay.recorded(1920)), replay.info())
    began, busy = time.perf_counter(), time.process_time()
    replay.every_rule(columns)
    seconds = time.perf_counter() - began
    detail = {"cpu_seconds": time.process_time() - busy}
    what = "8 rules x 16 thresholds over 1,920 traces x 32 probes, and all tables"
    results.rows.append(Row(what, "none", seconds, "s", hold=5, detail=detail))


def help_imports(results: Results) -> None:
    """The number of heavy packages that `cgr --help` imports."""
    environment = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    call = [sys.executable, "-m", "cgr.cli", "--help"]
    began = time.perf_counter()
    done = subprocess.run(call, check=True, capture_output=True, text=True, env=environment)
    detail = {"seconds": time.perf_counter() - began}
    modules = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    found = sorted(modules & HEAVY)
    results.rows.append(
        Row("engines, torch and plotting that `cgr --help` imports", "none", len(found), "", hold=0, detail=detail)
    )
