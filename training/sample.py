"""Generate the traces for calibration: a checkpoint thinks about many problems at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.network import Cache, Network

MIN_ACTIVE = 0.75  # below this share of active rows, finished rows are dropped


@torch.no_grad()
def think(
    network: Network, prompts: Sequence[Sequence[int]], stops: set[int], limit: int, temperature: float, seed: int
) -> list[list[int]]:
    """A sampled continuation of each prompt, up to a stop token (left out) or the limit."""
    torch.manual_seed(seed)
    width = max(map(len, prompts))
    padding = torch.tensor([width - len(prompt) for prompt in prompts])
    ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    results: list[list[int]] = [[] for _ in prompts]
    rows, active = torch.arange(len(prompts)), torch.ones(len(prompts), dtype=torch.bool)
    cache = Cache(width + limit)
    hidden = network(ids, _positions(padding, 0, width), _mask(padding, width), cache)[:, -1]
    for step in range(limit):
        chosen = torch.multinomial((network.logits(hidden) / temperature).softmax(-1), 1)[:, 0]
        active &= torch.tensor([token not in stops for token in chosen.tolist()])
        for row, token in zip(rows[active].tolist(), chosen[active].tolist(), strict=True):
            results[row].append(token)
        if not active.any():
            break
        if active.float().mean() < MIN_ACTIVE:  # not for every row, because dropping copies the cache
            rows, padding, chosen = rows[active], padding[active], chosen[active]
            cache.keep(active)
            active = active[active]
        at = width + step
        seen = torch.arange(at + 1)[None] >= padding[:, None]
        hidden = network(chosen[:, None], _positions(padding, at, at + 1), seen[:, None, None], cache)[:, -1]
    return results


def _positions(padding: Tensor, start: int, end: int) -> Tensor:
    return (torch.arange(start, end)[None] - padding[:, None]).clamp(min=0)


def _mask(padding: Tensor, width: int) -> Tensor:
    """Causal attention without padding; padding attends to itself, so that no row of the mask is empty."""
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    seen = causal[None] & (torch.arange(width)[None, None] >= padding[:, None, None])
    return (seen | torch.eye(width, dtype=torch.bool)[None])[:, None]
