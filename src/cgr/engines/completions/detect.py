"""Finding out, by a few cheap requests at the start, what a server can do. Anything found can be overridden.

One prompt of a few hundred tokens is sent twice, the second time with its most likely next token banned: that shows whether
token ids are taken and given, how many log-probabilities there are, whether they are raw, whether bans work, and
whether the prompt was cached. Three short samples, one as a stream, show whether seeds are kept to.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from cgr.engines.base import Sampling
from cgr.engines.completions.asker import Asker, read_whole
from cgr.engines.completions.dialect import LLAMA, Api, Dialect, Wanted, body, overrides, tokenize_call
from cgr.engines.completions.wire import TOP, Piece
from cgr.errors import CgrError, EngineError, MissingCapability, ModelNotFound, UsageError

SAMPLE = "Let me count: " + ", ".join(map(str, range(1, 100)))
LONG = 288  # tokens: more than two blocks of any prefix cache
CLOSE = 0.25  # how near log-probabilities of the same token are, in whatever precision and batch
HOT = Sampling(temperature=2.0)  # as hot as servers allow: two seeds hardly agree by chance


@dataclass(frozen=True, slots=True)
class Served:
    """What a server says of itself before anything is completed."""

    address: str
    model: str
    context: int
    kind: str
    props: dict[str, Any]


def served(asker: Asker, wanted: str | None) -> Served:
    """Which model is there, and what kind of server."""
    listed = asker.get("/v1/models")
    if listed is None:
        raise UsageError(
            f"{asker.address} lists no models at /v1/models.", "Give the address of a completions server as --base-url."
        )
    models = [one for one in listed.get("data", []) if isinstance(one, dict)]
    kind = _kind(asker, models)
    chosen = _chosen(asker.address, models, wanted, kind)
    props = (asker.get("/props") or {}) if kind == LLAMA else {}
    context = chosen.get("max_model_len") or props.get("default_generation_settings", {}).get("n_ctx") or 0
    return Served(asker.address, wanted or str(chosen["id"]), int(context), kind, props)


def _kind(asker: Asker, models: Sequence[dict[str, Any]]) -> str:
    owners = {str(one.get("owned_by", "")) for one in models}
    if "llamacpp" in owners:
        return LLAMA
    if owners & {"vllm", "sglang"}:
        version = asker.get("/version") or {}
        return f"{next(iter(owners & {'vllm', 'sglang'}))} {version.get('version', '')}".strip()
    return "unknown"


def _chosen(address: str, models: Sequence[dict[str, Any]], wanted: str | None, kind: str) -> dict[str, Any]:
    """By name; the only one where none is named. llama-server has one, whatever it is called."""
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


def tokenizing(asker: Asker, model: str, kind: str, local: bool) -> Dialect:
    """A dialect of which only the tokenizer is known: the server's, unless a local one was given."""
    if local:
        return Dialect(server=kind)
    for style in ("llama.cpp", "vllm") if kind == LLAMA else ("vllm", "llama.cpp"):
        dialect = Dialect(server=kind, tokenize=style)
        try:
            reply = asker.post(*tokenize_call(dialect, model, "1"))
        except EngineError:
            continue
        except UsageError as error:
            if "key" in error.message:
                raise
            continue
        if isinstance(reply.get("tokens"), list) and reply["tokens"]:
            return dialect
    raise MissingCapability(
        f"The server at {asker.address} does not tokenise, and no tokenizer was given.",
        "Name one with --tokenizer: a folder, a tokenizer.json or a hub id.",
    )


def detect(asker: Asker, about: Served, start: Dialect, ids: Sequence[int], given: Sequence[str] = ()) -> Dialect:
    """The dialect of this server. `ids`: a sample prompt; what is given is neither tried nor doubted."""
    fixed = overrides(given)
    api: Api = "llama.cpp" if about.kind == LLAMA else "openai"
    dialect = replace(start, api=api, context=about.context, slots=int(about.props.get("total_slots") or 0))
    dialect = replace(dialect, **fixed)
    dialect, first = _first(asker, about.model, dialect, ids, fixed)
    dialect = _banned(asker, about.model, dialect, ids, first, fixed)
    return replace(_sampled(asker, about.model, dialect, ids[:16], fixed), **fixed)


