"""From a question to a prompt that ends inside the thinking, by the model's own chat template and think tags."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from cgr.errors import NoThinkTags, UsageError

# Two tags, one the other with a slash, whose name speaks of thinking: <think>, [THINK], <|thinking|>, <reasoning>, ...
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
    """The tags that the model's own files name: its special tokens first, else its template."""
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
    if found is None:
        raise NoThinkTags(
            f"{model} does not say how it thinks: neither its vocabulary nor its chat template has think tags.",
            "Name them with --think-tags '<think>,</think>', or choose a reasoning model.",
        )
    return found


def render(template: str, question: str, tags: ThinkTags, *, bos: str = "", eos: str = "") -> str:
    """The prompt up to and including the opened think tag, whether or not the template opens it by itself."""
    text = _rendered(template, question, bos, eos)
    return text if _ends_open(text, tags) else f"{text}{tags.open}\n"


def opens_thinking(template: str, tags: ThinkTags) -> bool:
    """Whether the template opens the thinking by itself."""
    return _ends_open(_rendered(template, "", "", ""), tags)


def _ends_open(text: str, tags: ThinkTags) -> bool:
    return text.rstrip().endswith(tags.open)


def _rendered(template: str, question: str, bos: str, eos: str) -> str:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals.update(raise_exception=_refuse, strftime_now=_now)
    messages = [{"role": "user", "content": question}]
    try:
        return environment.from_string(template or PLAIN).render(
            messages=messages, add_generation_prompt=True, bos_token=bos, eos_token=eos, enable_thinking=True
        )
    except TemplateError as error:
        raise UsageError(f"The model's chat template fails: {error}.", "Use another file of this model.") from error


PLAIN = "{{ messages[0].content }}{{ '\\n' }}"  # a new line that ends a template would be dropped


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)
