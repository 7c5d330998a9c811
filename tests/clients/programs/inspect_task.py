"""One question for inspect_ai."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import pattern


@task
def arithmetic():
    question = "Start with x=864. Apply x=(8x+97) mod 1000, 2 times. Find x."
    return Task(dataset=[Sample(input=question, target="169")], scorer=pattern(r"\\boxed\{(\d+)\}"))
