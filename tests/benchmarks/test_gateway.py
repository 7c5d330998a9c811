"""The benchmark of the gateway, small: its upstream, its pass-through and its client work together with `cgr serve`."""

from __future__ import annotations

import uvloop

from benchmarks import gateway
from benchmarks.fast_upstream import CLOSE, EOS, OPEN, Upstream, decode, encode
from benchmarks.gateway import ANSWER, WAYS, cpu_rows, paced_rows, setting
from benchmarks.server_memory import samples


def tokens(upstream: Upstream, ids: list[int], count: int) -> int:
    asked = {"max_tokens": count, "temperature": 1.0}
    return sum(1 for _ in upstream.frames(ids, asked))


def test_tokens_of_the_upstream() -> None:
    text = "a<think>b</think>c<eos>"
    assert encode(text) == [ord("a"), OPEN, ord("b"), CLOSE, ord("c"), EOS]
    assert decode(encode(text)) == text


def test_the_upstream_thinks_then_answers_and_continues_where_it_was() -> None:
    upstream = Upstream(thinking=10, answer=4, rate=0)
    assert tokens(upstream, [OPEN], 100) == 10 + 1 + 4 + 1
    assert tokens(upstream, [OPEN, *[120] * 7], 100) == 3 + 1 + 4 + 1
    assert tokens(upstream, [OPEN, 120, CLOSE], 100) == 4 + 1
    assert tokens(upstream, [OPEN], 5) == 5


def test_each_way_delivers_all_tokens_and_every_row_is_there() -> None:
    with setting(0, quick=True, streams=3) as found:
        uvloop.run(found.round())
        events = {way: found.found[way][0].load.events for way in WAYS}
    assert events["alone"] == events["bare"] == events["passed on"] == 3 * (found.thinking + 1 + ANSWER + 1)
    assert events["read"] >= 3 * found.tokens
    assert events["probed"] >= 3 * found.tokens
    rows = [*paced_rows(found), *cpu_rows(found, "3 streams")]
    assert {row.hold for row in rows} == {1.03, 1.05, 2, None}
    assert all(row.value > 0 for row in rows if row.unit == "µs")
    assert gateway.NAMES.keys() == set(WAYS) - {"alone"}


def test_memory_is_sampled_while_the_server_works() -> None:
    found = samples("gateway", 20)
    assert len(found) == 10
    assert all(10 < one < 2000 for one in found)
