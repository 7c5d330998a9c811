"""Chance by seed and position: the generator's published answers, and what is drawn with it."""

from __future__ import annotations

import math

import pytest

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


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_its_known_answers(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    import numpy as np

    from cgr.engines.hf.sampler import philox

    a, b, c, d = (np.array([word], dtype=np.uint64) for word in counter)
    assert tuple(int(word[0]) for word in philox((a, b, c, d), key)) == expected


def test_a_uniform_depends_on_seed_and_position_alone() -> None:
    from cgr.engines.hf.sampler import BLOCK, Chance, uniforms

    whole = uniforms(7, 0, 3 * BLOCK)
    chance = Chance(7)
    assert [chance.at(place) for place in (BLOCK + 3, 5, 2 * BLOCK)] == [whole[BLOCK + 3], whole[5], whole[2 * BLOCK]]
    assert uniforms(7, 100, 4) == whole[100:104]
    assert all(0 <= one < 1 for one in whole)
    assert abs(math.fsum(whole) / len(whole) - 0.5) < 0.05
    assert len(set(whole)) == len(whole)
    assert not set(uniforms(8, 0, 100)) & set(whole)
    assert uniforms(2**33 + 7, 0, 8) != whole[:8]
    assert uniforms(-1, 0, 1)


def test_draws_follow_the_distribution() -> None:
    import torch

    from cgr.engines.hf.sampler import draw, uniforms

    chances = torch.tensor([0.1, 0.2, 0.0, 0.4, 0.3])
    count = 4000
    logits = chances.log().repeat(count, 1)
    ones = torch.ones(count, dtype=torch.float64)
    drawn = draw(logits, ones, None, uniforms(1, 0, count))
    assert torch.bincount(drawn, minlength=5).div(count).tolist() == pytest.approx(chances.tolist(), abs=0.03)
    colder = draw(logits, ones / 2, None, uniforms(1, 0, count))
    assert torch.bincount(colder, minlength=5)[3] > torch.bincount(drawn, minlength=5)[3]


@pytest.mark.parametrize(("top_p", "allowed"), [(0.35, {3}), (0.6, {3, 4}), (0.95, {1, 3, 4, 0}), (1.0, {0, 1, 3, 4})])
def test_top_p_keeps_the_fewest_that_reach_it(top_p: float, allowed: set[int]) -> None:
    import torch

    from cgr.engines.hf.sampler import draw, uniforms

    logits = torch.tensor([0.1, 0.2, 0.0, 0.4, 0.3]).log().repeat(500, 1)
    ones = torch.ones(500, dtype=torch.float64)
    assert set(draw(logits, ones, ones * top_p, uniforms(3, 0, 500)).tolist()) == allowed
