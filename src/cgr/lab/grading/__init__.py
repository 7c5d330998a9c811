"""Whether an answer is right.

Integers are compared exactly, as the paper demands; numbers as exact fractions; choices by letter; everything else by
math-verify. That library can hang or eat all memory on a hostile answer, and its own timeouts only work on the main
thread, so it runs in a worker process with a watchdog. What hangs is not equal.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib.util
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from cgr.errors import CgrError, UsageError
from cgr.records import AnswerFormat
from cgr.rules.same_answer import normalised, quantities, quantity

DEADLINE = 5.0  # seconds of computing for one comparison; a normal one takes milliseconds
PATIENCE = 60  # times as long by the clock: a verdict must not depend on how busy the machine is
MEMORY = 4 << 30  # bytes of address space for the worker
HUNG = (1, -getattr(signal, "SIGPROF", -1))  # the exit codes of a worker that a watchdog of its own ended
FORMATS: tuple[AnswerFormat, ...] = ("integer", "number", "choice", "math")
logger = logging.getLogger(__name__)
_INTEGER = re.compile(r"([+-]?)([0-9]+)")
_STYLE = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathsf|operatorname)\{([^{}]*)\}")
_ROMAN_LETTER = re.compile(r"\\mathrm\{([a-zA-Z])\}")
_CHOICE = re.compile(r"\(?([A-Za-z])(?:[).:](?:\s.*)?)?", re.DOTALL)
_WRITTEN = re.compile(r"\$|\\boxed|\\\(|\\\[|(?:[A-Za-z']{2,} ){3}")


def is_right(answer: str, gold: str, format: AnswerFormat) -> bool:
    """Whether this answer equals the gold. A gold that its format cannot have is an error, never a wrong answer."""
    right = clean_gold(gold, format)
    if right is None:
        raise UsageError(f"The gold {gold!r} is no {format}.", f"Name its format: {', '.join(FORMATS)}.")
    if format in ("integer", "choice"):
        return (_integer if format == "integer" else _choice)(answer) == right
    return is_valid(answer, format) and (_same_number if format == "number" else _same_math)(answer, gold)


def is_valid(answer: str, format: AnswerFormat) -> bool:
    """Whether this is an answer of its format at all. An invalid one is wrong, and can be tagged as invalid."""
    if format == "integer":
        return _integer(answer) is not None
    if format == "choice":
        return _choice(answer) is not None
    if format == "number":
        return any(char.isdigit() for char in answer)
    return bool(answer.strip())


def check_many(pairs: Iterable[tuple[str, str, AnswerFormat]]) -> list[bool]:
    """`is_right` for each (answer, gold, format), each distinct one checked once."""
    wanted = list(pairs)
    verdicts = {pair: is_right(*pair) for pair in dict.fromkeys(wanted)}
    return [verdicts[pair] for pair in wanted]


def clean_gold(gold: str, format: AnswerFormat) -> str | None:
    """The gold as its format writes it: `025` is 25, `1,000` is 1000, `336^\\circ` is 336; None if it cannot be one."""
    if format == "choice":
        return _choice(gold)
    if format == "math":
        return gold.strip() or None
    value = quantity(gold)
    if value is None or (format == "integer" and not value.written.lstrip("-").isdigit()):
        return None
    return value.written


def _integer(text: str) -> str | None:
    """A plain integer in its shortest form. `25.0`, `25^\\circ` and digits of other scripts are not integers."""
    match = _INTEGER.fullmatch(text.strip())
    if match is None:
        return None
    digits = match[2].lstrip("0") or "0"
    return f"-{digits}" if match[1] == "-" and digits != "0" else digits


def _choice(text: str) -> str | None:
    """The letter of `B`, `b`, `(B)`, `B.`, `\\text{B}` or `B) because ...`."""
    match = _CHOICE.fullmatch(_STYLE.sub(r"\1", text).strip().strip("$").strip())
    return match[1].upper() if match else None


def _same_number(answer: str, gold: str) -> bool:
    plain = quantities(answer, gold)
    return plain[0].equals(plain[1]) if plain else _same_by_math_verify(answer, gold)


def _same_math(answer: str, gold: str) -> bool:
    if normalised(answer) == normalised(gold):
        return True
    plain = quantities(answer, gold)
    if plain and plain[0].equals(plain[1]):
        return True
    if plain and all(one.value.denominator == 1 for one in plain):
        return False
    return _same_by_math_verify(answer, gold)


class Judge:
    """A worker process that compares two expressions, started when first needed and again after it died."""

    def __init__(self, deadline: float = DEADLINE) -> None:
        self.deadline = deadline
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[str] | None = None
        self._owner = 0

    def equal(self, answer: str, gold: str) -> bool:
        """Whether they are the same mathematics. A pair that hangs, or kills two workers, is not."""
        line = json.dumps([answer, gold]) + "\n"
        with self._lock:
            reply, code = self._ask(line)
            if not reply and code not in HUNG:  # it died of something else, perhaps not of this pair
                reply, code = self._ask(line)
        if not reply:
            logger.warning("Comparing %.80r with %.80r was given up: they count as different.", answer, gold)
        return reply == "1\n"

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _ask(self, line: str) -> tuple[str, int | None]:
        """The worker's reply; or nothing, and the exit code of the worker that died."""
        worker, reply, code = self._running(), "", None
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            with suppress(OSError):  # a broken pipe: it is dead already
                worker.stdin.write(line)
                worker.stdin.flush()
                reply = worker.stdout.readline()
        finally:
            if not reply:  # dead, or we were interrupted: then its late reply must not answer the next pair
                worker.kill()
                code = self._stop()
        return reply, code

    def _running(self) -> subprocess.Popen[str]:
        if self._worker is None or self._owner != os.getpid():  # a forked child must not share its parent's pipes
            self._worker, self._owner = _start(self.deadline), os.getpid()
        return self._worker

    def _stop(self) -> int | None:
        """Let the worker end, if it is ours; its exit code, which killing it after its death does not change."""
        worker, self._worker = self._worker, None
        if worker is None or self._owner != os.getpid():
            return None
        worker.communicate()
        return worker.returncode


