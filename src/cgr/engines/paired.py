"""Two models on one question: one thinks and answers, the other reads along and is asked when to stop.

The reader has a tokenizer of its own, so it is told the thinking as text, encoded anew from the last point that can no
longer change. What may yet change goes before a probe's suffix and not into the reader's session, which so never has to be
wound back. Models that share a vocabulary share tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cgr.engines.base import Answered, Capabilities, Done, Engine, ModelInfo, OnText, Sampling, Session, Stretch
from cgr.engines.text.retokenize import Retelling, Telling
from cgr.errors import UsageError

SAMPLE = "So 7*86+415=1017, x_1=\\frac{1017}{3}.\n\nWait, let me check: it's naïve; 你好, ½ → “ok”? 😀\tdone"


class Reader:
    """A model that follows another's thinking on a session of its own. `teller`: the model that thinks, where the two do
    not share a vocabulary."""

    def __init__(self, engine: Engine, session: Session, teller: Engine | None) -> None:
        self.engine, self.session = engine, session
        self._words = (Telling(teller), Retelling(engine)) if teller else None
        self._heard = self._given = 0

    async def probe(
        self, ids: Sequence[int], suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, top: int = 0
    ) -> Answered:
        """Ask after this thinking, in the tokens of the model that thought it; the suffix is in the reader's own."""
        tail = await self._follow(ids[self._heard :])
        return await self.session.probe((*tail, *suffix), limit, done, guess, top=top)

    async def _follow(self, more: Sequence[int]) -> Sequence[int]:
        """Take in what is settled; what is not comes back."""
        self._heard += len(more)
        if self._words is None:
            await self.session.append(more)
            return ()
        telling, retelling = self._words
        await retelling.grow(await telling.grow(more))
        await self.session.append(retelling.ids[self._given : retelling.settled])
        self._given = retelling.settled
        return retelling.ids[self._given :]


class PairedSession:
    """Thinks and answers on one session; `reader` is who is asked on the way."""

    def __init__(self, session: Session, reader: Reader) -> None:
        self.session, self.reader = session, reader

    @property
    def wasted(self) -> int:
        return self.session.wasted

    @wasted.setter
    def wasted(self, tokens: int) -> None:
        self.session.wasted = tokens

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        return await self.session.think(tokens, ban_end=ban_end, on_text=on_text)

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        await self.session.prefetch(tokens, ban_end=ban_end)

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        return await self.session.probe(suffix, limit, done, guess, rewind=rewind, top=top)

    async def append(self, ids: Sequence[int]) -> None:
        await self.session.append(ids)

    async def write(self, limit: int) -> str:
        return await self.session.write(limit)

    async def close(self) -> None:
        await self.session.close()
        await self.reader.session.close()


class PairedEngine:
    """To the outside the generator, but for `prober`, which its sessions have beside them.

    A probe runs elsewhere than the thinking, so the two can always overlap.
    """

    def __init__(self, generator: Engine, prober: Engine) -> None:
        self.generator, self.prober = generator, prober
        self._questions: dict[tuple[int, ...], str] = {}
        self._alike: bool | None = None

    @property
    def info(self) -> ModelInfo:
        return self.generator.info

    @property
    def capabilities(self) -> Capabilities:
        return _together(self.generator.capabilities, self.prober.capabilities)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of either."""
        return (*getattr(self.generator, "notes", ()), *getattr(self.prober, "notes", ()))

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self.generator.encode(text)

    async def decode(self, ids: Sequence[int]) -> str:
        return await self.generator.decode(ids)

    async def prompt(self, question: str) -> tuple[int, ...]:
        """The generator's; the question itself is kept, since the prober will be asked it in its own words."""
        ids = await self.generator.prompt(question)
        self._questions[ids] = question
        return ids

    async def open(
        self, question: str | Sequence[int], sampling: Sampling, *, room: int, overlap: bool = False
    ) -> PairedSession:
        text = question if isinstance(question, str) else self._question(question)
        alike = await self.alike()
        session = await self.generator.open(question, sampling, room=room)
        try:
            following = await self.prober.open(text, Sampling(), room=room)
        except BaseException:
            await session.close()
            raise
        return PairedSession(session, Reader(self.prober, following, None if alike else self.generator))

    async def close(self) -> None:
        await self.generator.close()
        await self.prober.close()

    async def alike(self) -> bool:
        """Whether the two share a vocabulary: by their weights, else by how they read a sample of everything."""
        if self._alike is None:
            a, b = self.generator, self.prober
            same = bool(a.info.fingerprint) and a.info.fingerprint == b.info.fingerprint
            self._alike = same or await _sampled(a) == await _sampled(b)
        return self._alike

    def _question(self, prompt: Sequence[int]) -> str:
        if tuple(prompt) not in self._questions:
            raise UsageError(
                "A second model cannot be asked about a prompt that is known as tokens only.", "Give the question itself."
            )
        return self._questions[tuple(prompt)]


async def _sampled(engine: Engine) -> tuple[int, ...]:
    return await engine.encode(f"{engine.info.open_tag}{SAMPLE}{engine.info.close_tag}")


def _together(generator: Capabilities, prober: Capabilities) -> Capabilities:
    """The prober is asked and the generator answers, so probabilities are needed of both."""
    ranks = ("none", "top-k", "full")
    logprobs = min(generator.logprobs, prober.logprobs, key=ranks.index)
    return replace(generator, logprobs=logprobs, verify=prober.verify, overlap=True)
