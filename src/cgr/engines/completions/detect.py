"""Finds out, by a few cheap requests, what a server can do. Everything that is detected can be overridden.

One prompt of a few hundred tokens is sent twice, the second time with its most likely next token banned. This shows whether
token ids are accepted and returned, how many log-probabilities there are, whether they are raw, whether bans work, and
whether the prompt was cached. Three short samples, one of them streamed, show whether seeds are obeyed.
"""

from __future__ import annotations

import asyncio
import itertools
import typing
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields, replace
from types import UnionType
from typing import Any, Literal, TypeVar

from cgr.engines.base import Sampling
from cgr.engines.completions.client import ServedModel, tokenize_body
from cgr.engines.completions.dialect import (
    LLAMA,
    PROBE_TOP,
    Api,
    CompletionRequest,
    Dialect,
    Piece,
    read_reply,
    request_body,
)
from cgr.engines.completions.engine import START_VARIABLE
from cgr.engines.completions.http import BadReply, Fault, Server, WrongKey
from cgr.errors import CgrError, EngineError, MissingCapability, ModelNotFound, UnknownName, UsageError

T = TypeVar("T")
SAMPLE = "Let me count: " + ", ".join(map(str, range(1, 100)))
SAMPLE_TOKENS = 288  # more than two blocks of any prefix cache
TOLERANCE = 0.25  # between log-probabilities of the same token, in any precision and batch
COMPUTING = 6  # times the limit of the first requests, for those that make the model compute
HOT = Sampling(temperature=2.0)  # as high as servers allow: two seeds hardly agree by chance


class NoAnswer(ModelNotFound):
    """The server accepts requests and does not answer them."""


class Detection:
    """Requests to one server while the engine connects. A server that is still loading is waited for; one that cannot be
    reached is an error at once."""

    def __init__(self, server: Server) -> None:
        self.server, self.policy = server, server.policy

    async def get(self, path: str) -> dict[str, Any] | None:
        """The JSON document at this path, or None."""
        return await self._retried(lambda: self.server.get(path))

    async def post(self, path: str, body: dict[str, Any], *, computes: bool = False) -> dict[str, Any]:
        """The JSON reply. `computes`: the model has to work for it."""
        return await self._retried(lambda: self.server.post(path, body), computes=computes)

    async def complete(self, dialect: Dialect, model: str, request: CompletionRequest) -> Piece:
        """A whole completion."""
        body = request_body(dialect, model, request)
        return _understood(dialect, await self.post(dialect.path, body, computes=True))

    async def stream(self, dialect: Dialect, model: str, request: CompletionRequest) -> list[Piece]:
        """All pieces of a streamed completion."""
        body = request_body(dialect, model, replace(request, stream=True))

        async def listen() -> list[Piece]:
            async with self.server.events(dialect.path, body, lambda event: _understood(dialect, event)) as reads:
                return [piece async for pieces in reads for piece in pieces]

        return await self._retried(listen, computes=True)

    async def _retried(self, call: Callable[[], Awaitable[T]], *, computes: bool = False) -> T:
        limit = self.policy.start and self.policy.start * (COMPUTING if computes else 1)
        for attempt in itertools.count():
            try:
                async with asyncio.timeout(limit):
                    return await call()
            except TimeoutError as error:
                late = f"The server at {self.server.address} did not answer within {limit:g} seconds."
                raise NoAnswer(late, f"Check the server, or wait longer: {START_VARIABLE}=60") from error
            except BadReply as strange:
                address = self.server.address
                raise UsageError(f"{address} is not a completions server: {strange}.", "Check --base-url.") from strange
            except Fault as fault:
                if (fault.unreachable and not fault.disconnected) or attempt + 1 >= self.policy.tries:
                    raise self._gave_up(fault) from fault
                await asyncio.sleep(self.policy.delay(attempt, fault.wait))
        raise AssertionError

    def _gave_up(self, fault: Fault) -> CgrError:
        address = self.server.address
        if fault.unreachable:
            hint = "Start it, or check --base-url and CGR_BASE_URL."
            return ModelNotFound(f"There is no server at {address}: {fault.what}.", hint)
        return EngineError(f"The server at {address} does not work: {fault.what}.", "Check the server, and try again.")


def _understood(dialect: Dialect, data: dict[str, Any]) -> Piece:
    try:
        return read_reply(dialect, data)
    except BadReply as fault:
        message = f"The server's completions are not understood: {fault}."
        raise EngineError(message, "Is it a completions server?") from fault


