"""`cgr serve`: a server with the APIs of OpenAI and Anthropic that stops thinking when the model is certain."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cgr.cli.main import say
from cgr.cli.shared.options import PATH, model_options, settings_options
from cgr.cli.solve import rule_and_parameters
from cgr.engines.open import ENGINES, ModelOptions
from cgr.errors import UsageError
from cgr.settings import Settings

if TYPE_CHECKING:
    from cgr.server.config import ServeConfig

NEEDED = ("starlette", "uvicorn", "uvloop", "httptools", "prometheus_client", "orjson")
GATEWAY_SESSIONS, EMBEDDED_SESSIONS = 256, 8
EXAMPLE = "Start with x=864. Apply x=(8x+97) mod 1000, 2 times. Find x."
LOCAL = ("127.0.0.1", "localhost", "::1")


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option("--port", default=8321, show_default=True, help="Port to listen on; 0 for any free one.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes on this port.")
@click.option("--when", type=click.Choice(["boxed", "always", "asked"]),
              help="Which requests are probed: those with \\boxed in a message, all, or those with a cgr field."
              "  [default: always for the embedded model, else boxed]")  # fmt: skip
@click.option("--shadow", is_flag=True, help="Make probes, but stop nothing.")
@model_options
@settings_options("rule", "threshold")
@click.option("--set", "given_parameters", multiple=True, help="A parameter of the rule, such as --set agree=5.")
@settings_options("interval", "budget", "max_answer_tokens", "aggregate", "temperature", "top_p")
@settings_options("at_budget", "at_end_of_thinking", "prefix", "close_think", "overlap")
@click.option("--answer-style", type=click.Choice(["full", "boxed"]), default="full", show_default=True,
              help="After an early stop the model writes its answer, or only the boxed answer is sent.")  # fmt: skip
@click.option("--wrap-up", default="", metavar="TEXT", help="Text to put before the end tag where thinking is cut.")
@click.option("--sentence-end/--no-sentence-end", default=True, show_default=True,
              help="Let a cut wait for the end of a sentence, at most a tenth of the interval.")  # fmt: skip
@click.option("--stream-probes", is_flag=True, help="Send each probe with the next piece of a stream.")
@click.option("--abstain-message", metavar="TEXT", help="The reply where the answer is withheld.")
@click.option("--show-withheld", is_flag=True, help="Put a withheld answer into the cgr object.")
@click.option("--sessions", type=click.IntRange(1), help="Requests at once, in each worker."
              "  [default: 256 with --base-url, 8 for the embedded model, else 1]")  # fmt: skip
@click.option("--queue", type=click.IntRange(0), default=256, show_default=True, help="Requests that may wait for a place.")
@click.option("--queue-seconds", type=click.FloatRange(0.0, min_open=True), default=60.0, show_default=True,
              help="How long a request may wait.")  # fmt: skip
@click.option("--max-body", type=click.IntRange(1), default=8 << 20, show_default=True, help="Bytes of a request's body.")
@click.option("--shutdown-seconds", type=click.FloatRange(0.0), default=30.0, show_default=True,
              help="Time for running requests after SIGTERM.")  # fmt: skip
@click.option("--ping-seconds", type=click.FloatRange(0.01), default=15.0, show_default=True,
              help="Silence in a stream after which a comment is sent.")  # fmt: skip
@click.option("--client-seconds", type=click.FloatRange(0.01), default=60.0, show_default=True,
              help="A client that reads nothing of its stream for so long has left.")  # fmt: skip
@click.option("--drain", is_flag=True, help="Read replies of the upstream to their end, if it does not survive aborts.")
@click.option("--upstream-tries", type=click.IntRange(1), default=6, show_default=True,
              help="How often a request to a failing upstream is tried in a row.")  # fmt: skip
@click.option("--upstream-seconds", type=click.FloatRange(0.01), default=60.0, show_default=True,
              help="Silence in a stream of the upstream after which the rest is requested again.")  # fmt: skip
@click.option("--session-header", metavar="NAME", help="One more header with the id of a session, for a router.")
@click.option("--api-key-file", type=PATH, help="Keys of clients, one in a line.  [env var: CGR_SERVER_KEYS]")
@click.option("--cors", multiple=True, metavar="ORIGIN", help="Let pages of this origin use the server; may be repeated.")
@click.option("--baseline-tokens", type=float, help="Mean thinking tokens without early stops, for the savings.")
@click.option("--log", type=click.Choice(["text", "json", "off"]), default="text", show_default=True, help="Form of logs.")
def command(
    given: ModelOptions,
    given_parameters: tuple[str, ...],
    api_key_file: Path | None,
    drain: bool,
    upstream_tries: int,
    upstream_seconds: float,
    session_header: str | None,
    when: Literal["boxed", "always", "asked"] | None,
    sessions: int | None,
    abstain_message: str | None,
    **options: Any,
) -> int:
    """Serve a model by the APIs of OpenAI and Anthropic, and stop its thinking when it is certain.

    With --base-url, it is a gateway in front of vLLM, SGLang or llama-server. Otherwise it serves a model of its own: the
    embedded one, or --model.
    """
    _check_installed()
    from cgr.engines.completions.policy import RetryPolicy
    from cgr.server.config import ABSTAINED, ServeConfig
    from cgr.server.keys import read_keys
    from cgr.server.run import serve

    options["rule"], parameters = rule_and_parameters(options["rule"], given_parameters)
    names = {name for name in options if name in Settings.__dataclass_fields__}
    settings = Settings(instruction="", parameters=parameters, **{name: options.pop(name) for name in names})
    gateway = bool(given.addresses)
    many = sessions or (GATEWAY_SESSIONS if gateway else EMBEDDED_SESSIONS if given.embedded else 1)
    model = replace(
        given,
        overlap=bool(settings.overlap),
        budget=settings.budget,
        session_header=session_header,
        patience=RetryPolicy(tries=upstream_tries, stall=upstream_seconds, drain=drain),
    )
    config = ServeConfig(
        model=model,
        settings=settings,
        when=when or ("always" if given.embedded else "boxed"),
        sessions=many,
        keys=read_keys(api_key_file),
        abstain_message=ABSTAINED if abstain_message is None else abstain_message,
        **options,
    )
    _check(config)
    return serve(config, lambda address: _announce(config, address))


def _check_installed() -> None:
    import importlib.util

    for package in NEEDED:
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"`cgr serve` needs {package}.", "pip install 'certainty-guided-reasoning[server]'")


def _check(config: ServeConfig) -> None:
    if config.workers > 1 and (config.model.model or "").startswith(tuple(ENGINES)):
        raise UsageError(
            f"Every worker would load {config.model.model} again.", "Start it as a server, and use --base-url."
        )
    if config.host not in LOCAL and not config.keys:
        say(f"warning: everybody who can reach {config.host} may use this server; see --api-key-file.", err=True)


def _announce(config: ServeConfig, address: str) -> None:
    """The lines that a user sees when the server is ready."""
    served = config.model.model or ("the upstream's model" if config.gateway else "the embedded model")
    body = {"messages": [{"role": "user", "content": EXAMPLE}]}
    if config.when == "asked":
        body |= {"cgr": True}  # type: ignore[dict-item]
    if config.when == "boxed":
        body["messages"][0]["content"] += " Put the answer into \\boxed{}."
    key = " -H 'authorization: Bearer KEY'" if config.keys else ""
    text = json.dumps(body)
    say(f"Serving {served} at {address}/v1, page at {address}/. Try:")
    say(f"curl {address}/v1/chat/completions -H 'content-type: application/json'{key} -d '{text}'")
