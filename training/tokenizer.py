"""The tokenizer of the embedded model: a small byte-level BPE with single digits, split like Qwen's, as llama.cpp knows it."""

from __future__ import annotations

import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from cgr.model.problems import FAMILIES, LEVELS, make_problem
from training.thinking import think

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."
PREFIX = "Final Answer: \\boxed{"
OTHER_PREFIXES = (
    "\n**Final Answer**\n\\boxed{",
    "... Oh, I suddenly got the answer to the whole problem, **Final Answer**\n\n\\[ \\boxed{",
    "\n\nFinal Answer: \\boxed{",
    "The final answer is \\boxed{",
)
USER, ASSISTANT, END, THINK, END_THINK = "<|user|>", "<|assistant|>", "<|end|>", "<think>", "</think>"
SPECIAL = (END, USER, ASSISTANT, THINK, END_THINK)
TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'assistant' %}<|assistant|>{{ message.content }}<|end|>"
    "{% else %}<|user|>{{ message.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|><think>{% endif %}"
)
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
VOCABULARY = 448


def build(path: Path) -> Tokenizer:
    """Learn the merges on texts like those of the training, and save `tokenizer.json`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    tokenizer.save(str(path))
    return tokenizer


def _texts() -> list[str]:
    rng = random.Random("tokenizer")
    texts = [INSTRUCTION, PREFIX, *OTHER_PREFIXES] * 50
    for family in FAMILIES:
        for level in LEVELS:
            problem = make_problem(family, level, rng)
            texts += [problem.text, *think(problem, rng)[0]] * 3
    return texts