def _start(deadline: float) -> subprocess.Popen[str]:
    if importlib.util.find_spec("math_verify") is None:
        raise UsageError("Comparing mathematics needs one more package.", "pip install 'certainty-guided-reasoning[lab]'")
    worker = subprocess.Popen(
        [sys.executable, "-P", "-c", f"from cgr.lab.answers import serve; serve({deadline!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C is the parent's business
    )
    assert worker.stdout is not None
    if not worker.stdout.readline():
        worker.communicate()
        raise CgrError("The process that compares answers does not start.", "See: python -c 'import math_verify'")
    return worker


def serve(deadline: float) -> None:
    """Read pairs, write verdicts. Neither watchdog needs the interpreter, so they end what nothing else can."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries that print must not answer for us
    logging.disable()
    with suppress(ImportError):  # on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    _compare("x+1", "1+x")
    replies.write("ready\n")
    for line in sys.stdin:
        _watch(deadline)
        verdict = _compare(*json.loads(line))
        _watch(0)
        replies.write(f"{int(verdict)}\n")


def _watch(seconds: float) -> None:
    """End this process after so much computing, or long after by the clock; 0 calls it off."""
    if hasattr(signal, "setitimer"):  # not on Windows, where the clock alone decides
        signal.setitimer(signal.ITIMER_PROF, seconds)
    faulthandler.cancel_dump_traceback_later()
    if seconds:
        faulthandler.dump_traceback_later(seconds * PATIENCE, exit=True)


def _compare(answer: str, gold: str) -> bool:
    math_verify = importlib.import_module("math_verify")
    return bool(math_verify.verify(_parse(gold), _parse(answer), timeout_seconds=None))


def _parse(text: str) -> Any:
    """The inside of a box is one formula, all or nothing: no number is picked out of a broken one. A sentence, or a text
    with its own delimiters, is left to the library's own extraction."""
    math_verify = importlib.import_module("math_verify")
    body = text.replace("\\$", "")
    body = _ROMAN_LETTER.sub(r"\1", body)  # a closing \mathrm{e} would be taken for a unit and cut off, brace and all
    latex, plain = math_verify.LatexExtractionConfig(), math_verify.ExprExtractionConfig()
    body, targets = (body, [latex, plain]) if _WRITTEN.search(body) else (f"${body}$", [latex])
    return math_verify.parse(body, targets, fallback_mode="no_fallback", parsing_timeout=None)


_JUDGE = Judge()
_same_by_math_verify = lru_cache(maxsize=1 << 16)(_JUDGE.equal)
atexit.register(_JUDGE.close)
