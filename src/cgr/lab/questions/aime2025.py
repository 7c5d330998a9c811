"""AIME 2025, I and II: 30 problems, integers 0..999. The paper's data set.

Mathematical Association of America: American Invitational Mathematics Examination, 2025. On the hub as `math-ai/aime25`.
"""

from cgr.lab.questions.source import FieldNames, Source

SOURCE = Source(
    name="aime2025",
    repo="math-ai/aime25",
    split="test",
    format="integer",
    fields=FieldNames(text="problem", gold="answer", id="id"),
    size=30,
)
