"""Connects to servers: reaches them, detects their dialect, finds the think tags, and checks what is needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from difflib import SequenceMatcher

from cgr.engines.base import ModelInfo, Sampling
from cgr.engines.completions.client import CompletionClient, Pool, ServedModel
from cgr.engines.completions.detect import SAMPLE, Detection, detect, sample_prompt, served_model, tokenizer_style
from cgr.engines.completions.dialect import LLAMA, CompletionRequest, Dialect
from cgr.engines.completions.engine import CHUNK, NAME, Connected, Place, check_key, server_capabilities
from cgr.engines.completions.http import Server
from cgr.engines.completions.policy import RetryPolicy
from cgr.engines.completions.thinking import ThinkingFormat
from cgr.engines.open import ModelOptions
from cgr.engines.text import chat
from cgr.engines.text.chat import EndTag, ThinkTags, need_tags
from cgr.engines.text.model_files import LocalTokenizer
from cgr.errors import EngineError, MissingCapability, ModelNotFound, UsageError

COMMON_TAGS = ("<think>", "<thinking>", "<thought>", "<reasoning>", "<seed:think>", "[THINK]")
TRIAL_TOKENS, TRIALS = 64, 8  # to measure how many tokens change when their text is encoded again


async def connect(addresses: Sequence[str], options: ModelOptions, policy: RetryPolicy) -> Connected:
    """Everything that an engine needs to know about these servers."""
    key = options.api_key or os.environ.get("CGR_API_KEY") or None
    check_key(key)
    local = await asyncio.to_thread(LocalTokenizer, options.tokenizer) if options.tokenizer else None
    servers = [Server(one, key, policy) for one in addresses]
    try:
        ask, served, notes = await _first_reachable(servers, options.model)
        start = Dialect(server=served.kind) if local else await tokenizer_style(ask, served.model, served.kind)
        client = CompletionClient(start, served, Pool([ask.server], policy), local)
        ids = sample_prompt(await client.encode(SAMPLE), served.context)
        client.dialect = dialect = await detect(ask, served, start, ids, options.dialect)
        _check(dialect, served)
        tags = need_tags(options.tags or await find_tags(client), served.model)
        close_ids, eos = await client.encode(tags.close), await client.eos_ids()
        chunk = _chunk(dialect, options.chunk, notes)
        notes += await tokenization_warnings(ask, client)
    finally:
        for server in servers:
            await server.close()
    if not dialect.seed:
        notes.append("The server does not obey seeds: the same seed will not give the same thinking.")
    context = min(options.context or dialect.context, dialect.context)
    control = frozenset(close_ids if len(close_ids) == 1 else ()) | eos
    places = _places(dialect, chunk, options.sessions, len(addresses))
    return Connected(
        tuple(addresses),
        key,
        served,
        dialect,
        tags,
        ThinkingFormat(EndTag(tags.close, close_ids), control, eos, context, chunk),
        ModelInfo(served.model, NAME, context, tags.open, tags.close, sessions=places, chunk=chunk),
        server_capabilities(dialect, chunk),
        (Place(),) * places,
        local,
        tuple(notes),
    )


async def _first_reachable(servers: Sequence[Server], model: str | None) -> tuple[Detection, ServedModel, list[str]]:
    """The first server that replies, and what it says. The others must have the same model; one that cannot be reached is
    tried again later, and a note says so."""
    found: tuple[Detection, ServedModel] | None = None
    missing: list[ModelNotFound] = []
    for server in servers:
        try:
            served = await served_model(Detection(server), model)
        except ModelNotFound as error:
            missing.append(error)
        else:
            if found is None:
                found = Detection(server), served
                continue
            _check_same(found[1], served)
    if found is None:
        raise missing[0]
    return *found, [f"{error.message} It is not used for now, and tried again later." for error in missing]


def _check_same(first: ServedModel, other: ServedModel) -> None:
    if (first.model, first.context) != (other.model, other.context) and LLAMA not in (first.kind, other.kind):
        raise UsageError(
            f"{other.address} has {other.model} with a context of {other.context}, and {first.address} has {first.model} "
            f"with {first.context}.",
            "Servers that share the work must have the same model.",
        )


def _check(dialect: Dialect, served: ServedModel) -> None:
    """Something that is needed and missing is an error now, not in the middle of a run."""
    if not dialect.logprobs:
        raise MissingCapability(
            f"{served.kind} at {served.address} returns no log-probabilities, and certainty needs them.",
            "Use a server that takes `logprobs` on /v1/completions (vLLM, llama-server).",
        )
    if not dialect.raw_logprobs:
        raise MissingCapability(
            "The server's log-probabilities are not raw: they are taken after bans and filters.",
            "Start vLLM without --logprobs-mode, or with --logprobs-mode raw_logprobs.",
        )
    if not dialect.context:
        raise MissingCapability(
            "The server does not report the length of its context.", "Give it: --dialect context=32768."
        )


async def find_tags(client: CompletionClient) -> ThinkTags | None:
    """The model's think tags: from its special tokens or its template, else common tags that are single tokens."""
    special = client.local.special if client.local else {}
    if found := chat.find_tags(client.template or await _template_end(client), special):
        return found
    for opening in COMMON_TAGS:
        closing = f"{opening[0]}/{opening[1:]}"
        if len(await client.encode(opening)) == len(await client.encode(closing)) == 1:
            return ThinkTags(opening, closing)
    return None


