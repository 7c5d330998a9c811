"""`cgr serve` as a real process, and a client for it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support import QUESTION, environment

LONG = 120.0  # seconds that nothing here takes, unless it hangs


@dataclass
class Served:
    """A running server. `lines`: what it wrote to standard error."""

    process: subprocess.Popen[str]
    address: str
    lines: list[str] = field(default_factory=list)
    told_to_end: bool = False

    def terminate(self) -> None:
        """Send SIGTERM, once."""
        if not self.told_to_end:
            self.told_to_end = True
            self.process.send_signal(signal.SIGTERM)

    def post(
        self, path: str = "/v1/chat/completions", headers: dict[str, str] | None = None, **body: Any
    ) -> httpx.Response:
        return httpx.post(self.address + path, json=body, headers=headers, timeout=LONG, trust_env=False)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.address + path, timeout=LONG, trust_env=False, **options)

    def chat(self, question: str = QUESTION, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
        return self.post(headers=headers, **chat_body(question, **fields))

    def stream(self, question: str = QUESTION, **fields: Any) -> list[dict[str, Any]]:
        """All chunks of a streamed chat, [DONE] checked and left out."""
        return chunks(self.chat(question, stream=True, **fields).text)

    def metric(self, name: str, **labels: str) -> float:
        return metric(self.get("/metrics").text, name, **labels)

    def wait_metric(self, value: float, name: str, **labels: str) -> None:
        """Until a metric has at least this value."""
        until = time.monotonic() + LONG
        while self.metric(name, **labels) < value:
            assert time.monotonic() < until, f"{name} stayed at {self.metric(name, **labels)}"
            time.sleep(0.02)

    def wait_line(self, pattern: str) -> str:
        until = time.monotonic() + LONG
        while True:
            if found := [line for line in self.lines if re.search(pattern, line)]:
                return found[-1]
            assert time.monotonic() < until, f"no {pattern!r} in {self.lines[-5:]}"
            time.sleep(0.02)


def chat_body(question: str = QUESTION, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}], **fields}


def chunks(text: str) -> list[dict[str, Any]]:
    events = [event.removeprefix("data: ") for event in text.split("\n\n") if event.startswith("data: ")]
    assert events[-1] == "[DONE]", text[-500:]
    return [json.loads(event) for event in events[:-1]]


def events(text: str) -> list[dict[str, Any]]:
    """The events of a stream in which each has a name."""
    found = []
    for block in text.split("\n\n"):
        if block and not block.startswith(":"):
            name, data = block.split("\n", 1)
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
    return found


def joined(found: list[dict[str, Any]], name: str) -> str:
    """One field of all deltas."""
    deltas = [chunk["choices"][0]["delta"] for chunk in found if chunk.get("choices")]
    return "".join(delta.get(name) or "" for delta in deltas)


def metric(text: str, name: str, **labels: str) -> float:
    """The sum of a metric over the labels that are not given."""
    total = 0.0
    for line in text.splitlines():
        if line.startswith((f"{name} ", f"{name}{{")) and all(f'{key}="{value}"' in line for key, value in labels.items()):
            total += float(line.rsplit(" ", 1)[1])
    return total


@contextmanager
def served(*arguments: str, env: dict[str, str] | None = None, code: int | None = 0) -> Iterator[Served]:
    """`cgr serve` on a free port. At the end it gets SIGTERM, and its exit code is checked."""
    call = [sys.executable, "-m", "cgr.cli", "serve", "--port", "0", *arguments]
    clean = {name: value for name, value in environment(env or {}).items() if name not in ("CGR_BASE_URL", "CGR_API_KEY")}
    process = subprocess.Popen(
        call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean | (env or {}), start_new_session=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines: list[str] = []
    reading = threading.Thread(target=lambda stream: lines.extend(iter(stream.readline, "")), args=(process.stderr,))
    reading.start()
    try:
        first = process.stdout.readline()
        found = re.search(r"at (http://\S+)/v1,", first)
        assert found, (first, lines)
        server = Served(process, found[1], lines)
        yield server
        server.terminate()
        assert process.wait(LONG) == code, lines[-20:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(LONG)
        reading.join(LONG)
        process.stdout.close()
        process.stderr.close()
