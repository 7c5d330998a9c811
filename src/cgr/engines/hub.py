"""The Hugging Face hub's library: imported when needed, what it raises, and what is done without a connection."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from cgr.errors import UsageError

CONNECT_SECONDS = 5.0  # after which the hub counts as unreachable


def hub_library(what: str) -> Any:
    """The module `huggingface_hub`; a `UsageError` that names the extra if it is not installed."""
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise UsageError(
            f"{what} from the hub need one more package.", "pip install 'certainty-guided-reasoning[hub]'"
        ) from error


@contextmanager
def hub_access() -> Iterator[bool]:
    """Around every use of the hub; True if it can be reached. If not, only its local cache is used: the library would try
    again and again for half a minute. What it logs about that is not shown."""
    online, logger = is_reachable(), logging.getLogger("huggingface_hub")
    level, changed = logger.level, [] if online else _switches()
    logger.setLevel(logging.ERROR)
    for module, before in changed:
        module.HF_HUB_OFFLINE = before or not online
    try:
        yield online
    finally:
        logger.setLevel(level)
        for module, before in changed:
            module.HF_HUB_OFFLINE = before


def _switches() -> list[tuple[Any, bool]]:
    """The modules that say whether the libraries work offline, and what they say."""
    names = ("huggingface_hub.constants", *(("datasets.config",) if "datasets" in sys.modules else ()))
    modules: list[Any] = [importlib.import_module(name) for name in names]
    return [(module, module.HF_HUB_OFFLINE) for module in modules]


def is_reachable() -> bool:
    """Whether something listens at the address of the hub, or at the proxy for it; False in the library's offline mode."""
    constants = importlib.import_module("huggingface_hub.constants")
    if constants.HF_HUB_OFFLINE:
        return False
    address = urlsplit(str(constants.ENDPOINT))
    if (proxy := urllib.request.getproxies().get(address.scheme)) and not urllib.request.proxy_bypass(address.netloc):
        address = urlsplit(proxy)
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname or "", port), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True


def http_errors() -> tuple[type[Exception], ...]:
    """The exceptions of the HTTP client that the library uses, which depends on its version."""
    clients = [importlib.import_module(name) for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]
    return tuple(client.HTTPError for client in clients)


def hub_errors() -> tuple[type[Exception], ...]:
    """What the library raises if it cannot reach or find something."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    return (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, OSError, *http_errors())
