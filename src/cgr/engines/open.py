"""From the name that a person gives to a model to the engine that runs it: here, on a server, or on a server started for
it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from cgr.engines.base import Engine, ModelInfo
from cgr.errors import ModelNotFound, UnknownName, UsageError
from cgr.records import check_types, option

if TYPE_CHECKING:
    from cgr.engines.completions.http import Observe
    from cgr.engines.completions.policy import RetryPolicy
    from cgr.engines.text.chat import ThinkTags

EMBEDDED = "embedded"
SHIPPED = {EMBEDDED: "embedded.gguf", "embedded-prober": "prober.gguf"}  # a model that thinks, a smaller one that reads
PROMPT_ROOM = 4096  # tokens that a session's context holds beside the budget
MAX_SESSIONS = 4096  # far more than any server works on at once; each takes memory here
MAX_THREADS = 512  # llama.cpp ends the process if it is given more
DEFAULT_CONTEXT = 32_000 + PROMPT_ROOM  # of a session, if neither a context nor a budget is given
# A new engine adds one line here. Its module has `open_engine(name, options)` and `OPTIONS`: the names of those options
# that only some engines have and that it uses.
ENGINES = {
    "hf:": "cgr.engines.hf.engine",
    "vllm:": "cgr.engines.launch.vllm",
    "llama-server:": "cgr.engines.launch.llama_server",
}
LLAMA, SERVERS = "cgr.engines.llama.engine", "cgr.engines.completions.engine"
ON_SERVERS = "--base-url, vllm:... and llama-server:..."
# options that only some models have, and which ones
SPECIFIC = {
    "tokenizer": ON_SERVERS,
    "dialect": ON_SERVERS,
    "chunk": ON_SERVERS,
    "dtype": "hf:... and vllm:...",
    "device": "hf:...",
}


class ModelKeywords(TypedDict, total=False):
    """The fields of `ModelOptions` as keywords of `open_model`, so that editors and type checkers know them."""

    base_url: str | Sequence[str]
    api_key: str | None
    tokenizer: str | None
    think_tags: str | None
    threads: int | None
    device: str | None
    dtype: str | None
    dialect: Sequence[str]
    chunk: int | None
    probe_model: str | None
    sessions: int
    overlap: bool | None
    context: int | None
    budget: int | None
    patience: RetryPolicy | None
    session_header: str | None
    observe: Observe | None


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which model to use and how to load or reach it. None: the engine decides.

    Fields with a help text are command-line options. `sessions`: questions at once. `budget`: the budget that the context
    of a session has to hold; `context` sets the context itself. `patience`: the retry policy for servers.
    `session_header`: one more header that carries the id of a session to servers. `observe` is called after each request
    to a server.
    """

    model: str | None = option(
        None,
        "A .gguf file, a hub id (ORG/NAME), hf:ID_OR_FOLDER, vllm:ID, llama-server:FILE, or a name that --base-url serves."
        "  [env var: CGR_MODEL; default: the embedded model]",
    )
    base_url: tuple[str, ...] = option(
        (),
        "A completions server, such as http://localhost:8000/v1; several share the work.  [env var: CGR_BASE_URL]",
        "URL",
    )
    api_key: str | None = option(
        None, "The server's key. Better set CGR_API_KEY, which does not appear in process lists.", "KEY"
    )
    tokenizer: str | None = option(None, "A folder, tokenizer.json or hub id, for a server that does not tokenise.")
    think_tags: str | None = option(None, "The think tags, if the model's files do not name them: '<think>,</think>'.")
    threads: int | None = option(
        None, "Threads to compute with.  [default: one for each session of a small file, else half of the cores]"
    )
    device: str | None = option(None, "Device for hf: models: cpu, cuda, cuda:1, mps.  [default: the best available]")
    dtype: str | None = option(None, "Number format for hf: and vllm: models: float32, bfloat16, float16.")
    dialect: tuple[str, ...] = option((), "Overrides a detected property of a server; may be repeated.", "KEY=VALUE")
    chunk: int | None = option(None, "Think in requests of N tokens instead of one stream (servers).", "N")
    probe_model: str | None = option(None, "A second model that is probed in place of the first.")
    sessions: int = 1
    overlap: bool = False
    context: int | None = None
    budget: int | None = None
    patience: RetryPolicy | None = None
    session_header: str | None = None
    observe: Observe | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if not 1 <= self.sessions <= MAX_SESSIONS:
            raise UsageError(
                f"A model cannot be opened with {self.sessions} sessions.", f"Use --sessions 1 to {MAX_SESSIONS}."
            )
        if self.threads is not None and not 1 <= self.threads <= MAX_THREADS:
            raise UsageError(f"A model cannot run with {self.threads} threads.", f"Use --threads 1 to {MAX_THREADS}.")
        if self.chunk is not None and self.chunk < 1:
            raise UsageError("A chunk has at least one token.", "Use --chunk 32, or leave it out.")

    @classmethod
    def of(cls, **options: Any) -> ModelOptions:
        """Options from keywords; an unknown one is refused by name. One address may be given as a string."""
        names = {one.name for one in fields(cls)}
        for name in options:
            if name not in names:
                raise UnknownName.among("option of a model", name, names)
        several = {name: _texts(name, options.get(name) or ()) for name in ("base_url", "dialect")}
        if isinstance(options.get("model"), os.PathLike):
            options["model"] = os.fspath(options["model"])
        return cls(**options | several | {"overlap": bool(options.get("overlap"))})

    @property
    def addresses(self) -> tuple[str, ...]:
        """The servers to use, those that the environment names included; none for a model on this machine."""
        return server_addresses(self.model, self.base_url)

    @property
    def embedded(self) -> bool:
        """Whether this is the embedded model."""
        return self.model in (None, EMBEDDED) and not self.addresses

    @property
    def tags(self) -> ThinkTags | None:
        """The think tags that the user gave."""
        from cgr.engines.text.chat import parse_tags

        return parse_tags(self.think_tags) if self.think_tags else None

    @property
    def session_context(self) -> int:
        """The context of one session: as given, else what holds the budget and a prompt."""
        return self.context or (self.budget + PROMPT_ROOM if self.budget else DEFAULT_CONTEXT)

    def engine(self) -> Engine:
        """The engine, not yet connected; with a `probe_model`, both models as one engine."""
        if self.probe_model is None:
            return self._single()
        from cgr.engines.paired import PairedEngine

        return PairedEngine(self._single(), self._prober(None), self._prober(self.think_tags))

    def _single(self) -> Engine:
        model, module = self.model or "", SERVERS if self.addresses else LLAMA
        prefix = next((one for one in ENGINES if model.startswith(one)), "")
        engine = import_module(ENGINES.get(prefix, module))
        for name, models in SPECIFIC.items():
            if getattr(self, name) and name not in engine.OPTIONS:
                raise UsageError(f"--{name} is not for this model.", f"It is for {models}; leave it out.")
        return cast(Callable[[str, ModelOptions], Engine], engine.open_engine)(model.removeprefix(prefix), self)

    def _prober(self, think_tags: str | None) -> Engine:
        """The engine of the second model, which gets the options that can hold for any model. `NAME@URL` is at a server."""
        name, at, address = (self.probe_model or "").partition("@http")
        options = ModelOptions(
            name if at else self.probe_model,
            sessions=self.sessions,
            context=self.context,
            budget=self.budget,
            threads=self.threads,
            base_url=(f"http{address}",) if at else (),
            api_key=self.api_key,
            patience=self.patience,
            think_tags=think_tags,
        )
        return options._single()


