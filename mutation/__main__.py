"""The command line: make the changes, try them, and list those that no test notices."""

from __future__ import annotations

import argparse
import ast
import fnmatch
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from mutmut.__main__ import create_mutants
from mutmut.configuration import config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir, walk_mutatable_files
from mutmut.utils.format_utils import get_mutant_name, make_mutant_key

from mutation import report
from mutation.plugin import WORK

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "mutants"
RESULTS = "tried.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if a change is not noticed and not explained."""
    given = _parser().parse_args(arguments)
    os.chdir(ROOT)
    FOLDER.mkdir(exist_ok=True)
    _make_changes(given.processes)
    data = {path: _loaded(path) for path in walk_mutatable_files()}
    _keep(FOLDER / RESULTS, data)  # of a call that was killed
    names = [name for one in data.values() for name in one.exit_code_by_key]
    if given.only:
        names = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in given.only)]
    if given.changed:
        changed = {*_changed_functions(data, given.changed)}
        names = [name for name in names if name.partition("__mutmut_")[0] in changed]
    if not given.list:
        known = {name: code for one in data.values() for name, code in one.exit_code_by_key.items()}
        retried = (None, 0, 33) if given.survivors else (None,)
        _try([name for name in names if given.again or known[name] in retried], data, given)
    return report.show(names, data, write=given.write, all_diffs=given.diffs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mutation", description=__doc__)
    parser.add_argument("--only", action="append", metavar="PATTERN", help="changes by name, such as 'cgr.certainty*'")
    parser.add_argument("--changed", metavar="COMMIT", help="only functions with lines that changed since this commit")
    parser.add_argument("--again", action="store_true", help="also changes that were tried before")
    parser.add_argument("--survivors", action="store_true", help="also changes that no test noticed before")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="files of tests  [default: those of pyproject.toml]")
    parser.add_argument("--processes", type=int, default=1, help="changes that are tried at once (default 1)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of tests for one change (default 3)")
    parser.add_argument("--list", action="store_true", help="try nothing; list what is known")
    parser.add_argument("--diffs", action="store_true", help="show the diff of every change that is not noticed")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reliability.md")
    return parser


def _make_changes(processes: int) -> None:
    with open(os.devnull, "w", encoding="utf-8") as null:
        shown, sys.stdout = sys.stdout, null
        try:
            copy_src_dir()
            copy_also_copy_files()
            create_mutants(processes)
        finally:
            sys.stdout = shown


def _loaded(path: Path) -> SourceFileMutationData:
    data = SourceFileMutationData(path=path)
    data.load()
    return data


def _changed_functions(paths: Iterable[Path], commit: str) -> Iterable[str]:
    """The functions with lines that differ from those of a commit, by mutmut's names."""
    for path in paths:
        command = ["git", "diff", "--unified=0", commit, "--", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr.strip())
        lines: set[int] = set()
        for start, count in re.findall(r"^@@ .*\+(\d+)(?:,(\d+))? @@", done.stdout, re.MULTILINE):
            lines |= {*range(int(start), int(start) + int(count or 1))}
        for name, first, last in functions_of(path.read_text(encoding="utf-8")):
            if lines & {*range(first, last + 1)}:
                yield get_mutant_name(path, name)


def functions_of(source: str) -> Iterable[tuple[str, int, int]]:
    """mutmut's name of each function and method, with its first and last line."""
    for node in ast.parse(source).body:
        owner = node.name if isinstance(node, ast.ClassDef) else None
        for one in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                yield make_mutant_key(one.name, owner), one.lineno, one.end_lineno or one.lineno


def _try(names: Sequence[str], data: dict[Path, SourceFileMutationData], given: argparse.Namespace) -> None:
    if not names:
        return
    results, work = FOLDER / RESULTS, FOLDER / "work.json"
    asked = {"mutants": names, "processes": given.processes, "seconds": given.seconds}
    work.write_text(json.dumps(asked | {"results": str(results), "measured": str(FOLDER / "measured.json")}))
    tests = given.tests or config().pytest_add_cli_args_test_selection
    environment = os.environ | {
        WORK: str(work),
        "PYTHONPATH": f"{FOLDER / 'src'}:{FOLDER}:{ROOT}",
        "PY_IGNORE_IMPORTMISMATCH": "1",
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=native",
        "--assert=plain",
        "-p",
        "mutation.plugin",
        *config().pytest_add_cli_args,
        *tests,
    ]
    try:
        subprocess.run(command, cwd=FOLDER, env=environment, check=False)
    except KeyboardInterrupt:
        print("\nInterrupted. What was tried is kept; the same command continues.", file=sys.stderr)
    if not results.exists():
        sys.exit("The tests could not be run: read the lines above.")
    _keep(results, data)


def _keep(results: Path, data: dict[Path, SourceFileMutationData]) -> None:
    """Move the results of the trials into mutmut's own files."""
    if not results.exists():
        return
    codes = dict(map(json.loads, results.read_text(encoding="utf-8").splitlines()))
    for one in data.values():
        if codes.keys() & one.exit_code_by_key.keys():
            one.exit_code_by_key = {name: codes.get(name, code) for name, code in one.exit_code_by_key.items()}
            one.save()
    results.unlink()


if __name__ == "__main__":
    sys.exit(main())
