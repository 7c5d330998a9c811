"""The property tests of what reads foreign input, with inputs that a fuzzer finds: it follows which code they reach."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from torture.knocks import Skipped, Trial, Try, knock_of

ROOT = Path(__file__).parent.parent
RUNS = 20_000  # inputs of a trial
WITH_FILES = 500  # where each input writes files
TARGETS = (
    ("tests.test_probing:test_the_span_does_not_depend_on_the_cuts", RUNS),
    ("tests.test_probing:test_the_first_unbalanced_brace_closes", RUNS),
    ("tests.engines.completions.test_lines:test_lines_do_not_depend_on_where_the_network_cuts", RUNS),
    ("tests.engines.completions.test_lines:test_a_line_is_an_object_or_nothing_or_a_known_error", RUNS),
    ("tests.lab.exchange.test_properties:test_any_bytes_are_read_or_refused_in_a_sentence", RUNS),
    ("tests.lab.exchange.test_properties:test_a_line_with_anything_in_it_is_read_or_refused_in_a_sentence", RUNS),
    ("tests.lab.exchange.test_properties:test_the_store_gives_back_what_it_was_given", WITH_FILES),
    ("tests.engines.text.test_chat_properties:test_any_template_is_a_prompt_or_one_sentence", RUNS),
    ("tests.engines.text.test_chat_properties:test_a_template_never_reaches_an_object_of_python", RUNS),
)


@knock_of(
    "fuzz",
    f"the same property tests under atheris, a fuzzer that looks for inputs that reach new code; {RUNS:,} inputs in a trial",
    "the properties hold",
    times=len(TARGETS),
    long=10 * len(TARGETS),
)
@contextmanager
def fuzz(folder: Path) -> Iterator[Try]:
    """Tests in turn; the seed of the fuzzer comes from the trial."""
    if find_spec("atheris") is None:
        raise Skipped("atheris is not installed; `make torture` installs it where it can")

    def one(trial: Trial) -> str:
        target, runs = TARGETS[trial.number % len(TARGETS)]
        limits = (f"-runs={runs}", f"-seed={trial.chance.randrange(1, 1 << 30)}", "-max_len=4096", "-timeout=300")
        call = (sys.executable, "-m", "torture.fuzzing", target, *limits, f"-artifact_prefix={trial.folder}/")
        done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return target.partition(":test_")[2].replace("_", " ")

    yield one
