"""Rows of a public data set from the Hugging Face hub or its local cache."""

from __future__ import annotations

import importlib
import importlib.util

from cgr.errors import UsageError
from cgr.lab.questions.source import Source, SourceRow


def fetch(source: Source) -> tuple[SourceRow, ...]:
    """Every row of a named data set, read with the `datasets` library."""
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise UsageError(
            "Questions from the hub need the package datasets.",
            f"pip install 'certainty-guided-reasoning[lab]', or give a local copy: {source.name}:FILE.",
        ) from error
    try:
        rows = datasets.load_dataset(source.repo, source.config, split=source.split)
    except (datasets.exceptions.DatasetsError, *_load_errors()) as error:
        reason = str(error).split("\n", maxsplit=1)[0].rstrip(".")
        raise UsageError(
            f"The data set {source.repo} cannot be loaded from the hub: {reason}.",
            "Check the connection. If the set has terms, accept them on its page and log in with `hf auth login`. "
            f"Or give a local copy: {source.name}:FILE.",
        ) from error
    if not len(rows):
        raise UsageError(f"The data set {source.repo} holds no questions.", f"Give a local copy: {source.name}:FILE.")
    return tuple(SourceRow(f"{source.name}, row {number}", values) for number, values in enumerate(rows, start=1))


def _load_errors() -> tuple[type[Exception], ...]:
    """Exceptions of the library when it cannot reach, find or read a set; its HTTP client depends on its version."""
    clients = [importlib.import_module(name) for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]
    return (OSError, ValueError, *(client.HTTPError for client in clients))
