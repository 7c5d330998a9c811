"""The live display, event by event."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from cgr import Decided, Decision, Probe, Probed, Thinking
from cgr.cli.solve import BARS, CHART_WIDTH, LiveDisplay, certainty_chart
from cgr.engines.base import ModelInfo
from cgr.settings import Settings

INFO = ModelInfo("some-model", "llama.cpp", 4096, "<think>", "</think>", budget=64, interval=16)


def display() -> tuple[LiveDisplay, io.StringIO]:
    out = io.StringIO()
    live = LiveDisplay(file=out)
    live.begin("Why?", Settings(threshold=0.9).resolve(INFO), INFO, own_problem=False)
    return live, out


def test_thinking_and_probes_have_lines_of_their_own() -> None:
    live, out = display()
    live.show(Thinking("one two"))
    live.show(Probed(Probe(16, "42", 0.5, True)))
    live.show(Thinking("three\n"))
    live.show(Probed(Probe(32, "4", 0.25, False, bound=True)))
    live.show(Decided(Decision("budget", "42", 0.5, True, False, 64)))
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["Why?", "some-model on llama.cpp, rule cgr, a probe every 16 tokens, budget 64"]
    assert lines[3] == "one two"
    assert lines[4].split() == ["?", "16", "42", "certainty", "=", "0.500", "▅"]
    assert lines[5] == "three"
    assert lines[6].split() == ["?", "32", "4…", "certainty", "≤", "0.250", "▅▃"]


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "[/]", ":smile:", "a [link=x] b"])
def test_what_a_model_writes_is_text_not_markup(text: str) -> None:
    live, out = display()
    live.show(Thinking(text))
    live.show(Probed(Probe(16, text, 0.5, True)))
    assert out.getvalue().count(text) == 2


def test_what_a_model_writes_has_no_power_over_the_terminal() -> None:
    live, out = display()
    live.show(Thinking("\x1b[2J\u202e\rx\n"))
    live.show(Probed(Probe(16, "\x9b31m\n", 0.5, True)))
    live.begin("\x1b]0;title\x07", Settings().resolve(INFO), replace(INFO, name="\x1b[31m"), own_problem=False)
    shown = out.getvalue()
    assert "\\x1b[2J\\u202e\\rx\n" in shown
    assert "\\x9b31m\\n" in shown
    assert not [one for one in "\x1b\x07\x9b\u202e\r" if one in shown]


@pytest.mark.parametrize(
    ("certainties", "expected"), [([], ""), ([0.0], BARS[0]), ([1.0], BARS[-1]), ([0.0, 0.5, 0.999, 1.0], "▁▅██")]
)
def test_the_chart_of_certainties(certainties: list[float], expected: str) -> None:
    assert certainty_chart([Probe(1, "", value, True) for value in certainties]) == expected


def test_the_chart_has_a_maximum_width() -> None:
    assert len(certainty_chart([Probe(1, "", 0.5, True)] * 100)) == CHART_WIDTH


@pytest.mark.parametrize("quiet", [False, True])
def test_interrupted_it_prints_the_last_probe(quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Also if nothing else is printed, as with --json."""
    live = LiveDisplay(quiet=quiet)
    live.show(Probed(Probe(16, "42", 0.5, True)))
    live.show(Probed(Probe(32, "4", 0.25, False, bound=True)))
    live.interrupted()
    out, errors = capsys.readouterr()
    assert errors == "Interrupted. The last probe, after 32 tokens, answered '4' with certainty at most 0.250.\n"
    assert (out == "") == quiet


def test_a_probe_without_an_answer_shows_its_entropy() -> None:
    live, out = display()
    live.show(Probed(Probe(16, "", 0.0, False, entropy=1.25)))
    assert out.getvalue().splitlines()[-1].strip() == "?     16  entropy of the next token = 1.250 bits"