async def _template_end(client: CompletionClient) -> str:
    """A prompt by the server's own chat template, if it applies one."""
    if client.local or client.dialect.tokenize == LLAMA:
        return ""
    try:
        return await client.decode(await client.apply_template("?"))
    except EngineError:
        return ""


def _chunk(dialect: Dialect, given: int | None, notes: list[str]) -> int | None:
    """Tokens of a request in chunked mode; None to think in one stream."""
    if given:
        return given
    if not dialect.stream:
        notes.append("The server does not stream: thinking comes in chunks, and probes wait between them.")
        return CHUNK
    if dialect.slots == 1:
        notes.append("The server has one slot: thinking comes in chunks, and probes wait between them (see --parallel).")
        return CHUNK
    return None


def _places(dialect: Dialect, chunk: int | None, sessions: int, servers: int) -> int:
    """Sessions at once: a stream and a probe beside it take two slots of a server that has slots."""
    if not dialect.slots:
        return sessions
    each = dialect.slots if chunk else dialect.slots // 2
    return min(sessions, each * servers)


async def tokenization_warnings(ask: Detection, client: CompletionClient) -> list[str]:
    """For a server that does not speak in ids: a note with the share of sampled tokens that change when encoded again."""
    dialect = client.dialect
    if dialect.exact:
        return []
    tokens = changed = 0
    for seed in range(TRIALS):
        ids, again = await _encoded_twice(ask, client, seed)
        tokens += len(ids)
        changed += changed_tokens(ids, again)
        if tokens >= TRIAL_TOKENS:
            break
    what = "takes no token ids" if not dialect.token_prompts else "returns no token ids"
    return [
        f"The server {what}: texts are encoded again, so results are not exact. Of {tokens} tokens of a sample, {changed} "
        "changed."
    ]


async def _encoded_twice(ask: Detection, client: CompletionClient, seed: int) -> tuple[Sequence[int], Sequence[int]]:
    """The ids of a sample, as far as they are known, and the ids of its text."""
    prompt = await client.encode(SAMPLE) if client.dialect.token_prompts else SAMPLE
    request = CompletionRequest(prompt, TRIAL_TOKENS, Sampling(temperature=1.0), seed=seed, top=1)
    piece = await ask.complete(client.dialect, client.served.model, request)
    ids: Sequence[int] = piece.ids
    if client.dialect.token_ids == "none":
        ids = [token for one in piece.tokens if one.text for token in await client.encode(one.text)]
    return ids, await client.encode(piece.text) if piece.text else ()


def changed_tokens(before: Sequence[int], after: Sequence[int]) -> int:
    """How many tokens of the first sequence are not in the second, in order."""
    blocks = SequenceMatcher(None, list(before), list(after), autojunk=False).get_matching_blocks()
    return len(before) - sum(block.size for block in blocks)
