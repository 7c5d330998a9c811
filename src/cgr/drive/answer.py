"""Writes the answer as text after the thinking: the model's own, or only the boxed answer."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from cgr.drive.events import Answering, Decided
from cgr.engines.base import WrittenStop
from cgr.probing import END_TAG
from cgr.records import Decision, StopCause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from cgr.drive.driver import Driver
    from cgr.engines.base import Written

Style = Literal["full", "boxed"]
SENTENCE_ENDS = (".", "!", "?", "。", "！", "？")
PIECE = 256  # tokens of thinking at a time where nothing is probed


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """How the answer is written.

    `full`: the model writes it, from the closed thinking; `boxed`: the prefix and the probed answer, nothing more.
    `max_tokens`: of thinking and answer together; None: what fits the context. `wrap_up`: text before the end tag where
    the thinking was cut. `sentence_wait`: thinking tokens that a cut may wait for the end of a sentence. `abstention`: the
    text in place of an answer that is withheld. `probed`: False to think to the end without any probe, and answer freely.
    `blank_stops`: stop strings of white space only. An engine would find them before the first word of the answer.
    """

    style: Style = "full"
    max_tokens: int | None = None
    wrap_up: str = ""
    sentence_wait: int = 0
    abstention: str = ""
    probed: bool = True
    blank_stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """What was written: tokens, and why the text ended."""

    tokens: int
    stop: WrittenStop = "eos"


async def write_answer(driver: Driver, style: AnswerStyle, decision: Decision, budget: int) -> WrittenAnswer:
    """End the thinking of this driver's session and write the answer, as events."""
    if decision.abstained or style.style == "boxed":
        driver.emit(Decided(decision))
        return _withheld(driver, style) if decision.abstained else await _boxed(driver, decision)
    cut = decision.stop_cause in ("certainty", "budget")
    if decision.stop_cause == "certainty":
        await _end_sentence(driver, min(style.sentence_wait, budget - len(driver.ids)))
    await driver.close_with(style.wrap_up if cut else "")
    driver.emit(Decided(decision))
    left = None if style.max_tokens is None else max(style.max_tokens - len(driver.ids), 1)
    return await _full(driver, driver.engine.info.context if left is None else left, BlankStops(style.blank_stops))


async def _full(driver: Driver, limit: int, blank: BlankStops) -> WrittenAnswer:
    tokens = 0
    stop: WrittenStop = "limit"
    pieces = cast("AsyncGenerator[Written, None]", driver.session.write(limit))
    async with aclosing(pieces):
        async for piece in pieces:
            tokens, stop = tokens + piece.tokens, piece.stop or stop
            text, found = blank.feed(piece.text)
            driver.emit(Answering(text, piece.tokens, piece.logprobs))
            if found:
                return WrittenAnswer(tokens, "stop")
            if driver.ready:
                await driver.ready()
    driver.emit(Answering(blank.flush()))
    return WrittenAnswer(tokens, stop)


class BlankStops:
    """Finds stop strings of white space in a text that comes in pieces. White space before the first word is not searched:
    models write some after their thinking, and the answer would be empty."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops, self._held, self._begun = stops, "", False

    def feed(self, text: str) -> tuple[str, bool]:
        """The text that can be shown now, and whether a stop string ended it."""
        text = self._held + text
        start = 0 if self._begun else len(text) - len(text.lstrip())
        self._begun = self._begun or start < len(text)
        if not self.stops or not self._begun:
            self._held = ""
            return text, False
        places = [place for stop in self.stops if (place := text.find(stop, start)) >= 0]
        if places:
            self._held = ""
            return text[: min(places)], True
        kept = len(text) - max(_partial(text[start:], stop) for stop in self.stops)
        self._held = text[kept:]
        return text[:kept], False

    def flush(self) -> str:
        """What was held back, at the end."""
        held, self._held = self._held, ""
        return held


def _partial(text: str, stop: str) -> int:
    """How many characters at the end of the text may begin the stop string."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)


def _withheld(driver: Driver, style: AnswerStyle) -> WrittenAnswer:
    driver.emit(Answering(style.abstention))
    return WrittenAnswer(0)


async def _boxed(driver: Driver, decision: Decision) -> WrittenAnswer:
    """The probed answer after the prefix that asked for it."""
    probe = decision.final or decision.probes[-1]
    prefix = driver.spec.prefix.rpartition(END_TAG)[2]
    driver.emit(Answering(f"{prefix}{decision.answer}}}"))
    return WrittenAnswer(len(await driver.engine.encode(prefix)) + probe.decoded, "eos" if decision.closed else "limit")


async def _end_sentence(driver: Driver, tokens: int) -> None:
    """Think on to the end of the sentence, at most this many tokens."""
    while tokens > 0 and not ends_sentence(driver.last_text):
        tokens -= 1
        if await driver.think_on(1):
            return


def ends_sentence(text: str) -> bool:
    """Whether a cut after this text reads well. A point after a digit may be a decimal point."""
    last = text.rstrip(" ")
    return last.endswith(("\n", ";")) or (last.endswith(SENTENCE_ENDS) and not last[-2:-1].isdigit())


async def think_plainly(driver: Driver, budget: int) -> Decision:
    """Think without probes until the model ends its thinking or the budget is spent."""
    ended = False
    while len(driver.ids) < budget and not ended:
        ended = await driver.think_on(min(PIECE, budget - len(driver.ids)))
    cause: StopCause = "end_of_thinking" if ended else "budget"
    return Decision(cause, None, 0.0, closed=False, abstained=False, thinking_tokens=len(driver.ids))
