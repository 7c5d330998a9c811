"""Fields of a request: which change nothing, which are not supported together with probes, and how a budget is spelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cgr.server.faults import bad_field
from cgr.server.protocol import EFFORTS, ChatBody, ChatMessage, SamplingFields

BOXED = "\\boxed"
# Fields that change nothing in the reply, whatever their value.
HARMLESS = frozenset({
    "user", "metadata", "store", "prompt_cache_key", "prompt_cache_retention", "service_tier", "safety_identifier",
    "parallel_tool_calls", "request_id",
})  # fmt: skip
# Values of other fields that ask for what is done anyway. None does so for every field.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "include_reasoning": (True,),
    "separate_reasoning": (True,),
    "stream_reasoning": (True,),
    "continue_final_message": (False,),
    "add_generation_prompt": (True,),
    "ignore_eos": (False,),
    "min_tokens": (0,),
    "stop_token_ids": ([],),
    "skip_special_tokens": (True,),
    "chat_template_kwargs": ({}, {"enable_thinking": True}, {"thinking": True}),
}
BUDGETS = ("thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens")
NESTED = ("stream_options", "reasoning", "thinking", "custom_params", "nvext")
NESTED_BUDGETS = (
    ("custom_params", "thinking_budget"),
    ("reasoning", "max_tokens"),
    ("nvext", "max_thinking_tokens"),
    ("thinking", "budget_tokens"),
)


def text_of(message: ChatMessage) -> str | None:
    """The text of a message; None if it holds something else."""
    if isinstance(message.content, list):
        parts = [part.text for part in message.content if part.type in ("text", "input_text")]
        return "".join(part or "" for part in parts) if len(parts) == len(message.content) else None
    return message.content or ""


def asks_for_box(message: ChatMessage) -> bool:
    """Whether a message asks for a boxed answer."""
    content = message.content
    texts = [content] if isinstance(content, str) else [part.text or "" for part in content or ()]
    return any(BOXED in text for text in texts)


def unsupported_in_chat(body: ChatBody) -> list[str]:
    """What a chat completion holds that is not supported together with probes."""
    found = []
    for number, message in enumerate(body.messages):
        extra = message.model_extra or {}
        if text_of(message) is None:
            found.append(f"messages[{number}].content")
        elif message.role in ("tool", "function") or any(extra.get(name) for name in ("tool_calls", "function_call")):
            found.append(f"messages[{number}]")
    if body.messages[-1].role == "assistant":
        found.append(f"messages[{len(body.messages) - 1}]")
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_field("top_logprobs", "top_logprobs: it needs logprobs to be true.")
    return found + unsupported(body, body.model_extra or {})


def unsupported(body: SamplingFields, extra: Mapping[str, Any]) -> list[str]:
    """Fields that would change the reply and are not known here."""
    found = [name for name, value in extra.items() if name not in HARMLESS and not _is_neutral(name, value)]
    for outer in NESTED:
        inner = getattr(body, outer, None)
        more = (inner.model_extra or {}) if inner is not None else {}
        found += [f"{outer}.{name}" for name, value in more.items() if value not in (None, False)]
    return found


def _is_neutral(name: str, value: Any) -> bool:
    return value is None or any(value == one and type(value) is type(one) for one in NEUTRAL.get(name, ()))


def given_budget(body: SamplingFields) -> int | None:
    """The thinking budget, in whichever spelling."""
    for name in BUDGETS:
        if (value := getattr(body, name)) is not None:
            return int(value)
    for outer, inner in NESTED_BUDGETS:
        holder = getattr(body, outer, None)
        if holder is not None and (value := getattr(holder, inner)) is not None:
            return int(value)
    return None


def effort(body: SamplingFields) -> str | None:
    """How hard to think, in OpenAI's words."""
    reasoning = getattr(body, "reasoning", None)
    given = getattr(body, "reasoning_effort", None) or (reasoning.effort if reasoning else None)
    if given is not None and given not in (*EFFORTS, "none"):
        field = "reasoning_effort" if getattr(body, "reasoning_effort", None) else "reasoning.effort"
        raise bad_field(field, f"{field}: it must be one of none, {', '.join(EFFORTS)}.")
    return given


def effort_budget(body: SamplingFields) -> int | None:
    """The budget that belongs to the effort."""
    return EFFORTS.get(effort(body) or "")
