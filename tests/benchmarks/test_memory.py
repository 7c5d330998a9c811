"""Memory of this process and of its children."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import memory

ASLEEP = "import sys; held = bytearray(range(256)) * (2**18); print('ready', flush=True); sys.stdin.read()"


def test_this_process_has_some() -> None:
    assert 1 < memory.peak() < 1_000_000


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux provides it")
def test_a_child_is_counted_while_it_lives() -> None:
    call, others = [sys.executable, "-c", ASLEEP], memory.of_children()  # servers of other tests may be running
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert memory.of_children() - others > 64
        child.communicate()
    assert memory.of_children() - others < 64
