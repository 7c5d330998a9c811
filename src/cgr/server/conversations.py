"""From the body of each API that takes messages to one form of them, and the fields that are not supported here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cgr.server.faults import bad_field
from cgr.server.fields import unsupported
from cgr.server.generation import ShowThinking
from cgr.server.protocol import (
    ChatBody,
    ChatMessage,
    ContentPart,
    InputItem,
    MessagesBody,
    ResponsesBody,
    SamplingFields,
)

BOXED = "\\boxed"
TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
THINKING_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning_text"})  # of earlier turns: not read again
LOGPROBS, ENCRYPTED = "message.output_text.logprobs", "reasoning.encrypted_content"
# Fields of a request that its response repeats.
REPEATED = ("instructions", "metadata", "user", "service_tier", "prompt_cache_key", "safety_identifier", "store")


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `field`: where its text stands in the body."""

    role: str
    text: str
    field: str


@dataclass(frozen=True, slots=True)
class ConversationRequest:
    """A conversation, whichever API it came by. `unsupported`: fields that would change the reply and are not supported
    together with probes. `shown`: how the thinking is shown. `repeated`: what the reply repeats of the request."""

    turns: tuple[Turn, ...]
    unsupported: tuple[str, ...] = ()
    max_tokens: int | None = None
    top_logprobs: int | None = None
    shown: ShowThinking = "text"
    repeated: Mapping[str, Any] = field(default_factory=dict)

    @property
    def boxed(self) -> bool:
        """Whether a message asks for a boxed answer."""
        return any(BOXED in turn.text for turn in self.turns)


Content = str | Sequence[ContentPart] | None


def text_of(content: Content) -> str:
    """The text of a message, without thinking."""
    if isinstance(content, str):
        return content
    return "".join(part.text or "" for part in content or () if part.type in TEXT_PARTS)


def is_text(content: Content, role: str = "user") -> bool:
    """Whether a message holds nothing but text and, in a turn of the model, thinking."""
    parts = () if isinstance(content, str) or not content else content
    allowed = TEXT_PARTS | THINKING_PARTS if role == "assistant" else TEXT_PARTS
    return all(part.type in allowed for part in parts)


# Chat completions


def from_chat(body: ChatBody) -> ConversationRequest:
    """The body of `POST /v1/chat/completions`."""
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_field("top_logprobs", "top_logprobs: it needs logprobs to be true.")
    return ConversationRequest(
        tuple(
            Turn(message.role, text_of(message.content), f"messages[{number}].content")
            for number, message in enumerate(body.messages)
        ),
        (*_unsupported_messages(body.messages), *unsupported(body, body.model_extra or {})),
        body.max_completion_tokens or body.max_tokens,
        (body.top_logprobs or 0) if body.logprobs else None,
    )


def _unsupported_messages(messages: Sequence[ChatMessage]) -> Iterator[str]:
    for number, message in enumerate(messages):
        extra = message.model_extra or {}
        if not is_text(message.content, message.role):
            yield f"messages[{number}].content"
        elif message.role in ("tool", "function") or any(extra.get(name) for name in ("tool_calls", "function_call")):
            yield f"messages[{number}]"
    if messages[-1].role == "assistant":
        yield f"messages[{len(messages) - 1}]"


# Responses


def from_responses(body: ResponsesBody) -> ConversationRequest:
    """The body of `POST /v1/responses`."""
    items = () if isinstance(body.input, str) else body.input
    turns = [_item_turn(f"input[{number}]", item) for number, item in enumerate(items) if _is_message(item)]
    if isinstance(body.input, str):
        turns = [Turn("user", body.input, "input")]
    first = [Turn("system", body.instructions, "instructions")] if body.instructions else []
    summary = body.reasoning.summary if body.reasoning else None
    return ConversationRequest(
        (*first, *turns),
        (*_unsupported_items(body), *_unsupported_reply(body), *unsupported(body, body.model_extra or {})),
        body.max_output_tokens or body.max_tokens,
        (body.top_logprobs or 0) if body.top_logprobs or LOGPROBS in (body.include or ()) else None,
        "summary" if summary else "text",
        {name: value for name in REPEATED if (value := _given(body, name)) is not None} | _reasoning(body),
    )


def _is_message(item: InputItem) -> bool:
    return item.type in (None, "message")


def _item_turn(where: str, item: InputItem) -> Turn:
    if item.role is None:
        raise bad_field(f"{where}.role", f"{where}.role: a message needs a role.")
    return Turn(item.role, text_of(item.content), f"{where}.content")


def _unsupported_items(body: ResponsesBody) -> Iterator[str]:
    items = () if isinstance(body.input, str) else body.input
    for number, item in enumerate(items):
        if _is_message(item) and not is_text(item.content, item.role or ""):
            yield f"input[{number}].content"
        elif not _is_message(item) and item.type != "reasoning":
            yield f"input[{number}]"
    if items and items[-1].role == "assistant":
        yield f"input[{len(items) - 1}]"


def _unsupported_reply(body: ResponsesBody) -> Iterator[str]:
    if set(body.include or ()) - {LOGPROBS, ENCRYPTED}:
        yield "include"
    if body.reasoning and body.reasoning.summary == "concise":
        yield "reasoning.summary"


def _given(body: SamplingFields, name: str) -> Any:
    return getattr(body, name, None) if name in type(body).model_fields else (body.model_extra or {}).get(name)


def _reasoning(body: ResponsesBody) -> dict[str, Any]:
    given = body.reasoning
    return {"reasoning": {"effort": given.effort if given else None, "summary": given.summary if given else None}}


# Messages


def from_messages(body: MessagesBody) -> ConversationRequest:
    """The body of `POST /v1/messages`."""
    turns = [
        Turn(message.role, text_of(message.content), f"messages[{number}].content")
        for number, message in enumerate(body.messages)
    ]
    pairs = zip(turns, body.messages, strict=True)
    found = [turn.field for turn, message in pairs if not is_text(message.content, message.role)]
    if body.messages[-1].role == "assistant":
        found.append(f"messages[{len(turns) - 1}]")
    if not is_text(body.system):
        found.append("system")
    first = [Turn("system", text_of(body.system), "system")] if text_of(body.system) else []
    omitted = body.thinking is not None and body.thinking.display == "omitted"
    return ConversationRequest(
        (*first, *turns),
        (*found, *unsupported(body, body.model_extra or {})),
        body.max_tokens,
        shown="omitted" if omitted else "text",
    )
