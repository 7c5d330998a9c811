"""Speed, as ratios measured side by side in one run: `make bench`, or `python -m benchmarks.bench --quick`.

Writes benchmarks/results/bench.json with machine and versions, the same as a table (bench.md), and a picture (bench.png).
SmolLM2-135M-Instruct, as a GGUF file, gives the long traces: name it with --smol or CGR_SMOLLM2. Other engines are measured
with --engine: hf:FOLDER, or NAME@http://host:8000/v1 for a server.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import click

from benchmarks import drawing, probing, rest, speed
from benchmarks.rows import Results, Row, line
from benchmarks.subject import Bench
from cgr.engines.base import Engine
from cgr.solve import Model, open_model

RESULTS = Path(__file__).parent / "results"
TAGS = "<think>,</think>"
LENGTHS, QUICK_LENGTHS = (1024, 2048, 4096), (512,)
RECORDED, QUICK_RECORDED = 6000, 1000
PLACES, QUICK_PLACES = (500, 1000, 2000, 4000, 5900), (200, 900)
ROOM = 400  # for a prompt, a suffix and an answer
CONTEXT = 8192


def opened(spec: str, tags: str | None) -> Model:
    """A model by what --engine calls it; a measurement has two sessions open at the most."""
    name, at, address = spec.partition("@http")
    if at:
        return open_model(name or None, sessions=2, base_url=f"http{address}", think_tags=tags)
    return open_model(spec, sessions=2, think_tags=tags, context=CONTEXT)


async def costs(spec: str, name: str, results: Results, tags: str | None = None) -> None:
    """All that probes cost on one engine, as far as its context reaches."""
    async with opened(spec, tags) as model:
        bench, context = Bench(model.engine), model.engine.info.context - ROOM
        ids = await _on_the_way(bench, name, context, results)
        length = min(QUICK_RECORDED if results.quick else RECORDED, context)
        recorded = (ids * (length // len(ids) + 1))[:length]
        await probing.over_a_recording(bench, name, recorded, results, hold=length >= RECORDED)
        places = [place for place in (QUICK_PLACES if results.quick else PLACES) if place < length - 8]
        await probing.growth(bench, name, recorded, places, results)


async def _on_the_way(bench: Bench, name: str, context: int, results: Results) -> list[int]:
    """At every length that fits; overlapped too, where the engine does so by itself."""
    engine: Engine = bench.engine
    ids: list[int] = []
    for length in QUICK_LENGTHS if results.quick else LENGTHS:
        if length <= context:
            ids = await probing.on_the_way(bench, name, length, results)
            if engine.capabilities.overlaps:
                await probing.on_the_way(bench, name, length, results, overlap=True)
    return ids


def in_torch(results: Results, smol: str | None) -> None:
    """The transformers engine: against a bare loop, and its packed probes."""
    from benchmarks import torch_engine
    from cgr.engines.chat import parse_tags
    from cgr.engines.transformers import TransformersEngine, TransformersOptions

    name = "embedded, transformers"
    for count, found in torch_engine.decode_rates(rounds=1 if results.quick else 3).items():
        what = f"tokens a second with {count} sessions, over a bare loop ({found['bare']:.0f} a second)"
        results.rows.append(Row(what, name, found["ratio"], sense="at least", hold=0.9, detail=found))
    if smol and not results.quick:
        engine = TransformersEngine(smol, TransformersOptions(tags=parse_tags(TAGS)))
        for length, found in torch_engine.packed_costs(engine, rounds=1).items():
            what = f"probing {length:,} tokens at 32 cuts, packed, over one prefill"
            hold = 1.1 if length >= RECORDED else 1.25
            results.rows.append(Row(what, "SmolLM2, transformers", found["over_prefill"], hold=hold, detail=found))


def parts(asked: argparse.Namespace, results: Results) -> dict[str, Callable[[], None]]:
    """What is measured, by name, in order."""

    def costs_of(spec: str, name: str, tags: str | None) -> Callable[[], None]:
        return lambda: asyncio.run(costs(spec, name, results, tags))

    found: dict[str, Callable[[], None]] = {
        "scoring": lambda: rest.scoring(results),
        "imports": lambda: rest.help_imports(results),
        "sessions of the embedded model": lambda: speed.speed(results),
        "probes of the embedded model": costs_of("embedded", "embedded, llama.cpp", None),
    }
    if asked.smol:
        found["probes of SmolLM2"] = costs_of(asked.smol, "SmolLM2, llama.cpp", TAGS)
    if importlib.util.find_spec("torch") and importlib.util.find_spec("transformers"):
        hf = f"hf:{files('cgr.model') / 'hf'}"
        found["probes of the embedded model in transformers"] = costs_of(hf, "embedded, transformers", None)
        found["sessions in transformers"] = lambda: in_torch(results, asked.smol)
    for spec in asked.engine:
        found[f"probes of {spec}"] = costs_of(spec, spec, asked.think_tags)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a rough look, in under two minutes")
    parser.add_argument("--smol", default=os.environ.get("CGR_SMOLLM2"), help="SmolLM2-135M-Instruct as a GGUF file")
    parser.add_argument(
        "--engine", action="append", default=[], help="another model, as `cgr --model` takes it, or NAME@URL"
    )
    parser.add_argument("--think-tags", help="of those models, where they do not name them")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    asked = parser.parse_args()
    results = Results(asked.quick)
    for name, work in parts(asked, results).items():
        began, before = time.perf_counter(), len(results.rows)
        work()
        click.echo(f"{name} ({time.perf_counter() - began:.0f} s)")
        for row in results.rows[before:]:
            click.echo(f"  {line(row)}")
        path = results.write(asked.out)
    drawing.draw(results, path.with_suffix(".png"))
    click.echo(f"Written: {path}, {path.with_suffix('.md').name}, {path.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
