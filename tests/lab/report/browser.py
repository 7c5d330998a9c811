"""Drives a real Chromium over its debugging pipe, with the standard library only: one browser for many pages."""

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
DRAWN = 'document.documentElement.dataset.drawn === "yes"'
# Looks again and again, and gives up after many times: a page that is broken fails the test instead of blocking it.
POLL = """new Promise((done) => {
  let times = 0;
  const look = () => {
    if (CONDITION) done(true);
    else if (++times > 4000) done(false);
    else setTimeout(look, 5);
  };
  look();
})"""
# Opens elements, and waits for their toggle events and for what is drawn after them.
UNFOLD = """(async () => {
  const closed = [...document.querySelectorAll(SELECTOR)].filter((one) => !one.open);
  const toggled = closed.map((one) => new Promise((done) => one.addEventListener("toggle", done, { once: true })));
  for (const one of closed) one.open = true;
  await Promise.all(toggled);
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
})()"""
# The browser reads commands from descriptor 3 and answers on 4. Our own pipes may have those numbers, so they are moved.
START = """
import fcntl, os, sys
ours = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for theirs, number in zip((3, 4), ours):
    os.dup2(number, theirs)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str | None:
    """The path of a browser on this machine, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def launched(binary: str, profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, which ends with the block."""
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
    """One tab, driven over two pipes."""

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
        """Send one command and return its result; events that arrive before it are kept."""
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
        """Open a file and wait until the page has drawn itself."""
        self.visit(path.as_uri() + address)

    def visit(self, url: str) -> None:
        """Open an address and wait until the page has drawn itself."""
        self.blank()
        self._load(url)
        self.wait_until(DRAWN)

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

    def wait_until(self, condition: str) -> None:
        """Wait until a JavaScript expression is true; an error if that does not happen."""
        if not self.run(POLL.replace("CONDITION", condition)):
            raise AssertionError(f"This did not become true in the page: {condition}")

    def unfold(self, selector: str) -> None:
        """Open all `<details>` elements that match, and wait until the page has drawn their content."""
        self.run(UNFOLD.replace("SELECTOR", json.dumps(selector)))

    def set(self, selector: str, value: object) -> None:
        """Set the value of a control as a user does, and wait until the page has drawn again."""
        self.run(f"""new Promise((done) => {{
          const control = document.querySelector({json.dumps(selector)});
          if (control.type === "checkbox") control.checked = {json.dumps(value)}; else control.value = {json.dumps(value)};
          for (const kind of ["input", "change"]) control.dispatchEvent(new Event(kind, {{ bubbles: true }}));
          requestAnimationFrame(() => requestAnimationFrame(() => done(true)));
        }})""")

    def errors(self) -> list[str]:
        """Errors in the page since it was opened: exceptions, refused requests, and warnings in the console."""
        self.run("0")
        return [json.dumps(event["params"]) for event in self.events if _is_error(event)]

    def requests(self) -> list[str]:
        """Every address that the page requested."""
        sent = (event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent")
        return [params["request"]["url"] for params in sent]

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