def sample(ids: Sequence[int], context: int) -> list[int]:
    """A prompt of some length that fits."""
    length = min(LONG, max(context // 2, 8)) if context else LONG
    return list(itertools.islice(itertools.cycle(ids), length))


def _first(
    asker: Asker, model: str, dialect: Dialect, ids: Sequence[int], fixed: dict[str, Any]
) -> tuple[Dialect, Piece | None]:
    """The first form of a request that the server takes, the richest tried first."""
    if dialect.api == LLAMA:
        dialect = replace(dialect, logprobs=fixed.get("logprobs", 1000))
        return dialect, asker.complete(dialect, model, _greedy(ids, TOP))
    refused: CgrError | None = None
    for token_prompts, extras, top in itertools.product(
        _tried(fixed, "token_prompts", (True, False)),
        _tried(fixed, "extras", (True, False)),
        _tried(fixed, "logprobs", (20, 5, 1, 0)),
    ):
        form = replace(dialect, token_prompts=token_prompts, extras=extras, logprobs=top)
        prompt: Sequence[int] | str = ids if token_prompts else SAMPLE
        try:
            reply = asker.post(form.path, body(form, model, _greedy(prompt, top or None)))
        except EngineError as error:
            refused = refused or error
            continue
        if token_prompts and _misread(reply, ids):
            continue
        return _understood(form, reply, fixed)
    raise refused or EngineError("The server completes nothing.", "Is it a completions server?")


def _tried(fixed: dict[str, Any], name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    return (fixed[name],) if name in fixed else values


def _greedy(prompt: Sequence[int] | str, top: int | None, banned: Sequence[int] = ()) -> Wanted:
    return Wanted(prompt, 1, Sampling(temperature=0.0), banned=banned, top=top)


def _misread(reply: dict[str, Any], ids: Sequence[int]) -> bool:
    """Whether the ids were taken for something else: the server counts the prompt's tokens."""
    counted = (reply.get("usage") or {}).get("prompt_tokens")
    return counted is not None and counted != len(ids)


def _understood(form: Dialect, reply: dict[str, Any], fixed: dict[str, Any]) -> tuple[Dialect, Piece]:
    """How ids come back: in a field of their own, with the log-probabilities, or not at all."""
    choice = (reply.get("choices") or [{}])[0]
    logprobs = choice.get("logprobs") or {}
    if choice.get("token_ids"):
        ids = "field"
    elif logprobs.get("content") or str((logprobs.get("tokens") or [""])[0]).startswith("token_id:"):
        ids = "logprobs"
    else:
        ids = "none"
    dialect = replace(form, token_ids=fixed.get("token_ids", ids), logprobs=form.logprobs if logprobs else 0)
    return dialect, read_whole(dialect, reply)


def _banned(
    asker: Asker, model: str, dialect: Dialect, ids: Sequence[int], first: Piece | None, fixed: dict[str, Any]
) -> Dialect:
    """The same again with the winner banned: another must win, at the log-probability that it had before."""
    if not first or not first.tokens or not dialect.logprobs or first.tokens[0].id < 0:
        return replace(dialect, logit_bias=False)
    best = first.tokens[0]
    prompt: Sequence[int] | str = ids if dialect.token_prompts else SAMPLE
    try:
        again = asker.complete(dialect, model, _greedy(prompt, TOP, (best.id,)))
    except EngineError:
        return replace(dialect, logit_bias=False)
    chosen = again.tokens[0] if again.tokens else best
    beside = dict(chosen.top).get(best.id)  # raw, it still heads the list
    kept = beside is not None and abs(beside - best.logprob) < CLOSE
    told = dialect.api == LLAMA or again.cached or again.prefilled
    return replace(
        dialect,
        logit_bias=chosen.id != best.id,
        raw_logprobs=chosen.id == best.id or kept,
        prefix_cache=again.cached > 0 if told else None,
    )


def _sampled(asker: Asker, model: str, dialect: Dialect, ids: Sequence[int], fixed: dict[str, Any]) -> Dialect:
    prompt: Sequence[int] | str = ids if dialect.token_prompts else SAMPLE
    dialect = replace(dialect, seed=fixed.get("seed", True))

    def hot(seed: int) -> Wanted:
        return Wanted(prompt, 16, HOT, seed)

    once = asker.complete(dialect, model, hot(1))
    other = asker.complete(dialect, model, hot(2))
    seed = once.text != asker.complete(dialect, model, hot(1)).text
    pieces = _try_stream(asker, dialect, model, hot(1)) if fixed.get("stream", True) else []
    return replace(dialect, seed=not seed and once.text != other.text, stream=_is_stream(pieces))


def _try_stream(asker: Asker, dialect: Dialect, model: str, wanted: Wanted) -> list[Piece]:
    try:
        return asker.streamed(dialect, model, wanted)
    except EngineError:
        return []


def _is_stream(pieces: Sequence[Piece]) -> bool:
    """Several events, and the last word is how it ended."""
    return sum(bool(piece.ids or piece.text) for piece in pieces) > 1 and any(piece.stop for piece in pieces)


def lost_by_encoding(before: Sequence[int], after: Sequence[int]) -> int:
    """How many of these tokens came back otherwise."""
    blocks = SequenceMatcher(None, list(before), list(after), autojunk=False).get_matching_blocks()
    return len(before) - sum(block.size for block in blocks)
