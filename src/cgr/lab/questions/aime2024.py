"""AIME 2024, I and II: 30 problems, integers 0..999, some written with leading zeros.

Mathematical Association of America: American Invitational Mathematics Examination, 2024. On the hub as
`HuggingFaceH4/aime_2024`.
"""

from cgr.lab.questions.source import Source

SOURCE = Source("aime2024", "HuggingFaceH4/aime_2024", "integer", split="train", size=30)
