"""The data types of the whole system: frozen dataclasses that can be written to JSON and read back.

A `Trace` is what a model thought. A `Probe` is what it would have answered at one position, and how sure it was. A
`Decision` is what a rule decided from the probes.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from cgr.errors import UsageError

Ended = Literal["end_of_thinking", "budget"]
StopCause = Literal["certainty", "end_of_thinking", "budget", "gave_up"]
AnswerFormat = Literal["integer", "number", "choice", "math"]
OptionProbabilities = tuple[tuple[str, float], ...]  # of a question with lettered options: each letter's


def option(default: Any, help: str, metavar: str | None = None, *, each: str | None = None) -> Any:
    """A field of a dataclass that is also an option on the command line. `each`: the name of an option that may be given
    several times, if the field has another name."""
    return dataclasses.field(default=default, metadata={"help": help, "metavar": metavar, "each": each})


# control characters but line feed and tab, line separators, overrides of the text direction, halves of surrogate pairs
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with every character that a terminal would obey, or cannot show, as a visible escape such as `\\x1b`."""
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible_line(text: str) -> str:
    """The same on one line: line feeds are shown too."""
    return visible(text).replace("\n", "\\n")


KINDS: Mapping[type, str] = {int: "a whole number", float: "a number", str: "text", bool: "yes or no (a bool)"}


def check_types(options: Any) -> None:
    """Raise `UsageError` if a field of this dataclass holds a value of the wrong type, or text that is not text."""
    for one in dataclasses.fields(options):
        name, value, kinds = one.name, getattr(options, one.name), _kinds_named(str(one.type))
        if kinds and not is_of(value, kinds):
            raise UsageError(
                f"{name} must be {' or '.join(KINDS[kind] for kind in kinds if kind in KINDS)}, not {value!r:.60}.",
                f"Give {name} another value.",
            )
        if isinstance(value, str):
            check_text(value, name)


def check_text(text: str, name: str) -> None:
    """Raise `UsageError` if the text holds half of a surrogate pair, as bytes that are not UTF-8 become."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"The {name} is not text in UTF-8.", "Convert it to UTF-8.") from error


def is_of(value: Any, kinds: Sequence[type]) -> bool:
    """Whether a value has one of these types; a whole number is also a number, but True and False are not numbers."""
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, tuple(kinds)) or (isinstance(value, int) and float in kinds)


@functools.cache
def _kinds_named(hint: str) -> tuple[type, ...]:
    """The types that a hint such as `int | None` names; () for a hint with other names, which is not checked."""
    known = {kind.__name__: kind for kind in KINDS} | {"None": types.NoneType}
    names = hint.split(" | ")
    return tuple(known[name] for name in names) if all(name in known for name in names) else ()


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _kinds(hint: Any) -> tuple[type, ...]:
    """The types that a hint of plain values allows; () for any other hint, which is not checked here."""
    inner = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    plain = (*KINDS, types.NoneType)
    return tuple(inner) if all(one in plain for one in inner) else ()


class Record:
    """To JSON and back, for frozen dataclasses, also nested ones and tuples."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The record as plain dictionaries, lists and values."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    def to_json(self) -> str:
        """The record as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The record that `to_dict` wrote; an unknown field is an error."""
        if not isinstance(data, dict):
            raise ValueError(f"{cls.__name__} must be an object")
        hints = _hints(typing.cast(type, cls))
        if unknown := data.keys() - hints.keys():
            raise ValueError(f"{cls.__name__} has no field {', '.join(sorted(unknown))}")
        return cls(**{name: _restore(hints[name], value) for name, value in data.items()})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The record that `to_json` wrote."""
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
    if (kinds := _kinds(hint)) and not is_of(value, kinds):
        raise ValueError(f"{value!r:.60} is not {KINDS.get(kinds[0], 'valid')}")
    if origin is Literal and value not in arguments:
        raise ValueError(f"{value!r:.60} is not one of {', '.join(map(str, arguments))}")
    return value


@dataclass(frozen=True, slots=True)
class Token(Record):
    """One decoded token. `logprob` is raw: from the softmax at temperature 1, before any filter or ban."""

    id: int
    text: str
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Question(Record):
    """A question and, if known, its correct answer (`gold`)."""

    id: str
    text: str
    gold: str | None = None
    format: AnswerFormat = "math"


@dataclass(frozen=True, slots=True)
class Message(Record):
    """One turn of a conversation: who speaks, and the text."""

    role: Literal["system", "user", "assistant"]
    content: str


Conversation = str | Sequence[Message]  # a plain string is one message of the user


def messages_of(conversation: Conversation) -> tuple[Message, ...]:
    """A conversation as messages."""
    if isinstance(conversation, str):
        return (Message("user", conversation),)
    valid = isinstance(conversation, Sequence) and all(
        isinstance(one, Message) and isinstance(one.content, str) for one in conversation
    )
    if not valid:
        raise UsageError(
            f"A question is text or a list of messages, not {conversation!r:.60}.", 'Ask as in cgr.solve("What is 1+1?").'
        )
    return tuple(conversation)


@dataclass(frozen=True, slots=True)
class Trace(Record):
    """A model's thinking on one question under one seed. `ids` are the tokens strictly inside the think tags."""

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

    `probabilities` are those of the answer's content tokens. If `bound` is set, decoding stopped early because the
    certainty was already too low: the certainty is then an upper bound, and the answer is incomplete. `entropy` is that
    of the first token, in bits. If only the entropy was requested, there is no answer, and the one probability is the
    total probability of the alternatives that were returned. `options`: for a question with lettered options, the
    probability of each letter where the answer's letter was decoded. `stated`: how often the answer stands in the thinking
    before the probe, and how many characters come after the last time, (0, 0) if it never does; None: not known.
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
    options: OptionProbabilities = ()
    stated: tuple[int, int] | None = None

    @property
    def raw_certainty(self) -> float:
        """The smallest raw probability of the answer's tokens, whatever the aggregate is."""
        return min(self.probabilities, default=self.certainty)

    @property
    def text(self) -> str:
        """All decoded text, if the tokens were kept."""
        return "".join(token.text for token in self.tokens)

    @property
    def ended(self) -> bool:
        """Whether the model then ended its thinking or its turn. The token that did so is counted but not kept."""
        return bool(self.tokens) and self.decoded > len(self.tokens)

    @property
    def valid(self) -> bool:
        """Whether the answer is complete and not empty."""
        return self.closed and not self.bound and bool(self.answer)


@dataclass(frozen=True, slots=True)
class Decision(Record):
    """How one question ended: why thinking stopped, what the answer is, and what it cost.

    `final` is the answer that was decoded after thinking ended or the budget was spent; after a sure probe there is none,
    since the probe's answer is the answer. `answer` is None if the policy was to abstain, or the rule gave up.
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
    def raw_certainty(self) -> float:
        """The raw certainty of the probe or the final answer that this is from."""
        source = self.final or (self.probes[-1] if self.probes else None)
        return source.raw_certainty if source else 0.0

    @property
    def probe_tokens(self) -> int:
        """Tokens decoded by probes, the closing brace included."""
        return sum(probe.decoded for probe in self.probes)

    @property
    def answer_tokens(self) -> int:
        """Tokens decoded for the final answer; 0 after a sure probe."""
        return self.final.decoded if self.final else 0
