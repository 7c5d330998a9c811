"""What reads foreign input, under atheris: a fuzzer that keeps and changes the inputs that reach new code.

    python -m torture.fuzzing span -runs=20000 -seed=1

What follows the name of a target goes to atheris (libFuzzer). If an input breaks a property, the exit code is not 0, and
the input is in a file of the folder where this was started. The knock `fuzz` runs all targets.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["cgr", "jinja2"]):
    from cgr.engines.completions.http import Fault, read_event
    from cgr.engines.completions.lines import Lines
    from cgr.engines.text.chat import ThinkTags, render
    from cgr.errors import CgrError, UsageError
    from cgr.lab.exchange.line import as_json, from_json
    from cgr.probing import answer_span
    from cgr.records import Message, Token
    from tests.engines.text.test_chat_properties import ATTRIBUTES, BLOCKS, KNOWN
    from tests.lab.exchange.test_exchange import SIX
    from tests.lab.exchange.test_properties import test_the_store_gives_back_what_it_was_given as stored

TAGS = ThinkTags("<think>", "</think>")
LONG = re.compile(rb"\*|\d{4}|range|center|indent|join")  # a template may take time and memory: that is a known limit
REACHED = ("<module", "builtins", "/etc/passwd", "PATH=")  # a bare name such as {{ namespace }} may show what it is
EVENTS = (b'data: {"choices": [{"text": "5"}]}\r\n', b'error: {"code": 500}\n', b": ping\n\n", b"data: [DONE]\n")


property_of_store: Any = stored  # hypothesis adds what is called here


@dataclass(frozen=True)
class Target:
    """What is fuzzed. `seeds`: inputs to begin with. `words`: pieces that inputs are made of."""

    run: Callable[[bytes], None]
    seeds: Sequence[bytes] = ()
    words: Sequence[str] = ()


def span(data: bytes) -> None:
    """The answer span is the same for all ways to cut a text into tokens, and ends at the first brace that closes it."""
    text = data[8:].decode("utf-8", "replace")
    cuts = sorted({0, len(text), *(place % (len(text) + 1) for place in data[:8])})
    found = [
        answer_span([Token(0, piece, -1.0) for piece in pieces])
        for pieces in ([text[a:b] for a, b in pairwise(cuts)], [*text], [text])
    ]
    assert len({(one.answer, one.closed) for one in found}) == 1, text
    end = next((end for end in range(len(text)) if text[: end + 1].count("}") > text[: end + 1].count("{")), None)
    assert (found[0].answer, found[0].closed) == (text[:end].strip(), end is not None), text


def events(data: bytes) -> None:
    """Lines do not depend on where the network cuts; each is an object, nothing, or a known error."""
    stream, places = data[8:], sorted(place % (len(data) + 1) for place in data[:8])
    lines, found = Lines(), list[bytes]()
    for start, end in pairwise([0, *places, len(stream)]):
        found += lines.feed(stream[start:end])
    assert found == stream.split(b"\n")[:-1]
    for line in found:
        with suppress(Fault, CgrError):
            event = read_event(line)
            assert event is None or isinstance(event, dict)


def imported(data: bytes) -> None:
    """A line of a file of traces is read or refused; one that was read is written, and read again as the same."""
    with suppress(UsageError):
        line = from_json(data)
        assert from_json(as_json(line)) == line


def template(data: bytes) -> None:
    """A chat template is a prompt or one sentence, and reaches no object of Python."""
    if LONG.search(data):
        return
    source, text = data.decode("utf-8", "replace"), "<think>"
    with suppress(UsageError):
        text = render(source, [Message("user", "Why?")], TAGS)
    assert text.rstrip().endswith("<think>")
    assert not [name for name in REACHED if name in text and name not in source], text


def store(data: bytes) -> None:
    """A run gives back the trace that it was given; hypothesis makes one of the bytes."""
    property_of_store.hypothesis.fuzz_one_input(data)


LINES = tuple(json.dumps(line).encode() for line in SIX)
FIELDS = tuple(dict.fromkeys(f'"{name}":' for line in SIX for name in line))
TARGETS = {
    "span": Target(span, (b"12345678\\frac{1}{2}}$", b"\0\0\0\0\0\0\0\0{}}"), ("{", "}", "\\frac", "}{", " ", "\n")),
    "events": Target(events, (b"12345678" + b"".join(EVENTS),), ("data:", "error:", "\r\n", "[DONE]", '{"')),
    "import": Target(imported, LINES, ("null", "1e999", "-1", '"\\ud800"', *FIELDS)),
    "template": Target(template, tuple(block.encode() for block in BLOCKS), (*BLOCKS, *ATTRIBUTES, *KNOWN)),
    "store": Target(store, tuple(bytes(range(start, 256)) * 12 for start in range(0, 256, 32))),
}


def main() -> None:
    """Fuzz one target, from its seeds, in the folder where this is started."""
    target = TARGETS[sys.argv[1]]
    seeds, words, limits = Path("seeds"), Path("words"), ["-max_len=4096", "-len_control=0"]
    seeds.mkdir(exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (seeds / f"seed-{number}").write_bytes(seed)
    if target.words:
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
        limits.append(f"-dict={words}")
    atheris.Setup([sys.argv[0], str(seeds), *limits, *sys.argv[2:]], target.run)
    atheris.Fuzz()


def _escaped(word: str) -> str:
    """A word in a dictionary of libFuzzer: its bytes in hexadecimal."""
    return "".join(f"\\x{byte:02x}" for byte in word.encode())


if __name__ == "__main__":
    main()
