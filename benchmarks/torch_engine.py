"""Packed probes of the transformers engine, as ratios in one run: `python -m benchmarks.torch_engine MODEL`.

Probing a trace at 32 cuts, packed, compared with one prefill of it, and with reading the trace again for each cut (four
cuts are timed, the rest is estimated). With `--cpu`, processor time is measured, which varies less on a busy machine with
one thread. This module also has the plain loop that sessions are compared with.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click
import torch

from cgr.engines.hf.engine import TransformersEngine
from cgr.engines.open import ModelOptions
from cgr.probing import ProbeSpec

LENGTHS = (2000, 6000)
QUESTION = "Start with x=864. Apply x=(8x+97) mod 1000, 2 times. Find x."
Clock = Callable[[], float]
TEMPERATURE, CUTS, TIMED_CUTS = 0.6, 32, 4


def timed(clock: Clock, work: Callable[..., Any], *arguments: Any) -> float:
    """The seconds that the work takes on this clock."""
    began = clock()
    work(*arguments)
    return clock() - began


async def alone(engine: TransformersEngine, clock: Clock, work: Callable[..., Any], *arguments: Any) -> float:
    """The seconds that the work takes on the engine's thread. On another, torch would use more threads than cores."""
    return await engine.loaded.scheduler.run(partial(timed, clock, work, *arguments))


@torch.inference_mode()  # type: ignore[untyped-decorator, unused-ignore]
def bare_loop(model: Any, prompts: Sequence[Sequence[int]], tokens: int) -> None:
    """The simplest loop: one batch of prompts of equal length, a growing cache, softmax and sampling."""
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    ids = torch.tensor([list(prompt) for prompt in prompts], device=model.device)
    for _ in range(tokens):
        logits = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
        ids = torch.multinomial(torch.softmax(logits.float() / TEMPERATURE, -1), 1)
        ids.tolist()


@torch.inference_mode()  # type: ignore[untyped-decorator, unused-ignore]
def prefill(model: Any, ids: Sequence[int]) -> None:
    """One plain pass over the whole trace that fills a cache."""
    from transformers import DynamicCache

    given = torch.tensor([list(ids)], device=model.device)
    model(input_ids=given, past_key_values=DynamicCache(config=model.config), use_cache=True, logits_to_keep=1)


def packed_costs(
    engine: TransformersEngine,
    lengths: Sequence[int] = LENGTHS,
    cuts: int = CUTS,
    limit: int = 4,
    rounds: int = 3,
    clock: Clock = time.perf_counter,
) -> dict[int, dict[str, float]]:
    """For each length: seconds of one prefill, of 32 packed probes, and of reading each cut again; and their ratios."""
    return asyncio.run(_packed_costs(engine, lengths, cuts, limit, rounds, clock))


async def _packed_costs(
    engine: TransformersEngine, lengths: Sequence[int], cuts: int, limit: int, rounds: int, clock: Clock
) -> dict[int, dict[str, float]]:
    await engine.connect()
    prompt = await engine.prompt(QUESTION)
    spec = ProbeSpec(max_answer_tokens=limit)
    suffix = await engine.encode(spec.prefix)
    text = await engine.encode(" ".join(str(number) for number in range(max(lengths))))
    found: dict[int, dict[str, float]] = {}
    for length in lengths:
        trace = text[: length - len(prompt)]
        places = [len(trace) * (number + 1) // cuts for number in range(cuts)]
        once, packed = [], []
        for _ in range(rounds):
            once.append(await alone(engine, clock, prefill, engine.loaded.model, [*prompt, *trace]))
            began = clock()
            await engine.probe_many(prompt, trace, places, suffix, limit, spec.done())
            packed.append(clock() - began)
        naive = [
            await alone(engine, clock, prefill, engine.loaded.model, [*prompt, *trace[:place], *suffix])
            for place in places[cuts // TIMED_CUTS - 1 :: cuts // TIMED_CUTS]
        ]
        ratio = statistics.median(mine / other for mine, other in zip(packed, once, strict=True))
        anew = statistics.fmean(naive) * cuts
        seconds = {"prefill": statistics.median(once), "packed": statistics.median(packed), "anew": anew}
        found[length] = {**seconds, "over_prefill": ratio, "cheaper_than_anew": anew / seconds["packed"]}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, hub id or .gguf file with 8,000 tokens of context")
    parser.add_argument("--cpu", action="store_true", help="measure processor time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    options = parser.parse_args()
    engine = TransformersEngine(options.model, ModelOptions(think_tags="<think>,</think>"))
    clock = time.process_time if options.cpu else time.perf_counter
    for length, costs in packed_costs(engine, options.lengths, rounds=options.rounds, clock=clock).items():
        click.echo(
            f"{length} tokens: {costs['over_prefill']:.3f} times one prefill ({costs['prefill']:.1f} s), "
            f"{costs['cheaper_than_anew']:.1f} times cheaper than reading each cut again"
        )


if __name__ == "__main__":
    main()
