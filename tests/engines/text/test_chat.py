"""Prompts and think tags from a model's own files."""

from __future__ import annotations

import pytest

from cgr.engines.text.chat import ThinkTags, find_tags, need_tags, parse_tags, render
from cgr.errors import NoThinkTags, UsageError

TAGS = ThinkTags("<think>", "</think>")
TURNS = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
OPENS = TURNS + "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}"
DOES_NOT = TURNS + "{% if add_generation_prompt %}<|assistant|>{% endif %}"


def test_a_template_that_opens_thinking_by_itself() -> None:
    assert render(OPENS, "Why?", TAGS) == "<|user|>Why?<|end|><|assistant|><think>\n"


def test_a_template_that_does_not() -> None:
    assert render(DOES_NOT, "Why?", TAGS) == "<|user|>Why?<|end|><|assistant|><think>\n"


def test_a_question_that_ends_in_a_tag_is_not_an_opened_one() -> None:
    assert render(DOES_NOT, "Why <think>", TAGS).count("<think>") == 2


def test_thinking_is_asked_for() -> None:
    template = "{{ messages[0].content }}{% if enable_thinking is defined and enable_thinking %} (think){% endif %}"
    assert render(template, "Why?", TAGS) == "Why? (think)<think>\n"


def test_without_a_template_the_question_stands_alone() -> None:
    assert render("", "Why?", TAGS) == "Why?\n<think>\n"


def test_special_tokens_reach_the_template() -> None:
    assert render("{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}", "Why?", TAGS, bos="<s>", eos="</s>") == (
        "<s>Why?</s><think>\n"
    )


def test_the_question_is_text_not_template() -> None:
    assert "{{ 1 + 1 }}" in render(OPENS, "{{ 1 + 1 }}", TAGS)


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no system role') }}",
        "{% for x in %}",
        "{{ messages.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
    ],
    ids=["refuses", "is broken", "reaches out"],
)
def test_a_template_that_fails(template: str) -> None:
    with pytest.raises(UsageError, match="chat template fails"):
        render(template, "Why?", TAGS)


def test_loops_may_break() -> None:
    """As in the library that these templates are written for."""
    template = "{% for message in messages %}{{ message.content }}{% break %}{% endfor %}"
    assert render(template, "Why?", TAGS) == "Why?<think>\n"


def test_dates_are_allowed() -> None:
    assert render("{{ strftime_now('%Y') }}", "Why?", TAGS)[:2] == "20"


FOUND: list[tuple[str, str, list[str], ThinkTags | None]] = [
    ("in the vocabulary", "", ["<s>", "<think>", "</think>"], TAGS),
    ("in brackets", "", ["[THINK]", "[/THINK]"], ThinkTags("[THINK]", "[/THINK]")),
    ("with bars", "", ["<|thinking|>", "<|/thinking|>"], ThinkTags("<|thinking|>", "<|/thinking|>")),
    ("by another name", "", ["<reasoning>", "</reasoning>"], ThinkTags("<reasoning>", "</reasoning>")),
    ("half a pair is none", "", ["<think>", "<s>"], None),
    ("in the template", "{{ content.split('</think>')[-1] }}<think>\n", ["<s>"], TAGS),
    ("half a pair in the template", "Please <think> about it", [], None),
    ("the vocabulary first", "<thought></thought>", ["<think>", "</think>"], TAGS),
    ("nowhere", DOES_NOT, ["<s>", "</s>"], None),
    ("other tags", "<tool></tool>", ["<tool>", "</tool>"], None),
]


@pytest.mark.parametrize(("template", "tokens", "tags"), [row[1:] for row in FOUND], ids=[row[0] for row in FOUND])
def test_tags_from_the_models_own_files(template: str, tokens: list[str], tags: ThinkTags | None) -> None:
    assert find_tags(template, tokens) == tags


def test_a_model_without_tags_is_told_apart() -> None:
    with pytest.raises(NoThinkTags, match=r"plain\.gguf has no think tags") as caught:
        need_tags(None, "plain.gguf")
    assert "--think-tags '<think>,</think>'" in caught.value.hint
    assert need_tags(TAGS, "plain.gguf") == TAGS


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("<think>", TAGS),
        ("</think>", TAGS),
        ("[THINK]", ThinkTags("[THINK]", "[/THINK]")),
        ("<think>,</think>", TAGS),
        (" <a> , <b> ", ThinkTags("<a>", "<b>")),
    ],
)
def test_tags_as_a_person_writes_them(text: str, tags: ThinkTags) -> None:
    assert parse_tags(text) == tags


@pytest.mark.parametrize("text", ["", "think", "<a>", "<a>,", "<a>,<b>,<c>"])
def test_what_names_no_tags(text: str) -> None:
    with pytest.raises(UsageError, match="does not name think tags") as caught:
        parse_tags(text)
    assert "--think-tags" in caught.value.hint
