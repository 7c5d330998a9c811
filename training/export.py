"""Export a checkpoint: GGUF for llama.cpp, and safetensors with tokenizer and config for transformers and vLLM.

python -m training.export --checkpoint runs/train/calibrated --gguf src/cgr/model/embedded.gguf --hf src/cgr/model/hf
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import gguf
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from training import tokenizer as words
from training.layout import PARTS, hf_names
from training.network import Network, Shape

NAME = "cgr-arithmetic"
CONTEXT = 3072  # the budget, a prompt, and 512 tokens of an answer that a server allows for
INTERVAL, BUDGET, MAX_ANSWER_TOKENS = 48, 2048, 4  # defaults of the model, read by cgr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True, help="the training folder")
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--hf", type=Path)
    parser.add_argument("--name", default=NAME)
    options = parser.parse_args()
    network, tokenizer = load(options.checkpoint)
    write_gguf(network, tokenizer, options.gguf, options.name)
    if options.hf:
        write_hf(network, tokenizer, options.hf)


def load(folder: Path) -> tuple[Network, Tokenizer]:
    """The network and the tokenizer of a checkpoint."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    network = Network(Shape(**state["shape"]))
    network.load_state_dict(state["network"])
    return network.eval(), tokenizer


def write_gguf(network: Network, tokenizer: Tokenizer, path: Path, name: str = NAME) -> None:
    """Write one GGUF file in float32."""
    shape = network.shape
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name(name)
    writer.add_license("apache-2.0")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_rope_freq_base(shape.theta)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_uint32("cgr.interval", INTERVAL)
    writer.add_uint32("cgr.budget", BUDGET)
    writer.add_uint32("cgr.max_answer_tokens", MAX_ANSWER_TOKENS)
    _add_vocabulary(writer, tokenizer)
    for tensor_name, tensor in gguf_tensors(network).items():
        writer.add_tensor(tensor_name, tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    types = [gguf.TokenType.CONTROL if token in words.SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    end = tokenizer.token_to_id(words.END)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(end)
    writer.add_add_bos_token(False)
    writer.add_chat_template(words.TEMPLATE)


def gguf_tensors(network: Network) -> dict[str, Tensor]:
    """The weights by their names in GGUF."""
    tensors = {"token_embd.weight": network.embed.weight, "output_norm.weight": network.norm.weight}
    for index, layer in enumerate(network.layers):
        for ours, (_, theirs) in PARTS.items():
            weight = getattr(layer, ours).weight
            if ours in "qk":
                weight = _interleave(weight, network.shape.heads)
            tensors[f"blk.{index}.{theirs}.weight"] = weight
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}


def _interleave(weight: Tensor, heads: int) -> Tensor:
    """The rows in llama.cpp's order for rotary embeddings: the halves of each head interleaved."""
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


def write_hf(network: Network, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a folder that transformers and vLLM can load."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {theirs: network.get_parameter(ours).detach().contiguous() for ours, theirs in hf_names(network.shape.layers)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id(words.END)
    _write(folder / "config.json", _config(network.shape, end))
    _write(folder / "generation_config.json", {"eos_token_id": end, "pad_token_id": end})
    _write(folder / "tokenizer_config.json", _tokenizer_config(tokenizer))
    (folder / "chat_template.jinja").write_text(words.TEMPLATE)


def _config(shape: Shape, end: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.width // shape.heads,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.theta},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": end,
        "cgr": {"interval": INTERVAL, "budget": BUDGET, "max_answer_tokens": MAX_ANSWER_TOKENS},
    }


def _tokenizer_config(tokenizer: Tokenizer) -> dict[str, object]:
    specials = {
        str(tokenizer.token_to_id(token)): {"content": token, "special": True, "normalized": False}
        for token in words.SPECIAL
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": specials,
        "eos_token": words.END,
        "pad_token": words.END,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": words.TEMPLATE,
    }


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
