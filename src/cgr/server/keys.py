"""Who may use the server: API keys, read from a file or the environment, kept as hashes, compared in constant time; and
pages in browsers."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from cgr.errors import UsageError

ENVIRONMENT = "CGR_SERVER_KEYS"


def read_keys(path: Path | None) -> frozenset[bytes]:
    """The hashes of the keys in this file (one in a line, # begins a comment) and in CGR_SERVER_KEYS (commas between)."""
    keys = [key.strip() for key in os.environ.get(ENVIRONMENT, "").split(",")]
    if path is not None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"The key file {path} cannot be read: {error}.", "Write one key in a line.") from error
        found = [line.split("#", 1)[0].strip() for line in lines]
        if not any(found):
            raise UsageError(f"The key file {path} holds no key.", "Write one key in a line, or leave --api-key-file out.")
        keys += found
    return frozenset(_hash(key) for key in keys if key)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def may_enter(headers: Mapping[str, str], keys: Iterable[bytes]) -> bool:
    """Whether a request has one of the keys, as a bearer token or in Anthropic's header. Every key is compared."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    digest = _hash(given)
    matches = [hmac.compare_digest(digest, key) for key in keys]
    return any(matches)


def from_other_page(headers: Mapping[str, str], allowed: Iterable[str]) -> bool:
    """Whether a page of another origin, which is not allowed, sent the request. Browsers say so themselves; older ones name
    only the page's origin, which then has to be where the request goes. Other programs say neither."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is None or {origin, "*"} & set(allowed):
        return False
    if site is not None:
        return site not in ("same-origin", "none")
    return urlsplit(origin).netloc != headers.get("host")
