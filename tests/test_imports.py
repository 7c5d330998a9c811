"""The direction of dependencies, read from the source: left may import right, never back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import cgr
from tests.support import python

ROOT = Path(cgr.__file__).parent
BOTTOM = {"records", "errors", "files"}
PROBING = BOTTOM | {"certainty"}
RULES = PROBING | {"probing", "rules"}
REASON = RULES
ENGINES = BOTTOM | {"engines", "engines/text"}
DRIVE = REASON | {"reason", "engines", "drive"}
CORE = DRIVE | {"prompts", "calibration", "settings", "sync", "solve", "model", "interrupt"}
# The lab, in the order of its pipeline: each folder may import the core and the folders named here.
LAB = {
    "lab": set(),
    "lab/output": set(),
    "lab/grading": set(),
    "lab/questions": {"lab/grading"},
    "lab/store": set(),
    "lab/exchange": {"lab/grading", "lab/store"},
    "lab/record": {"lab/store"},
    "lab/decide": {"lab/grading", "lab/store"},
    "lab/score": {"lab/grading", "lab/store", "lab/decide"},
    "lab/fit": {"lab/store", "lab/decide", "lab/score"},
    "lab/calibrate": {"lab/store", "lab/exchange", "lab/decide", "lab/score", "lab/fit"},
    "lab/compare": {"lab/store", "lab/exchange", "lab/decide", "lab/score", "lab/fit"},
    "lab/ablate": {"lab/store", "lab/decide", "lab/score", "lab/fit", "lab/compare"},
    "lab/report": {"lab/store", "lab/exchange", "lab/decide", "lab/score", "lab/fit", "lab/compare"},
}
LAB["lab/recipes"] = set(LAB)
SERVER_LAB = ("lab/store", "lab/record", "lab/calibrate", "lab/score")
OUTPUT_USERS = ("lab/calibrate", "lab/compare", "lab/ablate", "lab/report")
ALLOWED = {
    "records": {"errors"},
    "errors": set(),
    "interrupt": set(),
    "files": {"errors"},
    "certainty": BOTTOM,
    "probing": PROBING,
    "rules": RULES,
    "reason": REASON,
    "engines": ENGINES | {"engines/completions", "engines/llama", "engines/launch", "engines/hf"},
    "engines/text": ENGINES,
    "engines/completions": ENGINES,
    "engines/llama": ENGINES | {"engines/completions"},
    "engines/launch": ENGINES | {"engines/completions", "engines/llama"},
    "engines/hf": ENGINES | {"engines/llama"},
    "drive": DRIVE,
    "prompts": BOTTOM,
    "calibration": DRIVE | {"files", "prompts"},
    "settings": DRIVE | {"calibration", "prompts"},
    "sync": {"errors"},
    "solve": CORE,
    "model": set(),
    **{
        name: CORE | {"cgr", "lab", *below, *({"lab/output"} if name in OUTPUT_USERS else set())}
        for name, below in LAB.items()
    },
    "doctor": CORE | {"cgr"},
    "server": CORE | {"cgr", *SERVER_LAB, "engines/text", "engines/completions"},
    "integrations": {"errors", "server"},
    "cli": CORE | {"cgr", "doctor", "server", "engines/text", "engines/completions", *LAB},
    "cgr": CORE,
}
ALLOWED["lab/output"] = {"lab", "errors", "files"}
LAYERED = ("lab", "engines")  # packages whose folders are parts of their own
SOURCES = sorted(ROOT.rglob("*.py"))
HEAVY = ("xllamacpp", "aiohttp", "torch", "numpy", "matplotlib", "jinja2", "plotly", "transformers")


def part(path: Path) -> str:
    """The part of the package that a file belongs to: `reason`, `engines/text`, ...; `cgr` is the package itself."""
    names = path.relative_to(ROOT).with_suffix("").parts
    return _part_of(".".join(("cgr", *names)).removesuffix(".__init__"))


def imported(path: Path) -> Iterator[str]:
    """Every part of the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (_part_of(alias.name) for alias in node.names if _ours(alias.name))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            if _ours(node.module or ""):
                yield from (_part_of(f"{node.module}.{alias.name}") for alias in node.names)


def _ours(name: str) -> bool:
    return name == "cgr" or name.startswith("cgr.")


def _part_of(name: str) -> str:
    """`cgr.engines.base` is of `engines`, `cgr.lab.store.schema` of `lab/store`; what is no module, as in
    `from cgr import solve`, is of the package."""
    pieces = name.split(".")[1:]
    if not pieces or not ((ROOT / pieces[0]).is_dir() or (ROOT / f"{pieces[0]}.py").exists()):
        return "cgr"
    if pieces[0] in LAYERED and len(pieces) > 1 and (ROOT / pieces[0] / pieces[1]).is_dir():
        return "/".join(pieces[:2])
    return pieces[0]


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(ROOT)) for path in SOURCES])
def test_the_direction_of_dependencies(path: Path) -> None:
    wrong = set(imported(path)) - ALLOWED[part(path)] - ({part(path)} if path.parent != ROOT else set())
    assert not wrong, f"{part(path)} must not import {', '.join(sorted(wrong))}"


def test_every_part_is_known() -> None:
    assert {part(path) for path in SOURCES} <= ALLOWED.keys()
    assert {"records", "errors", "certainty", "probing", "rules", "reason", "drive", "engines"} <= set(map(part, SOURCES))


def test_engines_and_rules_never_meet() -> None:
    assert "rules" not in ENGINES
    assert not {"engines", "drive"} & RULES
    assert not {"engines", "drive"} & REASON


def test_the_reader_of_imports_sees_them(tmp_path: Path) -> None:
    """A test of the test: imports in functions and under other names count."""
    path = tmp_path / "some.py"
    path.write_text(
        "import cgr.engines.wire\ndef f():\n    from cgr.rules import base as b\n    from cgr import drive\nimport cgrx\n"
    )
    assert sorted(imported(path)) == ["drive", "engines", "rules"]


@pytest.mark.parametrize("module", ["cgr", "cgr.cli.solve", "cgr.cli.rules"])
def test_imports_are_lazy(module: str) -> None:
    done = python(f"import sys, {module}; print(*sys.modules)")
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "cgr" in loaded, done.stderr
    assert not loaded & set(HEAVY)


PURE = ("records", "errors", "certainty", "probing", "rules", "reason")
READS_FILES = {ROOT / "rules" / "files.py"}  # a fitted rule is a file
IO = {"asyncio", "aiohttp", "os", "pathlib", "random", "socket", "subprocess", "threading", "time"}


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if part(path) in PURE and path not in READS_FILES], ids=lambda path: path.name
)
def test_the_loop_does_no_io(path: Path) -> None:
    """Nor do the rules and the maths: no files, no network, no clock, no chance."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in names} & IO
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"open", "print", "input"}
    assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in nodes)
