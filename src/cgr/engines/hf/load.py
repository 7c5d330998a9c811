"""Loads a model for torch: from a folder, a hub id or a GGUF file, with a device and a dtype that suit the machine."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from cgr.engines.base import ModelInfo
from cgr.engines.hf.weights import check_weights
from cgr.engines.hub import hub_access
from cgr.engines.llama.engine import fingerprint
from cgr.engines.llama.header import read_head
from cgr.engines.open import ModelOptions
from cgr.engines.text.chat import EndTag, ThinkTags, find_tags, need_tags, opens_thinking
from cgr.engines.text.detokenize import HFTokenizer
from cgr.engines.text.model_files import model_defaults
from cgr.errors import ModelNotFound, NotAModel, UnknownName, UsageError

if TYPE_CHECKING:
    from cgr.engines.hf.scheduler import Scheduler

DTYPES = ("float32", "bfloat16", "float16", "float64")
UNLIMITED = 1 << 30


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, its tokenizer, what its files say about it, and the scheduler that runs it.

    `end_ids`: the tokens that end a turn; `control`: all tokens that are not text, without the opening tag; `window`: how
    many tokens its sliding-window layers attend to, if it has any.
    """

    model: Any
    tokenizer: HFTokenizer
    tags: ThinkTags
    end_tag: EndTag
    end_ids: frozenset[int]
    control: frozenset[int]
    window: int | None
    info: ModelInfo
    scheduler: Scheduler


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


def load(name: str, options: ModelOptions) -> LoadedModel:
    """Load a model. Takes long, and must not run twice at the same time: the library changes global state."""
    check_installed("torch", "transformers")
    from cgr.engines.hf.attention import install

    device = choose_device(options.device)
    dtype = choose_dtype(options.dtype, device)
    gguf = _gguf_file(name)
    with quiet():
        model, tokenizer = _load(name, gguf, dtype)
    model.to(device).eval()
    install(model)
    return _connect(name, gguf, options, model, HFTokenizer(tokenizer))


def _connect(name: str, gguf: Path | None, options: ModelOptions, model: Any, tokenizer: HFTokenizer) -> LoadedModel:
    """Find out what its files say about a model, and make a scheduler for it."""
    import torch

    from cgr.engines.hf.kv_cache import KVCache
    from cgr.engines.hf.scheduler import Scheduler

    tags = need_tags(options.tags or find_tags(tokenizer.template, tokenizer.special), name)
    trained = int(getattr(model.config.get_text_config(), "max_position_embeddings", 0)) or UNLIMITED
    context = min(options.context or trained, trained)
    end_ids, window = _end_ids(model, tokenizer), _window(name, model)
    if options.threads:
        torch.set_num_threads(options.threads)
    weights, defaults = _fingerprint_and_defaults(name, gguf)
    info = ModelInfo(
        name=options.model or name,
        engine="transformers",
        context=context,
        open_tag=tags.open,
        close_tag=tags.close,
        fingerprint=weights,
        model_context=trained,
        sessions=options.sessions,
        threads=int(torch.get_num_threads()),
        template_opens=opens_thinking(tokenizer.template, tags),
        **defaults,
    )
    end_tag = EndTag(tags.close, tokenizer.encode(tags.close))
    control = frozenset({*tokenizer.special.values(), *end_ids}) - {tokenizer.special.get(tags.open, -1)}
    scheduler = Scheduler(KVCache(model, limits=(options.sessions, context), window=window))
    return LoadedModel(model, tokenizer, tags, end_tag, end_ids, control, window, info, scheduler)


def _gguf_file(name: str) -> Path | None:
    """The GGUF file with this name; None for a folder, which is checked here, and for a hub id, which loading checks."""
    path = Path(name)
    if not os.path.exists(name):
        return None
    if path.is_dir():
        if not (path / "config.json").exists():
            raise NotAModel(f"{name} has no model: it has no config.json.", "Give a folder as transformers saves it.")
        check_weights(path)
        return None
    read_head(path)  # raises if it is not a GGUF file
    check_installed("gguf", "accelerate")
    return path


def _load(name: str, gguf: Path | None, dtype: Any) -> tuple[Any, Any]:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    location, options = (str(gguf.parent), {"gguf_file": gguf.name}) if gguf else (name, {})
    try:
        with nullcontext() if os.path.exists(location) else hub_access():
            model = AutoModelForCausalLM.from_pretrained(location, dtype=dtype, **options)
            return model, _tokenizer(location, options)
    except ImportError as error:
        raise UsageError(f"{name} needs another package: {_first_line(error)}", "Install that package.") from error
    except OSError as error:
        if os.path.exists(name):
            hint = "Check that the folder is complete."
            raise NotAModel(f"{name} cannot be loaded: {_first_line(error)}", hint) from error
        hint = "Check the name, or give a local folder."
        raise ModelNotFound(f"The hub has no model {name!r}, or cannot be reached.", hint) from error
    except (ValueError, KeyError, RuntimeError, SafetensorError) as error:
        hint = "Use a causal language model that transformers supports."
        raise NotAModel(f"transformers cannot load {name}: {_first_line(error)}", hint) from error


def _tokenizer(location: str, options: dict[str, str]) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(location, **options)
    except (ImportError, OSError, ValueError, KeyError, RuntimeError):
        raise
    except Exception as error:  # the library raises nothing narrower if its files are damaged
        hint = "Download the model again."
        raise NotAModel(f"The tokenizer of {location} cannot be read: {_first_line(error)}", hint) from error


def _fingerprint_and_defaults(name: str, gguf: Path | None) -> tuple[str, dict[str, Any]]:
    """What identifies the weights, for a GGUF file as in the llama.cpp engine; and the defaults that the model names."""
    if gguf:
        return fingerprint(gguf), read_head(gguf).defaults
    folder = Path(name)
    if not folder.is_dir():
        from huggingface_hub import hf_hub_download

        folder = Path(hf_hub_download(name, "config.json", local_files_only=True)).parent
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    digest = hashlib.blake2b(" ".join(map(fingerprint, weights)).encode(), digest_size=8)
    return digest.hexdigest(), model_defaults(folder)


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


def _end_ids(model: Any, tokenizer: HFTokenizer) -> frozenset[int]:
    """Every token that ends a turn according to one of the model's files."""
    named = [model.config.eos_token_id, model.generation_config.eos_token_id, tokenizer.tokenizer.eos_token_id]
    flat = [one for each in named for one in (each if isinstance(each, list | tuple) else [each])]
    return frozenset(one for one in flat if one is not None)


def _window(name: str, model: Any) -> int | None:
    """The window of sliding-window layers. Raises `UsageError` for layers with a running state: they cannot be rewound."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    unknown = sorted(kinds - {"full_attention", "sliding_attention"})
    if unknown or getattr(model, "_is_stateful", False):
        reason = ", ".join(unknown) or "a recurrent state"
        raise UsageError(
            f"{name} has layers that cannot be rewound after a probe ({reason}).", "Serve it with vLLM and use --base-url."
        )
    if (kinds and "sliding_attention" not in kinds) or getattr(config, "use_sliding_window", True) is False:
        return None
    return getattr(config, "sliding_window", None) or None
