"""Every engine returns the alternatives to a decoded token, from which the certainty over options is computed."""

from __future__ import annotations

import math

import pytest

from cgr import Model
from cgr.engines.base import Engine, Sampling
from cgr.engines.hf.engine import TransformersEngine
from cgr.probing import ProbeSpec, option_probabilities
from cgr.records import Token
from tests.engines.completions.test_engine import BOTH, engine_of, remote
from tests.support import QUESTION

DIGITS = tuple("0123456789")


async def first_token(engine: Engine) -> tuple[Token, dict[int, str]]:
    """The first token of an answer, and the texts of the alternatives to it."""
    assert engine.capabilities.alternatives
    session = await engine.open(QUESTION, Sampling(), room=64)
    spec = ProbeSpec(max_answer_tokens=4)
    answered = await session.probe(await engine.encode(spec.prefix), 4, spec.done())
    await session.close()
    token = answered.tokens[0]
    return token, {one: await engine.decode([one]) for one, _ in token.top}


def check(token: Token, texts: dict[int, str]) -> None:
    """The embedded model answers in digits, so these stand for options here."""
    found = dict(option_probabilities(DIGITS, [(texts[one], math.exp(logprob)) for one, logprob in token.top]))
    assert len(token.top) >= 5
    assert max(found, key=lambda digit: found[digit]) == token.text.strip()
    assert found[token.text.strip()] == pytest.approx(math.exp(token.logprob))
    assert min(found.values()) == pytest.approx(min(math.exp(logprob) for _, logprob in token.top))


async def test_in_this_process(model: Model) -> None:
    check(*await first_token(model.engine))


@BOTH
async def test_on_a_server(dialect: tuple[str, ...], model: Model) -> None:
    async with remote(dialect=dialect) as other:
        token, texts = await first_token(engine_of(other))
    check(token, texts)
    here, _ = await first_token(model.engine)
    assert [one for one, _ in token.top] == [one for one, _ in here.top]
    assert [logprob for _, logprob in token.top] == pytest.approx([logprob for _, logprob in here.top], abs=1e-3)


async def test_a_server_that_names_no_ids_gives_none() -> None:
    async with remote(dialect=("api=openai", "token_ids=none")) as other:
        assert not other.engine.capabilities.alternatives


@pytest.mark.heavy
async def test_in_torch(hf: TransformersEngine) -> None:
    check(*await first_token(hf))
