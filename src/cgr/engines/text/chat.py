"""Think tags: from a conversation to a prompt that ends with the opened tag, and noticing the end tag among tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import accumulate
from typing import NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from cgr.errors import NoThinkTags, UsageError
from cgr.records import Conversation, messages_of

# Two tags, the second with a slash, whose name contains a word for thinking: <think>, [THINK], <|thinking|>, <reasoning>
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
        return _tags(match)
    if len(parts) == 2 and all(parts):
        return ThinkTags(*parts)
    raise UsageError(f"{text!r} does not name think tags.", "Write both, as in --think-tags '<think>,</think>'.")


def find_tags(template: str, tokens: Iterable[str]) -> ThinkTags | None:
    """The tags that the model's files name: its special tokens are searched first, then its template."""
    names = set(tokens)
    special = (_tags(match) for match in map(TAG.fullmatch, sorted(names)) if match)
    written = map(_tags, TAG.finditer(template))
    found = next((tags for tags in special if {tags.open, tags.close} <= names), None)
    return found or next((tags for tags in written if tags.close in template), None)


def _tags(match: re.Match[str]) -> ThinkTags:
    left, name, right = match.groups()
    return ThinkTags(f"{left}{name}{right}", f"{left}/{name}{right}")


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
    text = _rendered(template, conversation, bos, eos)
    return text if text.rstrip().endswith(tags.open) else f"{text}{tags.open}\n"


def opens_thinking(template: str, tags: ThinkTags) -> bool:
    """Whether the template opens the thinking itself."""
    return _rendered(template, "").rstrip().endswith(tags.open)


def _rendered(template: str, conversation: Conversation, bos: str = "", eos: str = "") -> str:
    turns = [asdict(message) for message in messages_of(conversation)]
    try:
        return _compiled(template or PLAIN).render(
            messages=turns, add_generation_prompt=True, bos_token=bos, eos_token=eos, enable_thinking=True
        )
    except TEMPLATE_FAILURES as error:
        what = str(error) or type(error).__name__
        raise UsageError(f"The model's chat template fails: {what}.", "Use another file of this model.") from error


# A template is a small program: what it adds, divides, indexes or calls can fail as in any program.
TEMPLATE_FAILURES = (
    TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError, MemoryError,
    AssertionError, NotImplementedError, SyntaxError,
)  # fmt: skip
# Without a template: each message on a line of its own. Jinja drops a line break at the end, so it is a string.
PLAIN = "{% for message in messages %}{{ message.content }}{{ '\\n' }}{% endfor %}"


@lru_cache(maxsize=16)
def _compiled(template: str) -> Template:
    """Chat templates come with models from strangers, so they run in a sandbox."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals.update(raise_exception=_refuse, strftime_now=lambda form: datetime.now().strftime(form))
    return environment.from_string(template)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


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
    token: int | None = field(init=False)  # the tag's, looked up once and not for each token

    def __post_init__(self) -> None:
        self.token = self.tag.token

    def feed(self, token: int, text: str) -> list[Pair]:
        """Add a token; returns those that are now known to be thinking. `found` is set once the tag was seen."""
        if self.token is not None:
            self.found = token == self.token
            freed, self.held = self.held, [] if self.found else [(token, text)]
            return freed
        self.held.append((token, text))
        freed = self.held[: min(self._before_tag(), len(self.held) - 1)]
        self.held = [] if self.found else self.held[len(freed) :]
        return freed

    def settle(self) -> list[Pair]:
        """A reply is complete and did not end the turn: only what may belong to the beginning of the tag stays held."""
        before = len(self.held) if self.token is not None else self._before_tag()
        freed, self.held = self.held[:before], self.held[before:]
        return freed

    def _before_tag(self) -> int:
        """How many of the held tokens are before the tag, or before what may be its beginning. Sets `found`."""
        joined = "".join(text for _, text in self.held)
        self.found = self.tag.text in joined
        start = joined.index(self.tag.text) if self.found else len(joined) - partial_length(joined, [self.tag.text])
        return sum(end <= start for end in accumulate(len(text) for _, text in self.held))

    def flush(self, eos: bool) -> list[Pair]:
        """The stream has ended: what was held is thinking, except for the token that ended the turn."""
        freed, self.held = (self.held[:-1] if eos else self.held), []
        return freed


def partial_length(text: str, stops: Iterable[str]) -> int:
    """How many characters at the end of the text may be the beginning of one of these strings."""
    return max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
