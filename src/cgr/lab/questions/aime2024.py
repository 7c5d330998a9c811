"""AIME 2024, I and II: 30 problems, integers 0..999, some written with leading zeros.

Mathematical Association of America: American Invitational Mathematics Examination, 2024. On the hub as
`HuggingFaceH4/aime_2024`.
"""

from cgr.lab.questions.source import FieldNames, Source

SOURCE = Source(
    name="aime2024",
    repo="HuggingFaceH4/aime_2024",
    split="train",
    format="integer",
    fields=FieldNames(text="problem", gold="answer", id="id"),
    size=30,
)
