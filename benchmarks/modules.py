"""How much code there is, and how much of it one command uses: `make house`, or `python -m benchmarks.modules --json`.

For each command: the number of modules of the package in which at least one function is executed (an import alone does not
count). The commands run on a small run of the embedded model, each in its own process. For the package: lines, modules, the
longest module, the median length of a function, and the largest number of modules in one folder.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import FrameType

import click

import cgr

PACKAGE = Path(cgr.__file__).parent
REPOSITORY = Path(__file__).parent.parent
TRACE = "from benchmarks.modules import trace; trace()"
QUESTION = "Start with x=864. Apply x=(8x+97) mod 1000, 2 times. Find x."
RUN = "run"  # replaced by the folder of the run
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "solve": (QUESTION, "--budget", "64"),
    "generate": ("--questions", "arithmetic", "--limit", "4", "--seeds", "2", "--budget", "128", "--out", RUN),
    "probe": (RUN,),
    "report": (RUN,),
    "compare": (RUN,),
}


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a package. `longest_module` and `largest_folder` are paths; `folder_modules` leaves out `__init__.py`."""

    lines: int
    modules: int
    longest_module: str
    longest_lines: int
    median_function: float
    largest_folder: str
    folder_modules: int


def size_of(package: Path = PACKAGE) -> Size:
    """The size of the package in this folder."""
    paths = sorted(package.rglob("*.py"))
    lines = {str(path.relative_to(package)): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    longest = max(lines, key=lines.__getitem__)
    folders = Counter(str(path.parent.relative_to(package)) for path in paths if path.name != "__init__.py")
    ((folder, count),) = folders.most_common(1)
    lengths = [length for path in paths for length in function_lengths(path)]
    return Size(sum(lines.values()), len(lines), longest, lines[longest], median(lengths), folder, count)


def function_lengths(path: Path) -> Iterator[int]:
    """The lines of every function and method in a file, from `def` to its last line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def executed(arguments: Sequence[str]) -> list[str]:
    """The modules in which `cgr` with these arguments executes a function, as paths inside the package."""
    with TemporaryDirectory() as folder:
        found = Path(folder) / "modules.json"
        call = [sys.executable, "-c", TRACE, str(found), *arguments]
        subprocess.run(call, check=True, stdout=subprocess.DEVNULL, cwd=REPOSITORY)
        modules: list[str] = json.loads(found.read_text(encoding="utf-8"))
    return modules


def trace() -> None:
    """In the child process: run `cgr` with the arguments after the first, which names the file for the modules."""
    from cgr.cli import main

    found: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:  # a function, not the body of a module or class
            found.add(code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        main(sys.argv[2:])
    finally:
        sys.setprofile(None)
        paths = [Path(name) for name in found if name.startswith(f"{PACKAGE}/")]
        Path(sys.argv[1]).write_text(json.dumps(sorted(str(path.relative_to(PACKAGE)) for path in paths)), encoding="utf-8")


def measure(commands: Mapping[str, Sequence[str]] = COMMANDS) -> dict[str, list[str]]:
    """The modules that each command executes. The commands run in this order in a new folder."""
    with TemporaryDirectory() as folder:
        run = str(Path(folder) / "runs" / "small")
        return {
            name: executed([name, *(run if argument == RUN else argument for argument in arguments)])
            for name, arguments in commands.items()
        }


def table(size: Size, modules: Mapping[str, Sequence[str]]) -> str:
    """The figures as aligned lines."""
    rows = [
        ("src lines", f"{size.lines:,}"),
        ("modules", str(size.modules)),
        ("longest module", f"{size.longest_lines} lines, {size.longest_module}"),
        ("median function", f"{size.median_function:g} lines"),
        ("largest folder", f"{size.folder_modules} modules, {size.largest_folder}"),
        *((f"cgr {name}", f"{len(found)} modules") for name, found in modules.items()),
    ]
    return "\n".join(f"{label:<17}{value}" for label, value in rows)


def main() -> None:
    """Print the table, or with --json one object with the names of the modules too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object with the names of the modules")
    as_json = parser.parse_args().json
    size, modules = size_of(), measure()
    click.echo(json.dumps({"size": asdict(size), "modules": modules}) if as_json else table(size, modules))


if __name__ == "__main__":
    main()
