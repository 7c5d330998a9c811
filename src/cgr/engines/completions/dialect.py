"""How completions servers differ: what they can do, what a request to each looks like, and how its reply is read.

Two dialects are spoken: llama.cpp's own `/completion`, and OpenAI's `/v1/completions` as vLLM, SGLang and llama-server have
it. What a server can do beyond that is found out at the start (detect.py) and written down as a `Dialect`.
"""

from __future__ import annotations

import codecs
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import UnionType
from typing import Any, Literal

from cgr.engines.base import Sampling
from cgr.engines.completions.wire import TOP, Piece, read_piece, thinking_body
from cgr.errors import EngineError, UnknownName, UsageError
from cgr.records import Record, Token

Api = Literal["openai", "llama.cpp"]
LLAMA = "llama.cpp"
NOTHING = -9999.0  # what vLLM writes for a probability of zero
BAN = -100.0
STOPS = {"stop": "eos", "length": "limit"}
OPEN_EXTRAS: Mapping[str, object] = {
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "add_special_tokens": False,
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
}
LLAMA_EXTRAS: Mapping[str, object] = {
    "top_k": -1,
    "min_p": 0.0,
    "samplers": ["temperature", "top_p"],
    "cache_prompt": True,
}


class BrokenOff(Exception):
    """A reply that is not whole, or makes no sense: asked again, the server may do better."""


@dataclass(frozen=True, slots=True)
class Dialect(Record):
    """What a server was found to do. `slots`: completions at once, 0 where it does not say; `prefix_cache` None: it does
    not say; `extras`: it takes fields that OpenAI does not have."""

    api: Api = "openai"
    server: str = "unknown"
    context: int = 0
    slots: int = 0
    tokenize: Literal["vllm", "llama.cpp", "local"] = "local"
    token_prompts: bool = True
    token_ids: Literal["field", "logprobs", "none"] = "field"
    logprobs: int = 0
    raw_logprobs: bool = True
    logit_bias: bool = True
    seed: bool = True
    stream: bool = True
    extras: bool = True
    prefix_cache: bool | None = None

    @property
    def path(self) -> str:
        return "/completion" if self.api == LLAMA else "/v1/completions"

    @property
    def exact(self) -> bool:
        return self.token_prompts and self.token_ids != "none"

    def changed(self, given: Sequence[str]) -> Dialect:
        """With what a person says, as in `stream=no`, in place of what was found."""
        return replace(self, **overrides(given))


