"""The nouns of the whole system: frozen, typed, and back from JSON as they went.

A `Trace` is what a model thought; a `Probe` is what it would have answered at one point of it, and how sure it was; a
`Decision` is what a rule made of the probes.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal, Self

Ended = Literal["end_of_thinking", "budget"]
StopCause = Literal["certainty", "end_of_thinking", "budget", "gave_up"]
AnswerFormat = Literal["integer", "number", "choice", "math"]


class Record:
    """JSON round trip for frozen dataclasses, nested ones and tuples included."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        hints = typing.get_type_hints(cls)
        if unknown := data.keys() - hints.keys():
            raise ValueError(f"{cls.__name__} has no field {', '.join(sorted(unknown))}")
        return cls(**{name: _restore(hints[name], value) for name, value in data.items()})

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.from_dict(json.loads(text))


def _restore(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _restore(arguments[0], value)
    if origin is tuple:
        inner = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_restore(one, item) for one, item in zip(inner, value, strict=True))
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint.from_dict(value)
    return value


@dataclass(frozen=True, slots=True)
class Token(Record):
    """One decoded token. `logprob` is raw: the softmax at temperature 1, before any filter or ban."""

    id: int
    text: str
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Question(Record):
    """What is asked, and what would be right where that is known."""

    id: str
    text: str
    gold: str | None = None
    format: AnswerFormat = "math"


@dataclass(frozen=True, slots=True)
class Trace(Record):
    """A model's thinking on one question under one seed; `ids` are strictly inside the think tags."""

    question_id: str
    seed: int
    ids: tuple[int, ...]
    text: str
    ended: Ended
    budget: int
    eos: bool = False
    prompt_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Probe(Record):
    """What the model would answer after `at` thinking tokens.

    `probabilities` are those of the answer's content tokens. Where `bound` is set, decoding was cut short because the
    certainty was already too low: it is an upper bound then, and the answer a beginning. `entropy` is that of the first
    token, in bits. Where nothing but that was wanted, there is no answer, and the one probability is the share that was
    seen of it.
    """

    at: int
    answer: str
    certainty: float
    closed: bool
    probabilities: tuple[float, ...] = ()
    tokens: tuple[Token, ...] = ()
    suffix: str = ""
    suffix_ids: tuple[int, ...] = ()
    bound: bool = False
    entropy: float | None = None
    prefilled: int = 0
    cached: int = 0
    decoded: int = 0
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """All that was decoded, where the tokens were kept."""
        return "".join(token.text for token in self.tokens)

    @property
    def ended(self) -> bool:
        """Whether the model then ended its thinking, or its turn, as far as the tokens tell: that one is not among them."""
        return bool(self.tokens) and self.decoded > len(self.tokens)

    @property
    def valid(self) -> bool:
        """Whether there is a whole answer here, not a beginning and not nothing."""
        return self.closed and not self.bound and bool(self.answer)


@dataclass(frozen=True, slots=True)
class Decision(Record):
    """How one question ended: why thinking stopped, what the answer is, and what it cost.

    `final` is the answer decoded after thinking ended or the budget ran out; after a sure probe there is none, since
    that probe's answer is the answer. `answer` is None where the policy was to abstain, or the rule gave up.
    """

    stop_cause: StopCause
    answer: str | None
    certainty: float
    closed: bool
    abstained: bool
    thinking_tokens: int
    probes: tuple[Probe, ...] = ()
    final: Probe | None = None
    eos: bool = False
    forced: int = 0

    @property
    def probe_tokens(self) -> int:
        """Tokens decoded by probes, closing brace included."""
        return sum(probe.decoded for probe in self.probes)

    @property
    def answer_tokens(self) -> int:
        """Tokens decoded for the final answer: none after a sure probe."""
        return self.final.decoded if self.final else 0
