"""The question that is put to the model, and how its reply is read.

A probe appends a fixed prefix that opens a brace, decodes greedily, and reads the answer up to the first `}` that closes
it, by character: tokens come glued (`5}`, `}$`, `}.\\n`). A token counts towards certainty if some of it, other than white
space, lies inside the answer; braces inside an answer (`\\frac{1}{2}`) belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from cgr import certainty
from cgr.errors import UnknownName, UsageError
from cgr.records import Probe, Token

PREFIX = "Final Answer: \\boxed{"
INTEGER_TOKENS = 4  # three digits and a brace, one token each at the worst
MAX_TOKENS = 32
CloseThink = Literal["never", "always", "auto"]
CLOSE_THINK = ("never", "always", "auto")


@dataclass(frozen=True, slots=True)
class Span:
    """An answer found among decoded tokens."""

    answer: str
    probabilities: tuple[float, ...]
    closed: bool


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """How to ask. `close_think`: whether the end tag goes before the prefix: `never`, as the paper has it, `always`, or
    `auto`: not at a probe, but before the final answer when the budget ran out."""

    prefix: str = PREFIX
    max_answer_tokens: int = MAX_TOKENS
    aggregate: str = certainty.DEFAULT
    close_think: CloseThink = "never"

    def __post_init__(self) -> None:
        certainty.check(self.aggregate)
        if self.max_answer_tokens < 1:
            raise UsageError("An answer needs at least one token.", "Use --max-answer-tokens 1 or more.")
        if self.close_think not in CLOSE_THINK:
            raise UnknownName.among("close-think policy", self.close_think, CLOSE_THINK)
        if not opens_brace(self.prefix):
            raise UsageError(
                f"The answer after the prefix {self.prefix!r} could never be closed: it leaves no brace open.",
                "End the prefix with an open brace, as in 'Final Answer: \\boxed{'.",
            )

    def closes(self, final: bool) -> bool:
        """Whether the end tag goes first, at a probe or before the final answer at the budget."""
        return self.close_think == "always" or (final and self.close_think == "auto")

    def span(self, tokens: Sequence[Token]) -> Span:
        return answer_span(tokens, opened=open_braces(self.prefix) > 0)

    def done(self, enough: float | None = None) -> Callable[[Sequence[Token]], bool]:
        """When to stop decoding: the answer closed, L is reached, or, if a threshold is given and the aggregate can only
        fall, the certainty is already below it."""
        cut = enough if self.aggregate in certainty.FALLING else None

        def is_done(tokens: Sequence[Token]) -> bool:
            span = self.span(tokens)
            full = len(tokens) >= self.max_answer_tokens
            return full or span.closed or (cut is not None and self._below(span, cut))

        return is_done

    def _below(self, span: Span, threshold: float) -> bool:
        return bool(span.probabilities) and certainty.aggregate(self.aggregate, span.probabilities) < threshold

    def read(self, at: int, tokens: Sequence[Token], ended: bool = False) -> Probe:
        """The probe that these tokens make. Neither closed, nor L long, nor ended by the model, it is a bound."""
        span = self.span(tokens)
        return Probe(
            at=at,
            answer=span.answer,
            certainty=certainty.aggregate(self.aggregate, span.probabilities),
            closed=span.closed,
            probabilities=span.probabilities,
            tokens=tuple(tokens),
            suffix=self.prefix,
            bound=not span.closed and not ended and len(tokens) < self.max_answer_tokens,
            decoded=len(tokens) + ended,
        )


def open_braces(text: str) -> int:
    """How many braces a text leaves open, the stray closing ones forgiven."""
    depth = 0
    for char in text:
        depth = depth + 1 if char == "{" else max(depth - 1, 0) if char == "}" else depth
    return depth


def opens_brace(prefix: str) -> bool:
    """Whether an answer can begin here: inside a brace, or where `\\boxed` waits for one."""
    return open_braces(prefix) > 0 or prefix.rstrip().endswith("\\boxed")


def answer_span(tokens: Sequence[Token], opened: bool = True) -> Span:
    """The answer in these tokens. Where the prefix did not open the brace, the first `{` that is decoded does."""
    inside, depth, closed = opened, 0, False
    pieces: list[str] = []
    probabilities: list[float] = []
    for token in tokens:
        if closed:
            break
        begin, end = (0 if inside else len(token.text)), len(token.text)
        for index, char in enumerate(token.text):
            if not inside:
                if char == "{":
                    inside, begin = True, index + 1
            elif char == "{":
                depth += 1
            elif char == "}" and depth == 0:
                closed, end = True, index
                break
            elif char == "}":
                depth -= 1
        content = token.text[begin:end]
        pieces.append(content)
        if content.strip() or (inside and not token.text):
            probabilities.append(certainty.probability(token.logprob))
    answer = "".join(pieces).strip()
    return Span(answer, tuple(probabilities) if answer else (), closed)
