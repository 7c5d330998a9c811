"""anthropic-python: messages with thinking, streaming and not. Prints what it saw as JSON."""

import json
import sys

import anthropic

address, question, model = sys.argv[1:]
client = anthropic.Anthropic(base_url=address, api_key="none")
given = {
    "model": model,
    "max_tokens": 2000,
    "messages": [{"role": "user", "content": question}],
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "extra_body": {"seed": 3, "cgr": {"stream_probes": True}},
}
message = client.messages.create(**given)
with client.messages.stream(**given) as stream:
    events = list(stream)
    final = stream.get_final_message()
# What the model wrote is sent back as it is, as in a conversation.
turns = [*given["messages"], {"role": "assistant", "content": message.content}, {"role": "user", "content": question}]
second = client.messages.create(**{**given, "messages": turns})

try:
    client.messages.create(**given, tools=[{"name": "f", "input_schema": {"type": "object"}}])
    refused = ""
except anthropic.APIStatusError as error:
    refused = error.body["error"].get("param")


def seen(found):
    blocks = {block.type: block for block in found.content}
    return {"text": blocks["text"].text, "thinking": blocks["thinking"].thinking, "stop_reason": found.stop_reason}


print(
    json.dumps(
        {
            "version": anthropic.__version__,
            "messages": seen(message) | {"cgr": message.cgr, "tokens": message.usage.output_tokens_details.thinking_tokens},
            "messages_stream": seen(final)
            | {
                "cgr": next(event.cgr for event in events if event.type == "message_delta"),
                "probes": [
                    event.cgr["at"]
                    for event in events
                    if event.type == "content_block_delta" and "cgr" in event.model_extra
                ],
                "final_has_cgr": hasattr(final, "cgr"),
            },
            "second": seen(second),
            "refused": refused,
        }
    )
)
