"""How fast the transformers engine is, as ratios against bare loops in the same run: `python benchmarks/torch_engine.py`.

Three parts: tokens per second of many sessions against a plain loop over the same batch; probing a trace at 32 cuts,
packed, against one prefill of it; and the same against reading the trace anew for each cut (four are timed, the rest is
reckoned). With `--cpu` it is processor time that counts, which is steadier on a busy machine with one thread.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import click
import torch

from cgr.engines.base import Sampling
from cgr.engines.transformers import TransformersEngine, TransformersOptions
from cgr.probing import ProbeSpec

EMBEDDED = str(files("cgr.model") / "hf")
QUESTION = "Start with x=864. Apply x=(8x+97) mod 1000, 2 times. Find x."
Clock = Callable[[], float]
TEMPERATURE, CUTS, TIMED_CUTS = 0.6, 32, 4


def timed(clock: Clock, work: Callable[..., Any], *arguments: Any) -> float:
    began = clock()
    work(*arguments)
    return clock() - began


@torch.inference_mode()
def bare_loop(model: Any, prompt: Sequence[int], count: int, tokens: int) -> None:
    """What anybody would write: one batch of equal prompts, a growing cache, softmax and a draw."""
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    ids = torch.tensor([list(prompt)] * count, device=model.device)
    for _ in range(tokens):
        logits = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
        ids = torch.multinomial(torch.softmax(logits.float() / TEMPERATURE, -1), 1)
        ids.tolist()


def sessions_loop(engine: TransformersEngine, prompt: Sequence[int], count: int, tokens: int, stretch: int) -> int:
    """The same by sessions that each think in stretches. Returns how many tokens came."""

    async def one(seed: int) -> int:
        session = await engine.open(prompt, Sampling(TEMPERATURE, seed=seed), room=tokens)
        made = 0
        while made < tokens:
            made += len((await session.think(min(stretch, tokens - made), ban_end=True)).ids) or tokens
        await session.close()
        return made

    async def everybody() -> int:
        return sum(await asyncio.gather(*map(one, range(count))))

    return asyncio.run(everybody())


def decode_rates(
    name: str = EMBEDDED,
    counts: Sequence[int] = (1, 8, 32),
    tokens: int = 256,
    stretch: int = 32,
    rounds: int = 3,
    clock: Clock = time.perf_counter,
) -> dict[int, dict[str, float]]:
    """Tokens per second of the bare loop and of the engine, and their ratio, for each number of sessions."""
    engine = TransformersEngine(name, TransformersOptions(sessions=max(counts)))
    prompt = asyncio.run(engine.prompt(QUESTION))
    found: dict[int, dict[str, float]] = {}
    for count in counts:
        bare, ours = [], []
        sessions_loop(engine, prompt, count, stretch, stretch)
        for _ in range(rounds):
            bare.append(count * tokens / timed(clock, bare_loop, engine.loaded.model, prompt, count, tokens))
            began = clock()
            made = sessions_loop(engine, prompt, count, tokens, stretch)
            ours.append(made / (clock() - began))
        ratio = statistics.median(mine / other for mine, other in zip(ours, bare, strict=True))
        found[count] = {"bare": statistics.median(bare), "engine": statistics.median(ours), "ratio": ratio}
    return found


@torch.inference_mode()
def prefill(model: Any, ids: Sequence[int]) -> None:
    """One plain pass over the whole trace, its cache kept."""
    from transformers import DynamicCache

    given = torch.tensor([list(ids)], device=model.device)
    model(input_ids=given, past_key_values=DynamicCache(config=model.config), use_cache=True, logits_to_keep=1)


def packed_costs(
    engine: TransformersEngine,
    lengths: Sequence[int] = (2000, 6000),
    cuts: int = CUTS,
    limit: int = 4,
    rounds: int = 3,
    clock: Clock = time.perf_counter,
) -> dict[int, dict[str, float]]:
    """Seconds for one prefill, for probing 32 cuts packed, and for reading each cut anew; ratios of the latter two."""
    return asyncio.run(_packed_costs(engine, lengths, cuts, limit, rounds, clock))


async def _packed_costs(
    engine: TransformersEngine, lengths: Sequence[int], cuts: int, limit: int, rounds: int, clock: Clock
) -> dict[int, dict[str, float]]:
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
            once.append(timed(clock, prefill, engine.loaded.model, [*prompt, *trace]))
            began = clock()
            await engine.probe_many(prompt, trace, places, suffix, limit, spec.done())
            packed.append(clock() - began)
        naive = [
            timed(clock, prefill, engine.loaded.model, [*prompt, *trace[:place], *suffix])
            for place in places[cuts // TIMED_CUTS - 1 :: cuts // TIMED_CUTS]
        ]
        ratio = statistics.median(mine / other for mine, other in zip(packed, once, strict=True))
        anew = statistics.fmean(naive) * cuts
        seconds = {"prefill": statistics.median(once), "packed": statistics.median(packed), "anew": anew}
        found[length] = {**seconds, "over_prefill": ratio, "cheaper_than_anew": anew / seconds["packed"]}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", help="for the packed probes: a folder, hub id or .gguf file with 8,000 tokens of context"
    )
    parser.add_argument("--tokens", type=int, default=256, help="that each session thinks")
    parser.add_argument("--cpu", action="store_true", help="count processor time")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    clock = time.process_time if asked.cpu else time.perf_counter
    for count, rates in decode_rates(tokens=asked.tokens, rounds=asked.rounds, clock=clock).items():
        click.echo(
            f"{count:3d} sessions: {rates['engine']:7.0f} tokens/s, {rates['bare']:7.0f} by a bare loop, "
            f"ratio {rates['ratio']:.2f}"
        )
    if asked.model:
        from cgr.engines.chat import ThinkTags

        engine = TransformersEngine(asked.model, TransformersOptions(tags=ThinkTags("<think>", "</think>")))
        for length, costs in packed_costs(engine, rounds=asked.rounds, clock=clock).items():
            click.echo(
                f"{length} tokens: {costs['over_prefill']:.3f} times one prefill ({costs['prefill']:.1f} s), "
                f"{costs['cheaper_than_anew']:.1f} times cheaper than reading each cut anew"
            )


if __name__ == "__main__":
    main()
