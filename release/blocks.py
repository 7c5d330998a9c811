"""The console blocks of the documentation, run as they are written.

A block of shell commands is a fenced block without a language, or with `bash`, in which some line begins with a command (or
with `$ ` and a command, where the other lines are its output). All blocks of a page run in order, in one empty folder that
has the `recipes` and the `examples` of the repository. Comments on the lines before a block change this:

    <!-- not run: it needs a vLLM server -->    the block is left out, for this reason
    <!-- run first: cgr generate ... -->        a command that the reader has run already; hidden on the page
    <!-- run with: --limit 100 => --limit 4 -->  the first text is replaced by the second, for an experiment that takes long
    <!-- file: in.jsonl -->                     a block of any language that the reader saves as this file, as one line

A line `cgr serve ...` starts a server that ends with the page, or before the next one starts.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
FENCED = re.compile(r"(?P<notes>(?:^<!--.*?-->\n\n?)*)^```(?P<language>\w*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"<!-- (not run|run first|run with|file): (.+?) -->")
COMMAND = re.compile(r"(\$ )?(cgr|make|pip|python3?|curl|docker|npm|node|eval|export|inspect|lm_eval|lm-eval|vllm)\b")
SERVER = "http://127.0.0.1:8321/health"


@dataclass(frozen=True, slots=True)
class Block:
    """One console block. `skipped` is the reason not to run it; `before` are hidden commands."""

    page: str
    line: int
    commands: tuple[str, ...]
    before: tuple[str, ...] = ()
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A command of a page that ended with an error, and the end of what it printed."""

    page: str
    line: int
    command: str
    output: str


def pages() -> list[Path]:
    """The pages with commands for users."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The console blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for match in FENCED.finditer(text):
        notes = NOTE.findall(match["notes"])
        shell = match["language"] in ("", "bash", "console")
        found = (
            commands(match["text"]) if shell else tuple(save(match["text"], what) for kind, what in notes if kind == "file")
        )
        if found:
            before = tuple(what for kind, what in notes if kind == "run first")
            skipped = next((what for kind, what in notes if kind == "not run"), "")
            for shown, _, used in (what.partition(" => ") for kind, what in notes if kind == "run with"):
                found = tuple(command.replace(shown, used) for command in found)
            line = text.count("\n", 0, match.start("text"))
            yield Block(str(page.relative_to(ROOT)), line, found, before, skipped)


def save(text: str, name: str) -> str:
    """The command that saves a block as one line of a file."""
    return f"printf '%s\\n' {shlex.quote(' '.join(text.split()))} > {shlex.quote(name)}"


def commands(text: str) -> tuple[str, ...]:
    """The commands of a block. Lines in open quotes, and lines after a backslash, belong to the command before."""
    lines = text.splitlines()
    if not any(COMMAND.match(line) for line in lines):
        return ()
    shown = any(line.startswith("$ ") for line in lines)
    found: list[str] = []
    for line in lines:
        if found and _is_open(found[-1]):
            found[-1] += "\n" + line
        elif line.startswith("$ ") or (not shown and line.strip() and not line.startswith("#")):
            found.append(line.removeprefix("$ "))
    return tuple(found)


def _is_open(command: str) -> bool:
    """Whether the next line belongs to this command: a quote is open, or a backslash ends it."""
    try:
        shlex.split(command, comments=True)
    except ValueError:  # no closing quotation, or nothing after the backslash
        return True
    return False


@dataclass(slots=True)
class PageRun:
    """One page in its own folder, with `cgr` of the environment that is tested first on the path."""

    folder: Path
    bin: Path
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, found: Sequence[Block]) -> Iterator[Failure]:
        """Run the blocks in order; a failure ends its block, not the page."""
        for name in ("recipes", "examples"):
            shutil.copytree(ROOT / name, self.folder / name)
        try:
            for block in found:
                yield from self._run_block(block)
        finally:
            self._end_servers()

    def _end_servers(self) -> None:
        while self.servers:
            server = self.servers.pop()
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()

    def _run_block(self, block: Block) -> Iterator[Failure]:
        for command in (*block.before, *(() if block.skipped else block.commands)):
            failure = self._start_server(command) if command.startswith("cgr serve") else self._run_command(command)
            if failure is not None:
                yield Failure(block.page, block.line, command, failure)
                return

    def _environment(self) -> dict[str, str]:
        # `cgr open` must not wait for a browser; `true` is a program that ends at once.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return {**kept, "PATH": f"{self.bin}:{os.environ['PATH']}", "BROWSER": "true"}

    def _run_command(self, command: str) -> str | None:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
        )  # fmt: skip
        return None if done.returncode == 0 else f"exit code {done.returncode}: {done.stdout[-600:]}"

    def _start_server(self, command: str) -> str | None:
        """Start `cgr serve` and wait until it answers or ends. One that runs already has the same port, and is ended."""
        self._end_servers()
        server = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        while server.poll() is None:
            try:
                with urllib.request.urlopen(SERVER, timeout=5):
                    self.servers.append(server)
                    return None
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        return f"the server ended with exit code {server.returncode}"


def run_page(page: Path, folder: Path, bin_folder: Path) -> list[Failure]:
    """Run every console block of a page in this folder; what failed."""
    folder.mkdir(parents=True)
    return list(PageRun(folder, bin_folder).run(list(blocks(page))))


def say(text: str) -> None:
    """One line of progress."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
