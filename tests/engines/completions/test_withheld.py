"""llama.cpp streams no token that ends inside a character. Here a proxy leaves out events of a real stream in its place."""

from __future__ import annotations

from typing import Any

import pytest

from cgr import open_model
from cgr.engines.completions.dialect import Dialect, Piece, by_token
from cgr.engines.completions.limits import EventParser, Withheld
from cgr.engines.completions.session import _AnswerReading
from cgr.records import Token
from tests.engines.completions.test_engine import GREEDY, remote, session_of
from tests.engines.completions.upstream import HASTY, Fault, proxy
from tests.support import QUESTION, certainties, gist

NATIVE = Dialect("llama.cpp", "llama.cpp", 4096)


@pytest.fixture(scope="module")
def greedy() -> Any:
    """The undisturbed run."""
    with open_model(None) as here:
        return here.solve(QUESTION, **GREEDY, max_answer_tokens=4)


@pytest.mark.parametrize("options", [{}, {"chunk": 16}], ids=["one stream", "chunks"])
@pytest.mark.parametrize("after", [1, 2, 3, 16])
async def test_tokens_that_a_stream_leaves_out_are_requested_again(
    after: int, options: dict[str, Any], greedy: Any
) -> None:
    """Every stream leaves out one token, probes included: the result is that of the undisturbed run."""
    async with proxy() as passing, remote(passing.address, patience=HASTY, **options) as model:
        passing.always = Fault("withhold", after)
        solution = await model.asolve(QUESTION, **GREEDY, max_answer_tokens=4, on_event=lambda event: None)
        assert "withhold" in passing.done
    assert gist(solution) == gist(greedy)
    assert certainties(solution) == pytest.approx(certainties(greedy), abs=1e-3)


@pytest.mark.parametrize("after", [1, 3, 8])
async def test_a_written_answer_needs_no_ids(after: int) -> None:
    """Tokens that a stream leaves out are counted, and nothing is requested again. The proxy drops their text too."""
    async with proxy() as passing, remote(passing.address, patience=HASTY) as model:
        session = await session_of(model, temperature=0.0)
        await session.think(8)
        whole = [piece async for piece in session.write(8)]
        passing.always = Fault("withhold", after)
        found = [piece async for piece in session.write(8)]
        await session.close()
        assert passing.done.count("withhold") == 1
    assert sum(piece.tokens for piece in found) == sum(piece.tokens for piece in whole) == 8
    texts = [piece.text for piece in whole]
    assert "".join(piece.text for piece in found) == "".join([*texts[: after - 1], *texts[after:]])


def test_what_was_written_is_kept_as_text_where_ids_are_missing() -> None:
    reading = _AnswerReading(8)
    for piece in (Piece((7,), "a"), Piece((9,), "🙂", unnamed=2)):
        reading.take(piece, logprobs=False)
    assert (reading.text, reading.left, reading.unnamed, reading.over) == ("a🙂", 4, True, False)
    assert reading.take(Piece((1, 2, 3, 4, 5), "x"), logprobs=False).stop == "limit"
    assert (reading.text, reading.over) == ("a🙂", True)


def event(predicted: int, *ids: int, **more: Any) -> dict[str, Any]:
    return {"content": "x", "tokens": list(ids), "stop": False, "tokens_predicted": predicted} | more


def test_a_gap_is_noticed_at_the_next_token() -> None:
    parse = EventParser(NATIVE, 10)
    assert parse(event(1, 7)).ids == (7,)
    with pytest.raises(Withheld) as caught:
        parse(event(3, 9))
    assert caught.value.what == "it left out tokens of a character that is several tokens"


def test_a_gap_at_the_end_is_noticed_if_the_limit_was_the_end() -> None:
    parse = EventParser(NATIVE, 2)
    parse(event(1, 7))
    with pytest.raises(Withheld):
        parse(event(2, stop=True, stop_type="limit"))


@pytest.mark.parametrize(
    "last", [event(1, stop=True, stop_type="limit"), event(2, stop=True, stop_type="eos"), {"content": "", "tokens": []}]
)
def test_no_gap(last: dict[str, Any]) -> None:
    parse = EventParser(NATIVE, 2)
    parse(event(1, 7))
    parse(last)


def test_a_gap_in_a_text_is_counted() -> None:
    parse = EventParser(NATIVE, 10, only_text=True)
    assert parse(event(1, 7)).unnamed == 0
    assert parse(event(3, 9)).unnamed == 1
    assert parse(event(4, 9)).unnamed == 0
    assert parse(event(6, stop=True, stop_type="limit")).unnamed == 2


def test_a_server_that_does_not_count_is_believed() -> None:
    parse = EventParser(NATIVE, 2)
    assert parse({"content": "x", "tokens": [7], "stop": False}).ids == (7,)


async def test_a_whole_completion_token_by_token() -> None:
    async def decode(ids: Any) -> str:
        return f"<{ids[0]}>"

    tokens = (Token(1, "a", -0.5), Token(2, "b", -0.25))
    whole = Piece((1, 2), "ab", tokens, 5, 6, "limit", True)
    assert await by_token(whole, decode) == [
        Piece((1,), "<1>", tokens[:1]),
        Piece((2,), "<2>", tokens[1:]),
        Piece((), "", (), 5, 6, "limit", True),
    ]
