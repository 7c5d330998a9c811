"""GSM8K, test set: 1,319 grade-school problems. The gold stands after `####`, thousands with commas.

Cobbe et al.: Training Verifiers to Solve Math Word Problems (2021). On the hub as `openai/gsm8k`.
"""

from cgr.lab.questions.source import Fields, Source

SOURCE = Source(
    name="gsm8k",
    repo="openai/gsm8k",
    config="main",
    split="test",
    format="number",
    fields=Fields(text="question", gold="answer"),
)
