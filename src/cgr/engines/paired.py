"""Two models on one question: one thinks and answers, the other follows its thinking and is probed.

The second model has a tokenizer of its own, so it gets the thinking as text, encoded anew from the last point that can no
longer change. The part that may still change goes before a probe's suffix and not into the second session, which therefore
never has to be rewound. Models that share a vocabulary share tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cgr.engines.base import Answered, Capabilities, Done, Engine, Prompt, Sampling, Session, is_ids
from cgr.engines.forwarding import ForwardingEngine, ForwardingSession
from cgr.engines.text.retokenize import GrowingText, GrowingTokens
from cgr.errors import NoThinkTags, UsageError

SAMPLE = "So 7*86+415=1017, x_1=\\frac{1017}{3}.\n\nWait, let me check: it's naïve; 你好, ½ → “ok”? 😀\tdone"


class FollowingReader:
    """Follows another model's thinking on a session of its own. `thinker`: the model that thinks, if the two do not share a
    vocabulary."""

    def __init__(self, engine: Engine, session: Session, thinker: Engine | None) -> None:
        self.engine, self.session = engine, session
        self._translation = (GrowingText(thinker), GrowingTokens(engine)) if thinker else None
        self._seen = self._given = 0  # tokens of the thinker that were read, own tokens that the session has

    async def probe(
        self, ids: Sequence[int], suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, top: int = 0
    ) -> Answered:
        tail = await self._follow(ids[self._seen :])
        return await self.session.probe((*tail, *suffix), limit, done, guess, top=top)

    async def _follow(self, more: Sequence[int]) -> Sequence[int]:
        """Append what can no longer change; return the tokens that still can."""
        self._seen += len(more)
        if self._translation is None:
            await self.session.append(more)
            return ()
        text, tokens = self._translation
        await tokens.grow(await text.grow(more))
        await self.session.append(tokens.ids[self._given : tokens.settled])
        self._given = tokens.settled
        return tokens.ids[self._given :]


class PairedSession(ForwardingSession):
    """Thinks and answers on one session; `reader` is probed."""

    def __init__(self, session: Session, reader: FollowingReader) -> None:
        super().__init__(session)
        self._reader = reader

    @property
    def reader(self) -> FollowingReader:
        return self._reader

    async def close(self) -> None:
        await self.session.close()
        await self._reader.session.close()


class PairedEngine(ForwardingEngine):
    """Behaves as the first engine, except that its sessions are probed on `prober`.

    A probe runs elsewhere than the thinking, so the two can always overlap. `prober_with_tags` is used if the prober's own
    files name no think tags.
    """

    def __init__(self, generator: Engine, prober: Engine, prober_with_tags: Engine | None = None) -> None:
        super().__init__(generator)
        self._prober, self._prober_with_tags = prober, prober_with_tags
        self._same_vocabulary: bool | None = None

    @property
    def prober(self) -> Engine:
        return self._prober

    @property
    def capabilities(self) -> Capabilities:
        return _combined(self.engine.capabilities, self.prober.capabilities)

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.engine.notes, *self.prober.notes)

    async def connect(self) -> None:
        await self.engine.connect()
        try:
            await self._prober.connect()
        except NoThinkTags:
            if self._prober_with_tags is None:
                raise
            self._prober = self._prober_with_tags
            await self._prober.connect()

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int, overlap: bool = False, wait: float | None = None
    ) -> PairedSession:
        if is_ids(prompt):
            raise UsageError(
                "A second model cannot be probed about a prompt that is known as token ids only.", "Give the question."
            )
        same = await self.same_vocabulary()
        session = await self.engine.open(prompt, sampling, room=room, wait=wait)
        try:
            following = await self.prober.open(prompt, Sampling(), room=room, wait=wait)
        except BaseException:
            await session.close()
            raise
        return PairedSession(session, FollowingReader(self.prober, following, None if same else self.engine))

    async def close(self) -> None:
        await self.engine.close()
        await self.prober.close()

    async def same_vocabulary(self) -> bool:
        """Whether the two share a vocabulary: by their weights, else by how they encode a sample of many kinds of text."""
        if self._same_vocabulary is None:
            a, b = self.engine, self.prober
            same = bool(a.info.fingerprint) and a.info.fingerprint == b.info.fingerprint
            self._same_vocabulary = same or await _encoded_sample(a) == await _encoded_sample(b)
        return self._same_vocabulary


async def _encoded_sample(engine: Engine) -> tuple[int, ...]:
    return await engine.encode(f"{engine.info.open_tag}{SAMPLE}{engine.info.close_tag}")


def _combined(generator: Capabilities, prober: Capabilities) -> Capabilities:
    """The prober is probed and the generator answers, so both need probabilities."""
    ranks = ("none", "top-k", "full")
    logprobs = min(generator.logprobs, prober.logprobs, key=ranks.index)
    alternatives = generator.alternatives and prober.alternatives
    return replace(generator, logprobs=logprobs, verify=prober.verify, overlap=True, alternatives=alternatives)
