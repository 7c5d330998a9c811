"""The bodies of requests, checked by pydantic: one for each endpoint, and the `cgr` object in all of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from cgr.certainty import AGGREGATES
from cgr.drive.answer import Style
from cgr.reason import AtEnd

MAX_MESSAGES = 4096
MAX_STOPS = 16
MAX_PARAMETER = 1 << 16  # of a rule: some of them are lengths that are searched at each probe
EFFORTS = {"minimal": 1024, "low": 1024, "medium": 2048, "high": 4096, "xhigh": 8192, "max": 16384}

PARAMETER = Field(ge=-MAX_PARAMETER, le=MAX_PARAMETER)
Count = Annotated[int, Field(ge=1, le=1 << 31)]
Budget = Annotated[int, Field(ge=0, le=1 << 31)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Share = Annotated[float, Field(ge=0, le=1)]
ShortText = Annotated[str, Field(max_length=1024)]
StopText = Annotated[str, Field(min_length=1, max_length=1024)]


def _whole(value: Any) -> Any:
    """JavaScript writes 5.0 for 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Seed = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63), BeforeValidator(_whole)]


class Strict(BaseModel):
    """Types are not converted: the number 1 is not the text "1"."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class CgrOptions(BaseModel):
    """The `cgr` object of a request: those options of `cgr solve` that make sense here, and how to reply."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    rule: str | None = None
    threshold: Share | None = None
    interval: Count | None = None
    budget: Count | None = None
    max_answer_tokens: Count | None = None
    aggregate: Literal[tuple(AGGREGATES)] | None = None  # type: ignore[valid-type]
    at_budget: AtEnd | None = None
    at_end_of_thinking: AtEnd | None = None
    prefix: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    close_think: Literal["never", "always", "auto"] | None = None
    full: bool | None = None
    instruction: Annotated[str, Field(max_length=65536)] | None = None
    parameters: dict[str, bool | Annotated[int, PARAMETER] | Annotated[float, PARAMETER] | ShortText] | None = None
    shadow: bool | None = None
    stream_probes: bool | None = None
    answer_style: Style | None = None
    wrap_up: Annotated[str, Field(max_length=65536)] | None = None
    sentence_end: bool | None = None


class ContentPart(Strict):
    """A part of a message. Only text is read here; other parts are for the upstream."""

    type: str
    text: str | None = None


class ChatMessage(Strict):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None


class StreamOptions(Strict):
    """What a stream should hold."""

    include_usage: bool | None = None


class SamplingFields(Strict):
    """The fields of chat completions and completions about sampling, length and thinking."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=1 << 31)] | None = None
    min_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=10)] | None = None
    seed: Seed | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = None
    cgr: bool | Literal["shadow"] | CgrOptions | None = None
    thinking_token_budget: Budget | None = None
    thinking_budget_tokens: Budget | None = None
    reasoning_budget_tokens: Budget | None = None


class ReasoningOptions(Strict):
    """OpenRouter's way to limit the thinking."""

    max_tokens: Budget | None = None
    effort: str | None = None


class ThinkingOptions(Strict):
    """Anthropic's way to limit the thinking."""

    type: Literal["enabled", "disabled", "adaptive"] | None = None
    budget_tokens: Budget | None = None


class CustomParams(Strict):
    """SGLang's way to limit the thinking."""

    thinking_budget: Budget | None = None


class NvExt(Strict):
    """NIM's way to limit the thinking."""

    max_thinking_tokens: Budget | None = None


class ChatBody(SamplingFields):
    """The body of `POST /v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    reasoning_effort: str | None = None
    reasoning: ReasoningOptions | None = None
    thinking: ThinkingOptions | None = None
    custom_params: CustomParams | None = None
    nvext: NvExt | None = None


class CompletionBody(SamplingFields):
    """The body of `POST /v1/completions`."""

    prompt: str | list[Any]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


class InputItem(Strict):
    """One item of the input of `POST /v1/responses`. Messages are read here; other items are for the upstream."""

    type: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[ContentPart] | None = None


class ResponsesReasoning(ReasoningOptions):
    """OpenAI's way to say how to think, and whether to show it as a summary."""

    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponsesBody(SamplingFields):
    """The body of `POST /v1/responses`."""

    input: str | Annotated[list[InputItem], Field(min_length=1, max_length=MAX_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: list[str] | None = None
    reasoning: ResponsesReasoning | None = None


class MessagesTurn(Strict):
    """One message of `POST /v1/messages`."""

    role: Literal["user", "assistant", "system"]
    content: str | list[ContentPart]


class MessagesThinking(ThinkingOptions):
    """Anthropic's way to limit the thinking, and to hide it."""

    display: Literal["summarized", "omitted"] | None = None


class OutputConfig(Strict):
    """Anthropic's way to say how hard to think."""

    effort: str | None = None


class MessagesBody(SamplingFields):
    """The body of `POST /v1/messages`."""

    messages: Annotated[list[MessagesTurn], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_tokens: Count
    system: str | list[ContentPart] | None = None
    stop_sequences: Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = None
    thinking: MessagesThinking | None = None
    output_config: OutputConfig | None = None
