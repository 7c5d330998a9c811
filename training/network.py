"""The network: a plain Llama with attention masks, so that many probes share one trace."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    """The configuration of the network."""

    vocabulary: int
    width: int = 160
    layers: int = 6
    heads: int = 5
    hidden: int = 432
    context: int = 2560
    theta: float = 10000.0
    epsilon: float = 1e-5


SIZES: dict[str, dict[str, int]] = {
    "model": {},
    "prober": {
        "width": 96,
        "layers": 3,
        "heads": 3,
        "hidden": 256,
    },  # probes the thinking of the other model, with a fifth of its size
}


class Layer(nn.Module):
    """One transformer layer: attention, then a gated MLP."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, hidden = shape.width, shape.hidden
        self.heads = shape.heads
        self.attention_norm = nn.RMSNorm(width, eps=shape.epsilon)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.mlp_norm = nn.RMSNorm(width, eps=shape.epsilon)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | None, cache: Cache | None, trunk: int = 0
    ) -> Tensor:
        h = self.attention_norm(x)
        q, k, v = (part(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        q, k = _rotate(q, rotation), _rotate(k, rotation)
        if cache is not None:
            k, v = cache.extend(id(self), k, v)
        h = F.scaled_dot_product_attention(q[:, :, trunk:], k, v, attn_mask=mask)
        if trunk:  # without a mask this is several times as fast
            first = (part[:, :, :trunk] for part in (q, k, v))
            h = torch.cat([F.scaled_dot_product_attention(*first, is_causal=True), h], 2)
        x = x + self.o(h.transpose(1, 2).flatten(2))
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Cache:
    """The keys and values of each layer, in buffers of a fixed size. `at` is the number of cached positions."""

    def __init__(self, room: int) -> None:
        self.room, self.at = room, 0
        self._keys: dict[int, tuple[Tensor, Tensor]] = {}

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of a layer; return all of them."""
        if layer not in self._keys:
            size = (*k.shape[:2], self.room, k.shape[3])
            self._keys[layer] = (k.new_zeros(size), v.new_zeros(size))
        keys, values = self._keys[layer]
        end = self.at + k.shape[2]
        keys[:, :, self.at : end], values[:, :, self.at : end] = k, v
        return keys[:, :, :end], values[:, :, :end]

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
        self._keys = {layer: (k[rows], v[rows]) for layer, (k, v) in self._keys.items()}


class Network(nn.Module):
    """The whole network; the output weights are those of the embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        size = shape.width // shape.heads
        inverse = shape.theta ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
        angles = torch.arange(shape.context, dtype=torch.float32)[:, None] * inverse
        self.register_buffer("cos", torch.cat([angles.cos()] * 2, -1), persistent=False)
        self.register_buffer("sin", torch.cat([angles.sin()] * 2, -1), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02 if "embed" in name else parameter.shape[1] ** -0.5 * 0.7)

    def forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: Cache | None = None, trunk: int = 0
    ) -> Tensor:
        """The final hidden states; `logits` gives the scores for some of them. The first `trunk` positions attend to those
        before them; `mask` is that of the other positions."""
        x = self.embed(ids)
        rotation = (self.cos[positions][:, None], self.sin[positions][:, None])
        for layer in self.layers:
            x = layer(x, rotation, mask, cache, trunk)
        if cache is not None:
            cache.at += ids.shape[1]
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """The scores of the next token for these hidden states."""
        return hidden @ self.embed.weight.T


def _rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = rotation
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin
