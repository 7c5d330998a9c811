"""A fake model for tests and docs: its thinking is a list of words, its answers a function of the position."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import takewhile

from cgr.engines.base import (
    Answered,
    Capabilities,
    Done,
    Engine,
    ModelInfo,
    OnText,
    Prompt,
    Reader,
    Sampling,
    Stretch,
    Written,
)
from cgr.records import Conversation, Token, messages_of

END = "</think>"
EOS = "<eos>"
Scripted = tuple[str, float] | tuple[str, float, Mapping[str, float]]  # text, probability, those of its alternatives
Answers = Callable[[int, str], Sequence[Scripted]]


class ScriptedEngine:
    """`thinking`: words, `</think>` and `<eos>` among them. `answers(at, suffix)`: text and probability of each token, and
    optionally the texts and probabilities of the alternatives to it.

    `entropies(at)`: of the first token that a probe decodes; `tops(n)`: the mean of the highest log-probabilities at the
    n-th token. Requests are kept in `log`, and the number of forward passes for probes in `passes`.
    """

    notes: tuple[str, ...] = ()
    prober: Engine | None = None

    def __init__(
        self,
        thinking: Sequence[str],
        answers: Answers,
        context: int = 100_000,
        *,
        entropies: Callable[[int], float] | None = None,
        tops: Callable[[int], float] | None = None,
    ) -> None:
        self.thinking, self.answers, self.entropies, self.tops = tuple(thinking), answers, entropies, tops
        self.log: list[str] = []
        self.passes = 0
        self._words: dict[str, int] = {}
        self.info = ModelInfo("scripted", "scripted", context, "<think>", END)
        self.capabilities = Capabilities(
            "full", True, True, True, verify=True, overlap=True, thinking_logprobs=tops is not None, alternatives=True
        )

    def id_of(self, word: str) -> int:
        """The token id of a word; a new word gets the next number."""
        return self._words.setdefault(word, len(self._words))

    async def connect(self) -> None:
        return None

    async def encode(self, text: str) -> tuple[int, ...]:
        """One token for each line break and each word: `\\nWait` is two."""
        return tuple(self.id_of(word) for word in text.replace("\n", "\n ").split(" ") if word)

    async def decode(self, ids: Sequence[int]) -> str:
        words = list(self._words)
        return "".join(f"{words[i]} " for i in ids if i < len(words))  # a word of another engine has no text here

    async def prompt(self, conversation: Conversation) -> tuple[int, ...]:
        return await self.encode("\n".join(message.content for message in messages_of(conversation)))

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int = 0, overlap: bool = False, wait: float | None = None
    ) -> ScriptedSession:
        return ScriptedSession(self, sampling)

    async def close(self) -> None:
        self.log.append("close")


class ScriptedSession:
    """One pass over the script."""

    reader: Reader | None = None

    def __init__(self, engine: ScriptedEngine, sampling: Sampling = Sampling()) -> None:
        self.engine, self.sampling, self.wasted = engine, sampling, 0
        self.at = self.script_at = self._ahead = 0

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        self.engine.log.append(f"think {tokens}" + (" ban" if ban_end else ""))
        words: list[str] = []
        ending: str | None = None
        while len(words) < tokens and self.script_at < len(self.engine.thinking) and ending is None:
            word = self.engine.thinking[self.script_at]
            self.script_at += 1
            if word not in (END, EOS):
                words.append(word)
            elif not ban_end:
                ending = word
        self.at += len(words)
        self._ahead = max(self._ahead - len(words), 0)
        ids = tuple(map(self.engine.id_of, words))
        if on_text:
            on_text(await self.engine.decode(ids))
        tops = self.engine.tops if self.sampling.logprobs else None
        means = tuple(map(tops, range(self.at - len(ids) + 1, self.at + 1))) if tops else ()
        return Stretch(ids, len(words) < tokens, eos=ending == EOS, tops=means)

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        self._ahead = tokens

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        text = (await self.engine.decode(suffix)).strip()
        at = self.at - rewind
        self.engine.log.append(f"probe {at} {text}")
        tokens: list[Token] = []
        ended = False
        for word, probability, *alternatives in self.engine.answers(at, text)[:limit]:
            if ended := word in (END, EOS):
                break
            likely = [(self.engine.id_of(one), math.log(chance)) for more in alternatives for one, chance in more.items()]
            tokens.append(Token(self.engine.id_of(word), word, math.log(probability), tuple(likely)))
            if done(tokens):
                break
        self.engine.passes += self._passes([token.id for token in tokens], guess)
        entropy = self.engine.entropies(at) if self.engine.entropies else None
        return Answered(tuple(tokens), ended, prefilled=len(suffix), cached=at, entropy=entropy)

    @staticmethod
    def _passes(decoded: Sequence[int], guess: Sequence[int]) -> int:
        """One pass verifies as many guessed tokens as are right, and yields the one after them."""
        right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(decoded, guess, strict=False)))
        return max(len(decoded) - right, 1)

    async def append(self, ids: Sequence[int]) -> None:
        self.engine.log.append(f"append {len(ids)}")
        self.at += len(ids)

    async def write(self, limit: int) -> AsyncIterator[Written]:
        """The words of the script that follow the end of thinking."""
        rest = [*takewhile(lambda word: word != EOS, self.engine.thinking[self.script_at :][:limit])]
        for number, word in enumerate(rest):
            yield Written(f" {word}" if number else word, 1)
        yield Written("", 0, "limit" if len(rest) == limit else "eos")

    async def close(self) -> None:
        self.wasted += self._ahead
        self._ahead = 0
