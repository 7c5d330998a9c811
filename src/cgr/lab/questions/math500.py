"""MATH-500: 500 problems of the MATH test set, answers in LaTeX.

Hendrycks et al.: Measuring Mathematical Problem Solving With the MATH Dataset (NeurIPS 2021); the subset is that of
Lightman et al.: Let's Verify Step by Step (ICLR 2024). On the hub as `HuggingFaceH4/MATH-500`.
"""

from cgr.lab.questions.source import FieldNames, Source

SOURCE = Source("math500", "HuggingFaceH4/MATH-500", "math", FieldNames("problem", "answer", "unique_id"), size=500)
