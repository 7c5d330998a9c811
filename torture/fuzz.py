"""What reads foreign input, with inputs that a fuzzer finds: it follows which code they reach."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from torture.knocks import Skipped, Trial, Try, knock_of

ROOT = Path(__file__).parent.parent
RUNS = {"span": 50_000, "events": 50_000, "import": 50_000, "template": 20_000, "store": 500}  # inputs of one trial


@knock_of(
    "fuzz",
    "answer spans, event streams, lines of an import, chat templates and the store under atheris, a fuzzer that looks for "
    f"inputs that reach new code; {RUNS['span']:,} inputs a trial ({RUNS['template']:,} templates, {RUNS['store']} runs)",
    "an answer ends at the same brace however it is cut into tokens; events, lines and templates are read or refused in a "
    "sentence; the store gives back what it was given",
    times=len(RUNS),
    long=10 * len(RUNS),
    mended=("an error of a server whose type or code was a list or an object ended in an exception.",),
)
@contextmanager
def fuzz(folder: Path) -> Iterator[Try]:
    """Targets in turn; the seed of the fuzzer comes from the trial."""
    if find_spec("atheris") is None:
        raise Skipped("atheris is not installed; `make torture` installs it where it can")

    def one(trial: Trial) -> str:
        target = [*RUNS][trial.number % len(RUNS)]
        call = (sys.executable, "-m", "torture.fuzzing", target, f"-runs={RUNS[target]}", "-timeout=300")
        paths = os.environ | {"PYTHONPATH": str(ROOT)}
        chosen = f"-seed={trial.chance.randrange(1, 1 << 30)}"
        done = subprocess.run((*call, chosen), cwd=trial.folder, env=paths, capture_output=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:].decode(errors="replace")
        return target

    yield one
