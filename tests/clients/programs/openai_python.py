"""openai-python: chat completions and responses, streaming and not. Prints what it saw as JSON."""

import json
import sys

import openai

address, question, model = sys.argv[1:]
client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
messages = [{"role": "user", "content": question}]
body = {"seed": 3, "cgr": {"stream_probes": True}}

chat = client.chat.completions.create(model=model, messages=messages, extra_body=body)
message = chat.choices[0].message
chunks = list(
    client.chat.completions.create(
        model=model, messages=messages, stream=True, stream_options={"include_usage": True}, extra_body=body
    )
)
deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
with client.chat.completions.stream(model=model, messages=messages, extra_body=body) as helper:
    helped = helper.get_final_completion()

response = client.responses.create(model=model, input=question, extra_body=body)
with client.responses.stream(model=model, input=question, extra_body=body) as stream:
    events = list(stream)
    final = stream.get_final_response()

try:
    client.responses.create(
        model=model, input=question, tools=[{"type": "function", "name": "f", "parameters": {}, "strict": False}]
    )
    refused = ""
except openai.APIStatusError as error:
    refused = error.param or ""

print(
    json.dumps(
        {
            "version": openai.__version__,
            "models": [one.id for one in client.models.list()],
            "chat": {"text": message.content, "thinking": message.reasoning_content, "cgr": chat.cgr},
            "chat_stream": {
                "text": "".join(delta.content or "" for delta in deltas),
                "thinking": "".join(getattr(delta, "reasoning_content", "") or "" for delta in deltas),
                "cgr": chunks[-1].cgr,
                "probes": [c.cgr["at"] for c in chunks if getattr(c, "cgr", {}).get("object") == "cgr.probe"],
            },
            "chat_helper": {"text": helped.choices[0].message.content},
            "responses": {
                "text": response.output_text,
                "thinking": response.output[0].content[0].text,
                "cgr": response.cgr,
                "reasoning_tokens": response.usage.output_tokens_details.reasoning_tokens,
            },
            "responses_stream": {
                "text": final.output_text,
                "thinking": "".join(event.delta for event in events if event.type == "response.reasoning_text.delta"),
                "cgr": final.cgr,
                "probes": [event.cgr["at"] for event in events if getattr(event, "cgr", None)],
            },
            "refused": refused,
        }
    )
)