def overrides(given: Sequence[str]) -> dict[str, Any]:
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
    raise UsageError(f"{name} of a dialect is {kind}, not {text!r}.", "Write it as in --dialect stream=no.")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One completion that is wanted: after these ids (or this text), so many tokens at most. `top`: alternatives with
    their log-probabilities; None: no log-probabilities at all."""

    prompt: Sequence[int] | str
    count: int
    sampling: Sampling
    seed: int = 0
    banned: Sequence[int] = ()
    top: int | None = None
    stream: bool = False


def body(dialect: Dialect, model: str, wanted: Wanted) -> dict[str, Any]:
    """The request, with every sampling parameter said: servers have defaults of their own."""
    if dialect.api == LLAMA:
        return _llama_body(wanted) | ({"stream": True} if wanted.stream else {})
    extras = (LLAMA_EXTRAS if dialect.server.startswith(LLAMA) else OPEN_EXTRAS) if dialect.extras else {}
    prompt = wanted.prompt if isinstance(wanted.prompt, str) else list(wanted.prompt)
    top = 1 if wanted.top is None and dialect.token_ids == "logprobs" else wanted.top
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": wanted.count,
        "temperature": wanted.sampling.temperature,
        "top_p": wanted.sampling.top_p,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        **extras,
        **({"seed": wanted.seed} if dialect.seed else {}),
        **({"logprobs": min(top, dialect.logprobs)} if top is not None else {}),
        **({"logit_bias": {str(token): BAN for token in wanted.banned}} if wanted.banned else {}),
        **({"stream": True} if wanted.stream else {}),
        **({"stream_options": {"include_usage": True}} if wanted.stream and top is not None and dialect.extras else {}),
    }


def _llama_body(wanted: Wanted) -> dict[str, Any]:
    """On whichever slot the server finds best: that of the longest common beginning."""
    made = thinking_body([], wanted.count, wanted.sampling, wanted.seed, -1, wanted.banned)
    if wanted.top is not None:
        made |= {"n_probs": wanted.top, "timings_per_token": True}
    del made["id_slot"]
    return made | {"prompt": wanted.prompt if isinstance(wanted.prompt, str) else list(wanted.prompt)}


def probe_wanted(dialect: Dialect, prompt: Sequence[int] | str, limit: int, top: int = 0) -> Wanted:
    """Greedy, with log-probabilities."""
    most = min(max(TOP, top), dialect.logprobs)
    return Wanted(prompt, limit, Sampling(temperature=0.0), top=most, stream=dialect.stream)


def read(dialect: Dialect, data: dict[str, Any], decoder: codecs.IncrementalDecoder | None = None) -> Piece:
    """One event of a stream, or one whole completion."""
    try:
        return read_piece(data, decoder) if dialect.api == LLAMA else _open_piece(dialect, data, decoder)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BrokenOff("it sent JSON that is not a completion's") from error


def _open_piece(dialect: Dialect, data: dict[str, Any], decoder: codecs.IncrementalDecoder | None) -> Piece:
    usage = data.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    cached = int(details.get("cached_tokens") or 0)
    prefilled = max(int(usage.get("prompt_tokens") or 0) - cached, 0) if details else 0
    if not data["choices"]:
        return Piece((), "", cached=cached, prefilled=prefilled)
    choice = data["choices"][0]
    text, tokens = str(choice.get("text") or ""), _tokens(choice.get("logprobs"), decoder)
    ids = tuple(map(int, choice.get("token_ids") or ())) if dialect.token_ids == "field" else tuple(t.id for t in tokens)
    if len(tokens) == 1 and not tokens[0].text:
        tokens = (replace(tokens[0], text=text),)
    return Piece(ids, text, tokens, cached, prefilled, _stop(choice.get("finish_reason")))


def _stop(reason: str | None) -> str | None:
    if reason is not None and reason not in STOPS:
        raise BrokenOff(f"it gave up with {reason!r}")
    return STOPS[reason] if reason else None


def _tokens(logprobs: dict[str, Any] | None, decoder: codecs.IncrementalDecoder | None) -> tuple[Token, ...]:
    if not logprobs:
        return ()
    if "content" in logprobs:  # llama-server, with ids and bytes
        data = {"completion_probabilities": logprobs["content"]}
        return read_piece(data, decoder).tokens
    rows = zip(logprobs["tokens"], logprobs["token_logprobs"], _tops(logprobs), strict=True)
    return tuple(_token(name, logprob, top) for name, logprob, top in rows)


def _tops(logprobs: dict[str, Any]) -> list[dict[str, float]]:
    given = logprobs.get("top_logprobs") or []
    return [one or {} for one in given] or [{} for _ in logprobs["tokens"]]


def _token(name: str, logprob: float | None, top: dict[str, float]) -> Token:
    """A token by name: `token_id:25` where the server knows ids, else its text, and no id."""
    if logprob is None or not math.isfinite(logprob) or logprob <= NOTHING:
        raise EngineError(
            "The server gave no probability for a token that it chose.", "cgr needs the raw log-probability of every token."
        )
    known = _named(name)
    alternatives = tuple((number, value) for one, value in top.items() if (number := _named(one)) is not None)
    return Token(-1 if known is None else known, name if known is None else "", float(logprob), alternatives)


def _named(name: str) -> int | None:
    number = name.removeprefix("token_id:")
    return int(number) if number != name and number.isdigit() else None


def tokenize_call(dialect: Dialect, model: str, text: str, *, special: bool = False) -> tuple[str, dict[str, Any]]:
    if dialect.tokenize == LLAMA:
        return "/tokenize", {"content": text, "add_special": special, "parse_special": True}
    return "/tokenize", {"model": model, "prompt": text, "add_special_tokens": special}


def template_call(model: str, question: str) -> tuple[str, dict[str, Any]]:
    """vLLM's: the chat template and its tokens in one."""
    messages = [{"role": "user", "content": question}]
    kwargs = {"enable_thinking": True}
    return "/tokenize", {
        "model": model,
        "messages": messages,
        "add_generation_prompt": True,
        "add_special_tokens": False,
        "chat_template_kwargs": kwargs,
    }


def detokenize_call(dialect: Dialect, model: str, ids: Sequence[int]) -> tuple[str, dict[str, Any], str]:
    """The path, the body, and the field of the reply."""
    if dialect.tokenize == LLAMA:
        return "/detokenize", {"tokens": list(ids)}, "content"
    return "/detokenize", {"model": model, "tokens": list(ids)}, "prompt"
