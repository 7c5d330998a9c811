"""The OpenAPI schema, made from the pydantic models of the bodies."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from cgr import __version__
from cgr.server.protocol import ChatBody, CompletionBody, MessagesBody, ResponsesBody

REF = "#/components/schemas/{model}"
ERRORS = {
    400: "the body is not understood, or a field of it is not supported",
    401: "the API key is missing or wrong",
    403: "a page of another origin sent the request",
    404: "there is no such model",
    408: "no place became free in time",
    413: "the body is too long",
    429: "too many requests are waiting",
    500: "this server failed",
    502: "the upstream failed",
    503: "the server is shutting down",
}
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


@cache
def schema() -> dict[str, Any]:
    """The whole schema."""
    bodies: list[type[BaseModel]] = [ChatBody, CompletionBody, ResponsesBody, MessagesBody]
    _, found = models_json_schema([(one, "validation") for one in bodies], ref_template=REF)
    paths = {
        "/v1/chat/completions": {"post": _post("Reply to a chat.", ChatBody)},
        "/v1/completions": {"post": _post("Continue a prompt.", CompletionBody)},
        "/v1/responses": {"post": _post("Reply to an input.", ResponsesBody)},
        "/v1/messages": {"post": _post("Reply to messages.", MessagesBody)},
        "/v1/models": {"get": _get("The models and their aliases.", "application/json")},
        "/health": {"get": _get("Whether this process works.", "application/json")},
        "/ready": {"get": _get("Whether requests can be answered.", "application/json")},
        "/metrics": {"get": _get("Prometheus metrics.", "text/plain")},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "cgr serve", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": found["$defs"] | {"Error": ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _post(summary: str, body: type[BaseModel]) -> dict[str, Any]:
    reference = {"$ref": REF.format(model=body.__name__)}
    reply = {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {"schema": {"type": "string"}}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": reference}}},
        "responses": {"200": {"description": "The reply.", "content": reply}, **_errors()},
    }


def _get(summary: str, kind: str) -> dict[str, Any]:
    content = {kind: {"schema": {"type": "object" if kind.endswith("json") else "string"}}}
    return {"summary": summary, "responses": {"200": {"description": summary, "content": content}, **_errors()}}


def _errors() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": REF.format(model="Error")}}}
    return {str(status): {"description": text, "content": content} for status, text in ERRORS.items()}
