"""GSM8K, test set: 1,319 grade-school problems. The gold answer follows `####`, with commas between thousands.

Cobbe et al.: Training Verifiers to Solve Math Word Problems (2021). On the hub as `openai/gsm8k`.
"""

from cgr.lab.questions.source import FieldNames, Source

SOURCE = Source("gsm8k", "openai/gsm8k", "number", FieldNames("question", "answer"), size=1319, config="main")
