"""From what a person calls a model to an engine that runs it: here, on a server, or on a server started for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from cgr.engines.base import Engine
from cgr.errors import ModelNotFound, NoThinkTags, UsageError
from cgr.settings import BUDGET

if TYPE_CHECKING:
    from cgr.engines.completions.connection import Patience
    from cgr.engines.completions.engine import RemoteOptions

EMBEDDED = "embedded"
SHIPPED = {EMBEDDED: "embedded.gguf", "embedded-prober": "prober.gguf"}  # a model that thinks, a smaller one that reads
ROOM_FOR_PROMPTS = 4096
TRANSFORMERS, VLLM, LLAMA_SERVER = "hf:", "vllm:", "llama-server:"
PREFIXES = (TRANSFORMERS, VLLM, LLAMA_SERVER)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How a model is to be opened; the fields that do not concern its engine are refused or left alone by it."""

    model: str | None = None
    sessions: int = 1
    overlap: bool = False
    context: int | None = None
    budget: int | None = None
    threads: int | None = None
    think_tags: str | None = None
    base_url: tuple[str, ...] = ()
    api_key: str | None = None
    tokenizer: str | None = None
    device: str | None = None
    dtype: str | None = None
    dialect: tuple[str, ...] = ()
    chunk: int | None = None
    patience: Patience | None = None
    probe_model: str | None = None

    def __post_init__(self) -> None:
        if self.sessions < 1:
            raise UsageError(f"{self.sessions} sessions cannot answer anything.", "Use sessions=1 or more.")

    def engine(self) -> Engine:
        """The model; with a second one to be asked, the two as one."""
        if self.probe_model is None:
            return self._alone()
        from cgr.engines.paired import PairedEngine

        return PairedEngine(self._alone(), self._prober())

    def _prober(self) -> Engine:
        """The model to be asked: of what was said of the first, only what may hold for any. `NAME@URL` is at a server."""
        name, at, address = (self.probe_model or "").partition("@http")
        given = ModelOptions(
            name if at else self.probe_model,
            sessions=self.sessions,
            context=self.context,
            budget=self.budget,
            threads=self.threads,
            base_url=(f"http{address}",) if at else (),
            api_key=self.api_key,
            patience=self.patience,
        )
        try:
            return given._alone()
        except NoThinkTags:
            return replace(given, think_tags=self.think_tags)._alone()

    def _alone(self) -> Engine:
        addresses = server_addresses(self.model, self.base_url)
        if addresses:
            return self._remote(addresses)
        self._refuse("tokenizer", "dialect", "chunk", only=(VLLM, LLAMA_SERVER))
        self._refuse("dtype", only=(VLLM, TRANSFORMERS))
        self._refuse("device", only=(TRANSFORMERS,))
        name = self.model or ""
        if name.startswith((VLLM, LLAMA_SERVER)):
            return self._child(name)
        return self._transformers(name.removeprefix(TRANSFORMERS)) if name.startswith(TRANSFORMERS) else self._llama()

    def _refuse(self, *names: str, only: tuple[str, ...]) -> None:
        """What would be ignored is refused."""
        for name in names:
            if getattr(self, name) and not (self.model or "").startswith(only):
                kinds = ", ".join(f"{prefix}..." for prefix in only)
                raise UsageError(f"--{name} is not for this model.", f"It is for --base-url and {kinds}; leave it out.")

    def _remote(self, addresses: Sequence[str]) -> Engine:
        from cgr.engines.completions.engine import RemoteEngine

        return RemoteEngine(addresses, self.remote_options(self.model))

    def remote_options(self, model: str | None) -> RemoteOptions:
        from cgr.engines.completions.connection import Patience
        from cgr.engines.completions.engine import RemoteOptions
        from cgr.engines.text.chat import parse_tags

        return RemoteOptions(
            model=model,
            api_key=self.api_key or os.environ.get("CGR_API_KEY") or None,
            tokenizer=self.tokenizer,
            tags=parse_tags(self.think_tags) if self.think_tags else None,
            sessions=self.sessions,
            context=self.context,
            chunk=self.chunk,
            dialect=self.dialect,
            patience=self.patience or Patience(),
        )

    def _child(self, name: str) -> Engine:
        from cgr.engines.launch.server import ChildEngine, llama_command, vllm_command

        if name.startswith(VLLM):
            command = vllm_command(name.removeprefix(VLLM), dtype=self.dtype, context=self.context)
        else:
            path = find_model(name.removeprefix(LLAMA_SERVER))
            slots, context = 2 * self.sessions, self.context or (self.budget or BUDGET) + ROOM_FOR_PROMPTS
            command = llama_command(path, slots=slots, context=context, threads=self.threads)
        return ChildEngine(command, self.remote_options(command.served))

    def _transformers(self, name: str) -> Engine:
        from cgr.engines.hf.engine import TransformersEngine, TransformersOptions
        from cgr.engines.text.chat import parse_tags

        options = TransformersOptions(
            sessions=self.sessions,
            context=self.context,
            threads=self.threads,
            tags=parse_tags(self.think_tags) if self.think_tags else None,
            device=self.device,
            dtype=self.dtype,
            name=self.model,
        )
        return TransformersEngine(name, options)

    def _llama(self) -> Engine:
        from cgr.engines.llama.engine import LlamaEngine, LlamaOptions
        from cgr.engines.text.chat import parse_tags

        options = LlamaOptions(
            sessions=self.sessions,
            overlap=self.overlap,
            context=self.context or (self.budget or BUDGET) + ROOM_FOR_PROMPTS,
            threads=self.threads,
            tags=parse_tags(self.think_tags) if self.think_tags else None,
            name=self.model or EMBEDDED,
        )
        return LlamaEngine(find_model(self.model), options)


def server_addresses(model: str | None, base_url: Sequence[str] = ()) -> tuple[str, ...]:
    """The servers that this model is asked for: those given, else those of the environment, unless the model is here."""
    if base_url:
        if (model or "").startswith(PREFIXES):
            raise UsageError(f"{model!r} runs here, not at {base_url[0]}.", "Leave --base-url or the prefix out.")
        return tuple(base_url)
    here = model is not None and (model in SHIPPED or model.startswith(PREFIXES) or os.path.exists(model))
    return () if here else tuple(os.environ.get("CGR_BASE_URL", "").replace(",", " ").split())


def find_model(model: str | None) -> Path:
    """The file behind a name."""
    from cgr.engines.llama.download import download, is_hub_id

    if model is None or model in SHIPPED:
        return Path(str(files("cgr.model") / SHIPPED[model or EMBEDDED]))
    if os.path.exists(model):  # unlike Path.exists, it takes a name too long for a file as one that is not there
        return Path(model)
    if is_hub_id(model):
        return download(model)
    raise ModelNotFound(f"There is no model {model!r}.", "Give a .gguf file, a hub id such as ORG/NAME, or nothing.")
