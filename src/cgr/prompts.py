"""What stands around a question in the prompt: a system message, worked examples as chat turns, and an instruction.

A file of worked examples is TOML, JSON or JSONL. Each example is a `question` and a `reply`, or `messages` of the user and
the assistant in turn.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cgr.errors import UnknownName, UsageError
from cgr.records import Conversation, Message, Record, check_text, messages_of

MAX_BYTES = 1 << 20  # of a file of examples, which is part of every prompt
SUFFIXES = (".toml", ".json", ".jsonl")
TABLE = "examples"
SHAPE = 'An example is {"question": "...", "reply": "..."} or {"messages": [...]}.'


@dataclass(frozen=True, slots=True)
class Example(Record):
    """A worked example: a question, and the reply that the model should take as a pattern, with its thinking."""

    question: str
    reply: str

    def __post_init__(self) -> None:
        for name in ("question", "reply"):
            text = getattr(self, name)
            if not isinstance(text, str):
                raise UsageError(f"The {name} of a worked example must be text, not {text!r:.60}.", SHAPE)
            if not text.strip():
                raise UsageError(f"The {name} of a worked example is empty.", SHAPE)
            check_text(text, f"{name} of a worked example")


Source = str | Path | Example
Examples = Source | Sequence[Source]


def examples_of(given: Examples) -> tuple[Example, ...]:
    """Worked examples from what a user gave: examples, files of them, or a list of both."""
    if isinstance(given, str | Path | Example):
        given = (given,)
    if not isinstance(given, Sequence):
        raise UsageError(f"examples must be files or worked examples, not {given!r:.60}.", SHAPE)
    return tuple(example for one in given for example in _of(one))


def _of(given: Source) -> tuple[Example, ...]:
    if isinstance(given, Example):
        return (given,)
    if isinstance(given, str | Path):
        return read_examples(Path(given).expanduser())
    raise UsageError(f"A worked example is a file or an `Example`, not {given!r:.60}.", SHAPE)


def conversation(
    question: Conversation, *, system: str = "", examples: Sequence[Example] = (), instruction: str = ""
) -> tuple[Message, ...]:
    """The messages of a prompt: the system message, the examples as turns, and the question or conversation. The
    instruction follows the last question and that of every example. A conversation with a system message of its own keeps
    that one, and gets no examples."""
    *before, last = messages_of(question) or (Message("user", ""),)
    asked = (*before, Message("user", instructed(last.content, instruction)))
    if any(one.role == "system" for one in before):
        return asked
    first = (Message("system", system),) if system else ()
    return (*first, *(turn for one in examples for turn in _turns(one, instruction)), *asked)


def _turns(example: Example, instruction: str) -> tuple[Message, Message]:
    return Message("user", instructed(example.question, instruction)), Message("assistant", example.reply.strip())


def instructed(question: str, instruction: str) -> str:
    """A question followed by the instruction."""
    return f"{question.strip()}\n{instruction}" if instruction else question.strip()


def prompt_text(prompt: Conversation) -> str:
    """The text of all messages: seeds are keyed by it."""
    return "\n".join(message.content for message in messages_of(prompt))


def read_examples(path: Path) -> tuple[Example, ...]:
    """The worked examples of a file; `UsageError` names the file and what is wrong with it."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{str(path)!r} is no file of worked examples.", f"Its name must end with {', '.join(SUFFIXES)}.")
    try:
        found = tuple(example for values in _values(path) for example in _examples(values))
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from error
    if not found:
        raise UsageError(f"{path} has no worked examples.", SHAPE)
    return found


def _values(path: Path) -> Iterable[Any]:
    """What the file says about each example."""
    text = _text(path)
    try:
        if path.suffix == ".toml":
            return _table(tomllib.loads(text))
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.split("\n") if line.strip()]
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        kind = path.suffix[1:].upper()
        raise UsageError(f"this is not {kind}: {str(error).rstrip('.')}.", "Check the file.") from error
    return values if isinstance(values, list) else [values]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror or error}.", "Give a file of worked examples.") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"it has more than {MAX_BYTES:,} bytes.", "All examples are part of every prompt: give fewer.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError("it is not UTF-8.", "Save the file as UTF-8.") from error


def _table(values: dict[str, Any]) -> list[Any]:
    """The tables `[[examples]]` of a TOML file."""
    if unknown := next((name for name in values if name != TABLE), None):
        raise UnknownName.among("key", unknown, (TABLE,))
    found = values.get(TABLE, [])
    if not isinstance(found, list):
        raise UsageError(f"{TABLE} must be a list of tables.", f"Begin each example with [[{TABLE}]].")
    return found


def _examples(values: Any) -> Iterator[Example]:
    if not isinstance(values, dict):
        raise UsageError(f"an example must be an object, not {values!r:.60}.", SHAPE)
    if values.keys() == {"messages"}:
        yield from _pairs(values["messages"])
        return
    known = ("question", "reply")
    if unknown := next((name for name in values if name not in known), None):
        raise UnknownName.among("key of an example", unknown, (*known, "messages"))
    if missing := next((name for name in known if name not in values), None):
        raise UsageError(f"an example has no {missing}.", SHAPE)
    yield Example(values["question"], values["reply"])


def _pairs(messages: Any) -> Iterator[Example]:
    """Questions and replies from messages of the user and the assistant in turn."""
    valid = isinstance(messages, list) and all(
        isinstance(one, dict) and one.keys() == {"role", "content"} for one in messages
    )
    if not valid:
        raise UsageError("messages must be a list of objects with role and content.", SHAPE)
    roles = [one["role"] for one in messages]
    if "system" in roles:
        raise UsageError("a worked example has a system message.", "Give it with --system.")
    if not roles or roles != ["user", "assistant"] * (len(roles) // 2):
        raise UsageError("the messages of an example must be of user and assistant in turn.", SHAPE)
    for asked, replied in zip(messages[::2], messages[1::2], strict=True):
        yield Example(asked["content"], replied["content"])
