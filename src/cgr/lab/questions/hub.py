"""Rows of a public data set on the hub, or of its local cache."""

from __future__ import annotations

import importlib
import importlib.util

from cgr.errors import UsageError
from cgr.lab.questions.source import Row, Source


def fetch(source: Source) -> tuple[Row, ...]:
    """Every row of a named set, by the `datasets` library."""
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise UsageError(
            "Questions from the hub need one more package.",
            f"pip install 'certainty-guided-reasoning[lab]', or give a local copy: {source.name}:FILE.",
        ) from error
    try:
        rows = datasets.load_dataset(source.repo, source.config, split=source.split)
    except (datasets.exceptions.DatasetsError, *_failures()) as error:
        reason = str(error).split("\n", maxsplit=1)[0].rstrip(".")
        raise UsageError(
            f"The data set {source.repo} cannot be had from the hub: {reason}.",
            "Check the connection; where the set has terms, accept them on its page and log in with `hf auth login`; "
            f"or give a local copy: {source.name}:FILE.",
        ) from error
    if not len(rows):
        raise UsageError(f"The data set {source.repo} holds no questions.", f"Give a local copy: {source.name}:FILE.")
    return tuple(Row(f"{source.name}, row {number}", values) for number, values in enumerate(rows, start=1))


def _failures() -> tuple[type[Exception], ...]:
    """What the library raises when it cannot reach, find or read a set; its HTTP client depends on its version."""
    clients = [importlib.import_module(name) for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]
    return (OSError, ValueError, *(client.HTTPError for client in clients))
