"""Chat templates of strangers, made at random: a prompt or one sentence, and nothing outside the sandbox is reached."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.engines.text.chat import ThinkTags, render
from cgr.errors import UsageError
from cgr.records import Message

TAGS = ThinkTags("<think>", "</think>")
OUTSIDE = ("<class", "<module", "<function", "<bound method", "builtin", "/etc/passwd", "PATH=")
BLOCKS = (
    "{{", "}}", "{%", "%}", "{#", "#}", "{{-", "-%}", "{% for m in messages %}", "{% endfor %}", "{% if m %}", "{% else %}",
    "{% endif %}", "{% set x = ", "{{ m.content }}", "{{ m['role'] }}", "{{ 1 / 0 }}", "{{ messages[9].content }}",
    "{{ messages | tojson }}", "{{ 'a' + 1 }}", "{{ none.x.y }}", "{{ x() }}", "{{ bos_token * 3 }}", "{{ 2 ** 0.5 }}",
    "{{ raise_exception('no') }}", "{{ strftime_now('%Y') }}", "{{ strftime_now(5) }}", "{% macro f(n) %}",
    "{% endmacro %}", "{{ f(1) }}", "{% break %}", "{% include 'x' %}", "{% import 'os' as os %}", "{{ 'x' | nothing }}",
    "{{ [1][5] }}", "{{ {}['a'] }}", "{{ 'a' | int(base=99) }}", "{{ messages.append(1) }}", "{{ '%d' % 'x' }}",
    "{{ '\\ud800' }}", "x", "\n",
)  # fmt: skip
ATTRIBUTES = (
    "__class__", "__mro__", "__subclasses__()", "__globals__", "__init__", "__builtins__", "mro()", "format", "content",
    "gi_frame",
)  # fmt: skip
KNOWN = (
    "''", "messages", "messages[0]", "raise_exception", "strftime_now", "self", "range", "namespace", "cycler", "joiner",
    "lipsum",
)  # fmt: skip
NAMES, OBJECTS = st.sampled_from(ATTRIBUTES), st.sampled_from(KNOWN)
CHAINS = st.tuples(OBJECTS, NAMES, NAMES, NAMES).map(lambda names: f"{{{{ {'.'.join(names)} }}}}")
FILTERED = st.tuples(OBJECTS, NAMES).map(lambda pair: f"{{{{ ({pair[0]} | attr('{pair[1]}')).__class__ }}}}")


@given(st.lists(st.sampled_from(BLOCKS) | CHAINS | FILTERED, max_size=8).map("".join), st.text())
def test_any_template_is_a_prompt_or_one_sentence(template: str, content: str) -> None:
    text = "<think>"
    with suppress(UsageError):
        text = render(template, [Message("user", content)], TAGS)
    assert text.rstrip().endswith("<think>")


@given(st.lists(CHAINS | FILTERED, min_size=1, max_size=3).map("".join))
def test_a_template_never_reaches_an_object_of_python(template: str) -> None:
    text = ""
    with suppress(UsageError):
        text = render(template, [Message("user", "Why?")], TAGS)
    assert not [name for name in OUTSIDE if name in text], text


@given(st.text())
def test_a_question_stays_text(content: str) -> None:
    """Whatever a user writes, it stands in the prompt as it is."""
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    assert render(template, [Message("user", content)], TAGS) == f"[user]{content}<think>\n"


@pytest.mark.parametrize(
    "template", ["{{ 1 / 0 }}", "{{ 'a' + 1 }}", "{{ strftime_now(5) }}", "{{ '%d' % 'x' }}", "{% break %}"]
)
def test_a_template_that_fails_as_a_program(template: str) -> None:
    with pytest.raises(UsageError, match="chat template fails: "):
        render(template, "Why?", TAGS)
