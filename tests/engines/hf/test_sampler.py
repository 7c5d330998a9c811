"""Sampling by seed and position: published values of the generator, filters as in transformers, and what is drawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from cgr.engines.base import Sampling

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.heavy

KNOWN = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)
FIVE = [0.1, 0.2, 0.0, 0.4, 0.3]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_its_published_values(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    import numpy as np

    from cgr.engines.hf.sampler import philox

    a, b, c, d = (np.array([word], dtype=np.uint64) for word in counter)
    assert tuple(int(word[0]) for word in philox((a, b, c, d), key)) == expected


def test_recorded_traces_can_be_repeated() -> None:
    """These numbers must never change."""
    from cgr.engines.hf.sampler import uniforms

    assert uniforms(12345, 250, 3) == [0.3107982154991441, 0.08738097314855309, 0.8094002103184245]
    assert uniforms(-1, 2**40, 1) == [0.27738243478917834]


def test_a_uniform_depends_only_on_seed_and_position() -> None:
    from cgr.engines.hf.sampler import BLOCK, uniform_at, uniforms

    whole = uniforms(7, 0, 3 * BLOCK)
    assert [uniform_at(7, place) for place in (BLOCK + 3, 5, 2 * BLOCK)] == [whole[BLOCK + 3], whole[5], whole[2 * BLOCK]]
    assert uniforms(7, 100, 4) == whole[100:104]
    assert all(0 <= one < 1 for one in whole)
    assert abs(math.fsum(whole) / len(whole) - 0.5) < 0.05
    assert len(set(whole)) == len(whole)
    assert not set(uniforms(8, 0, 100)) & set(whole)
    assert uniforms(2**33 + 7, 0, 8) != whole[:8]


def drawn(count: int, seed: int, **options: Any) -> torch.Tensor:
    """Tokens drawn from five probabilities."""
    import torch

    from cgr.engines.hf.sampler import Filters, draw, uniforms

    filters = Filters.of([Sampling(**options)] * count, torch.device("cpu"))
    return draw(filters.probabilities(torch.tensor(FIVE).log().repeat(count, 1)), uniforms(seed, 0, count))


def test_draws_follow_the_distribution() -> None:
    import torch

    count = 4000
    tokens = drawn(count, 1, temperature=1.0)
    assert torch.bincount(tokens, minlength=5).div(count).tolist() == pytest.approx(FIVE, abs=0.03)
    colder = drawn(count, 1, temperature=0.5)
    assert torch.bincount(colder, minlength=5)[3] > torch.bincount(tokens, minlength=5)[3]


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"top_p": 0.0}, {3}),
        ({"top_p": 0.35}, {3}),
        ({"top_p": 0.6}, {3, 4}),
        ({"top_p": 0.95}, {0, 1, 3, 4}),
        ({"top_p": 1.0}, {0, 1, 3, 4}),
        ({"top_k": 1}, {3}),
        ({"top_k": 3}, {1, 3, 4}),
        ({"top_k": 99}, {0, 1, 3, 4}),
        ({"min_p": 0.45}, {1, 3, 4}),
        ({"min_p": 0.8}, {3}),
        ({"min_p": 1.0}, {3}),
        ({"top_k": 2, "top_p": 0.58}, {3, 4}),  # 0.4 of 0.7 is less than 0.58: top-p counts after top-k
    ],
)
def test_filters_keep_the_likeliest(options: dict[str, Any], allowed: set[int]) -> None:
    assert set(drawn(500, 3, temperature=1.0, **options).tolist()) == allowed


def random_logits(rows: int, ties: bool) -> torch.Tensor:
    import torch

    logits = torch.randn(rows, 60, generator=torch.Generator().manual_seed(4)) * 3
    return (logits * 2).round() / 2 if ties else logits


@pytest.mark.parametrize("top_k", [0, 1, 5, 40, 100])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.3])
@pytest.mark.parametrize("min_p", [0.0, 0.02, 0.4])
@pytest.mark.parametrize("temperature", [0.6, 1.7])
def test_filters_equal_those_of_transformers(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    """The same kept tokens with the same probabilities, in the order of `generate`."""
    import torch
    from transformers.generation import logits_process as library

    from cgr.engines.hf.sampler import Filters

    sampling = Sampling(temperature, top_p, top_k=top_k, min_p=min_p)
    warpers = [library.TemperatureLogitsWarper(temperature)]
    warpers += [library.TopKLogitsWarper(top_k)] if top_k else []
    warpers += [library.TopPLogitsWarper(top_p)] if top_p < 1 else []
    warpers += [library.MinPLogitsWarper(min_p)] if min_p else []
    logits = random_logits(20, ties=top_p == 1)  # of equal tokens at the border of top-p, any may be kept
    expected = logits.double()
    for warper in warpers:
        expected = warper(None, expected)
    expected = expected.softmax(-1)
    found = Filters.of([sampling] * len(logits), torch.device("cpu")).probabilities(logits)
    found = found / found.sum(-1, keepdim=True)
    assert torch.equal(found > 0, expected > 0)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_a_row_is_filtered_as_if_it_were_alone() -> None:
    """To the last bit, whatever filters the other rows use."""
    import torch

    from cgr.engines.hf.sampler import Filters

    samplings = [
        Sampling(0.6),
        Sampling(1.3, 0.7),
        Sampling(1.0, top_k=4),
        Sampling(0.9, min_p=0.1),
        Sampling(1.1, 0.9, top_k=20, min_p=0.01),
    ]
    logits, cpu = random_logits(len(samplings), ties=False), torch.device("cpu")
    together = Filters.of(samplings, cpu).probabilities(logits)
    for number, sampling in enumerate(samplings):
        alone = Filters.of([sampling], cpu).probabilities(logits[number : number + 1])
        assert torch.equal(together[number], alone[0])


def test_penalties() -> None:
    """Repetition as in transformers; presence once for each token, frequency for each occurrence."""
    import torch
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

    from cgr.engines.hf.sampler import penalise

    logits, ids = random_logits(1, ties=False)[0], [3, 7, 3, 3, 59]
    repeated = penalise(logits, ids, Sampling(repetition_penalty=1.3))
    assert torch.equal(repeated, RepetitionPenaltyLogitsProcessor(1.3)(torch.tensor([ids]), logits[None])[0])
    both = penalise(logits, ids, Sampling(presence_penalty=0.5, frequency_penalty=0.25))
    expected = logits.clone()
    for token, count in ((3, 3), (7, 1), (59, 1)):
        expected[token] -= 0.5 + 0.25 * count
    torch.testing.assert_close(both, expected)
    assert penalise(logits, [], Sampling(presence_penalty=0.5)) is logits
