"""The page at `/`, with a strict content security policy."""

from __future__ import annotations

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def page() -> bytes:
    """The page: where the API is."""
    return (
        b"<!doctype html><html lang=en><meta charset=utf-8><title>cgr serve</title>"
        b"<p>cgr serve is running. The API is at /v1, such as POST /v1/chat/completions; its schema is at /openapi.json."
    )
