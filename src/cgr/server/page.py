"""The page at `/` and its files, with a strict content security policy: no inline script, no outside request.

The page uses the public API only. Its files are in `static/`; what other pages use too is in `cgr/web/`.
"""

from __future__ import annotations

import html
import re
from functools import cache
from importlib.resources import files

from cgr.rules.base import THRESHOLD
from cgr.server.config import ServeConfig

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-cache"}
PAGE_HEADERS = {"content-type": "text/html; charset=utf-8", "content-security-policy": POLICY, **HEADERS}
FILES_AT = "/page/"  # the path of the files
SHARED = ("base.css", "chart.css", "thinking.css", "elements.js", "numbers.js", "chart.js")  # in cgr/web
STYLES = ("base.css", "chart.css", "thinking.css", "live.css")
SCRIPTS = (
    *("elements.js", "numbers.js", "chart.js", "api.js", "reply.js", "threshold.js", "pane.js", "curve.js"),
    *("metrics.js", "live.js"),
)
TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
SLOT = re.compile(r"\{\{ (\w+) \}\}")

EMBEDDED_EXAMPLES = (
    "Find x, the greatest common divisor of 676 and 468.",
    "Start with x=864. Apply x=(8x+97) mod 1000, 4 times. Find x.",
    "Find x, the last three digits of 317*29*67.",
    "Find x, the greatest common divisor of 845 and 273.",
)
EMBEDDED_NOTE = (
    "The embedded model knows problems of these three kinds only. It also replies to other questions, "
    "but its certainty then means nothing."
)
EXAMPLES = (
    "What is the remainder when 7^2024 is divided by 100? Put the answer into \\boxed{}.",
    "How many positive divisors does 5040 have? Put the answer into \\boxed{}.",
    "A fair die is rolled three times. What is the probability that the sum is 10? Put the answer into \\boxed{}.",
)
NOTE = "A probe assumes a short final answer, such as a number."


def page(config: ServeConfig) -> bytes:
    """The page for this server: its threshold, its rule, and examples for its model."""
    embedded = config.model.embedded
    threshold = THRESHOLD if config.settings.threshold is None else config.settings.threshold
    slots = {
        "styles": "\n".join(f'<link rel="stylesheet" href="{FILES_AT}{name}">' for name in STYLES),
        "scripts": "\n".join(f'<script src="{FILES_AT}{name}" defer></script>' for name in SCRIPTS),
        "threshold": f"{threshold:g}",
        "rule": html.escape(config.settings.rule),
        "examples": "\n".join(map(_example, EMBEDDED_EXAMPLES if embedded else EXAMPLES)),
        "note": EMBEDDED_NOTE if embedded else NOTE,
    }
    return SLOT.sub(lambda slot: slots[slot[1]], _source("live.html").decode()).encode()


def page_file(name: str) -> tuple[bytes, dict[str, str]] | None:
    """A file of the page and its headers; None if the page has no such file."""
    if name not in STYLES and name not in SCRIPTS:
        return None
    return _source(name), {"content-type": TYPES[name.rsplit(".", 1)[1]], **HEADERS}


@cache
def _source(name: str) -> bytes:
    folder = files("cgr") / "web" if name in SHARED else files("cgr.server") / "static"
    return (folder / name).read_bytes()


def _example(text: str) -> str:
    return f'<button type="button" class="plain example">{html.escape(text)}</button>'
