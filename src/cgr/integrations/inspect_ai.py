"""A model provider for inspect_ai: `--model cgr/NAME` asks a `cgr serve`, and the log of each sample has the certainty."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

from inspect_ai.model import ChatMessage, GenerateConfig, ModelOutput, modelapi
from inspect_ai.model._model_call import ModelCall
from inspect_ai.model._providers.openai_compatible import OpenAICompatibleAPI
from inspect_ai.tool import ToolChoice, ToolInfo

from cgr.errors import EngineError
from cgr.server.protocol import CgrOptions

ADDRESS, ADDRESS_VARIABLE, KEY_VARIABLE = "http://127.0.0.1:8321/v1", "CGR_SERVER_URL", "CGR_SERVER_KEY"


class CgrServerAPI(OpenAICompatibleAPI):
    """Chat completions of a `cgr serve`. Model arguments with the names of options of the `cgr` object (`-M
    threshold=0.97`) are sent in that object; its result is in `metadata["cgr"]` of the output."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **model_args: Any,
    ) -> None:
        self.options = {name: model_args.pop(name) for name in CgrOptions.model_fields if name in model_args}
        super().__init__(
            model_name=model_name,
            base_url=base_url or os.environ.get(ADDRESS_VARIABLE) or ADDRESS,
            api_key=api_key or os.environ.get(KEY_VARIABLE) or "none",  # the client wants one, whether it is needed or not
            config=config or GenerateConfig(),
            service="cgr",
            api_key_var=KEY_VARIABLE,
            **model_args,
        )

    def completion_params(self, config: GenerateConfig, tools: bool) -> dict[str, Any]:
        """The fields of a request, with the `cgr` object."""
        fields: dict[str, Any] = super().completion_params(config, tools)
        if self.options:
            fields["extra_body"] = {"cgr": self.options} | (fields.get("extra_body") or {})
        return fields

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput | tuple[ModelOutput | Exception, ModelCall]:
        """A reply, with the result object in its metadata."""
        reply = await super().generate(input, tools, tool_choice, config)
        if not isinstance(reply, tuple):
            return reply
        output, call = reply
        if isinstance(output, ModelOutput) and isinstance(call.response, dict) and not call.error:
            output.metadata = (output.metadata or {}) | {"cgr": call.response["cgr"]}
        return output, call

    def on_response(self, response: dict[str, Any]) -> None:
        """Refuse a server that is another one: the log would lack what this provider is for."""
        if not response.get("cgr"):
            raise EngineError(f"The replies of {self.base_url} have no cgr object.", "Is it the address of `cgr serve`?")

    async def stream_completion(self, stream: Any) -> Any:
        """The whole reply of a stream. The client that joins its chunks would drop the result object."""
        results: list[Any] = []

        async def noted() -> AsyncIterator[Any]:
            async for chunk in stream:
                results.append((chunk.model_extra or {}).get("cgr"))
                yield chunk

        completion = await super().stream_completion(noted())
        completion.cgr = next((found for found in reversed(results) if found), None)
        return completion


@modelapi(name="cgr")
def cgr() -> type[CgrServerAPI]:
    """The provider, as inspect_ai finds it."""
    return CgrServerAPI
