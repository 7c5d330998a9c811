"""What a person sees, event by event."""

from __future__ import annotations

import io

import pytest

from cgr import Decided, Decision, Probe, Probed, Thinking
from cgr.cli.shared.live import BARS, CURVE, Watcher, curve
from cgr.engines.base import ModelInfo
from cgr.settings import Settings

INFO = ModelInfo("some-model", "llama.cpp", 4096, "<think>", "</think>", budget=64, interval=16)


def watcher() -> tuple[Watcher, io.StringIO]:
    out = io.StringIO()
    watching = Watcher(file=out)
    watching.begin("Why?", Settings(threshold=0.9).resolve(INFO), INFO, own=False)
    return watching, out


def test_thinking_and_probes_have_lines_of_their_own() -> None:
    watching, out = watcher()
    watching.see(Thinking("one two"))
    watching.see(Probed(Probe(16, "42", 0.5, True)))
    watching.see(Thinking("three\n"))
    watching.see(Probed(Probe(32, "4", 0.25, False, bound=True)))
    watching.see(Decided(Decision("budget", "42", 0.5, True, False, 64)))
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["Why?", "some-model on llama.cpp, rule cgr, asked every 16 tokens, budget 64"]
    assert lines[3] == "one two"
    assert lines[4].split() == ["?", "16", "42", "certainty", "=", "0.500", "▅"]
    assert lines[5] == "three"
    assert lines[6].split() == ["?", "32", "4…", "certainty", "≤", "0.250", "▅▃"]


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "[/]", ":smile:", "a [link=x] b"])
def test_what_a_model_writes_is_text_not_markup(text: str) -> None:
    watching, out = watcher()
    watching.see(Thinking(text))
    watching.see(Probed(Probe(16, text, 0.5, True)))
    assert out.getvalue().count(text) == 2


@pytest.mark.parametrize(
    ("certainties", "expected"), [([], ""), ([0.0], BARS[0]), ([1.0], BARS[-1]), ([0.0, 0.5, 0.999, 1.0], "▁▅██")]
)
def test_the_curve(certainties: list[float], expected: str) -> None:
    assert curve([Probe(1, "", value, True) for value in certainties]) == expected


def test_the_curve_keeps_to_its_width() -> None:
    assert len(curve([Probe(1, "", 0.5, True)] * 100)) == CURVE


@pytest.mark.parametrize("quiet", [False, True])
def test_interrupted_it_says_what_is_known(quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where nothing else is printed, as with --json."""
    watching = Watcher(quiet=quiet)
    watching.see(Probed(Probe(16, "42", 0.5, True)))
    watching.see(Probed(Probe(32, "4", 0.25, False, bound=True)))
    watching.interrupted()
    out, errors = capsys.readouterr()
    assert errors == "Interrupted. The last probe, after 32 tokens, said '4' with certainty at most 0.250.\n"
    assert (out == "") == quiet


def test_a_probe_without_an_answer_shows_how_open_the_next_token_is() -> None:
    watching, out = watcher()
    watching.see(Probed(Probe(16, "", 0.0, False, entropy=1.25)))
    assert out.getvalue().splitlines()[-1].split() == ["?", "16", "next", "token's", "entropy", "=", "1.250", "bits"]
