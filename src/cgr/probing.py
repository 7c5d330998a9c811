"""What a probe appends to the thinking, and how the decoded tokens are read.

A probe appends a fixed prefix that opens a brace, decodes greedily, and reads the answer up to the first `}` that closes
it, by character, because one token can hold several characters (`5}`, `}$`, `}.\\n`). A token counts towards certainty if
some of it, other than white space, lies inside the answer; braces inside an answer (`\\frac{1}{2}`) belong to it. A rule
may have a style of its own (`ProbeStyle`), and may want no answer at all but only how open the next token is (its entropy).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from cgr import certainty
from cgr.errors import UnknownName, UsageError
from cgr.records import OptionProbabilities, Probe, Token

PREFIX = "Final Answer: \\boxed{"
INTEGER_TOKENS = 4  # three digits and a brace, at most one token each
MAX_TOKENS = 32
CloseThink = Literal["never", "always", "auto"]
CLOSE_THINK = ("never", "always", "auto")
Reads = Literal["answer", "text", "entropy"]
READS = ("answer", "text", "entropy")
END_TAG = "</think>"  # in a prefix, it is replaced by the model's own end tag
TOP_KEPT = 5
ROUNDING = 1e-6  # a smaller rest of probability is rounding
ENTROPY_TOP = 1000  # alternatives to request from an engine that does not compute the entropy
MIN_ALTERNATIVES = 2  # with only the chosen token, nothing is known about the other options
AROUND_LETTER = " \t\r\n($).:}"  # may be in one token with the letter of an option
OPTION_LINES = re.compile(r"^[ \t]*\(?([A-Z])[).:][ \t]", re.MULTILINE)
OPTIONS_IN_TEXT = re.compile(r"\(([A-Z])\)\s")


@dataclass(frozen=True, slots=True)
class Span:
    """An answer found among decoded tokens."""

    answer: str
    probabilities: tuple[float, ...]
    closed: bool


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """How to probe.

    `close_think`: whether the end tag goes before the prefix: `never` (as in the paper), `always`, or `auto` (not at a
    probe, but before the final answer at the budget). `reads`: the `answer` up to its closing brace; the `text`, which
    continues after it up to `max_answer_tokens`; or only the `entropy` of the next token. `options`: the letters of the
    question's options, if it has any.
    """

    prefix: str = PREFIX
    max_answer_tokens: int = MAX_TOKENS
    aggregate: str = certainty.DEFAULT
    close_think: CloseThink = "never"
    reads: Reads = "answer"
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        certainty.check(self.aggregate)
        if self.max_answer_tokens < 1:
            raise UsageError("An answer needs at least one token.", "Use --max-answer-tokens 1 or more.")
        if self.close_think not in CLOSE_THINK:
            raise UnknownName.among("close-think policy", self.close_think, CLOSE_THINK)
        if self.reads not in READS:
            raise UnknownName.among("kind of reading", self.reads, READS)
        if self.reads != "entropy" and not opens_brace(self.prefix):
            raise UsageError(
                f"The answer after the prefix {self.prefix!r} could never be closed: it leaves no brace open.",
                "End the prefix with an open brace, as in 'Final Answer: \\boxed{'.",
            )

    def closes(self, final: bool) -> bool:
        """Whether the end tag goes before the prefix, at a probe or (`final`) before the final answer at the budget."""
        return self.close_think == "always" or (final and self.close_think == "auto")

    @property
    def limit(self) -> int:
        """The most tokens to decode."""
        return 1 if self.reads == "entropy" else self.max_answer_tokens

    @property
    def top(self) -> int:
        """Alternatives to return for each token; 0: the engine decides."""
        return ENTROPY_TOP if self.reads == "entropy" else 0

    def span(self, tokens: Sequence[Token]) -> Span:
        """The answer in these decoded tokens."""
        if self.reads == "entropy":
            return Span("", (), False)
        return answer_span(tokens, opened=open_braces(self.prefix) > 0)

    def done(self, enough: float | None = None) -> Callable[[Sequence[Token]], bool]:
        """A function that says when to stop decoding: the answer closed, `limit` is reached, or, if a threshold is given
        and the aggregate can only fall, the certainty is already below it."""
        cut = enough if certainty.falls(self.aggregate, self.options) and self.reads == "answer" else None

        def is_done(tokens: Sequence[Token]) -> bool:
            if len(tokens) >= self.limit:
                return True
            if self.reads != "answer":
                return False
            span = self.span(tokens)
            return span.closed or (cut is not None and self._below(span, cut))

        return is_done

    def _below(self, span: Span, threshold: float) -> bool:
        return bool(span.probabilities) and certainty.aggregate(self.aggregate, span.probabilities) < threshold

    def read(self, at: int, tokens: Sequence[Token], ended: bool = False) -> Probe:
        """The probe that these tokens make. It is a bound if it neither closed, nor reached the limit, nor ended."""
        if self.reads == "entropy":
            return self._open(at, tokens)
        span = self.span(tokens)
        return Probe(
            at=at,
            answer=span.answer,
            certainty=certainty.aggregate(self.aggregate, span.probabilities),
            closed=span.closed,
            probabilities=span.probabilities,
            tokens=tuple(tokens),
            suffix=self.prefix,
            bound=not span.closed and not ended and len(tokens) < self.limit,
            decoded=len(tokens) + ended,
        )

    def letter_token(self, tokens: Sequence[Token]) -> Token | None:
        """The token with the letter of the answer, if the question has options and the answer is a letter."""
        letter = certainty.letter_in(self.span(tokens).answer) if self.options else None
        return next((one for one in tokens if letter and one.text.strip(AROUND_LETTER).upper() == letter), None)

    def with_options(self, probe: Probe, token: Token, texts: Mapping[int, str]) -> Probe:
        """The probe with the probabilities of the options, from the alternatives to this token; `texts`: of their ids."""
        alternatives = [(texts[one], certainty.probability(logprob)) for one, logprob in token.top]
        told = replace(probe, options=option_probabilities(self.options, alternatives))
        return replace(told, certainty=certainty.of_probe(self.aggregate, told))

    def _open(self, at: int, tokens: Sequence[Token]) -> Probe:
        """A probe for the entropy of the next token: its lower bound, and the total probability of the alternatives that
        were returned. Of these many alternatives, a few are kept."""
        kept = tuple(replace(token, top=token.top[:TOP_KEPT]) for token in tokens)
        seen = [math.fsum(certainty.probability(logprob) for _, logprob in token.top) for token in tokens]
        least = entropy_bounds(tokens[0].top)[0] if tokens and tokens[0].top else None
        return Probe(
            at=at,
            answer="",
            certainty=0.0,
            closed=False,
            probabilities=tuple(min(share, 1.0) for share in seen),
            tokens=kept,
            suffix=self.prefix,
            entropy=least,
            decoded=len(tokens),
        )


@dataclass(frozen=True, slots=True)
class ProbeStyle:
    """How a rule asks where it has a way of its own; None means: as the settings have it."""

    prefix: str | None = None
    max_answer_tokens: int | None = None
    aggregate: str | None = None
    close_think: CloseThink | None = None
    reads: Reads | None = None

    def over(self, spec: ProbeSpec) -> ProbeSpec:
        """These settings with the rule's own way in their place."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(spec, **{name: value for name, value in own.items() if value is not None})


