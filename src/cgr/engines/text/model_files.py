"""Files of a model: a local tokenizer, for servers that do not tokenise, and the defaults that a model names for itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cgr.engines.hub import hub_access, hub_errors, hub_library
from cgr.errors import ModelNotFound, NotAModel, UsageError

FILE, CONFIG, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"


class LocalTokenizer:
    """A tokenizer, the chat template beside it, and its special tokens: from a folder, a `tokenizer.json`, or a hub id."""

    def __init__(self, name: str) -> None:
        path = find_tokenizer(name)
        self._tokenizer = _load(path)
        config = _read(path.parent / CONFIG)
        beside = path.parent / TEMPLATE
        self.template = beside.read_text("utf-8") if beside.is_file() else _template(config)
        self.bos, self.eos = _name(config.get("bos_token")), _name(config.get("eos_token"))
        added = self._tokenizer.get_added_tokens_decoder()
        self.special = {token.content: number for number, token in added.items()}

    def encode(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))


def _load(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        hint = "pip install 'certainty-guided-reasoning[hub]'"
        raise UsageError("A local tokenizer needs one more package.", hint) from error
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise UsageError(f"{path} is not a tokenizer: {error}.", "Give a tokenizer.json, or its folder.") from error


def find_tokenizer(name: str) -> Path:
    """The path of a `tokenizer.json`, which may be given by its folder or a hub id."""
    path = Path(name)
    if path.is_file():
        return path
    if (path / FILE).is_file():
        return path / FILE
    if path.exists():
        raise ModelNotFound(f"There is no {FILE} in {name}.", "Give the folder of a model, or a tokenizer.json.")
    hub = hub_library("Tokenizers")
    try:
        with hub_access() as online:
            for beside in (CONFIG, TEMPLATE):
                if online and hub.file_exists(name, beside):
                    hub.hf_hub_download(name, beside)
            return Path(hub.hf_hub_download(name, FILE))
    except hub_errors() as error:
        hint = "Give a folder or a tokenizer.json."
        raise ModelNotFound(f"The hub has no tokenizer {name!r}, or cannot be reached.", hint) from error


def _read(path: Path) -> dict[str, Any]:
    """The content of a JSON file; empty if there is no such file, or if it is not an object."""
    try:
        value = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise NotAModel(f"{path} is not JSON: {error}.", "Download the model again.") from error
    return value if isinstance(value, dict) else {}


def _template(config: dict[str, Any]) -> str:
    """One template, or the default one of several."""
    given = config.get("chat_template") or ""
    if isinstance(given, list):
        return next((str(one["template"]) for one in given if one.get("name") == "default"), "")
    return str(given)


def _name(token: Any) -> str:
    return str(token.get("content", "") if isinstance(token, dict) else token or "")


def model_defaults(folder: Path) -> dict[str, int]:
    """The defaults that a model names under the key `cgr` of the `config.json` in its folder; empty if it names none."""
    path = folder / "config.json"
    given = _read(path).get("cgr")
    named = given if isinstance(given, dict) else {}
    defaults = {name: named[name] for name in ("interval", "budget", "max_answer_tokens") if named.get(name)}
    for name, value in defaults.items():
        if type(value) is not int or value < 1:  # a bool is an int, too
            hint = "Use a whole number of 1 or more, or leave it out."
            raise NotAModel(f"{path} gives {value!r} for cgr.{name}.", hint)
    return defaults
