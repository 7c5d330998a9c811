"""Fields of a request: which change nothing, which are not supported with probes, how a budget is spelled, rules."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

from cgr.errors import UnknownName
from cgr.rules.base import rule_class
from cgr.server.faults import bad_field
from cgr.server.protocol import EFFORTS, SamplingFields

TYPE_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
# Fields that change nothing in the reply, whatever their value.
HARMLESS = frozenset({
    "user", "metadata", "store", "prompt_cache_key", "prompt_cache_retention", "service_tier", "safety_identifier",
    "parallel_tool_calls", "request_id", "max_tool_calls", "prompt_cache_options", "cache_control", "inference_geo",
    "user_profile_id", "workspace_id", "speed",
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
    "tool_choice": ("none", "auto", {"type": "none"}, {"type": "auto"}),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "text": ({}, {"format": {"type": "text"}}),
    "truncation": ("disabled",),
    "background": (False,),
    "mcp_servers": ([],),
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
NESTED = ("stream_options", "reasoning", "thinking", "custom_params", "nvext", "output_config")
NESTED_BUDGETS = (
    ("custom_params", "thinking_budget"),
    ("reasoning", "max_tokens"),
    ("nvext", "max_thinking_tokens"),
    ("thinking", "budget_tokens"),
)
EFFORT_FIELDS = (("", "reasoning_effort"), ("reasoning", "effort"), ("output_config", "effort"))


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


def given_effort(body: SamplingFields) -> tuple[str, str] | None:
    """The field that says how hard to think, and what it says."""
    for outer, inner in EFFORT_FIELDS:
        holder = getattr(body, outer, None) if outer else body
        if (given := getattr(holder, inner, None)) is not None:
            return f"{outer}.{inner}".strip("."), str(given)
    return None


def effort(body: SamplingFields) -> str | None:
    """How hard to think, in OpenAI's words."""
    field, given = given_effort(body) or ("", None)
    if given is not None and given not in (*EFFORTS, "none"):
        raise bad_field(field, f"{field}: it must be one of none, {', '.join(EFFORTS)}.")
    return given


def thinks(body: SamplingFields) -> bool:
    """Whether the model is to think at all."""
    thinking = getattr(body, "thinking", None)
    disabled = thinking is not None and thinking.type == "disabled"
    return not disabled and effort(body) != "none" and given_budget(body) != 0


def effort_budget(body: SamplingFields) -> int | None:
    """The budget that belongs to the effort."""
    return EFFORTS.get(effort(body) or "")


def check_parameters(rule: str, given: Mapping[str, Any]) -> None:
    """Parameters of a rule must have the declared type; rules check their values, not their types."""
    if not given:
        return
    try:
        known = rule_class(rule)
    except UnknownName:  # `Settings` says so
        return
    hints = typing.get_type_hints(known)
    for name, value in given.items():
        kinds = _kinds(hints[name]) if name in known.parameters() else {type(value)}
        if type(value) not in kinds:
            field, words = f"cgr.parameters.{name}", [TYPE_WORDS[kind] for kind in TYPE_WORDS if kind in kinds]
            raise bad_field(field, f"{field}: it must be {words[-1] if words else 'left out'}.")


def _kinds(hint: Any) -> set[type]:
    """The types that JSON may have for this hint."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return {kind for one in typing.get_args(hint) for kind in _kinds(one)}
    if typing.get_origin(hint) is typing.Literal:
        return {str}
    return {int, float} if hint is float else {hint} & set(TYPE_WORDS)
