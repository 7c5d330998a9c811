"""The names of the weights: in this package, in transformers, and in GGUF."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

PARTS = {
    "attention_norm": ("input_layernorm", "attn_norm"),
    "q": ("self_attn.q_proj", "attn_q"),
    "k": ("self_attn.k_proj", "attn_k"),
    "v": ("self_attn.v_proj", "attn_v"),
    "o": ("self_attn.o_proj", "attn_output"),
    "mlp_norm": ("post_attention_layernorm", "ffn_norm"),
    "gate": ("mlp.gate_proj", "ffn_gate"),
    "up": ("mlp.up_proj", "ffn_up"),
    "down": ("mlp.down_proj", "ffn_down"),
}


def hf_names(layers: int) -> Iterator[tuple[str, str]]:
    """For every weight its name here and its name in transformers."""
    yield "embed.weight", "model.embed_tokens.weight"
    yield "norm.weight", "model.norm.weight"
    for index in range(layers):
        for ours, (theirs, _) in PARTS.items():
            yield f"layers.{index}.{ours}.weight", f"model.layers.{index}.{theirs}.weight"


def read_hf(folder: Path) -> dict[str, Tensor]:
    """The weights of an exported model, by their names here."""
    tensors = load_file(folder / "model.safetensors")
    layers = 1 + max(int(name.split(".")[2]) for name in tensors if ".layers." in name)
    return {ours: tensors[theirs] for ours, theirs in hf_names(layers)}
