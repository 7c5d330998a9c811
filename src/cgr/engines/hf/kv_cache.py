"""The KV cache of a batch: for each layer one tensor of keys and one of values, with a row for each slot.

The tokens of a row are stored in order, so a row is rewound by using a smaller length: nothing is copied, and later passes
overwrite the rest. Rows have different lengths; a mask limits what each query attends to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from cgr.engines.base import Ids
from cgr.engines.hf.attention import NAME, Block

MIN_CAPACITY = 256  # tokens that a row has room for at first


@dataclass(slots=True)
class ForwardPass:
    """Where one forward pass writes and reads: rows of the cache, a cache index for each token as [row, token], and the
    range of indices that attention reads. `capacity`: tokens in a row."""

    rows: slice | Tensor
    row_indices: Tensor
    indices: Tensor
    capacity: int
    start: int
    end: int
    _flat: dict[int, Tensor] = field(default_factory=dict)

    def flat_indices(self, heads: int) -> Tensor:
        """Where the tokens of all heads go in a flattened [row, head, token]; kept, as most layers have as many heads."""
        if heads not in self._flat:
            each = self.row_indices[:, None] * heads + torch.arange(heads, device=self.row_indices.device)
            self._flat[heads] = (each[:, :, None] * self.capacity + self.indices[:, None]).flatten()
        return self._flat[heads]


class LayerCache(DynamicLayer):  # type: ignore[misc]  # mypy does not follow imports of transformers
    """Keys and values of one layer as [row, head, token, feature].

    The tokens of one head lie together: attention reads them twice as fast as with the heads of each token together.
    """

    keys: Tensor | None
    values: Tensor | None

    def __init__(self, cache: KVCache) -> None:
        super().__init__()
        self.cache, self.is_initialized = cache, True

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Store the new keys and values of the current pass; returns all that it attends to. Called by the model."""
        self.keys, seen_keys = self._write(self.keys, keys)
        self.values, seen_values = self._write(self.values, values)
        return seen_keys, seen_values

    def _write(self, stored: Tensor | None, new: Tensor) -> tuple[Tensor, Tensor]:
        _, heads, _, features = new.shape
        current, rows, capacity = self.cache.current, self.cache.rows, self.cache.capacity
        if stored is None or (stored.shape[0], stored.shape[2]) != (rows, capacity):
            grown = new.new_zeros(rows, heads, capacity, features)  # not `empty`: NaN would pass through the mask
            if stored is not None:
                grown[: stored.shape[0], :, : stored.shape[2]] = stored
            stored = grown
        stored.view(-1, features).index_copy_(0, current.flat_indices(heads), new.reshape(-1, features))
        return stored, stored[current.rows, :, current.start : current.end]

    def get_seq_length(self) -> int:
        """Tokens before the current pass. Called by the model."""
        current = self.cache.current
        return current.end - current.start - int(current.indices.shape[1])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of what attention reads. Called by the model."""
        return self.cache.current.end - self.cache.current.start, 0


class KVCache:
    """Rows of keys and values for a model, which grow when needed. `limits`: the expected rows, and tokens in each."""

    def __init__(self, model: Any, *, limits: tuple[int, int], window: int | None = None) -> None:
        config = model.config.get_text_config()
        self.model, self.limits, self.window = model, limits, window
        self.rows = self.capacity = 0
        self.current: ForwardPass  # set by each pass
        self.device, self.dtype = model.device, model.dtype
        self.float64_device = torch.device("cpu") if self.device.type == "mps" else self.device
        self.layer_types: tuple[str, ...] = tuple(dict.fromkeys(getattr(config, "layer_types", None) or ()))
        heads = config.num_attention_heads
        self.queries_per_key = heads // (getattr(config, "num_key_value_heads", 0) or heads)
        self._layers = Cache(layers=[LayerCache(self) for _ in range(config.num_hidden_layers)])
        self._takes_blocks = config._attn_implementation == NAME and window is None
        self._lowest = torch.finfo(self.dtype).min
        self._indices = torch.arange(0, device=self.device)
        self._empty_mask = torch.zeros(1, 1, 1, 1, dtype=self.dtype, device=self.device)  # hides nothing
        self._selected = lru_cache(maxsize=16)(self._select)  # a batch has the same rows for many passes

    def reserve(self, rows: int, capacity: int) -> None:
        """Room for at least this many rows of this many tokens. Both double, so growing is cheap in the long run."""
        if rows > self.rows:
            self.rows = max(rows, min(2 * self.rows, self.limits[0]))
        if capacity > self.capacity:
            self.capacity = max(capacity, min(max(2 * self.capacity, MIN_CAPACITY), self.limits[1]))
            self._indices = torch.arange(self.capacity, device=self.device)

    def clear(self) -> None:
        """Free the memory of all rows."""
        self.rows = self.capacity = 0
        for layer in self._layers.layers:
            layer.keys = layer.values = None

    def extend(self, rows: Ids, starts: Ids, tokens: Sequence[Ids], keep: int = 1) -> Tensor:
        """Compute new tokens of these rows, each from its own length on; returns the logits of the last `keep` positions.

        Shorter inputs are padded in front. The padding is stored after the row's own tokens, where the next pass overwrites
        it.
        """
        width = max(map(len, tokens))
        end = max(starts) + width
        self.reserve(max(rows) + 1, end)
        ids = [[*[0] * (width - len(one)), *one] for one in tokens]
        ranges = [(start, start + len(one), start + width) for start, one in zip(starts, tokens, strict=True)]
        places = [[*range(padding, last), *range(start, padding)] for start, padding, last in ranges]
        inputs, positions = torch.tensor([ids, places], device=self.device)
        self.locate(rows, positions, end)
        if width == 1 and min(starts) == max(starts) and self._takes_blocks:
            return self.forward(inputs, positions, self._empty_mask, keep, blocks=())
        return self.forward(inputs, positions, self.causal_mask(positions, end), keep)

    def causal_mask(self, positions: Tensor, end: int) -> Tensor:
        """The mask of queries that attend to everything up to their own position."""
        return self.additive_mask(self._indices[:end] > positions[:, None, :, None])

    def additive_mask(self, hidden: Tensor) -> Tensor:
        """A boolean mask as numbers that are added to attention scores."""
        return torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, self._lowest)

    def locate(self, rows: Ids, indices: Tensor, end: int, start: int = 0) -> None:
        """Set where the next pass stores its tokens, as [row, token], and the range of indices that its attention reads."""
        self.current = ForwardPass(*self._selected(tuple(rows)), indices, self.capacity, start, end)

    def forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor | None, keep: int | Tensor, blocks: Sequence[Block] | None = None
    ) -> Tensor:
        """One pass of the model over these tokens at these positions; returns logits.

        Without a mask the model's own causal attention is used; it is the fastest, but only right for an empty row.
        """
        logits: Tensor = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=None if mask is None else self._layer_masks(mask, positions),
            past_key_values=self._layers,
            use_cache=True,
            logits_to_keep=keep,
            **({"blocks": blocks} if blocks is not None and self._takes_blocks else {}),
        ).logits
        return logits

    def _select(self, rows: tuple[int, ...]) -> tuple[slice | Tensor, Tensor]:
        """How to index these rows (a slice, which copies nothing, if they are adjacent), and their numbers."""
        numbers = torch.tensor(rows, device=self.device)
        return slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] == len(rows) - 1 else numbers, numbers

    def _layer_masks(self, mask: Tensor, positions: Tensor) -> Any:
        """The mask, or one for each type of layer if the model has several."""
        if self.window is None:
            return mask
        too_old = self._indices[: mask.shape[-1]] <= positions[:, None, :, None] - self.window
        sliding = mask.masked_fill(too_old, self._lowest)
        if len(self.layer_types) < 2:
            return sliding
        return {name: sliding if name == "sliding_attention" else mask for name in self.layer_types}
