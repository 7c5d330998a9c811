"""`cgr serve` in front of a real engine: llama.cpp's own server with the embedded model, alone and through the gateway."""

from __future__ import annotations

import os
from statistics import fmean
from typing import Any

import uvloop

from benchmarks.gateway import NAMES, process
from benchmarks.llama_upstream import KEY
from benchmarks.load import Load, load
from benchmarks.rows import Results, Row

ENGINE = "cgr serve, llama.cpp's server"
STREAMS, TOKENS, QUICK_TOKENS, PROBES = 4, 512, 64, 32  # a request that is probed takes two of the server's eight slots
ROUNDS, QUICK_ROUNDS = 5, 1
QUESTION = "Start with x=864. Apply x=(8x+97) mod 1000, 9 times. Find x."
WAYS = ("alone", "passed on", "read", "probed")


def body(way: str, tokens: int) -> dict[str, Any]:
    """A request of this many tokens, or of fewer if the model ends its thinking: times are taken for a token."""
    if way in ("alone", "passed on"):
        plain = {
            "prompt": f"{QUESTION}<think>",
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 1.0,
            "stream": True,
        }
        return plain if way == "alone" else plain | {"cgr": False}
    asked = {"rule": "fixed-budget"} if way == "read" else {"threshold": 1.0, "interval": tokens // PROBES}
    messages = [{"role": "user", "content": QUESTION}]
    return {"messages": messages, "temperature": 1.0, "stream": True, "cgr": asked | {"budget": tokens}}


def milliseconds(found: Load) -> float:
    """Time for a token of one of the streams."""
    return 1000 * fmean(one.last / max(one.events, 1) for one in found.streams)


async def measure(way: str, upstream: str, gateway: str, tokens: int) -> float:
    """One load on one way."""
    path = "/v1/chat/completions" if way in ("read", "probed") else "/v1/completions"
    address = upstream if way == "alone" else gateway
    return milliseconds(await load(address, path, body(way, tokens), STREAMS, key=KEY if way == "alone" else None))


def real(results: Results) -> None:
    """Time for a token on each way, in turn; the best of the rounds. The engine and the gateway share the cores."""
    tokens, rounds = (QUICK_TOKENS, QUICK_ROUNDS) if results.quick else (TOKENS, ROUNDS)
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with process("benchmarks.llama_upstream") as upstream:
        options = ("--base-url", f"{upstream.address}/v1", "--port", "0")
        with process("cgr.cli", "serve", *options, env={"CGR_API_KEY": KEY}) as gateway:
            for way in WAYS * rounds:
                found[way].append(uvloop.run(measure(way, upstream.address, gateway.address, tokens)))
    best = {way: min(times) for way, times in found.items()}
    detail = {"load": os.getloadavg(), "milliseconds": best}
    for way in WAYS[1:]:
        what = f"time for a token, {STREAMS} streams of the embedded model, {NAMES[way]}, over the upstream alone"
        results.rows.append(Row(what, ENGINE, best[way] / best["alone"], detail=detail))
