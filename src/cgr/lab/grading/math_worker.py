"""Compares mathematical expressions with math-verify, in a worker process with a watchdog.

math-verify can hang or use all memory on a hostile answer, and its own timeouts work only on the main thread. A pair of
expressions that takes too long counts as different.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from cgr.errors import CgrError, UsageError

DEADLINE = 5.0  # seconds of CPU time for one comparison; a normal one takes milliseconds
WALL_CLOCK_FACTOR = 60  # wall-clock limit as a multiple of the CPU limit: a verdict must not depend on the machine's load
MAX_MEMORY = 4 << 30  # bytes of address space for the worker
TIMEOUT_EXIT_CODES = (1, -getattr(signal, "SIGPROF", -1))  # exit codes of a worker that its own watchdog ended
logger = logging.getLogger(__name__)
_ROMAN_LETTER = re.compile(r"\\mathrm\{([a-zA-Z])\}")
_HAS_DELIMITERS = re.compile(r"\$|\\boxed|\\\(|\\\[|(?:[A-Za-z']{2,} ){3}")


_FORMULA = re.compile(r"\$|\\boxed|\\\(|\\\[")
_LIST_IN_SENTENCE = re.compile(r"(?<![\w$.,\\{-])-?\d+(?:\s*,\s*-?\d+)+(?![\w$}]|[.,]\d)")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+")


class MathWorker:
    """A process that compares two expressions. It starts when first needed and again after it died."""

    def __init__(self, deadline: float = DEADLINE) -> None:
        self.deadline = deadline
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def equal(self, answer: str, gold: str) -> bool:
        """Whether both are the same mathematics. False if the comparison times out or kills two workers."""
        line = json.dumps([answer, gold]) + "\n"
        with self._lock:
            reply, code = self._request(line)
            if not reply and code not in TIMEOUT_EXIT_CODES:  # the worker died, perhaps for another reason: try once more
                reply, code = self._request(line)
        if not reply:
            logger.warning("Comparing %.80r with %.80r took too long; they count as different.", answer, gold)
        return reply == "1\n"

    def close(self) -> None:
        """End the process, if it runs. The worker can be used again."""
        with self._lock:
            self._stop()

    def _request(self, line: str) -> tuple[str, int | None]:
        """The worker's reply; or an empty reply and the exit code of the worker that died."""
        process, reply, code = self._running(), "", None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(OSError):  # a broken pipe: the process is dead already
                process.stdin.write(line)
                process.stdin.flush()
                reply = process.stdout.readline()
        finally:
            if not reply:  # dead, or this call was interrupted: a late reply must not answer the next pair
                process.kill()
                code = self._stop()
        return reply, code

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._owner != os.getpid():  # a forked child must not share its parent's pipes
            self._process, self._owner = _start(self.deadline), os.getpid()
        return self._process

    def _stop(self) -> int | None:
        """End the process, if this process started it, and return its exit code."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return None
        process.communicate()
        return process.returncode


def _start(deadline: float) -> subprocess.Popen[str]:
    if importlib.util.find_spec("math_verify") is None:
        raise UsageError(
            "Comparing mathematics needs the package math-verify.", "pip install 'certainty-guided-reasoning[lab]'"
        )
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {__name__} import serve; serve({deadline!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C is handled by the parent
    )
    assert process.stdout is not None
    if not process.stdout.readline():
        process.communicate()
        raise CgrError("The process that compares answers does not start.", "See: python -c 'import math_verify'")
    return process


def serve(deadline: float) -> None:
    """The worker's main loop: read pairs from standard input, write 0 or 1 for each."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not be read as a reply
    logging.disable()
    with suppress(ImportError):  # on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    _compare("x+1", "1+x")
    replies.write("ready\n")
    for line in sys.stdin:
        _set_watchdog(deadline)
        verdict = _compare(*json.loads(line))
        _set_watchdog(0)
        replies.write(f"{int(verdict)}\n")


def _set_watchdog(seconds: float) -> None:
    """End this process after this much CPU time, or much later by the clock; 0 cancels. Neither needs the interpreter."""
    if hasattr(signal, "setitimer"):  # not on Windows, where only the clock counts
        signal.setitimer(signal.ITIMER_PROF, seconds)
    faulthandler.cancel_dump_traceback_later()
    if seconds:
        faulthandler.dump_traceback_later(seconds * WALL_CLOCK_FACTOR, exit=True)


def _compare(answer: str, gold: str) -> bool:
    math_verify = importlib.import_module("math_verify")
    return bool(math_verify.verify(_parse(gold), _parse(answer), timeout_seconds=None))


def _parse(text: str) -> Any:
    """The expression in a text. The content of a box is parsed as one formula, all or nothing; a sentence, or a text with
    its own delimiters, is left to the library's extraction."""
    math_verify = importlib.import_module("math_verify")
    body = text.replace("\\$", "")
    body = _ROMAN_LETTER.sub(r"\1", body)  # the library would read a final \mathrm{e} as a unit and cut it off
    latex, plain = math_verify.LatexExtractionConfig(), math_verify.ExprExtractionConfig()
    body, targets = (_delimited(body), [latex, plain]) if _HAS_DELIMITERS.search(body) else (f"${body}$", [latex])
    return math_verify.parse(body, targets, fallback_mode="no_fallback", parsing_timeout=None)


def _delimited(sentence: str) -> str:
    """The sentence with its last list of integers as a formula: the library would read `-1,2,-2` there as one number."""
    if _FORMULA.search(sentence):
        return sentence
    lists = [one for one in _LIST_IN_SENTENCE.finditer(sentence) if not _THOUSANDS.fullmatch(one[0])]
    if not lists:
        return sentence
    start, end = lists[-1].span()
    return f"{sentence[:start]}${sentence[start:end]}${sentence[end:]}"
