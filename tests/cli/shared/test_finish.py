"""The lines that end `cgr generate` and `cgr probe`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cgr.cli.shared.finish import summary_lines
from cgr.lab.record.jobs import Summary

NOTHING = Summary(
    run="runs/x",
    wanted=1,
    traces=1,
    new=1,
    failed=0,
    thinking_tokens=10,
    probes=0,
    probe_tokens=4,
    prefilled_tokens=0,
    seconds=2.0,
    tokens_per_second=5.0,
    ended_by_themselves=1,
    at_budget=0,
)


@pytest.mark.parametrize(
    ("probes", "said"), [(0, ""), (1, " 1 probe decoded 4 tokens."), (2, " 2 probes decoded 4 tokens.")]
)
def test_probes_are_counted_in_words(probes: int, said: str) -> None:
    assert f"10 thinking tokens in 2.0 s, 5 a second.{said}" in summary_lines(replace(NOTHING, probes=probes))
