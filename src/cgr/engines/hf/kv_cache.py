"""The memory of a batch: for each layer one tensor of keys and one of values, a row for each session.

A row's tokens lie in order, so that a row is rewound by forgetting how long it is: nothing is copied, and what lies beyond
is written over. Rows have lengths of their own; a mask keeps each query to what it may see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch

from cgr.engines.hf.attention import NAME, Block

LEAST = 256  # tokens that a row has room for at first


@dataclass(slots=True)
class Pass:
    """Where one forward pass reads and writes: which rows, which places of each it fills, as [row, token], out of `room`,
    and which stretch of places it sees."""

    rows: slice | torch.Tensor = field(default_factory=lambda: slice(0, 0))
    numbers: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    places: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    room: int = 0
    start: int = 0
    upto: int = 0
    _filled: dict[int, torch.Tensor] = field(default_factory=dict)

    def filled(self, heads: int) -> torch.Tensor:
        """Where the tokens of all heads go, if row, head and place are counted through. Most layers have as many heads."""
        if heads not in self._filled:
            each = self.numbers[:, None] * heads + torch.arange(heads, device=self.numbers.device)
            self._filled[heads] = (each[:, :, None] * self.room + self.places[:, None]).flatten()
        return self._filled[heads]


class Layer:
    """One layer's keys and values, in the shape [row, head, place, feature], to `transformers` a layer of a cache. A head's
    places lie together: attention reads them from memory in one go, which is twice as fast as with the heads in turn."""

    is_sliding = False
    is_initialized = True

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys, fresh_keys = self._write(self.keys, keys)
        self.values, fresh_values = self._write(self.values, values)
        return fresh_keys, fresh_values

    def _write(self, held: torch.Tensor | None, fresh: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        _, heads, _, features = fresh.shape
        held = self._fitting(held, heads, features, fresh)
        now = self.rows.now
        held.view(-1, features).index_copy_(0, now.filled(heads), fresh.reshape(-1, features))
        return held, held[now.rows, :, now.start : now.upto]

    def _fitting(self, held: torch.Tensor | None, heads: int, features: int, like: torch.Tensor) -> torch.Tensor:
        count, room = self.rows.count, self.rows.room
        if held is not None and (held.shape[0], held.shape[2]) == (count, room):
            return held
        grown = like.new_zeros(count, heads, room, features)  # not empty: what is masked must still be a number
        if held is not None:
            grown[: held.shape[0], :, : held.shape[2]] = held
        return grown

    def get_seq_length(self) -> int:
        now = self.rows.now
        return now.upto - now.start - int(now.places.shape[1])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.rows.now.upto - self.rows.now.start, 0

    def get_max_length(self) -> int:
        return -1


class Rows:
    """Rows of keys and values for a model, which grow as they are needed; `most`: rows, and places in each, in the end."""

    def __init__(self, model: Any, *, most: tuple[int, int], window: int | None = None) -> None:
        from transformers.cache_utils import Cache, CacheLayerMixin

        CacheLayerMixin.register(Layer)
        config = model.config.get_text_config()
        self.model, self.most = model, most
        self.count = self.room = 0
        self.now = Pass()
        self.device, self.dtype = model.device, model.dtype
        self.exact = torch.device("cpu") if self.device.type == "mps" else self.device  # where there are doubles
        self.kinds: tuple[str, ...] = tuple(dict.fromkeys(getattr(config, "layer_types", None) or ()))
        self.window = window
        self._cache = Cache(layers=[Layer(self) for _ in range(config.num_hidden_layers)])
        self.sharing = config.num_attention_heads // (
            getattr(config, "num_key_value_heads", 0) or config.num_attention_heads
        )
        self._takes_blocks = config._attn_implementation == NAME
        self._lowest = torch.finfo(self.dtype).min
        self._places = torch.arange(0, device=self.device)
        self._nothing = torch.zeros(1, 1, 1, 1, dtype=self.dtype, device=self.device)  # a mask that hides nothing
        self._view = lru_cache(maxsize=16)(self._views)  # a batch stays the same for many passes

    def make_room(self, count: int, room: int) -> None:
        """At least so many rows of so many places. Both double, so that growing costs little in the long run."""
        if count > self.count:
            self.count = max(count, min(2 * self.count, self.most[0]))
        if room > self.room:
            self.room = max(room, min(max(2 * self.room, LEAST), self.most[1]))
            self._places = torch.arange(self.room, device=self.device)

    def forget(self) -> None:
        """Give the memory back."""
        self.count = self.room = 0
        for layer in self._cache.layers:
            layer.keys = layer.values = None

    def feed(
        self, rows: Sequence[int], starts: Sequence[int], tokens: Sequence[Sequence[int]], keep: int = 1
    ) -> torch.Tensor:
        """Let these rows read on, each from its own length, and return the logits of the last `keep` places.

        Shorter ones are filled up in front, by tokens at places after their own, where the next pass writes over them.
        """
        width = max(map(len, tokens))
        self.make_room(max(rows) + 1, max(starts) + width)
        if width == 1:
            ids, positions = [[one[0]] for one in tokens], [[start] for start in starts]
        else:
            ids = [[*[0] * (width - len(one)), *one] for one in tokens]
            positions = [
                [*range(start + len(one), start + width), *range(start, start + len(one))]
                for start, one in zip(starts, tokens, strict=True)
            ]
        both = torch.tensor([ids, positions], device=self.device)
        upto = max(starts) + width
        if width == 1 and min(starts) == max(starts) and self._takes_blocks and self.window is None:
            return self.forward(rows, both[0], both[1], both[1], self._nothing, upto, keep, blocks=())
        return self.forward(rows, both[0], both[1], both[1], self.mask(both[1], upto), upto, keep)

    def mask(self, positions: torch.Tensor, upto: int) -> torch.Tensor:
        """What each query may see, as numbers to add to its scores: everything up to itself."""
        hidden = self._places[:upto] > positions[:, None, :, None]
        return self.hiding(hidden)

    def hiding(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, self._lowest)

    def forward(
        self,
        rows: Sequence[int],
        ids: torch.Tensor,
        positions: torch.Tensor,
        places: torch.Tensor,
        mask: torch.Tensor | None,
        upto: int,
        keep: int | torch.Tensor,
        start: int = 0,
        blocks: Sequence[Block] | None = None,
    ) -> torch.Tensor:
        """One pass of the model, with everything said: what each token is, where it stands, where it is kept, what it sees.
        Without a mask each sees what comes before it, by the model's own and fastest way: for a first reading only."""
        view, numbers = self._view(tuple(rows))
        self.now = Pass(view, numbers, places, self.room, start, upto)
        found = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=None if mask is None else self._masks(mask, positions),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=keep,
            **({"blocks": blocks} if blocks is not None and self._takes_blocks else {}),
        )
        logits: torch.Tensor = found.logits
        return logits

    def _views(self, rows: tuple[int, ...]) -> tuple[slice | torch.Tensor, torch.Tensor]:
        """How to look at these rows, without a copy where they lie together, and their numbers."""
        numbers = torch.tensor(rows, device=self.device)
        together = rows[-1] - rows[0] == len(rows) - 1
        return slice(rows[0], rows[-1] + 1) if together else numbers, numbers

    def _masks(self, mask: torch.Tensor, positions: torch.Tensor) -> Any:
        """Models whose layers differ want a mask for each kind of layer."""
        if self.window is None:
            return mask
        far = self._places[: mask.shape[-1]] <= positions[:, None, :, None] - self.window
        sliding = mask.masked_fill(far, self._lowest)
        if len(self.kinds) < 2:
            return sliding
        return {kind: sliding if kind == "sliding_attention" else mask for kind in self.kinds}
