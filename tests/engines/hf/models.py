"""Small models for the tests on torch: the embedded one, and others with random weights that share its tokenizer."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from cgr.engines.base import Answered, Sampling
from cgr.engines.hf.engine import TransformersEngine
from cgr.engines.open import ModelOptions
from cgr.engines.text.chat import ThinkTags
from cgr.probing import ProbeSpec

MODEL = Path(str(files("cgr.model")))
HF, GGUF = MODEL / "hf", MODEL / "embedded.gguf"
SPEC = ProbeSpec(max_answer_tokens=4)
GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class TaggedOptions(ModelOptions):
    """Options with think tags that a user could not write, such as a tag with a space at its end."""

    given: ThinkTags | None = None

    @property
    def tags(self) -> ThinkTags | None:
        return self.given


async def opened(name: Path | str = HF, tags: ThinkTags | None = None, **options: Any) -> TransformersEngine:
    """A connected engine."""
    engine = TransformersEngine(str(name), TaggedOptions(given=tags, **options))
    await engine.connect()
    return engine


def random_model(folder: Path, kind: str, **config: Any) -> Path:
    """A model of this kind with random weights, saved with the embedded model's tokenizer."""
    import torch
    import transformers

    from cgr.engines.hf.load import quiet

    torch.manual_seed(0)
    sizes = {
        "vocab_size": 420,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "bos_token_id": None,
        "initializer_range": 0.2,
    }
    made = getattr(transformers, f"{kind}Config")(**(sizes | config))
    with quiet():
        getattr(transformers, f"{kind}ForCausalLM")(made).save_pretrained(folder)
    for file in HF.iterdir():
        if file.name.startswith(("tokenizer", "chat_template")):
            shutil.copy(file, folder)
    return folder


async def thought(engine: TransformersEngine, question: str, sampling: Sampling, tokens: int) -> tuple[int, ...]:
    """What the model thinks about a question, with the end tag banned."""
    session = await engine.open(question, sampling, room=tokens)
    stretch = await session.think(tokens, ban_end=True)
    await session.close()
    return stretch.ids


async def suffix_of(engine: TransformersEngine) -> tuple[int, ...]:
    return await engine.encode(SPEC.prefix)


def assert_alike(one: Answered, other: Answered) -> None:
    """The same tokens, with the same numbers up to rounding."""
    assert [(token.id, token.text) for token in one.tokens] == [(token.id, token.text) for token in other.tokens]
    first, second = ([token.logprob for token in answered.tokens] for answered in (one, other))
    assert first == pytest.approx(second, abs=1e-5)
    assert one.entropy == pytest.approx(other.entropy, abs=1e-4)
    assert one.ended == other.ended
