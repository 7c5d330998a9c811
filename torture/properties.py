"""The property tests of what reads foreign input, with many more examples than in `make test`, and other ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torture.knocks import Trial, Try, knock_of

ROOT = Path(__file__).parent.parent
EXAMPLES = 1000  # of each test in a trial; those that write files take a quarter
FILES = (
    "tests/test_probing.py",
    "tests/engines/completions/test_lines.py",
    "tests/engines/text/test_chat_properties.py",
    "tests/lab/exchange/test_properties.py",
)


@knock_of(
    "properties",
    f"the property tests of answer spans, event streams, chat templates, import and store, {EXAMPLES:,} examples of each",
    "the properties hold",
    times=4,
    long=80,
    mended=("a chat template that divides by zero, or breaks outside of a loop, ended in an exception.",),
)
@contextmanager
def properties(folder: Path) -> Iterator[Try]:
    """Files in turn; the seed of the examples comes from the trial."""

    def one(trial: Trial) -> str:
        name = FILES[trial.number % len(FILES)]
        call = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(trial.folder / "tmp"))
        chosen = (f"--hypothesis-seed={trial.chance.randrange(1 << 30)}", name)
        environment = os.environ | {"CGR_EXAMPLES": str(EXAMPLES), "TMPDIR": str(trial.folder)}
        done = subprocess.run((*call, *chosen), cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:]
        return Path(name).stem.removeprefix("test_")

    yield one
