"""AIME 2025, I and II: 30 problems, integers 0..999. The paper's data set.

Mathematical Association of America: American Invitational Mathematics Examination, 2025. On the hub as `math-ai/aime25`.
"""

from cgr.lab.questions.source import Source

SOURCE = Source("aime2025", "math-ai/aime25", "integer", size=30)
