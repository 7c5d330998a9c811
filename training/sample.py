"""Let a checkpoint think by itself, many problems at once: the traces that its certainty is calibrated on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.network import Cache, Network

CROWDED = 0.75


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
    rows, going = torch.arange(len(prompts)), torch.ones(len(prompts), dtype=torch.bool)
    cache = Cache(width + limit)
    hidden = network(ids, _positions(padding, 0, width), _mask(padding, width), cache)[:, -1]
    for step in range(limit):
        chosen = torch.multinomial((network.logits(hidden) / temperature).softmax(-1), 1)[:, 0]
        going &= torch.tensor([token not in stops for token in chosen.tolist()])
        for row, token in zip(rows[going].tolist(), chosen[going].tolist(), strict=True):
            results[row].append(token)
        if not going.any():
            break
        if going.float().mean() < CROWDED:  # dropping rows copies the cache, so not one by one
            rows, padding, chosen = rows[going], padding[going], chosen[going]
            cache.keep(going)
            going = going[going]
        at = width + step
        seen = torch.arange(at + 1)[None] >= padding[:, None]
        hidden = network(chosen[:, None], _positions(padding, at, at + 1), seen[:, None, None], cache)[:, -1]
    return results


def _positions(padding: Tensor, start: int, end: int) -> Tensor:
    return (torch.arange(start, end)[None] - padding[:, None]).clamp(min=0)


def _mask(padding: Tensor, width: int) -> Tensor:
    """Each sees itself and what came before, but no padding (padding sees itself, so that no row is empty)."""
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    seen = causal[None] & (torch.arange(width)[None, None] >= padding[:, None, None])
    return (seen | torch.eye(width, dtype=torch.bool)[None])[:, None]
