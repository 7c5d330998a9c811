"""Errors of the API, in OpenAI's shape: a status, one sentence, and the field that is meant."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from cgr.errors import Busy, CgrError, DoesNotFit, EngineError, MissingCapability, Refused, UsageError

KINDS = {401: "authentication_error", 404: "not_found_error", 408: "timeout_error", 429: "rate_limit_error"}
MESSAGES_PATH = "/v1/messages"
MESSAGES_KINDS = {413: "request_too_large", 503: "overloaded_error"}
OTHER_KIND = ("_type", "literal_error")  # pydantic's errors for a value of another kind: one for each way to read it
TYPE_NAMES = {"str", "int", "float", "bool", "list", "dict"}  # what pydantic puts into the path of a union


class ApiError(Exception):
    """An error that is sent to the client. `wait`: seconds after which to try again."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, wait: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.wait = status, message, param, code, wait

    def body(self) -> dict[str, Any]:
        """As OpenAI writes errors."""
        kind = KINDS.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        """When to come back, for those who may."""
        if self.wait is None:
            return {}
        return {"retry-after": str(max(round(self.wait), 1)), "retry-after-ms": str(round(self.wait * 1000))}


def messages_error(error: ApiError) -> dict[str, Any]:
    """As Anthropic writes errors: the same object in another envelope, with types of their own."""
    body = error.body()
    kind = MESSAGES_KINDS.get(error.status, "api_error" if error.status >= 500 else body["error"]["type"])
    return {"type": "error", "error": body["error"] | {"type": kind}}


def bad_field(field: str, message: str) -> ApiError:
    """The error for a field with a wrong value."""
    return ApiError(400, message, field, "invalid_value")


def not_supported(field: str, why: str) -> ApiError:
    """The error for a field that would change the reply and that is not supported here."""
    return ApiError(400, f"{field!r} is not supported {why}.", field, "unsupported_parameter")


def api_error(error: Exception, *, gateway: bool) -> ApiError:
    """The error to send for an exception. Nothing of the inside is told to the client."""
    match error:
        case ApiError():
            return error
        case ValidationError():
            return from_validation(error)
        case Busy():
            return ApiError(429, sentence(error), code="queue_full", wait=1.0)
        case DoesNotFit():
            return ApiError(400, sentence(error), "max_tokens", "context_length_exceeded")
        case Refused():  # an id that is no token, say
            return ApiError(400, error.message, code="invalid_value")
        case MissingCapability():
            return ApiError(400, sentence(error), code="unsupported_parameter")
        case UsageError() if type(error).__name__ != "WrongKey":
            return ApiError(400, sentence(error), code="invalid_value")
        case EngineError() | UsageError() if gateway:
            return ApiError(502, "The upstream server failed; see the log of this server.", code="upstream_error")
        case _:
            return ApiError(500, "The server failed on this request; see its log.", code="internal_error")


def sentence(error: CgrError) -> str:
    """The message and the hint of an error."""
    return f"{error.message} {error.hint}".strip()


def from_validation(error: ValidationError, prefix: str = "") -> ApiError:
    """The first thing that is wrong with a body, and where. Of several ways to read a field, the deepest is meant, and one
    that fits the kind of the value."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    same_field = [one for one in found if one["loc"][:1] == found[0]["loc"][:1]]
    first = max(same_field, key=lambda one: (len(field_path(one["loc"])), not one["type"].endswith(OTHER_KIND)))
    where = field_path((prefix, *first["loc"]) if prefix else first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return bad_field(where, f"{where or 'The body'}: {message[:1].lower()}{message[1:]}.")


def field_path(location: tuple[int | str, ...]) -> str:
    """A path such as `messages[0].content`."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in TYPE_NAMES and not part[:1].isupper():
            path += f".{part}" if path else part
    return path
