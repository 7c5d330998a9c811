"""A plugin of pytest that tries changes in place of running the tests once.

The tests are collected once. A first child process runs all of them and notes which functions each of them calls, and how
long it takes. Then each change is tried in a child of its own, with the tests that call the changed function, until one of
them fails: first those of the module's own file of tests, then the fastest of the others.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

WORK = "CGR_MUTATION_WORK"  # names the file with what to do
SURVIVED, NOTICED, NO_TESTS, TIMEOUT = 0, 1, 33, 36  # exit codes, as mutmut understands them
SLACK = 3.0  # seconds of computing that a change may take more than five times the usual
STUCK = 15.0  # seconds without computing, after which a change has made the tests wait for ever


@dataclass(frozen=True, slots=True)
class Measured:
    """For each test, the changed functions that it calls, and its seconds."""

    calls: Mapping[str, frozenset[str]]
    seconds: Mapping[str, float]


def pytest_configure(config: pytest.Config) -> None:
    """A property that fails is enough: its smallest example would take longer to find than all other tests."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutation", phases=phases, database=None, deadline=None, derandomize=True)
    settings.load_profile("mutation")


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Try the changes in place of running the tests."""
    if session.config.option.collectonly or not os.environ.get(WORK):
        return None
    work = json.loads(Path(os.environ[WORK]).read_text(encoding="utf-8"))
    measured = _measure(session.items, Path(work["measured"]))
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in session.items:
        for function in measured.calls.get(item.nodeid, ()):
            tests[function].append(item)
    for function, some in tests.items():
        some.sort(key=lambda item: (not _is_own(item, function), measured.seconds[item.nodeid]))
    Trials(tests, measured, Path(work["results"]), work["processes"], work["seconds"]).run(work["mutants"])
    return True


def _is_own(item: pytest.Item, function: str) -> bool:
    """Whether a test is in the file that is named after the module of a function."""
    module, folder = function.split(".")[-2], function.split(".")[-3:-2]
    return item.path.stem == f"test_{module}" and item.path.parent.name in (*folder, "tests")


@dataclass(slots=True)
class Child:
    """A change that is being tried. `computed`: the processor time when it was last seen to compute, and `seen` when."""

    mutant: str
    process: int
    computed: int = -1
    seen: float = 0.0

    def is_stuck(self) -> bool:
        """Whether it has computed nothing for a while: it waits for something that does not come."""
        fields = Path(f"/proc/{self.process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        computed = int(fields[11]) + int(fields[12])
        if computed != self.computed or fields[0] == "R":
            self.computed, self.seen = computed, time.monotonic()
        return time.monotonic() - self.seen > STUCK


@dataclass(slots=True)
class Trials:
    """Changes that are tried. `limit`: seconds of tests for a change, after which the other tests are left out."""

    tests: Mapping[str, Sequence[pytest.Item]]
    measured: Measured
    results: Path
    processes: int
    limit: float

    def run(self, mutants: Sequence[str]) -> None:
        """Try each change; the results are appended to a file as they come."""
        running: dict[int, Child] = {}
        done = 0
        for mutant in [*mutants, *[None] * self.processes]:
            while running and (mutant is None or len(running) >= self.processes):
                done += self._collect(running)
                _say(f"\r{done} of {len(mutants)} changes tried")
            if mutant is not None:
                self._begin(mutant, running)
        _say("\n")

    def _begin(self, mutant: str, running: dict[int, Child]) -> None:
        chosen: list[pytest.Item] = []
        seconds = 0.0
        for item in self.tests.get(mutant.partition("__mutmut_")[0], ()):
            seconds += self.measured.seconds[item.nodeid]
            if chosen and seconds > self.limit:
                break
            chosen.append(item)
        if not chosen:
            self._note(mutant, NO_TESTS)
            return
        process = _in_child(lambda: _try(mutant, chosen, 5 * seconds + SLACK))
        running[process] = Child(mutant, process)

    def _collect(self, running: dict[int, Child]) -> int:
        """Take the results of the children that have ended; how many there were."""
        ended = 0
        for process, child in list(running.items()):
            pid, status = os.waitpid(process, os.WNOHANG)
            if not pid and not child.is_stuck():
                continue
            if not pid:
                os.kill(process, 9)
                os.waitpid(process, 0)
            by_itself = pid and os.WIFEXITED(status)
            self._note(child.mutant, os.WEXITSTATUS(status) if by_itself else TIMEOUT)
            del running[process]
            ended += 1
        if not ended:
            time.sleep(0.005)
        return ended

    def _note(self, mutant: str, code: int) -> None:
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps([mutant, code]) + "\n")


def _measure(items: Sequence[pytest.Item], into: Path) -> Measured:
    """Run once, in a child, every test that is new or in a file that was changed since it was measured."""
    known = json.loads(into.read_text(encoding="utf-8")) if into.exists() else {}
    since = into.stat().st_mtime if known else 0.0
    known = {
        item.nodeid: known[item.nodeid] for item in items if item.nodeid in known and item.path.stat().st_mtime < since
    }
    missing = [item for item in items if item.nodeid not in known]
    if missing:
        os.waitpid(_in_child(lambda: _measure_all(missing, known, into)), 0)
        known = json.loads(into.read_text(encoding="utf-8"))
    calls = {name: frozenset(functions) for name, (functions, _) in known.items()}
    return Measured(calls, {name: seconds for name, (_, seconds) in known.items()})


def _measure_all(items: Sequence[pytest.Item], known: dict[str, Any], into: Path) -> int:
    """A test that fails without a change is said to call nothing, so that it is not used."""
    from mutmut.mutation.trampoline import set_mutant_under_test
    from mutmut.state import state

    set_mutant_under_test("stats")
    for number, item in enumerate(items):
        state()._stats.clear()
        began = time.process_time()
        failed = _fails(item)
        known[item.nodeid] = [] if failed else [*state()._stats], time.process_time() - began
        if failed:
            _say(f"\nfails without a change: {item.nodeid}\n")
        _say(f"\r{number + 1} of {len(items)} tests measured")
    _say("\n")
    into.write_text(json.dumps(known), encoding="utf-8")
    return 0


def _say(text: str) -> None:
    """Progress, on the terminal and not in what pytest captures."""
    os.write(2, text.encode())


def _try(mutant: str, items: Sequence[pytest.Item], seconds: float) -> int:
    """Whether these tests notice a change."""
    from mutmut.mutation.trampoline import set_mutant_under_test

    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
    set_mutant_under_test(mutant)
    return NOTICED if any(map(_fails, items)) else SURVIVED


def _fails(item: pytest.Item) -> bool:
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def _in_child(work: Callable[[], int]) -> int:
    """Do it in a forked child without output, whose exit code is the result; the child's process id."""
    child = os.fork()
    if child:
        return child
    code = NOTICED  # whatever else ends the child, such as sys.exit in a test
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        code = work()
    finally:
        os._exit(code)
