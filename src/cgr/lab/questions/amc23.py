"""AMC 12, 2023: 40 problems without their choices. The answers are numbers, some above 999 and one negative.

Mathematical Association of America: American Mathematics Competitions, 2023. On the hub as `math-ai/amc23`.
"""

from cgr.lab.questions.source import FieldNames, Source

SOURCE = Source("amc23", "math-ai/amc23", "number", FieldNames("question", "answer", "id"), size=40)
