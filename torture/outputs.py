"""Hostile output of a model, through a real run: what it says never reaches a terminal raw, and never runs in a page."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.lab.report import browser as chromium
from tests.lab.report.browser import Browser, launched
from tests.server.support import served
from tests.server.upstream import FakeUpstream, fake_upstream
from torture.knocks import Skipped, Trial, Try, knock_of
from torture.processes import Done, called, refused

QUESTION = "What is x? Put it into \\boxed{}."
PIECES = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[H",
    "\x9b31m",
    "\x00",
    "\x08\x08\x08",
    "\r",
    "\x7f",
    "\u202e",
    "\u2028",
    "\ufeff",
    "\u200b",
    "\x85",
    "<script>window.ran=1</script>",
    "</script><script>window.ran=1</script>",
    "<img src=x onerror=window.ran=1>",
    "<svg onload=window.ran=1>",
    "<!--<script>",
    "]]>",
    "{{7*7}}${7*7}",
    "\\boxed{",
    "}",
    "{" * 50,
    "<think>",
    "</think>",
    "</thi",
    "\ud800",
    "\udfff\ud83d",
    "<eos>"[:-1],
    "Wait",
    "\n\n",
    "é😀",
    '"\\',
    "[/red][link=x]",
    "NaN",
    "9" * 400,
    "\\frac{1}{",
)
RAW = frozenset(map(chr, [*range(9), *range(11, 32), *range(127, 160), 0x202E, 0x2028])) - {"\r"}


def hostile(chance: random.Random, most: int = 6) -> str:
    """A few pieces, in any order, with plain text between them."""
    return "".join(chance.choice((*PIECES, "so x is ", "42 ")) for _ in range(chance.randint(1, most)))


def _spoil(fake: FakeUpstream, chance: random.Random) -> None:
    fake.reset()
    fake.thought, fake.length = hostile(chance, 12), chance.choice((0, 1, 90, 200))
    fake.probed = hostile(chance, 3) if chance.random() < 0.8 else "x" * chance.choice((10, 5000))
    fake.answer = hostile(chance) if chance.random() < 0.8 else "<think>" + hostile(chance)


def _clean(done: Done) -> bool:
    """Whether a command succeeded; in any case nothing raw was printed."""
    raw = RAW & set(done.out + done.err)
    assert not raw, f"raw characters on the terminal: {sorted(map(ord, raw))} in {done.arguments}"
    return not refused(done)


@knock_of(
    "output",
    "a model that thinks, answers and writes control characters, ANSI escapes, HTML, scripts, think tags and open braces",
    "`cgr solve`, `generate`, `probe`, `report`, `export` and `import` end well or in a sentence; nothing is printed raw",
    times=12,
    long=300,
    mended=("`cgr report` failed on a run in which no probe had a closed answer.",),
)
@contextmanager
def output(folder: Path) -> Iterator[Try]:
    """All commands on a server whose model is hostile."""
    with fake_upstream() as fake:

        def one(trial: Trial) -> str:
            _spoil(fake, trial.chance)
            _clean(called("solve", QUESTION, "--base-url", fake.address, "--budget", "128", "--interval", "32"))
            run = _recorded(trial, fake)
            if run is None:
                return "refused"
            lines = trial.folder / "run.jsonl"
            assert _clean(called("export", str(run), str(lines)))
            assert _clean(called("import", str(lines), str(trial.folder / "again")))
            assert _clean(called("export", str(trial.folder / "again"), str(trial.folder / "again.jsonl")))
            first, second = (_lines(file) for file in (lines, trial.folder / "again.jsonl"))
            assert [line.get("text") for line in first] == [line.get("text") for line in second], "import changed a text"
            assert _clean(called("report", str(run)))
            return "whole run"

        yield one


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().split(b"\n") if line]


def _recorded(trial: Trial, fake: FakeUpstream) -> Path | None:
    """A run, if the model's output can be recorded at all."""
    questions, run = trial.folder / "questions.jsonl", trial.folder / "run"
    rows = [{"id": f"q{number}", "question": QUESTION + hostile(trial.chance, 2), "answer": "42"} for number in range(2)]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    server = ("--base-url", fake.address, "--quiet")
    call = ("generate", "--questions", str(questions), "--out", str(run), "--budget", "128", *server)
    if not _clean(called(*call)) or not _clean(called("probe", str(run), "--interval", "32", *server)):
        return None
    return run


@knock_of(
    "output-page",
    "the same output in the page of `cgr report` and in the live page of `cgr serve`, in a real Chromium",
    "no script of the model runs, nothing is loaded from elsewhere, and the page draws itself",
    times=4,
    long=60,
)
@contextmanager
def page(folder: Path) -> Iterator[Try]:
    """One browser for all trials."""
    binary = chromium.find()
    if binary is None:
        raise Skipped("there is no Chromium on the path")
    with ExitStack() as stack:
        fake = stack.enter_context(fake_upstream())
        server = stack.enter_context(served("--base-url", fake.address, "--interval", "20", "--budget", "200"))
        tab = stack.enter_context(launched(binary, folder / "profile"))

        def one(trial: Trial) -> str:
            _spoil(fake, trial.chance)
            run = _recorded(trial, fake)
            seen = "live page"
            if run is not None:
                assert _clean(called("report", str(run)))
                tab.open(run / "report" / "index.html")
                tab.unfold("details")
                _harmless(tab)
                seen = "report and live page"
            tab.visit(server.address + "/")
            tab.set("#question", QUESTION)
            tab.run('byId("ask-form").requestSubmit()')
            over = 'document.documentElement.dataset.state !== "running"'
            for _ in range(4):
                tab.wait_until(f"{over} || times > 3900")
            _harmless(tab, server.address)
            return seen

        yield one


def _harmless(tab: Browser, home: str = "file:") -> None:
    assert tab.run("String(window.ran)") == "undefined", "a script of the model ran"
    assert not tab.run('document.querySelectorAll("img[onerror], svg[onload]").length'), "text became markup"
    elsewhere = [url for url in tab.requests() if not url.startswith((home, "data:", "about:", "blob:"))]
    assert not elsewhere, f"the page loads {elsewhere}"
