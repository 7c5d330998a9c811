"""The client of a model's servers: which server to use, retries, completions in the servers' dialect, and tokenization.

A session stays with its server, whose cache holds its trace, until that server fails.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cgr.engines.completions.dialect import LLAMA, CompletionRequest, Dialect, Piece, read_reply, request_body
from cgr.engines.completions.http import BadReply, Fault, Purpose, RequestKind, Server
from cgr.engines.completions.limits import EventParser, limited
from cgr.engines.completions.policy import RetryPolicy
from cgr.engines.text.chat import ThinkTags, render
from cgr.engines.text.model_files import LocalTokenizer
from cgr.errors import EngineError, UsageError
from cgr.records import Conversation, messages_of

T = TypeVar("T")
SESSION_HEADERS = ("X-Session-ID", "X-SMG-Routing-Key")
MAX_CACHED_CHARACTERS = 256
MAX_CACHED_TEXTS = 4096
MAX_CACHED_TOKENS = 1 << 19  # more than any vocabulary has


class Pool:
    """Servers with the same model: the least loaded is used first, one that fails is avoided for a while."""

    def __init__(self, servers: Sequence[Server], policy: RetryPolicy) -> None:
        self.servers, self.policy = tuple(servers), policy

    def least_loaded(self) -> Server:
        """Of the servers that did not fail lately; if all did, the one that is tried again first."""
        healthy = [server for server in self.servers if not server.avoided]
        return min(healthy, key=lambda one: one.load) if healthy else min(self.servers, key=lambda one: one.avoid_until)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The reply of any server, with retries."""
        return await Attempts(Replica(self)).until_done(lambda server: server.post(path, body))

    async def close(self) -> None:
        """Close the connections to all servers."""
        for server in self.servers:
            await server.close()


def _times(failures: int) -> str:
    return f" {failures} times in a row" if failures > 1 else ""


class Replica:
    """The server that a session uses; another takes its place when it fails. `counted`: it counts in the server's load.
    All requests of a session carry one fresh id, by which routers keep them on one machine, also in the header `named`.
    `first`: the number of the server to begin with; None: the least loaded."""

    def __init__(self, pool: Pool, *, counted: bool = False, named: str | None = None, first: int | None = None) -> None:
        self.pool, self.counted = pool, counted
        self._headers = dict.fromkeys((*SESSION_HEADERS, *((named,) if named else ())), uuid.uuid4().hex)
        self.server = pool.least_loaded() if first is None else pool.servers[first]
        self.server.load += counted

    def purpose(self, kind: RequestKind) -> Purpose:
        """Of a request of this session."""
        return Purpose(kind, self._headers)

    def move(self, server: Server) -> None:
        """Use another server from now on."""
        self.server.load -= self.counted
        self.server = server
        self.server.load += self.counted

    def leave(self) -> None:
        """The session is closed: it no longer counts."""
        self.server.load -= self.counted
        self.counted = False


class Attempts:
    """The retries of one piece of work; failures are counted from one success to the next."""

    def __init__(self, replica: Replica) -> None:
        self.replica, self.failures, self._disconnections = replica, 0, 0

    def progress(self) -> None:
        """Something was received: earlier failures no longer count."""
        self.failures = self._disconnections = 0
        if self.replica.server.failures:
            self.replica.server.succeeded()

    async def failed(self, server: Server, fault: Fault) -> None:
        """Move to another server, or wait; after too many failures in a row, raise an error."""
        pool = self.replica.pool
        if fault.disconnected and self._disconnections < pool.policy.at_once:
            self._disconnections += 1
            return
        self._disconnections = 0
        self.failures += 1
        if self.failures >= pool.policy.tries:
            raise EngineError(
                f"The server at {server.address} failed{_times(self.failures)}: {fault.what}.",
                "Check the server. No failed request was counted as an answer, and the same command can be run again.",
            ) from fault
        server.failed(fault)
        if self.replica.server is server and not (other := pool.least_loaded()).avoided:
            self.replica.move(other)
        if self.replica.server.avoided:
            await asyncio.sleep(pool.policy.delay(self.failures - 1, fault.wait))

    async def until_done(self, attempt: Callable[[Server], Awaitable[T]]) -> T:
        """The result of the first attempt that succeeds."""
        while True:
            server = self.replica.server
            try:
                result = await attempt(server)
            except Fault as fault:
                await self.failed(server, fault)
            else:
                self.progress()
                return result


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a server says about itself and its model. `props`: llama.cpp's properties (chat template, special tokens)."""

    address: str
    model: str
    context: int
    kind: str
    props: dict[str, Any] = field(default_factory=dict)


