"""The cost of probes: during thinking, on a recorded trace, and compared with reading the trace again for each probe."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import cast

from benchmarks.rows import Results, Row
from benchmarks.sessions import SPEC, Bench, read, think_on, timed
from cgr.drive.driver import Driver
from cgr.reason import Ask
from cgr.records import Probe

PROBES = 32
LONG = 4000
GRID = 32  # engines think in chunks of this size
SURE = 0.99  # as in a live run, a probe stops decoding when it cannot reach this certainty any more


async def on_the_way(bench: Bench, name: str, length: int, results: Results) -> list[int]:
    """Time of thinking with 32 probes that never stop (fewer on a short trace), divided by the time of thinking alone. The
    probes overlap with the thinking if the engine does so by default. Returns the ids of the trace."""
    if bench.engine.capabilities.overlaps:
        return await beside(bench, name, length, results)
    return await between(bench, name, length, results)


async def between(bench: Bench, name: str, length: int, results: Results) -> list[int]:
    """Without overlap. The two sessions alternate after each stretch, so that other load on the machine affects both."""
    interval = max(length // PROBES, GRID)
    question = bench.question()  # the same for both, so that they think the same
    plain, with_probes = [await bench.session(length, question=question, seed=5) for _ in range(2)]
    alone, probed = bench.driver(plain), bench.driver(with_probes)
    seconds, tokens, probes = [0.0, 0.0], 0, []
    try:
        for at in range(interval, length + 1, interval):
            once, _ = await timed(think_on(alone, interval))
            twice, _ = await timed(think_on(probed, interval))
            asking, probe = await timed(probed.serve(Ask(at, cut_below=SURE)))
            seconds = [seconds[0] + once, seconds[1] + twice + asking]
            tokens += cost(cast(Probe, probe))
            probes.append({"at": float(at), "probe": asking, "token": once / interval})
    finally:
        await plain.close()
        await with_probes.close()
    _row_on_the_way(results, name, length, False, seconds[1] / seconds[0], 1 + tokens / length, seconds)
    results.curves[f"{name}, {length} tokens"] = probes
    return list(alone.ids)


async def beside(bench: Bench, name: str, length: int, results: Results) -> list[int]:
    """With overlap. A stream generates ahead, so that two sessions cannot alternate: instead alone, probed, alone."""
    seconds, tokens = {False: 0.0, True: 0.0}, 0
    ids: list[int] = []
    question = bench.question()
    for asking in (False, True, False):
        session = await bench.session(length, question=question, overlap=asking, seed=5)
        driver = bench.driver(session, overlap=asking)
        try:
            taken, cost_of_probes = await timed(_whole(driver, length, asking))
        finally:
            await session.close()
        seconds[asking] += taken
        tokens += cost_of_probes
        ids = ids or list(driver.ids)
    both = [seconds[False] / 2, seconds[True]]
    _row_on_the_way(results, name, length, True, both[1] / both[0], 1 + tokens / length, both)
    return ids


async def _whole(driver: Driver, length: int, asking: bool) -> int:
    """Generate a whole trace; return the token cost of its probes."""
    interval, tokens = max(length // PROBES, GRID), 0
    for at in range(interval, length + 1, interval):
        await think_on(driver, interval)
        if asking:
            tokens += cost(cast(Probe, await driver.serve(Ask(at, cut_below=SURE))))
    return tokens


def cost(probe: Probe) -> int:
    """The tokens of a probe: its suffix and the decoded answer."""
    return len(probe.suffix_ids) + probe.decoded


def _row_on_the_way(
    results: Results, name: str, length: int, overlap: bool, ratio: float, predicted: float, seconds: Sequence[float]
) -> None:
    how = "overlapped" if overlap else "sequential"
    detail = {"ratio": ratio, "predicted_by_tokens": predicted, "plain": seconds[0], "probed": seconds[1]}
    probes = min(PROBES, length // GRID)
    what = f"thinking {length:,} tokens with {probes} probes over thinking alone, {how}"
    if length >= LONG:
        results.rows.append(Row(what, name, ratio, hold=1.02 if overlap else 1.05, detail=detail))
        return
    results.rows.append(Row(what, name, ratio, detail=detail))
    results.rows.append(Row(f"the same, over what its tokens predict ({predicted:.2f})", name, ratio / predicted, hold=1.1))


async def over_a_recording(bench: Bench, name: str, ids: Sequence[int], results: Results, *, hold: bool) -> None:
    """Time of probing a trace at 32 cuts, divided by the time of one prefill; and time of reading the trace again for each
    cut, divided by the time of probing. `hold`: the ratios have limits, which a short trace has not."""
    length, suffix = len(ids), await bench.suffix()
    cuts = [length * k // PROBES for k in range(1, PROBES + 1)]
    once = await _prefill(bench, ids, suffix)
    probing = await _cut_by_cut(bench, ids, cuts, suffix)
    what, detail = f"probing {length:,} tokens at {PROBES} cuts", {"prefill": once, "probing": probing}
    most = 1.25 if hold else None
    results.rows.append(Row(f"{what}, over one prefill", name, probing / once, hold=most, detail=detail))
    timed_cuts = [length // 12, length // 4, length // 2]
    points = [(cut, await _prefill(bench, ids[:cut], suffix)) for cut in timed_cuts] + [(length, once)]
    again = sum(_between(points, cut) for cut in cuts)
    cheaper = {"timed": points, "reading_again": again, "probing": probing}
    what, least = f"reading it again for each cut, over {what}", 8 if hold else None
    results.rows.append(Row(what, name, again / probing, sense="at least", hold=least, detail=cheaper))
    results.curves[f"{name}, reading again"] = [{"at": float(cut), "seconds": seconds} for cut, seconds in points]


async def _prefill(bench: Bench, ids: Sequence[int], suffix: Sequence[int]) -> float:
    session = await bench.session(len(ids))
    try:
        return (await timed(read(session, ids, suffix, 1)))[0]
    finally:
        await session.close()


async def _cut_by_cut(bench: Bench, ids: Sequence[int], cuts: Sequence[int], suffix: Sequence[int]) -> float:
    session, total = await bench.session(len(ids)), 0.0
    try:
        for start, end in zip([0, *cuts], cuts, strict=False):
            seconds, _ = await timed(read(session, ids[start:end], suffix))
            total += seconds
    finally:
        await session.close()
    return total


def _between(points: Sequence[tuple[int, float]], cut: int) -> float:
    """The time of a cut, interpolated between the measured cuts; before the first, in proportion."""
    before = (0, 0.0)
    for after in points:
        if cut <= after[0]:
            share = (cut - before[0]) / (after[0] - before[0])
            return before[1] + share * (after[1] - before[1])
        before = after
    return before[1]


async def growth(bench: Bench, name: str, ids: Sequence[int], places: Sequence[int], results: Results) -> None:
    """The time of a probe after more and more tokens, of which only the last is not cached. The limit is half of the growth
    in tokens."""
    suffix, session, found, start = await bench.suffix(), await bench.session(len(ids) + 8), [], 0
    try:
        for place in places:
            await read(session, ids[start:place], suffix)
            each = [(await timed(read(session, ids[place + k : place + k + 1], suffix)))[0] for k in range(3)]
            found.append({"at": float(place), "seconds": median(each)})
            start = place + 3
    finally:
        await session.close()
    results.curves[f"{name}, a probe"] = found
    grown, longer = found[-1]["seconds"] / found[0]["seconds"], places[-1] / places[0]
    what = f"a probe after {places[-1]:,} tokens over one after {places[0]:,} ({longer:.0f} times the tokens)"
    results.rows.append(Row(what, name, grown, detail={"answer_tokens": SPEC.max_answer_tokens}, hold=(1 + longer) / 2))
