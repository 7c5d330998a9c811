"""Structured logs on standard error. One line for each request; no prompts, no replies, no keys."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import orjson

from cgr.server.config import LogFormat

NAME = "cgr.server"
logger = logging.getLogger(NAME)
MAX_VALUE = 512


class _Formatter(logging.Formatter):
    """One line, as JSON or as text. A line break in a value cannot begin a new line."""

    def __init__(self, form: LogFormat) -> None:
        super().__init__()
        self.form = form

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "fields", {})
        message = record.getMessage()
        if record.exc_info and record.exc_info[0]:
            fields = fields | {"exception": self.formatException(record.exc_info)}
        if self.form == "json":
            entry = {"time": record.created, "level": record.levelname.lower(), "message": message, **fields}
            return orjson.dumps(entry, default=str).decode()
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        pairs = [f"{name}={_quoted(value)}" for name, value in fields.items() if value is not None]
        return " ".join([clock, record.levelname.lower(), _plain(message), *pairs])


def _plain(text: str) -> str:
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _quoted(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return repr(text) if " " in text or not text.isprintable() else text


def set_up(form: LogFormat) -> None:
    """Send the logs of the server, and warnings of the HTTP server, to standard error."""
    handler: logging.Handler = logging.NullHandler() if form == "off" else logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(form))
    for name, level in ((NAME, logging.INFO), ("uvicorn.error", logging.WARNING), ("asyncio", logging.ERROR)):
        one = logging.getLogger(name)
        one.handlers, one.propagate = [handler], False
        one.setLevel(level)


def log(message: str, level: int = logging.INFO, *, exception: BaseException | None = None, **fields: Any) -> None:
    """Write one entry."""
    short = {name: value[:MAX_VALUE] if isinstance(value, str) else value for name, value in fields.items()}
    logger.log(level, message, extra={"fields": short}, exc_info=exception)
