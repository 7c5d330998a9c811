"""Loads a model for torch: from a folder, a hub id or a GGUF file, with a device and a dtype that suit the machine."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from cgr.engines.llama.engine import fingerprint
from cgr.engines.llama.header import read_head
from cgr.engines.text.detokenize import HFTokenizer
from cgr.engines.text.model_defaults import MODEL_DEFAULTS, model_defaults
from cgr.errors import ModelNotFound, NotAModel, UnknownName, UsageError

DTYPES = ("float32", "bfloat16", "float16", "float64")
LAYER_TYPES = {"full_attention", "sliding_attention"}
UNLIMITED = 1 << 30


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, its tokenizer, and what its files say about it.

    `added`: the ids of its special tokens by their text; `end_ids`: the tokens that end a turn; `window`: how many tokens
    its sliding-window layers attend to, if it has any; `defaults`: its own interval, budget and answer length.
    """

    model: Any
    tokenizer: HFTokenizer
    template: str
    added: dict[str, int]
    end_ids: frozenset[int]
    context: int
    fingerprint: str
    window: int | None
    defaults: dict[str, int]


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model is loaded from: the name that was given, a folder or hub id, and the GGUF file if it is one."""

    name: str
    location: str
    gguf: Path | None = None

    @classmethod
    def find(cls, name: str) -> ModelSource:
        """The source with this name; a local path is checked here, a hub id when it is loaded."""
        if not os.path.exists(name):
            return cls(name, name)
        path = Path(name)
        if path.is_dir():
            if not (path / "config.json").exists():
                raise NotAModel(f"{name} has no model: it has no config.json.", "Give a folder as transformers saves it.")
            return cls(name, name)
        read_head(path)  # raises if it is not a GGUF file
        check_installed("gguf", "accelerate")
        return cls(name, str(path.parent), path)

    def folder(self) -> Path:
        """The folder with the files; for a hub id the local copy, once it was loaded."""
        if os.path.isdir(self.location):
            return Path(self.location)
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(self.location, "config.json", local_files_only=True)).parent

    def fingerprint(self) -> str:
        """Identifies the weights: for a GGUF file as in the llama.cpp engine, else from all weight files."""
        if self.gguf:
            return fingerprint(self.gguf)
        folder = self.folder()
        weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
        return hashlib.blake2b(" ".join(map(fingerprint, weights)).encode(), digest_size=8).hexdigest()

    def defaults(self) -> dict[str, int]:
        """The model's own defaults: from the header of a GGUF file, else from `config.json`."""
        if not self.gguf:
            return model_defaults(self.folder())
        head = read_head(self.gguf)
        return {name: int(value) for name in MODEL_DEFAULTS if (value := getattr(head, name))}


def check_installed(*names: str) -> None:
    """Raise `UsageError` if one of these packages is missing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"This model needs packages that are not installed: {', '.join(missing)}.",
            "pip install 'certainty-guided-reasoning[transformers]'",
        )


def choose_device(requested: str | None) -> Any:
    """The requested torch device, if it exists; by default a CUDA or Apple GPU, else the CPU."""
    import torch

    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if requested is None:
        return torch.device("cuda" if available["cuda"] else "mps" if available["mps"] else "cpu")
    kind, _, number = requested.partition(":")
    if kind not in available or (number and not number.isdigit()):
        raise UnknownName.among("device", requested, available)
    if not available[kind] or (kind == "cuda" and int(number or 0) >= torch.cuda.device_count()):
        names = ", ".join(name for name in available if available[name])
        raise UsageError(f"This machine has no device {requested!r}.", f"Available: {names}.")
    return torch.device(requested)


def choose_dtype(requested: str | None, device: Any) -> Any:
    """The requested torch dtype; by default float32 on a CPU and 16 bits on a GPU."""
    import torch

    if requested is not None:
        if requested not in DTYPES:
            raise UnknownName.among("dtype", requested, DTYPES)
        if requested == "float64" and device.type == "mps":
            raise UsageError("An Apple GPU does not support float64.", "Use float32.")
        return getattr(torch, requested)
    if device.type == "cpu":
        return torch.float32
    return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float16


def load(name: str, device: str | None, dtype: str | None) -> LoadedModel:
    """Load a model. Takes long, and must not run twice at the same time: the library changes global state."""
    check_installed("torch", "transformers")
    from cgr.engines.hf.attention import install

    target = choose_device(device)
    numbers = choose_dtype(dtype, target)
    source = ModelSource.find(name)
    with quiet():
        model, tokenizer = _load(source, numbers)
    model.to(target).eval()
    install(model)
    config = model.config.get_text_config()
    added = {str(token): int(number) for number, token in tokenizer.added_tokens_decoder.items() if str(token).strip()}
    return LoadedModel(
        model=model,
        tokenizer=HFTokenizer(tokenizer),
        template=_template(tokenizer),
        added=added,
        end_ids=_end_ids(model, tokenizer),
        context=int(getattr(config, "max_position_embeddings", 0)) or UNLIMITED,
        fingerprint=source.fingerprint(),
        window=_window(name, model),
        defaults=source.defaults(),
    )


def _load(source: ModelSource, dtype: Any) -> tuple[Any, Any]:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    name, options = source.name, {"gguf_file": source.gguf.name} if source.gguf else {}
    try:
        model = AutoModelForCausalLM.from_pretrained(source.location, dtype=dtype, **options)
        return model, AutoTokenizer.from_pretrained(source.location, **options)
    except ImportError as error:
        raise UsageError(f"{name} needs another package: {_first_line(error)}", "Install that package.") from error
    except OSError as error:
        if os.path.exists(name):
            raise NotAModel(
                f"{name} cannot be loaded: {_first_line(error)}", "Check that the folder is complete."
            ) from error
        raise ModelNotFound(
            f"The hub has no model {name!r}, or cannot be reached.", "Check the name, or give a local folder."
        ) from error
    except (ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise NotAModel(
            f"transformers cannot load {name}: {_first_line(error)}",
            "Use a causal language model that transformers supports.",
        ) from error


def _first_line(error: Exception) -> str:
    """The first line of another library's message, as the end of a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".") + "."


class _MutedThread(io.TextIOBase):
    """An stderr that drops what the current thread writes and passes on what other threads write."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self.stream.write(text)

    def flush(self) -> None:
        self.stream.flush()


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the progress bars and warnings of transformers. Some bars have no switch, so this thread's stderr is dropped."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with redirect_stderr(_MutedThread(sys.stderr)):
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _template(tokenizer: Any) -> str:
    """The chat template, or the default one of several."""
    template = tokenizer.chat_template or ""
    return str(template.get("default", "")) if isinstance(template, dict) else str(template)


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a turn according to one of the model's files."""
    named = [model.config.eos_token_id, model.generation_config.eos_token_id, tokenizer.eos_token_id]
    flat = [one for each in named for one in (each if isinstance(each, list | tuple) else [each])]
    return frozenset(one for one in flat if one is not None)


def _window(name: str, model: Any) -> int | None:
    """The window of sliding-window layers. Raises `UsageError` for layers with a running state: they cannot be rewound."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    unknown = sorted(kinds - LAYER_TYPES)
    if unknown or getattr(model, "_is_stateful", False):
        reason = ", ".join(unknown) or "a recurrent state"
        raise UsageError(
            f"{name} has layers that cannot be rewound after a probe ({reason}).", "Serve it with vLLM and use --base-url."
        )
    if kinds and "sliding_attention" not in kinds:
        return None
    if getattr(config, "use_sliding_window", True) is False:
        return None
    window = getattr(config, "sliding_window", None)
    return int(window) if window else None
