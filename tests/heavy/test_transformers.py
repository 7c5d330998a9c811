"""Sessions on torch: company, probes, bans, ends and cancellation. Nothing here depends on how well a model reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cgr import Model, Probed, Settings, Thinking
from cgr.engines.base import Answered, Sampling
from cgr.engines.hf.engine import TransformersEngine
from cgr.engines.text.chat import ThinkTags
from cgr.errors import DoesNotFit, MissingCapability, ModelNotFound, NotAModel, UsageError
from tests.heavy.models import GGUF, GREEDY, HF, SPEC, opened, random_model, suffix_of, thought
from tests.support import OTHERS, QUESTION, gist

pytestmark = pytest.mark.heavy


def plain_logits(engine: TransformersEngine, ids: Sequence[int]) -> Any:
    """Of all places, by one pass of the model as it comes."""
    import torch

    with torch.inference_mode():
        logits = engine.loaded.model(input_ids=torch.tensor([list(ids)])).logits[0]
    return logits.clone()


def certain(answered: Answered) -> list[float]:
    return [token.logprob for token in answered.tokens]


def assert_alike(one: Answered, other: Answered) -> None:
    assert [(token.id, token.text) for token in one.tokens] == [(token.id, token.text) for token in other.tokens]
    assert certain(one) == pytest.approx(certain(other), abs=1e-5)
    assert one.entropy == pytest.approx(other.entropy, abs=1e-4)
    assert one.ended == other.ended


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


async def test_company_does_not_change_a_trace(hf: TransformersEngine) -> None:
    """Eight sessions with prompts, lengths, temperatures and seeds of their own, which come and go at different times."""
    questions = [*(QUESTION, *OTHERS), *(f"{QUESTION} " + "Think. " * number for number in range(1, 5))]
    ways = [(one, Sampling(0.4 * number, seed=number), 40 + 13 * number) for number, one in enumerate(questions)]
    alone = [await thought(hf, *way) for way in ways]

    async def late(number: int) -> tuple[int, ...]:
        await asyncio.sleep(0.02 * number)
        return await thought(hf, *ways[number])

    together = await asyncio.gather(*map(late, range(len(ways))))
    assert together == alone
    assert sum(map(len, alone)) > 200


async def test_more_sessions_than_rows_wait_their_turn() -> None:
    small = opened(sessions=2, threads=1)
    found = await asyncio.gather(*(thought(small, QUESTION, Sampling(9.0, seed=seed), 24) for seed in range(5)))
    assert len(set(found)) == 5
    assert found[3] == await thought(small, QUESTION, Sampling(9.0, seed=3), 24)


async def test_greedy_thinking_is_what_the_model_says(hf: TransformersEngine) -> None:
    """Each token is the likeliest in one plain pass over all of them, and its log-probability is raw."""
    import torch

    session = await hf.open(QUESTION, Sampling(0.0, logprobs=True), room=64)
    stretches = [await session.think(tokens, ban_end=True) for tokens in (7, 33)]
    await session.close()
    logits = plain_logits(hf, [*session.prompt, *session.trace])[len(session.prompt) - 1 : -1]
    expected = torch.log_softmax(logits.double(), -1)
    logits[:, hf.tag.ids[0]] -= 1e9
    assert logits.argmax(-1).tolist() == session.trace
    given = [logprob for stretch in stretches for logprob in stretch.logprobs]
    assert given == pytest.approx([expected[i, token].item() for i, token in enumerate(session.trace)], abs=1e-4)
    tops = [top for stretch in stretches for top in stretch.tops]
    assert tops == pytest.approx(expected.topk(20).values.mean(-1).tolist(), abs=1e-3)


async def test_a_probe_reads_what_a_plain_pass_would(hf: TransformersEngine) -> None:
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


async def test_a_guess_saves_passes_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened(random_model(tmp_path, "Llama"), threads=1)
    suffix = await suffix_of(engine)
    session = await engine.open(QUESTION, GREEDY, room=96)
    await session.think(40)
    passes: list[int] = []
    feed = session.batch.rows.feed

    def counted(*arguments: Any) -> Any:
        passes.append(1)
        return feed(*arguments)

    monkeypatch.setattr(session.batch.rows, "feed", counted)
    plain = await session.probe(suffix, 4, lambda tokens: False)
    right = [token.id for token in plain.tokens]
    assert len(passes) == len(right) == 4
    for guess, expected in ((right, 1), (right[:2], 2), ([right[0], 415, right[2], right[3]], 3), ([415] * 9, 4)):
        passes.clear()
        assert_alike(await session.probe(suffix, 4, lambda tokens: False, guess), plain)
        assert len(passes) == expected
    await session.close()


async def test_a_probe_can_be_asked_a_few_tokens_back(hf: TransformersEngine) -> None:
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
    """A token of the trace, first seen after a while, whose text is that token alone."""
    for place, token in enumerate(ids):
        text = await engine.decode([token])
        if place >= after and token not in ids[:place] and await engine.encode(text) == (token,) and text.strip():
            return place, text
    raise AssertionError


async def test_thinking_ends_at_the_tag_and_can_be_forced_on(hf: TransformersEngine) -> None:
    whole = await thought(hf, QUESTION, GREEDY, 96)
    place, tag = await single(hf, whole, 4)
    tagged = opened(tags=ThinkTags("<think>", tag), threads=1)
    session = await tagged.open(QUESTION, GREEDY, room=128)
    first = await session.think(place)
    assert (first.ids, first.ended) == (whole[:place], False)
    for _ in range(2):
        assert (await session.think(8)) == type(first)((), ended=True)
    waiting = await tagged.encode("\nWait")
    await session.append(waiting)
    more = await session.think(30, ban_end=True)
    assert more.ids
    assert tagged.tag.token not in more.ids
    assert session.trace == [*whole[:place], *waiting, *more.ids]
    await session.close()


async def test_a_ban_leaves_raw_probabilities_alone(hf: TransformersEngine) -> None:
    """The token that is drawn in place of the tag has the probability that it had beside it."""
    whole = await thought(hf, QUESTION, GREEDY, 96)
    place, tag = await single(hf, whole, 4)
    tagged = opened(tags=ThinkTags("<think>", tag), threads=1)
    session = await tagged.open(QUESTION, Sampling(0.0, logprobs=True), room=128)
    stretch = await session.think(place + 1, ban_end=True)
    await session.close()
    raw = plain_logits(tagged, [*session.prompt, *whole[:place]])[-1].double().log_softmax(-1)
    assert stretch.ids[-1] != tagged.tag.token == int(raw.argmax())
    assert stretch.logprobs[-1] == pytest.approx(float(raw[stretch.ids[-1]]), abs=1e-5)


async def test_a_tag_of_several_tokens_ends_thinking_too(hf: TransformersEngine) -> None:
    whole = await thought(hf, QUESTION, GREEDY, 96)
    for place in range(6, 90):
        tag = await hf.decode(whole[place : place + 3])
        text = await hf.decode(whole)
        if text.index(tag) == len(await hf.decode(whole[:place])) and len(await hf.encode(tag)) > 1:
            break
    tagged = opened(tags=ThinkTags("<think>", tag), threads=1)
    heard: list[str] = []
    suffix = await suffix_of(tagged)
    for stretches in ([place + 9], [3] * place):
        session = await tagged.open(QUESTION, GREEDY, room=160)
        for tokens in stretches:
            stretch = await session.think(tokens, on_text=heard.append)
            await session.probe(suffix, 4, SPEC.done())
        assert stretch.ended
        assert not stretch.eos
        assert tuple(session.trace) == whole[:place]
        assert "".join(heard) == await tagged.decode(session.trace)
        heard.clear()
        await session.append(whole[place : place + 2])
        await session.think(4, ban_end=True)
        await session.close()


async def test_an_end_of_turn_ends_thinking(hf: TransformersEngine) -> None:
    """A token of the thinking is made to be one: thinking stops there, flagged, and nothing is written after it."""
    whole = await thought(hf, QUESTION, GREEDY, 96)
    place, _ = await single(hf, whole, 4)
    session = await hf.open(QUESTION, GREEDY, room=128)
    object.__setattr__(session.habits, "ends", frozenset({whole[place]}))
    stretch = await session.think(96)
    assert (stretch.ids, stretch.ended, stretch.eos) == (whole[:place], True, True)
    assert await session.write(8) == ""
    await session.close()


@pytest.mark.parametrize("temperature", [0.0, 1.2])
async def test_what_is_written_leaves_the_thinking_alone(hf: TransformersEngine, temperature: float) -> None:
    sampling = Sampling(temperature, seed=2)
    whole = await thought(hf, QUESTION, sampling, 40)
    session = await hf.open(QUESTION, sampling, room=96)
    await session.think(20, ban_end=True)
    assert await session.write(8) == await session.write(8)
    await session.think(20, ban_end=True)
    await session.close()
    assert tuple(session.trace) == whole


async def test_text_comes_as_it_is_thought(hf: TransformersEngine) -> None:
    heard: list[object] = []
    model = Model(hf)
    plain = await model.asolve(QUESTION, rule="cgr", threshold=1.0, budget=80, interval=24)
    watched = await model.asolve(QUESTION, rule="cgr", threshold=1.0, budget=80, interval=24, on_event=heard.append)
    assert gist(watched) == gist(plain)
    assert "".join(one.text for one in heard if isinstance(one, Thinking)) == plain.thinking
    assert [one.probe.at for one in heard if isinstance(one, Probed)] == [24, 48, 72][: len(plain.probes)]
    assert all(probe.entropy is not None for probe in plain.probes)


def test_pieces_join_to_the_text(loaded_once: TransformersEngine) -> None:
    """Characters of several bytes come with their last token, also where a stretch ends inside one."""
    words = loaded_once.words
    for text in ("plain", "naïve – 日本語 🙂!", " a  b\n\n c"):
        ids = words.encode(text)
        pieces = words.pieces(words.encode("x="))
        given = [pieces.feed(token) for token in ids]
        assert "".join(given) == words.decode(ids) == text
        assert not any("\ufffd" in piece for piece in given)


async def test_a_cancelled_session_frees_its_row() -> None:
    small = opened(sessions=1, threads=1)
    for _ in range(3):
        session = await small.open(QUESTION, GREEDY, room=1000)
        thinking = asyncio.create_task(session.think(1000, ban_end=True))
        await asyncio.sleep(0.05)
        thinking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await thinking
        await session.close()
        await session.close()
    waiting = asyncio.create_task(small.open(QUESTION, GREEDY, room=8))
    first = await waiting
    second = asyncio.create_task(small.open(QUESTION, GREEDY, room=8))
    await asyncio.sleep(0.02)
    second.cancel()
    await first.close()
    assert len(await thought(small, QUESTION, GREEDY, 8)) == 8


async def test_a_row_that_comes_too_late_is_given_back() -> None:
    """Cancelled in the moment in which it was handed out, again and again: the row is never lost."""
    small = opened(sessions=1, threads=1)
    for _ in range(20):
        first = await small.open(QUESTION, GREEDY, room=8)
        second = asyncio.create_task(small.open(QUESTION, GREEDY, room=8))
        await asyncio.sleep(0)
        await first.close()
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        if not second.cancelled():
            await second.result().close()
    assert len(await thought(small, QUESTION, GREEDY, 8)) == 8


async def test_what_fails_in_the_loop_reaches_who_asked(hf: TransformersEngine) -> None:
    """And the next one is served."""
    from cgr.errors import EngineError

    session = await hf.open(QUESTION, GREEDY, room=64)

    def broken(tokens: Sequence[Any]) -> bool:
        raise ValueError("no")

    with pytest.raises(EngineError, match="The model failed: no"):
        await session.probe(await suffix_of(hf), 4, broken)
    await session.close()
    assert len(await thought(hf, QUESTION, GREEDY, 8)) == 8


async def test_the_loop_serves_one_event_loop_after_another(loaded_once: TransformersEngine) -> None:
    first = await asyncio.to_thread(lambda: asyncio.run(thought(loaded_once, QUESTION, GREEDY, 12)))
    assert first == await thought(loaded_once, QUESTION, GREEDY, 12)


async def test_a_context_that_is_too_small_is_refused(hf: TransformersEngine) -> None:
    with pytest.raises(DoesNotFit, match="the context has 2048"):
        await hf.open(QUESTION, GREEDY, room=2048)
    session = await hf.open(QUESTION, GREEDY, room=8)
    with pytest.raises(DoesNotFit):
        await session.think(2048)
    await session.close()


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
async def test_sliding_windows_slide(layers: str, tmp_path: Path) -> None:
    """Past the window a session still thinks what one plain pass says; packing is refused by name."""
    kind, config = SLIDING[layers]
    engine = opened(random_model(tmp_path, kind, **config), sessions=2, threads=1)
    one, _ = await asyncio.gather(thought(engine, QUESTION, GREEDY, 60), thought(engine, OTHERS[0], GREEDY, 20))
    prompt = await engine.prompt(QUESTION)
    logits = plain_logits(engine, [*prompt, *one])[len(prompt) - 1 : -1]
    logits[:, engine.tag.ids[0]] -= 1e9
    assert logits.argmax(-1).tolist() == list(one)
    assert engine.capabilities.packed == (layers == "none")
    if layers != "none":
        with pytest.raises(MissingCapability, match=f"{tmp_path.name} has sliding-window layers"):
            await engine.probe_many(prompt, one, [8], await suffix_of(engine), 4, SPEC.done())


async def test_layers_that_cannot_be_rewound_are_refused(tmp_path: Path) -> None:
    random_model(tmp_path, "Mamba", state_size=8, head_dim=None)
    with pytest.raises(UsageError, match="cannot be rewound"):
        opened(tmp_path)


async def test_a_gguf_file_is_read_too(hf: TransformersEngine) -> None:
    """The embedded model by its other file: the same tokens, the same thinking, and its wishes."""
    from cgr.engines.llama.engine import fingerprint

    engine = opened(GGUF, threads=1)
    info = engine.info
    assert (info.interval, info.budget, info.max_answer_tokens) == (32, 1280, 4)
    assert info.fingerprint == fingerprint(GGUF)
    prompt = await engine.prompt(Settings().prompt(QUESTION))
    assert prompt == await hf.prompt(Settings().prompt(QUESTION))
    assert await thought(engine, QUESTION, GREEDY, 48) == await thought(hf, QUESTION, GREEDY, 48)


def test_the_fingerprint_tells_weights_apart(tmp_path: Path, loaded_once: TransformersEngine) -> None:
    other = random_model(tmp_path / "a", "Llama")
    assert opened(other, threads=1).info.fingerprint != loaded_once.info.fingerprint
    assert opened(HF, threads=1).info.fingerprint == loaded_once.info.fingerprint


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"device": "gpu"}, UsageError, "no device called 'gpu'"),
        ({"device": "cuda:99"}, UsageError, "no device 'cuda:99' here"),
        ({"dtype": "float31"}, UsageError, "no dtype called 'float31'"),
        ({"threads": 0}, UsageError, "0 threads"),
        ({"name": "nobody/nothing-here"}, ModelNotFound, "The hub has no model"),
        ({"name": "EMPTY"}, NotAModel, "it has no config.json"),
        ({"name": "BROKEN"}, NotAModel, "cannot"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(
    options: dict[str, Any], error: type[UsageError], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    name = str(options.pop("name", HF))
    if name == "EMPTY":
        name = str(tmp_path)
    if name == "BROKEN":
        (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
        name = str(tmp_path)
    with pytest.raises(error, match=message):
        opened(name, **options)


async def test_other_numbers_can_be_asked_for() -> None:
    engine = opened(dtype="float64", device="cpu", threads=1)
    assert str(engine.loaded.model.dtype) == "torch.float64"
    assert len(await thought(engine, QUESTION, GREEDY, 12)) == 12