async def served_model(ask: Detection, wanted: str | None) -> ServedModel:
    """Which model is there, and what kind of server it is."""
    address, listed = ask.server.address, await ask.get("/v1/models")
    if listed is None:
        raise UsageError(f"{address} lists no models at /v1/models.", "Give the address of a completions server.")
    models = [one for one in listed.get("data", []) if isinstance(one, dict)]
    kind = await _kind(ask, models)
    chosen = _chosen(address, models, wanted, kind)
    props = (await ask.get("/props") or {}) if kind == LLAMA else {}
    context = chosen.get("max_model_len") or props.get("default_generation_settings", {}).get("n_ctx") or 0
    return ServedModel(address, wanted or str(chosen["id"]), int(context), kind, props)


async def _kind(ask: Detection, models: Sequence[dict[str, Any]]) -> str:
    owners = {str(one.get("owned_by", "")) for one in models}
    if "llamacpp" in owners:
        return LLAMA
    if known := owners & {"vllm", "sglang"}:
        version = await ask.get("/version") or {}
        return f"{next(iter(known))} {version.get('version', '')}".strip()
    return "unknown"


def _chosen(address: str, models: Sequence[dict[str, Any]], wanted: str | None, kind: str) -> dict[str, Any]:
    """The model by name; the only one if none is named. llama-server has one model, whatever it is called."""
    names = [str(one.get("id", "")) for one in models]
    if not models:
        raise UsageError(f"The server at {address} has no model.", "Start it with one.")
    if wanted in names:
        return models[names.index(str(wanted))]
    if wanted is None and len(models) > 1:
        raise UsageError(f"The server at {address} has several models.", f"Choose with --model: {', '.join(names)}.")
    if wanted is None or kind == LLAMA:
        return models[0]
    raise ModelNotFound(f"The server at {address} has no model {wanted!r}.", f"It has: {', '.join(names)}.")


async def tokenizer_style(ask: Detection, model: str, kind: str) -> Dialect:
    """A dialect of which only the way to tokenise is known."""
    for style in ("llama.cpp", "vllm") if kind == LLAMA else ("vllm", "llama.cpp"):
        dialect = Dialect(server=kind, tokenize=style)
        try:
            reply = await ask.post("/tokenize", tokenize_body(dialect, model, "1"))
        except (WrongKey, NoAnswer):
            raise
        except (EngineError, UsageError):
            continue
        if isinstance(reply.get("tokens"), list) and reply["tokens"]:
            return dialect
    raise MissingCapability(
        f"The server at {ask.server.address} does not tokenise, and no tokenizer was given.",
        "Name one with --tokenizer: a folder, a tokenizer.json or a hub id.",
    )


async def detect(ask: Detection, served: ServedModel, start: Dialect, ids: Sequence[int], given: Sequence[str]) -> Dialect:
    """The dialect of this server. `ids`: a sample prompt. What is given, as in `stream=no`, is taken without a test."""
    fixed = overrides(given)
    api: Api = "llama.cpp" if served.kind == LLAMA else "openai"
    dialect = replace(start, api=api, context=served.context, slots=int(served.props.get("total_slots") or 0))
    dialect = replace(dialect, **fixed)
    dialect, first = await _first_accepted(ask, served.model, dialect, ids, fixed)
    dialect = await _test_ban(ask, served.model, dialect, ids, first, fixed)
    return replace(await _test_sampling(ask, served.model, dialect, ids[:16], fixed), **fixed)


