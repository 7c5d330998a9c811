"""Sessions on torch: batches, probes, bans, ends, written answers and cancellation.

Nothing here depends on how well a model reasons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cgr import Model, Probed, Thinking
from cgr.engines.base import Sampling, Written, written_text
from cgr.engines.hf.engine import TransformersEngine
from cgr.engines.text.chat import ThinkTags
from cgr.errors import EngineError, MissingCapability
from tests.engines.hf.models import GREEDY, SPEC, assert_alike, opened, random_model, suffix_of, thought
from tests.support import OTHERS, QUESTION, gist

if TYPE_CHECKING:
    from cgr.engines.hf.session import TransformersSession  # imports torch

pytestmark = pytest.mark.heavy


def plain_logits(engine: TransformersEngine, ids: Sequence[int]) -> Any:
    """The logits of all positions, from one ordinary pass of the model."""
    import torch

    with torch.inference_mode():
        logits = engine.loaded.model(input_ids=torch.tensor([list(ids)])).logits[0]
    return logits.clone()


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.5])
async def test_probes_leave_no_trace(hf: TransformersEngine, temperature: float) -> None:
    sampling = Sampling(temperature, seed=5)
    alone = await thought(hf, QUESTION, sampling, 96)
    suffix = await suffix_of(hf)
    session = await hf.open(QUESTION, sampling, room=128)
    guess: tuple[int, ...] = ()
    await session.probe(suffix, 4, SPEC.done())
    for stretch in (1, 31, 20, 44):
        await session.think(stretch, ban_end=True)
        answered = await session.probe(suffix, 4, SPEC.done(), guess)
        guess = tuple(token.id for token in answered.tokens)
    await session.close()
    assert tuple(session.trace) == alone


async def test_other_sessions_do_not_change_a_trace(hf: TransformersEngine) -> None:
    """Eight sessions with different prompts, lengths, temperatures and seeds, which begin and end at different times."""
    questions = [*(QUESTION, *OTHERS), *(f"{QUESTION} " + "Think. " * number for number in range(1, 5))]
    ways = [(one, Sampling(0.4 * number, seed=number), 40 + 13 * number) for number, one in enumerate(questions)]
    alone = [await thought(hf, *way) for way in ways]

    async def late(number: int) -> tuple[int, ...]:
        await asyncio.sleep(0.02 * number)
        return await thought(hf, *ways[number])

    together = await asyncio.gather(*map(late, range(len(ways))))
    assert together == alone
    assert sum(map(len, alone)) > 200


async def test_greedy_thinking_equals_a_plain_pass(hf: TransformersEngine) -> None:
    """Each token is the likeliest one in one plain pass over all of them, and its log-probability is raw."""
    import torch

    session = await hf.open(QUESTION, Sampling(0.0, logprobs=True), room=64)
    stretches = [await session.think(tokens, ban_end=True) for tokens in (7, 33)]
    await session.close()
    logits = plain_logits(hf, [*session.prompt, *session.trace])[len(session.prompt) - 1 : -1]
    expected = torch.log_softmax(logits.double(), -1)
    logits[:, hf.loaded.end_tag.ids[0]] -= 1e9
    assert logits.argmax(-1).tolist() == session.trace
    given = [logprob for stretch in stretches for logprob in stretch.logprobs]
    assert given == pytest.approx([expected[i, token].item() for i, token in enumerate(session.trace)], abs=1e-4)
    tops = [top for stretch in stretches for top in stretch.tops]
    assert tops == pytest.approx(expected.topk(20).values.mean(-1).tolist(), abs=1e-3)


async def test_a_probe_equals_a_plain_pass(hf: TransformersEngine) -> None:
    import torch

    suffix = await suffix_of(hf)
    session = await hf.open(QUESTION, GREEDY, room=96)
    await session.think(40)
    answered = await session.probe(suffix, 4, SPEC.done())
    await session.close()
    ids = [*session.prompt, *session.trace, *suffix]
    for number, token in enumerate(answered.tokens):
        logprobs = plain_logits(hf, ids)[-1].double().log_softmax(-1)
        if number == 0:
            assert answered.entropy == pytest.approx(
                float(-(logprobs.exp() * logprobs).sum() / torch.tensor(2.0).log()), 1e-4
            )
        assert token.id == int(logprobs.argmax())
        assert token.logprob == pytest.approx(float(logprobs[token.id]), abs=1e-5)
        assert dict(token.top)[token.id] == token.logprob
        ids.append(token.id)
    assert answered.prefilled == 1 + len(suffix)
    assert answered.prefilled + answered.cached == len(session.prompt) + len(session.trace) + len(suffix)


async def test_a_guess_saves_passes_and_does_not_change_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await opened(random_model(tmp_path, "Llama"), threads=1)
    suffix = await suffix_of(engine)
    session = await engine.open(QUESTION, GREEDY, room=96)
    await session.think(40)
    passes: list[int] = []
    extend = session.scheduler.cache.extend

    def counted(*arguments: Any) -> Any:
        passes.append(1)
        return extend(*arguments)

    monkeypatch.setattr(session.scheduler.cache, "extend", counted)
    plain = await session.probe(suffix, 4, lambda tokens: False)
    right = [token.id for token in plain.tokens]
    assert len(passes) == len(right) == 4
    for guess, expected in ((right, 1), (right[:2], 2), ([right[0], 415, right[2], right[3]], 3), ([415] * 9, 4)):
        passes.clear()
        assert_alike(await session.probe(suffix, 4, lambda tokens: False, guess), plain)
        assert len(passes) == expected
    await session.close()


async def test_a_probe_can_rewind(hf: TransformersEngine) -> None:
    suffix = await suffix_of(hf)
    session, shorter = [await hf.open(QUESTION, GREEDY, room=96) for _ in range(2)]
    await session.think(40)
    await shorter.think(33)
    assert_alike(await session.probe(suffix, 4, SPEC.done(), rewind=7), await shorter.probe(suffix, 4, SPEC.done()))
    assert_alike(
        await session.probe(suffix, 4, SPEC.done(), rewind=40), await shorter.probe(suffix, 4, SPEC.done(), rewind=33)
    )
    await session.think(20)
    await shorter.think(27)
    assert session.trace == shorter.trace
    wide = await session.probe(suffix, 1, lambda tokens: True, top=50)
    assert len(wide.tokens[0].top) == 50
    await session.close()
    await shorter.close()


async def single(engine: TransformersEngine, ids: Sequence[int], after: int) -> tuple[int, str]:
    """Position and text of a token that first occurs at `after` or later, and whose text is encoded as that token."""
    for place, token in enumerate(ids):
        text = await engine.decode([token])
        if place >= after and token not in ids[:place] and await engine.encode(text) == (token,) and text.strip():
            return place, text
    raise AssertionError


async def test_thinking_ends_at_the_tag_and_can_be_continued(hf: TransformersEngine) -> None:
    whole = await thought(hf, QUESTION, GREEDY, 96)
    place, tag = await single(hf, whole, 4)
    tagged = await opened(tags=ThinkTags("<think>", tag), threads=1)
    session = await tagged.open(QUESTION, GREEDY, room=128)
    first = await session.think(place)
    assert (first.ids, first.ended) == (whole[:place], False)
    for _ in range(2):
        assert (await session.think(8)) == type(first)((), ended=True)
    waiting = await tagged.encode("\nWait")
    await session.append(waiting)
    more = await session.think(30, ban_end=True)
    assert more.ids
    assert tagged.loaded.end_tag.token not in more.ids
    assert session.trace == [*whole[:place], *waiting, *more.ids]
    await session.close()


async def test_a_ban_does_not_change_raw_probabilities(hf: TransformersEngine) -> None:
    """The token that is sampled in place of the tag keeps the probability that it had without the ban."""
    whole = await thought(hf, QUESTION, GREEDY, 96)
    place, tag = await single(hf, whole, 4)
    tagged = await opened(tags=ThinkTags("<think>", tag), threads=1)
    session = await tagged.open(QUESTION, Sampling(0.0, logprobs=True), room=128)
    stretch = await session.think(place + 1, ban_end=True)
    await session.close()
    raw = plain_logits(tagged, [*session.prompt, *whole[:place]])[-1].double().log_softmax(-1)
    assert stretch.ids[-1] != tagged.loaded.end_tag.token == int(raw.argmax())
    assert stretch.logprobs[-1] == pytest.approx(float(raw[stretch.ids[-1]]), abs=1e-5)


async def test_a_tag_of_several_tokens_ends_thinking_too(hf: TransformersEngine) -> None:
    whole = await thought(hf, QUESTION, GREEDY, 96)
    for place in range(6, 90):
        tag = await hf.decode(whole[place : place + 3])
        text = await hf.decode(whole)
        if text.index(tag) == len(await hf.decode(whole[:place])) and len(await hf.encode(tag)) > 1:
            break
    tagged = await opened(tags=ThinkTags("<think>", tag), threads=1)
    texts: list[str] = []
    suffix = await suffix_of(tagged)
    for stretches in ([place + 9], [3] * place):
        session = await tagged.open(QUESTION, GREEDY, room=160)
        for tokens in stretches:
            stretch = await session.think(tokens, on_text=texts.append)
            await session.probe(suffix, 4, SPEC.done())
        assert stretch.ended
        assert not stretch.eos
        assert tuple(session.trace) == whole[:place]
        assert "".join(texts) == await tagged.decode(session.trace)
        texts.clear()
        await session.append(whole[place : place + 2])
        await session.think(4, ban_end=True)
        await session.close()


async def test_an_end_of_turn_ends_thinking(hf: TransformersEngine) -> None:
    """A token of the thinking is declared to end the turn: thinking ends there, and nothing is written after it."""
    whole = await thought(hf, QUESTION, GREEDY, 96)
    place, _ = await single(hf, whole, 4)
    session = await hf.open(QUESTION, GREEDY, room=128)
    session.model = replace(session.model, end_ids=frozenset({whole[place]}))
    stretch = await session.think(96)
    assert (stretch.ids, stretch.ended, stretch.eos) == (whole[:place], True, True)
    assert [piece async for piece in session.write(8)] == []
    await session.close()


@pytest.mark.parametrize("temperature", [0.0, 1.2])
async def test_a_written_answer_does_not_change_the_thinking(hf: TransformersEngine, temperature: float) -> None:
    sampling = Sampling(temperature, seed=2)
    whole = await thought(hf, QUESTION, sampling, 40)
    session = await hf.open(QUESTION, sampling, room=96)
    await session.think(20, ban_end=True)
    assert await written_text(session.write(8)) == await written_text(session.write(8))
    await session.think(20, ban_end=True)
    await session.close()
    assert tuple(session.trace) == whole


async def pieces_of(session: TransformersSession, limit: int) -> list[Written]:
    """The pieces of a written answer; only the last one says why the text ended."""
    pieces = [piece async for piece in session.write(limit)]
    assert [piece.stop is None for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    return pieces


async def test_a_written_answer_comes_in_pieces(hf: TransformersEngine) -> None:
    session = await hf.open(QUESTION, GREEDY, room=96)
    await session.think(30, ban_end=True)
    pieces = await pieces_of(session, 24)
    ids = session.slot.ids[len(session.prompt) + 30 + len(session.model.end_tag.ids) :]
    assert len(pieces) > 3
    assert "".join(piece.text for piece in pieces) == await hf.decode(ids)
    assert (sum(piece.tokens for piece in pieces), pieces[-1].stop) == (len(ids), "eos")
    short = await pieces_of(session, 3)
    assert ("".join(piece.text for piece in short), short[-1].stop) == (await hf.decode(ids[:3]), "limit")
    info = replace(session.model.info, context=len(session.prompt) + 30)
    session.model = replace(session.model, info=info)
    assert await pieces_of(session, 24) == [Written("", 0, "limit")]
    await session.close()


async def test_stop_strings_across_token_borders(hf: TransformersEngine) -> None:
    """The stop string is not returned, nothing after it is sampled, and thinking ignores it."""
    session = await hf.open(QUESTION, GREEDY, room=96)
    await session.think(30, ban_end=True)
    texts = [piece.text for piece in await pieces_of(session, 24)]
    whole = "".join(texts)
    borders = [(texts[i][-1] + texts[i + 1][0], i) for i in range(len(texts) - 2)]
    stop, number = next((stop, i) for stop, i in borders if i > 1 and whole.index(stop) == len("".join(texts[: i + 1])) - 1)
    for stops in ((stop,), ("never", stop)):
        session.sampling = replace(GREEDY, stop=stops)
        pieces = await pieces_of(session, 24)
        assert "".join(piece.text for piece in pieces) == whole[: whole.index(stop)]
        assert (pieces[-1].stop, sum(piece.tokens for piece in pieces)) == ("stop", number + 2)
    session.sampling = replace(GREEDY, stop=(whole + "and more",))
    assert [piece.text for piece in await pieces_of(session, 24)] == [whole]  # held back to the end, then returned
    thinking = await hf.decode(session.trace)
    session.sampling = replace(GREEDY, stop=(thinking[-2:],))
    assert len((await session.think(20, ban_end=True)).ids) == 20
    await session.close()


async def test_a_written_answer_can_be_left_early(hf: TransformersEngine) -> None:
    whole = await thought(hf, QUESTION, GREEDY, 60)
    session = await hf.open(QUESTION, GREEDY, room=1500)
    await session.think(30, ban_end=True)
    answer = session.write(1000)
    await anext(answer)
    await answer.aclose()
    await session.append(whole[30:45])  # while the last pass of the answer may still run
    await session.think(15, ban_end=True)
    await session.close()
    assert tuple(session.trace) == whole


async def test_closing_a_session_ends_what_it_does(hf: TransformersEngine) -> None:
    session = await hf.open(QUESTION, GREEDY, room=1500)
    started = asyncio.Event()
    thinking = asyncio.create_task(session.think(1500, ban_end=True, on_text=lambda text: started.set()))
    await asyncio.wait({thinking, asyncio.create_task(started.wait())}, return_when=asyncio.FIRST_COMPLETED)
    await session.close()
    with pytest.raises(EngineError, match="closed while it was used"):
        await thinking


FILTERED: dict[str, dict[str, Any]] = {
    "top_k": {"top_k": 3},
    "min_p": {"min_p": 0.2},
    "top_p and top_k": {"top_p": 0.8, "top_k": 5},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.2, "frequency_penalty": 0.1},
}


async def test_filters_and_penalties_in_one_batch(hf: TransformersEngine) -> None:
    """Each session samples what it samples alone, also when it is probed; each filter changes the trace."""
    samplings = [Sampling(4.0, seed=3), *(Sampling(4.0, seed=3, **options) for options in FILTERED.values())]
    alone = [await thought(hf, QUESTION, sampling, 60) for sampling in samplings]
    together = await asyncio.gather(*(thought(hf, QUESTION, sampling, 60) for sampling in samplings))
    assert together == alone
    assert len(set(alone)) == len(alone)
    suffix = await suffix_of(hf)
    for sampling, expected in zip(samplings, alone, strict=True):
        session = await hf.open(QUESTION, sampling, room=96)
        for _ in range(4):
            await session.think(15, ban_end=True)
            await session.probe(suffix, 4, SPEC.done())
            await session.probe(suffix, 4, SPEC.done(), rewind=5)
        await session.close()
        assert tuple(session.trace) == expected


async def test_text_is_sent_while_the_model_thinks(hf: TransformersEngine) -> None:
    texts: list[object] = []
    model = Model(hf)
    plain = await model.asolve(QUESTION, rule="cgr", threshold=1.0, budget=80, interval=24)
    watched = await model.asolve(QUESTION, rule="cgr", threshold=1.0, budget=80, interval=24, on_event=texts.append)
    assert gist(watched) == gist(plain)
    assert "".join(one.text for one in texts if isinstance(one, Thinking)) == plain.thinking
    assert [one.probe.at for one in texts if isinstance(one, Probed)] == [24, 48, 72][: len(plain.probes)]
    assert all(probe.entropy is not None for probe in plain.probes)


async def test_a_cancelled_session_frees_its_place() -> None:
    small = await opened(sessions=1, threads=1)
    for _ in range(3):
        session = await small.open(QUESTION, GREEDY, room=1000)
        thinking = asyncio.create_task(session.think(1000, ban_end=True))
        await asyncio.sleep(0.05)
        thinking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await thinking
        await session.close()
        await session.close()
    assert len(await thought(small, QUESTION, GREEDY, 8)) == 8


async def test_a_failure_reaches_the_caller_and_the_next_job_runs(hf: TransformersEngine) -> None:
    session = await hf.open(QUESTION, GREEDY, room=64)

    def broken(tokens: Sequence[Any]) -> bool:
        raise ValueError("no")

    with pytest.raises(EngineError, match="The model failed: no"):
        await session.probe(await suffix_of(hf), 4, broken)
    await session.close()
    assert len(await thought(hf, QUESTION, GREEDY, 8)) == 8


SLIDING: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("Qwen2", {"use_sliding_window": False}),
    "all": ("Mistral", {"sliding_window": 16}),
    "some": (
        "Gemma2",
        {
            "sliding_window": 16,
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "query_pre_attn_scalar": 16,
        },
    ),
}


@pytest.mark.parametrize("layers", ["none", "all", "some"])
async def test_sliding_windows(layers: str, tmp_path: Path) -> None:
    """Beyond the window thinking still equals one plain pass; packed probes are refused."""
    kind, config = SLIDING[layers]
    engine = await opened(random_model(tmp_path, kind, **config), sessions=2, threads=1)
    one, _ = await asyncio.gather(thought(engine, QUESTION, GREEDY, 60), thought(engine, OTHERS[0], GREEDY, 20))
    prompt = await engine.prompt(QUESTION)
    logits = plain_logits(engine, [*prompt, *one])[len(prompt) - 1 : -1]
    logits[:, engine.loaded.end_tag.ids[0]] -= 1e9
    assert logits.argmax(-1).tolist() == list(one)
    assert engine.capabilities.packed == (layers == "none")
    if layers != "none":
        with pytest.raises(MissingCapability, match=f"{tmp_path.name} has sliding-window layers"):
            await engine.probe_many(prompt, one, [8], await suffix_of(engine), 4, SPEC.done())
