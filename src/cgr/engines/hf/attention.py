"""Attention for models whose heads share keys and values, under a mask.

The library copies keys and values for every head in that case, which costs more than the attention itself. Here the heads
that share them are asked together, as if they were further queries: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

NAME = "cgr_grouped"
UNUSUAL = ("position_bias", "s_aux", "softcap", "cache")  # what only the library's own way knows how to treat


class Block(NamedTuple):
    """Queries from `first` to before `last`, which see no further than `upto`, and what of it, as `spread` makes it."""

    first: int
    last: int
    upto: int
    mask: torch.Tensor


def spread(mask: torch.Tensor, sharing: int) -> torch.Tensor:
    """A mask for queries as one for all heads that share keys and values."""
    return mask.repeat(1, 1, sharing, 1) if sharing > 1 else mask


def install(model: Any) -> None:
    """Give a model this attention, if it would use torch's own otherwise; models with a way of their own keep it."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    if model.config.get_text_config()._attn_implementation != "sdpa":
        return
    AttentionInterface.register(NAME, grouped)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def grouped(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    blocks: Sequence[Block] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """`blocks`: all queries, one stretch after the other, each with a mask of its own, the same for all layers. With no
    blocks in it nothing is hidden; if it is not given, all see what the mask shows."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if attention_mask is None or any(kwargs.get(name) is not None for name in UNUSUAL):
        found: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return found
    if blocks:
        seen = [
            _attend(query[:, :, one.first : one.last], key[:, :, : one.upto], value[:, :, : one.upto], one.mask, scaling)
            for one in blocks
        ]
        return torch.cat(seen, 2).transpose(1, 2).contiguous(), None
    mask = spread(attention_mask, query.shape[1] // key.shape[1]) if blocks is None else None
    return _attend(query, key, value, mask, scaling).transpose(1, 2).contiguous(), None


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scaling: float | None
) -> torch.Tensor:
    batch, heads, places, features = query.shape
    query = query.reshape(batch, key.shape[1], -1, features)
    seen = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return seen.reshape(batch, heads, places, -1)
