"""The defaults that a model names for itself: the key `cgr` in the `config.json` of its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cgr.errors import NotAModel

MODEL_DEFAULTS = ("interval", "budget", "max_answer_tokens")


def model_defaults(folder: Path) -> dict[str, int]:
    """The `interval`, `budget` and `max_answer_tokens` that a model folder names; empty if it names none."""
    path = folder / "config.json"
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise NotAModel(f"{path} is not JSON: {error}.", "Download the model again.") from error
    named: Any = config.get("cgr") if isinstance(config, dict) else None
    if not isinstance(named, dict):
        return {}
    return {name: _count(path, name, named[name]) for name in MODEL_DEFAULTS if named.get(name)}


def _count(path: Path, name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise NotAModel(f"{path} gives {value!r} for cgr.{name}.", "Use a whole number of 1 or more, or leave it out.")
    return value
