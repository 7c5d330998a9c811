"""A real Chromium, driven over its debugging pipe: nothing but the standard library, one browser for many pages."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
DRAWN = """new Promise((done) => {
  const look = () => document.documentElement.dataset.drawn === "yes" ? done(true) : setTimeout(look, 5);
  look();
})"""
# The browser reads commands from descriptor 3 and answers on 4; ours may have those numbers, so they step aside first.
START = """
import fcntl, os, sys
ours = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for theirs, number in zip((3, 4), ours):
    os.dup2(number, theirs)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str | None:
    """The browser on this machine, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def launched(binary: str, profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, gone afterwards."""
    read_commands, write = os.pipe()
    read, write_answers = os.pipe()
    theirs = (read_commands, write_answers)
    command = [binary, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, "-c", START, *map(str, theirs), *command], pass_fds=theirs, stdin=quiet, stdout=quiet, stderr=quiet
    )
    for end in theirs:
        os.close(end)
    try:
        yield Browser(read, write)
    finally:
        process.terminate()
        process.wait()
        os.close(write)
        os.close(read)


class Browser:
    """One tab, spoken to over two pipes."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._pending, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        self._attach()

    def _attach(self) -> None:
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its result; events that come in between are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while (answer := self._receive()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            more = os.read(self._read, 1 << 16)
            if not more:
                raise RuntimeError("The browser went away.")
            self._pending += more
        one, self._pending = self._pending.split(b"\0", 1)
        message: dict[str, Any] = json.loads(one)
        return message

    def open(self, path: Path, address: str = "") -> None:
        """Open a file and wait until the page says that it has drawn."""
        self.blank()
        self._load(path.as_uri() + address)
        self.run(DRAWN)

    def blank(self) -> None:
        self._load("about:blank")
        self.events.clear()

    def _load(self, url: str) -> None:
        loader = self.call("Page.navigate", url=url)["loaderId"]
        while not any(_is_loaded(event, loader) for event in self.events):
            self.events.append(self._receive())

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "a script failed"))
        return result["result"].get("value")

    def set(self, selector: str, value: object) -> None:
        """Put a value into a control as a person would, and wait until the page has drawn anew."""
        self.run(f"""new Promise((done) => {{
          const control = document.querySelector({json.dumps(selector)});
          if (control.type === "checkbox") control.checked = {json.dumps(value)}; else control.value = {json.dumps(value)};
          for (const kind of ["input", "change"]) control.dispatchEvent(new Event(kind, {{ bubbles: true }}));
          requestAnimationFrame(() => requestAnimationFrame(() => done(true)));
        }})""")

    def errors(self) -> list[str]:
        """What went wrong in the page since it was opened: exceptions, refusals, complaints in the console."""
        self.run("0")
        return [json.dumps(event["params"]) for event in self.events if _is_error(event)]

    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        wanted = (event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent")
        return [params["request"]["url"] for params in wanted]

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def media(self, kind: str = "", scheme: str = "light") -> None:
        """`print` or the screen, dark or light."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=kind, features=features)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"])


def _is_loaded(event: dict[str, Any], loader: str) -> bool:
    params = event.get("params", {})
    return event.get("method") == "Page.lifecycleEvent" and (params["name"], params["loaderId"]) == ("load", loader)


def _is_error(event: dict[str, Any]) -> bool:
    method, params = event.get("method"), event.get("params", {})
    return (
        method == "Runtime.exceptionThrown"
        or (method == "Log.entryAdded" and params["entry"]["level"] == "error")
        or (method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"))
    )
