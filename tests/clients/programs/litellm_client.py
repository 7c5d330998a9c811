"""LiteLLM as a client, streaming and not; with `proxy`, openai-python through a LiteLLM proxy. Prints JSON."""

import json
import os
import sys
from importlib.metadata import version

import litellm
import openai

address, question, model, *proxy = sys.argv[1:]
messages = [{"role": "user", "content": question}]


def seen(reply):
    message = reply.choices[0].message
    return {
        "text": message.content,
        "thinking": getattr(message, "reasoning_content", None),
        "cgr": getattr(reply, "cgr", None),
    }


def streamed(chunks):
    chunks = list(chunks)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    results = [chunk.cgr for chunk in chunks if getattr(chunk, "cgr", None)]
    return {
        "text": "".join(delta.content or "" for delta in deltas),
        "thinking": "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas),
        "cgr": results[-1] if results else None,
    }


if proxy:
    client = openai.OpenAI(base_url=proxy[0], api_key=os.environ["LITELLM_MASTER_KEY"], timeout=300)
    create = client.chat.completions.create
    given = {"model": "through-proxy", "messages": messages, "extra_body": {"seed": 3, "cgr": {"threshold": 0.9}}}
else:
    create = litellm.completion
    given = {
        "model": f"openai/{model}", "api_base": f"{address}/v1", "api_key": "none", "messages": messages,
        "extra_body": {"seed": 3, "cgr": {"threshold": 0.9}},
    }  # fmt: skip
print(
    json.dumps(
        {
            "version": version("litellm"),
            "whole": seen(create(**given)),
            "stream": streamed(create(**given, stream=True)),
        }
    )
)
