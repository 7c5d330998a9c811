"""langchain-deepseek, which shows thinking, and langchain-openai, which does not. Prints what it saw as JSON."""

import json
import sys
from importlib.metadata import version

from langchain_deepseek import ChatDeepSeek
from langchain_openai import ChatOpenAI

address, question, model = sys.argv[1:]
body = {"extra_body": {"seed": 3}}
deepseek = ChatDeepSeek(model=model, api_base=f"{address}/v1", api_key="none", include_response_headers=True, **body)
openai = ChatOpenAI(model=model, base_url=f"{address}/v1", api_key="none", **body)
responses = ChatOpenAI(
    model=model, base_url=f"{address}/v1", api_key="none", use_responses_api=True, output_version="responses/v1", **body
)


def seen(message):
    return {
        "text": message.content,
        "thinking": message.additional_kwargs.get("reasoning_content"),
        "reasoning_tokens": (message.usage_metadata or {}).get("output_token_details", {}).get("reasoning"),
        "keys": sorted(message.response_metadata),
        "cgr": message.response_metadata.get("cgr"),
        "certainty": (message.response_metadata.get("headers") or {}).get("x-cgr-certainty"),
    }


def joined(chunks):
    chunks = list(chunks)
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    return whole


print(
    json.dumps(
        {
            "versions": {name: version(name) for name in ("langchain-core", "langchain-deepseek", "langchain-openai")},
            "deepseek": seen(deepseek.invoke(question)),
            "deepseek_stream": seen(joined(deepseek.stream(question))),
            "openai": seen(openai.invoke(question)),
            "responses": responses.invoke(question).content,
        }
    )
)