Asks = ProbeStyle  # the former name, for rules written against it


def entropy_bounds(top: Sequence[tuple[int, float]], vocabulary: int | None = None) -> tuple[float, float]:
    """Lower and upper bound of the entropy, in bits, of a token whose likeliest alternatives are known.

    The rest of the probability counts as one token for the lower bound, and is spread evenly over the rest of the
    vocabulary for the upper bound (infinite if its size is not known). If all tokens are given, both are the entropy.
    """
    chances = [certainty.probability(logprob) for _, logprob in top]
    tail = max(1.0 - math.fsum(chances), 0.0)
    known = math.fsum(_bits(chance) for chance in chances)
    if tail < ROUNDING or (vocabulary is not None and len(chances) >= vocabulary):
        return known, known
    rest = math.inf if vocabulary is None else vocabulary - len(chances)
    return known + _bits(tail), known + tail * math.log2(rest / tail)


def _bits(chance: float) -> float:
    return -chance * math.log2(chance) if chance > 0 else 0.0


def option_letters(question: str) -> tuple[str, ...]:
    """The letters of a question's options: of lines such as `A) ...`, `(A) ...`, `A. ...` and `A: ...`, or of `(A) ...` in
    one line; A, B and so on without a gap. Empty if the text lists fewer than two."""
    for pattern in (OPTION_LINES, OPTIONS_IN_TEXT):
        found = set(pattern.findall(question))
        count = next((number for number in range(26) if chr(ord("A") + number) not in found), 26)
        if count > 1:
            return tuple(chr(ord("A") + number) for number in range(count))
    return ()


def option_probabilities(options: Sequence[str], alternatives: Sequence[tuple[str, float]]) -> OptionProbabilities:
    """The probability of each option, from the texts and probabilities of the alternatives to the token with the letter.
    An option that is not among them has the smallest probability that is; empty if there are no alternatives."""
    if len(alternatives) < MIN_ALTERNATIVES:
        return ()
    least = min(chance for _, chance in alternatives)
    found: dict[str, float] = {}
    for text, chance in alternatives:
        letter = text.strip(AROUND_LETTER).upper()
        found[letter] = found.get(letter, 0.0) + chance
    return tuple((option, found.get(option, least)) for option in options)


def open_braces(text: str) -> int:
    """How many braces a text leaves open; closing braces without an opening one are ignored."""
    depth = 0
    for char in text:
        depth = depth + 1 if char == "{" else max(depth - 1, 0) if char == "}" else depth
    return depth


def opens_brace(prefix: str) -> bool:
    """Whether an answer can begin after this prefix: inside a brace, or after `\\boxed`."""
    return open_braces(prefix) > 0 or prefix.rstrip().endswith("\\boxed")


def answer_span(tokens: Sequence[Token], opened: bool = True) -> Span:
    """The answer in these tokens. If the prefix did not open the brace, the first decoded `{` does."""
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