def _texts(name: str, given: Any) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else (given,)
    if not all(isinstance(one, str) for one in texts):
        raise UsageError(f"{name} must be text or a list of texts, not {given!r:.60}.", f"Give {name} another value.")
    return texts


def server_addresses(model: str | None, base_url: Sequence[str] = ()) -> tuple[str, ...]:
    """The servers for this model: those given, else those of the environment unless the model is on this machine."""
    local = (model or "").startswith(tuple(ENGINES))
    if base_url:
        if local:
            raise UsageError(f"{model!r} runs here, not at {base_url[0]}.", "Leave out --base-url or the prefix.")
        return tuple(base_url)
    here = local or (model is not None and (model in SHIPPED or os.path.exists(os.path.expanduser(model))))
    return () if here else tuple(os.environ.get("CGR_BASE_URL", "").replace(",", " ").split())


def find_model(model: str | None) -> Path:
    """The GGUF file behind a name; a hub id is downloaded."""
    from cgr.engines.llama.download import download, is_hub_id

    if model is None or model in SHIPPED:
        return Path(str(files("cgr.model") / SHIPPED[model or EMBEDDED]))
    path = os.path.expanduser(model)
    if os.path.exists(path):  # unlike Path.exists, it returns False for a name that is too long for a file
        return Path(path)
    if is_hub_id(model):
        return download(model)
    raise ModelNotFound(f"There is no model {model!r}.", "Give a .gguf file, a hub id such as ORG/NAME, or nothing.")


def is_local_file(model: str, base_url: Sequence[str] = ()) -> bool:
    """Whether the model is a file on this machine, so that its metadata can be read without loading it."""
    from cgr.engines.llama.download import is_hub_id

    if server_addresses(model, base_url) or model.startswith(tuple(ENGINES)):
        return False
    return not is_hub_id(model) or os.path.exists(os.path.expanduser(model))


def sessions_of(model: str | None) -> int:
    """Sessions of a model on this machine if no number is given: what is fastest for a GGUF file, else 1."""
    from cgr.engines.llama.engine import default_sessions

    here = model is None or model in SHIPPED or os.path.isfile(os.path.expanduser(model))
    return default_sessions(find_model(model)) if here else 1


def describe_file(model: str) -> ModelInfo:
    """A local model as its engine would describe it, from the metadata of its file; the think tags are left out."""
    from cgr.engines.llama.engine import NAME, fingerprint
    from cgr.engines.llama.header import read_head

    path = find_model(model)
    head = read_head(path)
    return ModelInfo(
        name=model,
        engine=NAME,
        context=head.context,
        open_tag="",
        close_tag="",
        interval=head.interval,
        budget=head.budget,
        max_answer_tokens=head.max_answer_tokens,
        fingerprint=fingerprint(path),
    )


def tokens_per_request(model: str, base_url: Sequence[str] = (), chunk: int | None = None) -> int | None:
    """Thinking tokens of one request, before the model is loaded; None if the thinking comes in one stream."""
    from cgr.engines.completions.engine import CHUNK
    from cgr.engines.llama.download import is_hub_id

    on_hub = is_hub_id(model) and not server_addresses(model, base_url)
    return chunk or (CHUNK if on_hub or is_local_file(model, base_url) else None)
