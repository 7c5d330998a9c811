"""The options of a choice question in an import, and their probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cgr import certainty
from cgr.errors import UsageError
from cgr.probing import option_letters, option_probabilities
from cgr.records import AnswerFormat, OptionProbabilities


class ChoiceLine(Protocol):
    """What is read of a line: the text and the format of the question, and the letters that the line gives."""

    @property
    def question(self) -> str: ...

    @property
    def format(self) -> AnswerFormat | None: ...

    @property
    def options(self) -> Sequence[str]: ...


def options_of(line: ChoiceLine, given: OptionProbabilities, alternatives: Mapping[str, float]) -> OptionProbabilities:
    """The probabilities of the options: those given, else those among the alternatives to the first answer token. The
    options are those of the line, of the question's text, or, if neither lists any, the letters among the alternatives."""
    if (given or alternatives) and line.format != "choice":
        raise UsageError("there are options or alternatives, but the format is not 'choice'.", 'Add "format": "choice".')
    found = sorted({text.strip().upper() for text in alternatives})
    letters = line.options or option_letters(line.question) or [one for one in found if certainty.letter_in(one) == one]
    return given or option_probabilities(letters, [(text, min(chance, 1.0)) for text, chance in alternatives.items()])
