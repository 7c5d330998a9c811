"""Loading a model for torch: from a folder, a hub id or a GGUF file, on the device and in the numbers that suit it."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cgr.engines.llama.engine import fingerprint
from cgr.engines.llama.header import read_head
from cgr.engines.text.detokenize import Words
from cgr.errors import ModelNotFound, NotAModel, UnknownName, UsageError

DTYPES = ("float32", "bfloat16", "float16", "float64")
KNOWN = {"full_attention", "sliding_attention"}
WISHES = ("interval", "budget", "max_answer_tokens")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model, its tokenizer, and what its files say of it. `window`: how far its sliding layers see, if it has any."""

    model: Any
    words: Words
    template: str
    added: dict[str, int]
    ends: frozenset[int]
    context: int
    fingerprint: str
    window: int | None
    wishes: dict[str, int]

    @property
    def bos(self) -> str:
        return str(self.words.tokenizer.bos_token or "")

    @property
    def eos(self) -> str:
        return str(self.words.tokenizer.eos_token or "")


def check_installed(*names: str) -> None:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"This model needs what is not installed: {', '.join(missing)}.",
            "pip install 'certainty-guided-reasoning[transformers]'",
        )


def choose_device(asked: str | None) -> Any:
    """The one asked for, if it is there; else a CUDA or Apple GPU, else the CPU."""
    import torch

    have = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if asked is None:
        return torch.device("cuda" if have["cuda"] else "mps" if have["mps"] else "cpu")
    kind, _, number = asked.partition(":")
    if kind not in have or (number and not number.isdigit()):
        raise UnknownName.among("device", asked, have)
    if not have[kind] or (kind == "cuda" and int(number or 0) >= torch.cuda.device_count()):
        raise UsageError(f"There is no device {asked!r} here.", f"Here: {', '.join(name for name in have if have[name])}.")
    return torch.device(asked)


def choose_dtype(asked: str | None, device: Any) -> Any:
    """The one asked for; else exact numbers on a CPU, and on a GPU the half-sized ones that it computes well with."""
    import torch

    if asked is not None:
        if asked not in DTYPES:
            raise UnknownName.among("dtype", asked, DTYPES)
        if asked == "float64" and device.type == "mps":
            raise UsageError("An Apple GPU has no float64.", "Use float32.")
        return getattr(torch, asked)
    if device.type == "cpu":
        return torch.float32
    return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float16


def load(name: str, device: str | None, dtype: str | None) -> Loaded:
    check_installed("torch", "transformers")
    from cgr.engines.hf.attention import install

    place = choose_device(device)
    numbers = choose_dtype(dtype, place)
    where, options = _place(name)
    with quiet():
        model, tokenizer = _load(name, where, options | {"dtype": numbers})
    model.to(place).eval()
    install(model)
    config = model.config.get_text_config()
    added = {str(token): int(number) for number, token in tokenizer.added_tokens_decoder.items() if str(token).strip()}
    return Loaded(
        model=model,
        words=Words(tokenizer),
        template=_template(tokenizer),
        added=added,
        ends=_ends(model, tokenizer),
        context=int(getattr(config, "max_position_embeddings", 0)) or 1 << 30,
        fingerprint=_fingerprint(where, options),
        window=_window(name, model),
        wishes=_wishes(where, options, model),
    )


def _place(name: str) -> tuple[str, dict[str, Any]]:
    """Where to load from, and which GGUF file in there, if it is one."""
    if not os.path.exists(name):
        return name, {}
    path = Path(name)
    if path.is_dir():
        if not (path / "config.json").exists():
            raise NotAModel(f"{name} holds no model: it has no config.json.", "Give a folder as transformers saves it.")
        return name, {}
    read_head(path)  # refuses what is not one
    check_installed("gguf", "accelerate")
    return str(path.parent), {"gguf_file": path.name}


def _load(name: str, where: str, options: dict[str, Any]) -> tuple[Any, Any]:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    chosen = {key: value for key, value in options.items() if key == "gguf_file"}
    try:
        return AutoModelForCausalLM.from_pretrained(where, **options), AutoTokenizer.from_pretrained(where, **chosen)
    except ImportError as error:
        raise UsageError(f"{name} needs one more package: {_line(error)}", "Install what it names.") from error
    except OSError as error:
        if os.path.exists(name):
            raise NotAModel(f"{name} cannot be loaded: {_line(error)}", "Is the folder whole?") from error
        raise ModelNotFound(
            f"The hub has no model {name!r}, or cannot be reached.", "Check the name, or give a local folder."
        ) from error
    except (ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise NotAModel(f"transformers cannot load {name}: {_line(error)}", "Is it a causal language model?") from error


def _line(error: Exception) -> str:
    """The first line of what another library says, as the end of a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".") + "."


@contextmanager
def quiet() -> Iterator[None]:
    """Without the library's bars and warnings, which are not for our users. Some of its bars know no switch."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _template(tokenizer: Any) -> str:
    template = tokenizer.chat_template or ""
    return str(template.get("default", "")) if isinstance(template, dict) else str(template)


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a turn, by any of the model's files."""
    named = [model.config.eos_token_id, model.generation_config.eos_token_id, tokenizer.eos_token_id]
    flat = [one for each in named for one in (each if isinstance(each, list | tuple) else [each])]
    return frozenset(one for one in flat if one is not None)


def _window(name: str, model: Any) -> int | None:
    """How far back sliding layers see. What keeps a running state in place of keys and values cannot be rewound."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    strange = sorted(kinds - KNOWN)
    if strange or getattr(model, "_is_stateful", False):
        what = ", ".join(strange) or "a recurrent state"
        raise UsageError(
            f"{name} has layers that cannot be rewound after a probe ({what}).", "Serve it with vLLM and use --base-url."
        )
    if kinds and "sliding_attention" not in kinds:
        return None
    if getattr(config, "use_sliding_window", True) is False:
        return None
    window = getattr(config, "sliding_window", None)
    return int(window) if window else None


def _fingerprint(where: str, options: dict[str, Any]) -> str:
    """Of a GGUF file, what the other engine says of it; else of all files of weights, by size and samples."""
    if "gguf_file" in options:
        return fingerprint(Path(where) / options["gguf_file"])
    folder = Path(where) if os.path.isdir(where) else _snapshot(where)
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    return hashlib.blake2b(" ".join(map(fingerprint, weights)).encode(), digest_size=8).hexdigest()


def _snapshot(repo: str) -> Path:
    """Where the hub's files lie, now that they have been loaded."""
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(repo, "config.json", local_files_only=True)).parent


def _wishes(where: str, options: dict[str, Any], model: Any) -> dict[str, int]:
    """What a model wishes of us: in a GGUF's head, or under `cgr` in its config."""
    if "gguf_file" in options:
        head = read_head(Path(where) / options["gguf_file"])
        said = {wish: getattr(head, wish) for wish in WISHES}
    else:
        said = getattr(model.config, "cgr", None) or {}
    return {wish: int(said[wish]) for wish in WISHES if said.get(wish)}