class CompletionClient:
    """Completions and tokenization of one model. `local`: a tokenizer that is used in place of the server's."""

    def __init__(self, dialect: Dialect, served: ServedModel, pool: Pool, local: LocalTokenizer | None = None) -> None:
        self.dialect, self.served, self.pool, self.local = dialect, served, pool, local
        self.sessions = 0  # that were opened
        self._encoded: dict[str, tuple[int, ...]] = {}
        self._decoded: dict[int, str] = {}

    # Completions

    async def prompt_for(self, ids: Sequence[int]) -> Sequence[int] | str:
        """A prompt as this server takes it: ids, or their text."""
        return ids if self.dialect.token_prompts else await self.decode(ids)

    async def complete(self, server: Server, request: CompletionRequest) -> Piece:
        """A whole completion at once: cheaper than a stream if nobody reads along."""
        body = request_body(self.dialect, self.served.model, replace(request, stream=False))
        reply = await server.post(self.dialect.path, body, request.purpose)
        piece = await self._with_ids_and_texts(limited(read_reply(self.dialect, reply), request.count))
        if piece.stop is None:
            raise BadReply("it sent an incomplete completion")
        return piece

    @asynccontextmanager
    async def stream(self, server: Server, request: CompletionRequest) -> AsyncIterator[AsyncIterator[Iterable[Piece]]]:
        """The pieces of a completion as they come, those of one read together; one piece if the request does not stream."""
        if not request.stream:
            yield _only(await self.complete(server, request))
            return
        body = request_body(self.dialect, self.served.model, request)
        # without log-probabilities, no token has to be named
        named = self.dialect.api == LLAMA or (self.dialect.token_ids == "field" and request.top is None)
        parse = EventParser(self.dialect, request.count, only_text=request.only_text)
        async with server.events(self.dialect.path, body, parse, request.purpose) as reads:
            yield reads if named else self._named(reads)

    async def _named(self, reads: AsyncIterator[Iterator[Piece]]) -> AsyncIterator[Iterable[Piece]]:
        async for pieces in reads:
            for piece in pieces:
                yield (await self._with_ids_and_texts(piece),)

    async def _with_ids_and_texts(self, piece: Piece) -> Piece:
        """Add ids if the server returns only texts, and the tokens' texts if it returns only ids."""
        if self.dialect.token_ids == "none":
            return await self._encoded_piece(piece)
        if len(piece.tokens) > 1 and not any(token.text for token in piece.tokens):
            texts = [await self.decode((token.id,)) for token in piece.tokens]
            named = (replace(token, text=text) for token, text in zip(piece.tokens, texts, strict=True))
            return piece._replace(tokens=tuple(named))
        return piece

    async def _encoded_piece(self, piece: Piece) -> Piece:
        """Each text encoded on its own. This is not always the token that it was, so exactness is lost."""
        if not piece.tokens:
            return piece._replace(ids=await self.encode(piece.text) if piece.text else ())
        firsts = [(await self.encode(token.text) or (-1,))[0] for token in piece.tokens]
        tokens = tuple(replace(token, id=first) for token, first in zip(piece.tokens, firsts, strict=True))
        return piece._replace(ids=tuple(firsts), tokens=tokens)

    # Texts and tokens

    @property
    def template(self) -> str:
        """The model's chat template, if it is known here."""
        return self.local.template if self.local else str(self.served.props.get("chat_template") or "")

    @property
    def _bos_and_eos(self) -> tuple[str, str]:
        """The texts that begin and end a sequence."""
        if self.local:
            return self.local.bos, self.local.eos
        return str(self.served.props.get("bos_token") or ""), str(self.served.props.get("eos_token") or "")

    async def eos_ids(self) -> frozenset[int]:
        """The token that ends the turn, if its text is known and is one token."""
        eos = self._bos_and_eos[1]
        ids = await self.encode(eos) if eos else ()
        return frozenset(ids) if len(ids) == 1 else frozenset()

    async def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text. Short texts are cached: tags and prefixes are needed again and again, whole traces are not."""
        if text in self._encoded:
            return self._encoded[text]
        ids = await self._tokenized(text)
        if len(text) <= MAX_CACHED_CHARACTERS and len(self._encoded) < MAX_CACHED_TEXTS:
            self._encoded[text] = ids
        return ids

    async def _tokenized(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """The ids of a text, which is not cached. `special`: with the tokens that the model puts before every text."""
        if self.local:
            return self.local.encode(text, special=special)
        body = tokenize_body(self.dialect, self.served.model, text, special=special)
        return _ids(await self.pool.post("/tokenize", body))

    async def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids."""
        if self.local or not ids:
            return self.local.decode(ids) if self.local and ids else ""
        if len(ids) == 1 and ids[0] in self._decoded:
            return self._decoded[ids[0]]
        native = self.dialect.tokenize == LLAMA
        body = {"tokens": list(ids)} if native else {"model": self.served.model, "tokens": list(ids)}
        text = (await self.pool.post("/detokenize", body)).get("content" if native else "prompt")
        if not isinstance(text, str):
            raise EngineError("The server does not turn token ids into text.", "Name a tokenizer: --tokenizer.")
        if len(ids) == 1 and len(text) <= MAX_CACHED_CHARACTERS and len(self._decoded) < MAX_CACHED_TOKENS:
            self._decoded[ids[0]] = text
        return text

    async def prompt(self, conversation: Conversation, tags: ThinkTags) -> tuple[int, ...]:
        """The ids of a conversation, up to and including the opened think tag."""
        if self.local or self.dialect.tokenize == LLAMA:
            return await self._rendered(conversation, tags)
        try:
            ids = await self.apply_template(conversation)
        except (EngineError, UsageError):  # a model without a chat template
            return await self._rendered(conversation, tags)
        opened = await self.encode(tags.open)  # cached: a prompt that ends with the tag costs no further request
        if opened and ids[-len(opened) :] == opened:
            return ids
        tail = await self.decode(ids[-16:])
        return ids if tail.rstrip().endswith(tags.open) else (*ids, *await self.encode(f"{tags.open}\n"))

    async def _rendered(self, conversation: Conversation, tags: ThinkTags) -> tuple[int, ...]:
        bos, eos = self._bos_and_eos
        text = render(self.template, conversation, tags, bos=bos, eos=eos)
        doubled = bool(bos) and text.startswith(bos)
        return await self._tokenized(text, special=not doubled)  # questions differ: a cache of them would only grow

    async def apply_template(self, conversation: Conversation) -> tuple[int, ...]:
        """The conversation's ids by vLLM, which applies the chat template and tokenises in one request."""
        body = {
            "model": self.served.model,
            "messages": [{"role": one.role, "content": one.content} for one in messages_of(conversation)],
            "add_generation_prompt": True,
            "add_special_tokens": False,
            "chat_template_kwargs": {"enable_thinking": True},
        }
        return _ids(await self.pool.post("/tokenize", body))


def tokenize_body(dialect: Dialect, model: str, text: str, *, special: bool = False) -> dict[str, Any]:
    """The JSON of a request that tokenises a text."""
    if dialect.tokenize == LLAMA:
        return {"content": text, "add_special": special, "parse_special": True}
    return {"model": model, "prompt": text, "add_special_tokens": special}


def _ids(reply: dict[str, Any]) -> tuple[int, ...]:
    tokens = reply.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
        raise EngineError("The server does not tokenise as expected.", "Name a tokenizer: --tokenizer.")
    return tuple(tokens)


async def _only(piece: Piece) -> AsyncIterator[Iterable[Piece]]:
    yield (piece,)
