"""One property test under atheris, a fuzzer that looks for inputs that reach new code; run by the knock `fuzz`.

    python -m torture.fuzzing tests.test_probing:test_the_first_unbalanced_brace_closes -runs=20000 -seed=1

The test is an ordinary property test of hypothesis, which turns the bytes of the fuzzer into its arguments. What follows the
name goes to atheris (libFuzzer). The exit code is not 0 if an input breaks the property; a test without atheris is `make test`.
"""

from __future__ import annotations

import sys
from importlib import import_module

import atheris


def main() -> None:
    """Import the test with the code that it reaches instrumented, and fuzz it."""
    module, _, test = sys.argv[1].partition(":")
    with atheris.instrument_imports(include=["cgr"]):
        found = getattr(import_module(module), test)
    atheris.Setup([sys.argv[0], *sys.argv[2:]], found.hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
