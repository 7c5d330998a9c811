"""Attention with a mask for models whose query heads share keys and values (grouped-query attention).

The library copies keys and values for every query head, which costs more than the attention itself. Here the query heads
that share a key head are computed together, as more queries of that head: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "cgr_grouped"
UNSUPPORTED = ("position_bias", "s_aux", "softcap", "cache")  # arguments that only the library's function handles


class Block(NamedTuple):
    """The queries from `first` to before `last`, which attend to keys before `end`, and their mask from `repeat_mask`."""

    first: int
    last: int
    end: int
    mask: Tensor


def repeat_mask(mask: Tensor, queries_per_key: int) -> Tensor:
    """A mask [row, 1, query, key] repeated for all query heads that share a key head."""
    return mask.repeat(1, 1, queries_per_key, 1) if queries_per_key > 1 else mask


def install(model: Any) -> None:
    """Give a model this attention if it uses torch's own; models with another implementation keep it."""
    if model.config.get_text_config()._attn_implementation != "sdpa":
        return
    AttentionInterface.register(NAME, grouped)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def grouped(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """The attention function that transformers calls.

    The option `blocks`: all queries in consecutive blocks, each with its own mask. Empty: nothing is hidden; None:
    `attention_mask` applies.
    """
    if attention_mask is None or any(options.get(name) is not None for name in UNSUPPORTED):
        result: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return result
    blocks: Sequence[Block] | None = options.get("blocks")
    scaling: float | None = options.get("scaling")
    if blocks:
        outputs = [
            _attend(query[:, :, one.first : one.last], key[:, :, : one.end], value[:, :, : one.end], one.mask, scaling)
            for one in blocks
        ]
        return torch.cat(outputs, 2).transpose(1, 2).contiguous(), None
    mask = repeat_mask(attention_mask, query.shape[1] // key.shape[1]) if blocks is None else None
    return _attend(query, key, value, mask, scaling).transpose(1, 2).contiguous(), None


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None) -> Tensor:
    batch, heads, length, features = query.shape
    query = query.reshape(batch, key.shape[1], -1, features)
    output = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return output.reshape(batch, heads, length, -1)
