"""The Hugging Face hub's library: imported when needed, and what it raises."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from cgr.errors import UsageError


def hub_library(what: str) -> Any:
    """The module `huggingface_hub`; a `UsageError` that names the extra if it is not installed."""
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise UsageError(
            f"{what} from the hub need one more package.", "pip install 'certainty-guided-reasoning[hub]'"
        ) from error


def http_errors() -> tuple[type[Exception], ...]:
    """The exceptions of the HTTP client that the library uses, which depends on its version."""
    clients = [importlib.import_module(name) for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]
    return tuple(client.HTTPError for client in clients)


def hub_errors() -> tuple[type[Exception], ...]:
    """What the library raises if it cannot reach or find something."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    return (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, OSError, *http_errors())
