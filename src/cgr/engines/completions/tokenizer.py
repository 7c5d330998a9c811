"""Texts to ids and back, prompts and think tags, with the server's own tokenizer or a local one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cgr.engines.base import Sampling
from cgr.engines.completions.asker import Asker
from cgr.engines.completions.detect import SAMPLE, Served, lost_by_encoding
from cgr.engines.completions.dialect import LLAMA, Dialect, Wanted, detokenize_call, template_call, tokenize_call
from cgr.engines.text.chat import ThinkTags, find_tags, render
from cgr.engines.text.tokenizer import LocalTokenizer
from cgr.errors import EngineError, UsageError

Post = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
PostNow = Callable[[str, dict[str, Any]], dict[str, Any]]
REMEMBERED = 256  # characters
CANDIDATES = ("<think>", "<thinking>", "<thought>", "<reasoning>", "<seed:think>", "[THINK]")
TRIAL, TRIES = 64, 8  # tokens to see how much is lost by encoding again, and samples at most


class Words:
    """One model's. `now` is for the start, before there is an event loop; `post` for later."""

    def __init__(
        self,
        dialect: Dialect,
        served: Served,
        local: LocalTokenizer | None,
        now: PostNow | None = None,
        post: Post | None = None,
    ) -> None:
        self.dialect, self.served, self.local, self._now, self._post = dialect, served, local, now, post
        self._encoded: dict[tuple[str, bool], tuple[int, ...]] = {}
        self._decoded: dict[int, str] = {}

    @property
    def template(self) -> str:
        """The model's chat template, as far as it is known here."""
        return self.local.template if self.local else str(self.served.props.get("chat_template") or "")

    @property
    def _ends(self) -> tuple[str, str]:
        """The texts that begin and end a sequence."""
        if self.local:
            return self.local.bos, self.local.eos
        return str(self.served.props.get("bos_token") or ""), str(self.served.props.get("eos_token") or "")

    def encode_now(self, text: str) -> tuple[int, ...]:
        if self.local:
            return self.local.encode(text)
        assert self._now is not None
        return _ids(self._now(*tokenize_call(self.dialect, self.served.model, text)))

    def eos_now(self) -> frozenset[int]:
        """The token that ends the turn, where it is known by name."""
        eos = self._ends[1]
        ids = self.encode_now(eos) if eos else ()
        return frozenset(ids) if len(ids) == 1 else frozenset()

    def opening_now(self) -> str:
        """How a prompt ends by the server's own template, if it applies one."""
        if self.local or self.dialect.tokenize == LLAMA or self._now is None:
            return ""
        try:
            ids = _ids(self._now(*template_call(self.served.model, "?")))
            path, body, field = detokenize_call(self.dialect, self.served.model, ids)
            return str(self._now(path, body).get(field, ""))
        except EngineError:
            return ""

    async def encode(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """Short texts are remembered: tags and prefixes come again and again, whole traces do not."""
        if self.local:
            return self.local.encode(text, special=special)
        if (text, special) in self._encoded:
            return self._encoded[text, special]
        ids = _ids(await self._ask(*tokenize_call(self.dialect, self.served.model, text, special=special)))
        if len(text) <= REMEMBERED:
            self._encoded[text, special] = ids
        return ids

    async def decode(self, ids: Sequence[int]) -> str:
        if self.local or not ids:
            return self.local.decode(ids) if self.local and ids else ""
        if len(ids) == 1 and ids[0] in self._decoded:
            return self._decoded[ids[0]]
        path, body, field = detokenize_call(self.dialect, self.served.model, ids)
        text = (await self._ask(path, body)).get(field)
        if not isinstance(text, str):
            raise EngineError("The server does not turn token ids back into text.", "Name a tokenizer: --tokenizer.")
        if len(ids) == 1:
            self._decoded[ids[0]] = text
        return text

    async def prompt(self, question: str, tags: ThinkTags) -> tuple[int, ...]:
        """The question's ids, up to and including the opened think tag."""
        if self.local or self.dialect.tokenize == LLAMA:
            return await self._rendered(question, tags)
        try:
            ids = _ids(await self._ask(*template_call(self.served.model, question)))
        except (EngineError, UsageError):  # a model without a chat template
            return await self._rendered(question, tags)
        tail = await self.decode(ids[-16:])
        return ids if tail.rstrip().endswith(tags.open) else (*ids, *await self.encode(f"{tags.open}\n"))

    async def _rendered(self, question: str, tags: ThinkTags) -> tuple[int, ...]:
        bos, eos = self._ends
        text = render(self.template, question, tags, bos=bos, eos=eos)
        doubled = bool(bos) and text.startswith(bos)
        return await self.encode(text, special=not doubled)

    async def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert self._post is not None
        return await self._post(path, body)


def _ids(reply: dict[str, Any]) -> tuple[int, ...]:
    tokens = reply.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
        raise EngineError("The server does not tokenise as it should.", "Name a tokenizer: --tokenizer.")
    return tuple(tokens)


def find_tags_by_asking(words: Words) -> ThinkTags | None:
    """From special tokens or the template; else tags that the tokenizer knows as single tokens."""
    special = words.local.special if words.local else {}
    if found := find_tags(words.template or words.opening_now(), special):
        return found
    for opening in CANDIDATES:
        closing = f"{opening[0]}/{opening[1:]}"
        if len(words.encode_now(opening)) == len(words.encode_now(closing)) == 1:
            return ThinkTags(opening, closing)
    return None


def said_of_exactness(asker: Asker, model: str, dialect: Dialect, words: Words) -> list[str]:
    """Where a server does not speak in ids: that exactness is lost, and how much of it."""
    if dialect.exact:
        return []
    before: list[int] = []
    lost = 0
    for seed in range(TRIES):
        ids, again = _sampled(asker, model, dialect, words, seed)
        before += ids
        lost += lost_by_encoding(ids, again)
        if len(before) >= TRIAL:
            break
    what = "takes no token ids" if not dialect.token_prompts else "returns no token ids"
    return [
        f"The server {what}: texts are encoded again, and exactness is lost. Of {len(before)} tokens of a sample, {lost} "
        "came back as others."
    ]


def _sampled(asker: Asker, model: str, dialect: Dialect, words: Words, seed: int) -> tuple[Sequence[int], Sequence[int]]:
    """A sample's ids, as far as they are known, and those of its text."""
    prompt: Sequence[int] | str = words.encode_now(SAMPLE) if dialect.token_prompts else SAMPLE
    piece = asker.complete(dialect, model, Wanted(prompt, TRIAL, Sampling(temperature=1.0), seed=seed, top=1))
    ids = piece.ids
    if dialect.token_ids == "none":
        ids = tuple(token for one in piece.tokens if one.text for token in words.encode_now(one.text))
    return ids, words.encode_now(piece.text) if piece.text else ()