def sample_prompt(ids: Sequence[int], context: int) -> list[int]:
    """A prompt of some length that fits into the context."""
    length = min(SAMPLE_TOKENS, max(context // 2, 8)) if context else SAMPLE_TOKENS
    return list(itertools.islice(itertools.cycle(ids), length))


async def _first_accepted(
    ask: Detection, model: str, dialect: Dialect, ids: Sequence[int], fixed: dict[str, Any]
) -> tuple[Dialect, Piece]:
    """The first form of a request that the server accepts; the richest is tried first."""
    if dialect.api == LLAMA:
        dialect = replace(dialect, logprobs=fixed.get("logprobs", 1000))
        return dialect, await ask.complete(dialect, model, _greedy(ids, PROBE_TOP))
    refused: CgrError | None = None
    for token_prompts, extras, top in itertools.product(
        (fixed["token_prompts"],) if "token_prompts" in fixed else (True, False),
        (fixed["extras"],) if "extras" in fixed else (True, False),
        (fixed["logprobs"],) if "logprobs" in fixed else (20, 5, 1, 0),
    ):
        form = replace(dialect, token_prompts=token_prompts, extras=extras, logprobs=top)
        try:
            body = request_body(form, model, _greedy(_prompt(form, ids), top or None))
            reply = await ask.post(form.path, body, computes=True)
        except EngineError as error:
            refused = refused or error
            continue
        counted = (reply.get("usage") or {}).get("prompt_tokens")
        if token_prompts and counted not in (None, len(ids)):
            continue  # the ids were read as something else
        form = replace(form, token_ids=fixed.get("token_ids", _ids_returned(reply)))
        has_logprobs = bool((reply.get("choices") or [{}])[0].get("logprobs"))
        form = replace(form, logprobs=form.logprobs if has_logprobs else 0)
        return form, _understood(form, reply)
    raise refused or EngineError("The server completes nothing.", "Is it a completions server?")


def _ids_returned(reply: dict[str, Any]) -> Literal["field", "logprobs", "none"]:
    """How ids are returned: in a field of their own, with the log-probabilities, or not at all."""
    choice = (reply.get("choices") or [{}])[0]
    logprobs = choice.get("logprobs") or {}
    if choice.get("token_ids"):
        return "field"
    named = str((logprobs.get("tokens") or [""])[0]).startswith("token_id:")
    return "logprobs" if logprobs.get("content") or named else "none"


def _greedy(prompt: Sequence[int] | str, top: int | None, banned: Sequence[int] = ()) -> CompletionRequest:
    return CompletionRequest(prompt, 1, Sampling(temperature=0.0), banned=banned, top=top)


def _prompt(dialect: Dialect, ids: Sequence[int]) -> Sequence[int] | str:
    return ids if dialect.token_prompts else SAMPLE


async def _test_ban(
    ask: Detection, model: str, dialect: Dialect, ids: Sequence[int], first: Piece, fixed: dict[str, Any]
) -> Dialect:
    """The same request with the chosen token banned: another must be chosen, at the log-probability that it had before.
    If the user says that bans do not work, it is only repeated, to see whether the prompt was cached."""
    if not first.tokens or not dialect.logprobs or first.tokens[0].id < 0:
        return replace(dialect, logit_bias=False)
    best = first.tokens[0]
    bans = (best.id,) if fixed.get("logit_bias", True) else ()
    try:
        again = await ask.complete(dialect, model, _greedy(_prompt(dialect, ids), PROBE_TOP, bans))
    except EngineError:
        return replace(dialect, logit_bias=False)
    chosen = again.tokens[0] if again.tokens else best
    beside = dict(chosen.top).get(best.id)  # in raw log-probabilities, the banned token is still first
    kept = beside is not None and abs(beside - best.logprob) < TOLERANCE
    reported = dialect.api == LLAMA or again.cached or again.prefilled
    return replace(
        dialect,
        logit_bias=chosen.id != best.id,
        raw_logprobs=chosen.id == best.id or kept,
        prefix_cache=again.cached > 0 if reported else None,
    )


async def _test_sampling(
    ask: Detection, model: str, dialect: Dialect, ids: Sequence[int], fixed: dict[str, Any]
) -> Dialect:
    """Whether seeds are obeyed (the same seed twice, and another), and whether the server streams."""
    prompt = _prompt(dialect, ids)
    dialect = replace(dialect, seed=fixed.get("seed", True))
    texts = [(await ask.complete(dialect, model, CompletionRequest(prompt, 16, HOT, seed))).text for seed in (1, 2, 1)]
    pieces: list[Piece] = []
    if fixed.get("stream", True):
        try:
            pieces = await ask.stream(dialect, model, CompletionRequest(prompt, 16, HOT, 1))
        except EngineError:
            pieces = []
    several = sum(bool(piece.ids or piece.text) for piece in pieces) > 1 and any(piece.stop for piece in pieces)
    return replace(dialect, seed=texts[0] == texts[2] != texts[1], stream=several)


def overrides(given: Sequence[str]) -> dict[str, Any]:
    """Properties of a dialect as a person writes them: `stream=no`."""
    hints = typing.get_type_hints(Dialect)
    names = [field.name for field in fields(Dialect)]
    found: dict[str, Any] = {}
    for one in given:
        name, _, value = one.partition("=")
        if name not in names:
            raise UnknownName.among("property of a dialect", name, names)
        found[name] = _value(name, hints[name], value.strip())
    return found


def _value(name: str, hint: Any, text: str) -> Any:
    inner = typing.get_args(hint)[0] if isinstance(hint, UnionType) else hint
    if typing.get_origin(inner) is Literal:
        if text not in typing.get_args(inner):
            raise UnknownName.among(f"value of {name}", text, typing.get_args(inner))
        return text
    known = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if inner is bool and text.lower() in known:
        return known[text.lower()]
    if inner is int and text.isdigit():
        return int(text)
    if inner is str and text:
        return text
    kind = {bool: "yes or no", int: "a whole number"}.get(inner, "text")
    raise UsageError(f"{name} of a dialect is {kind}, not {text!r}.", "Write it like --dialect stream=no.")
