"""Agreement in place of accuracy, where no question has a gold answer: the share of traces whose answer at the stop equals
the final answer of the same trace.

Sentences and headings are written for accuracy, and `worded` says them for agreement.
"""

from __future__ import annotations

from cgr.lab.decide.columns import FINAL

AGREEMENT = "agreement"
NO_GOLDS = (
    "No question has a known answer. What is measured instead is agreement: the share of traces whose answer at the stop "
    "equals the one that the same trace gives at the end of its thinking. The full budget has 100%."
)
WORDS = {
    "accuracy": "agreement",
    "Accuracy": "Agreement",
    "Acc.": "Agr.",
    "acc.": "agr.",
    "The oracle saves": "Head room on the questions shown:",
    "Of oracle": "Of head room",
    "the oracle's saving": "the head room",
}


def worded(text: str, reference: str) -> str:
    """A text about accuracy, or the same about agreement if answers are compared with final ones."""
    if reference == FINAL:
        for word, other in WORDS.items():
            text = text.replace(word, other)
    return text
