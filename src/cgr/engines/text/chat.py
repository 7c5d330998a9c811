"""Think tags: from a conversation to a prompt that ends with the opened tag, and noticing the end tag among tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from cgr.engines.base import Conversation, Message, messages_of
from cgr.errors import NoThinkTags, UsageError

# Two tags, the second with a slash, whose name contains a word for thinking: <think>, [THINK], <|thinking|>, <reasoning>,
# ...
TAG = re.compile(r"([<\[]\|?)/?([\w:]*(?:think|thought|reason)[\w:]*)(\|?[>\]])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ThinkTags:
    """The text that opens thinking and the text that ends it."""

    open: str
    close: str


def parse_tags(text: str) -> ThinkTags:
    """Tags as a person writes them: `<think>` alone, or `<think>,</think>`."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 and (match := TAG.fullmatch(parts[0])):
        return ThinkTags(*_pair(match))
    if len(parts) == 2 and all(parts):
        return ThinkTags(*parts)
    raise UsageError(f"{text!r} does not name think tags.", "Write both, as in --think-tags '<think>,</think>'.")


def find_tags(template: str, tokens: Iterable[str]) -> ThinkTags | None:
    """The tags that the model's files name: its special tokens are searched first, then its template."""
    names = set(tokens)
    for match in map(TAG.fullmatch, sorted(names)):
        if match and set(_pair(match)) <= names:
            return ThinkTags(*_pair(match))
    for match in TAG.finditer(template):
        opening, closing = _pair(match)
        if closing in template:
            return ThinkTags(opening, closing)
    return None


def _pair(match: re.Match[str]) -> tuple[str, str]:
    left, name, right = match.groups()
    return f"{left}{name}{right}", f"{left}/{name}{right}"


def need_tags(found: ThinkTags | None, model: str) -> ThinkTags:
    """The tags that were found; an error if there are none."""
    if found is None:
        raise NoThinkTags(
            f"{model} has no think tags: neither its vocabulary nor its chat template names any.",
            "Name them with --think-tags '<think>,</think>', or choose a reasoning model.",
        )
    return found


def render(template: str, conversation: Conversation, tags: ThinkTags, *, bos: str = "", eos: str = "") -> str:
    """The prompt up to and including the opened think tag, whether or not the template opens it itself."""
    text = _rendered(template, messages_of(conversation), bos, eos)
    return text if _ends_open(text, tags) else f"{text}{tags.open}\n"


def opens_thinking(template: str, tags: ThinkTags) -> bool:
    """Whether the template opens the thinking itself."""
    return _ends_open(_rendered(template, messages_of(""), "", ""), tags)


def _ends_open(text: str, tags: ThinkTags) -> bool:
    return text.rstrip().endswith(tags.open)


def _rendered(template: str, messages: Sequence[Message], bos: str, eos: str) -> str:
    turns = [{"role": one.role, "content": one.content} for one in messages]
    try:
        return _compiled(template or PLAIN).render(
            messages=turns, add_generation_prompt=True, bos_token=bos, eos_token=eos, enable_thinking=True
        )
    except TemplateError as error:
        raise UsageError(f"The model's chat template fails: {error}.", "Use another file of this model.") from error


# Without a template: each message on a line of its own. Jinja drops a line break at the end of a template, so it is a
# string.
PLAIN = "{% for message in messages %}{{ message.content }}{{ '\\n' }}{% endfor %}"


@lru_cache(maxsize=16)
def _compiled(template: str) -> Template:
    """Chat templates come with models from strangers, so they run in a sandbox."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals.update(raise_exception=_refuse, strftime_now=_now)
    return environment.from_string(template)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


Pair = tuple[int, str]


@dataclass(frozen=True, slots=True)
class EndTag:
    """How a model ends its thinking."""

    text: str
    ids: tuple[int, ...]

    @property
    def token(self) -> int | None:
        """The token, if the tag is a single one."""
        return self.ids[0] if len(self.ids) == 1 else None


@dataclass(slots=True)
class EndTagWatch:
    """Passes tokens on and holds back those that may belong to the end tag.

    Held back are the last token (a server reports the end of the turn only after it) and, if the tag is not one token,
    every token that could belong to its beginning.
    """

    tag: EndTag
    held: list[Pair] = field(default_factory=list)
    found: bool = False

    def feed(self, token: int, text: str) -> list[Pair]:
        """Add a token; returns those that are now known to be thinking. `found` is set once the tag was seen."""
        if self.tag.token is not None:
            self.found = token == self.tag.token
            freed, self.held = self.held, [] if self.found else [(token, text)]
            return freed
        self.held.append((token, text))
        joined = "".join(text for _, text in self.held)
        self.found = self.tag.text in joined
        start = joined.index(self.tag.text) if self.found else len(joined) - _begun(joined, self.tag.text)
        freed, self.held = self._before(min(start, len(joined) - len(text)) if not self.found else start)
        if self.found:
            self.held = []
        return freed

    def flush(self, eos: bool) -> list[Pair]:
        """The stream has ended: what was held is thinking, except for the token that ended the turn."""
        freed, self.held = (self.held[:-1] if eos else self.held), []
        return freed

    def _before(self, start: int) -> tuple[list[Pair], list[Pair]]:
        """Split what is held at a character; a token that reaches past it stays held."""
        end = 0
        for index, (_, text) in enumerate(self.held):
            end += len(text)
            if end > start or (index == len(self.held) - 1 and not self.found):
                return self.held[:index], self.held[index:]
        return self.held, []


def _begun(text: str, tag: str) -> int:
    """How many characters at the end of the text could be the beginning of the tag."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)
