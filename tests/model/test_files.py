"""The embedded model as people load it: GGUF, safetensors, tokenizer, chat template. Both hold the same weights."""

from __future__ import annotations

import json
import struct
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import cgr
from cgr.engines.llama.header import read_head
from cgr.engines.text.chat import ThinkTags, render

MODEL = Path(str(files("cgr.model")))
GGUF, HF = MODEL / "embedded.gguf", MODEL / "hf"
QUESTION = "Start with x=605. Apply x=(4x+60) mod 1000, 2 times. Find x."


def header(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        found: dict[str, Any] = json.loads(file.read(size))
    return found


def test_the_files_are_small() -> None:
    assert GGUF.stat().st_size < 25 * 2**20
    assert (HF / "model.safetensors").stat().st_size < 25 * 2**20


def test_the_gguf_says_what_it_wishes() -> None:
    head = read_head(GGUF)
    assert (head.interval, head.budget, head.max_answer_tokens) == (48, 2048, 4)
    assert {"<think>", "</think>"} <= head.control_ids.keys()
    assert head.context == 3072


def test_the_safetensors_fit_their_config() -> None:
    config = json.loads((HF / "config.json").read_text())
    tensors = header(HF / "model.safetensors")
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert tensors["model.embed_tokens.weight"]["shape"] == [config["vocab_size"], config["hidden_size"]]
    assert {tensor["dtype"] for name, tensor in tensors.items() if name != "__metadata__"} == {"F32"}
    layers = {name.split(".")[2] for name in tensors if name.startswith("model.layers.")}
    assert len(layers) == config["num_hidden_layers"]


def test_both_hold_the_same_weights() -> None:
    """The embedding, byte for byte: it is stored the same way in both."""
    tensors = header(HF / "model.safetensors")
    begin, end = tensors["model.embed_tokens.weight"]["data_offsets"]
    data = (HF / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    assert data[8 + size + begin : 8 + size + end] in GGUF.read_bytes()


def test_both_speak_the_same_template_and_tokens() -> None:
    head = read_head(GGUF)
    assert (HF / "chat_template.jinja").read_text() == head.chat_template
    vocabulary = json.loads((HF / "tokenizer.json").read_text())["model"]["vocab"]
    assert tuple(sorted(vocabulary, key=vocabulary.__getitem__)) == head.tokens


@pytest.mark.heavy
def test_transformers_loads_it_and_agrees_with_llama_cpp() -> None:
    """Greedy thinking token by token: the same ids from both."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(HF)
    model = AutoModelForCausalLM.from_pretrained(HF, dtype=torch.float32)
    text = render(read_head(GGUF).chat_template, QUESTION, ThinkTags("<think>", "</think>"))
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        written = model.generate(ids, max_new_tokens=64, do_sample=False)[0, ids.shape[1] :]
    with cgr.open_model() as loaded:
        solution = loaded.solve(QUESTION, rule="fixed-budget", temperature=0.0, budget=64, instruction="")
    assert tokenizer.decode(written).startswith(solution.thinking)
    assert len(solution.thinking) > 20
