"""The options that say which model is asked and where it runs: the same for every verb that needs one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cgr.errors import UsageError

if TYPE_CHECKING:
    from cgr.solve import Model

F = TypeVar("F", bound=Callable[..., Any])
MODEL = (
    "A .gguf file, a hub id (ORG/NAME), hf:ID_OR_FOLDER, vllm:ID, llama-server:FILE, or a name that --base-url serves."
    "  [default: the embedded model]"
)
SESSIONS = "Traces in flight.  [default: 8 for the embedded model, 16 a server, else 1]"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which model, and how to reach or load it. None: by itself, or does not apply."""

    model: str | None = None
    base_url: tuple[str, ...] = ()
    api_key: str | None = None
    tokenizer: str | None = None
    think_tags: str | None = None
    threads: int | None = None
    device: str | None = None
    dtype: str | None = None
    dialect: tuple[str, ...] = ()
    chunk: int | None = None
    probe_model: str | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The servers that will be asked, those that the environment names included; none for a model here."""
        from cgr.engines.open import server_addresses

        return server_addresses(self.model, self.base_url)

    @property
    def embedded(self) -> bool:
        from cgr.solve import EMBEDDED

        return self.model in (None, EMBEDDED) and not self.addresses

    def refuse_probe_model(self, hint: str) -> None:
        """For what asks nothing on the way: there, a second model would be ignored."""
        if self.probe_model:
            raise UsageError("There is nothing here that --probe-model would be asked.", hint)


OPTIONS = (
    click.option("--model", help=MODEL),
    click.option(
        "--base-url",
        multiple=True,
        metavar="URL",
        help="A completions server, such as http://localhost:8000/v1; several share the work.  [env var: CGR_BASE_URL]",
    ),
    click.option("--api-key", metavar="KEY", help="The server's key; better set CGR_API_KEY, which no process list shows."),
    click.option("--tokenizer", help="A folder, tokenizer.json or hub id, for a server that does not tokenise."),
    click.option("--think-tags", help="The tags of a model that does not name them: '<think>,</think>'."),
    click.option("--threads", type=int, help="Threads to compute with.  [default: half of the cores]"),
    click.option("--device", help="Where hf: models compute: cpu, cuda, cuda:1, mps.  [default: the best there is]"),
    click.option("--dtype", help="What hf: and vllm: models compute in: float32, bfloat16, float16."),
    click.option(
        "--dialect",
        multiple=True,
        metavar="KEY=VALUE",
        help="Overrides what was found out about a server; may be repeated.",
    ),
    click.option("--chunk", type=int, metavar="N", help="Think in requests of N tokens instead of one stream (servers)."),
    click.option("--probe-model", help="A second model that is asked instead, and says when to stop."),
)


def model_options(function: F) -> F:
    """Adds the options; the command takes what was chosen as one argument, `given`."""

    @functools.wraps(function)
    def gathered(**options: Any) -> Any:
        chosen = {field.name: options.pop(field.name) for field in fields(ModelChoice)}
        return function(given=ModelChoice(**chosen), **options)

    for option in reversed(OPTIONS):
        gathered = option(gathered)
    return gathered  # type: ignore[return-value]


def open_given(given: ModelChoice, *, sessions: int = 1, overlap: bool | None = None, budget: int | None = None) -> Model:
    """The chosen model, opened; what its user should know of it is said on standard error."""
    from cgr.solve import open_model

    model = open_model(
        given.model,
        sessions=sessions,
        overlap=overlap,
        budget=budget,
        threads=given.threads,
        think_tags=given.think_tags,
        base_url=given.base_url,
        api_key=given.api_key,
        tokenizer=given.tokenizer,
        device=given.device,
        dtype=given.dtype,
        dialect=given.dialect,
        chunk=given.chunk,
        probe_model=given.probe_model,
    )
    for note in getattr(model.engine, "notes", ()):
        click.echo(f"note:  {note}", err=True)
    return model
