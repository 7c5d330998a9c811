"""The direction of dependencies, read from the source: left may import right, never back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import cgr
from tests.support import python

ROOT = Path(cgr.__file__).parent
BOTTOM = {"records", "errors"}
CERTAINTY = BOTTOM
PROBING = CERTAINTY | {"certainty"}
RULES = PROBING | {"probing", "places", "plain", "rules"}
REASON = RULES
ENGINES = BOTTOM | {"engines"}
LOOKOUT = ENGINES | {"places"}
DRIVE = REASON | {"reason", "engines", "lookout"}
CORE = DRIVE | {"drive", "settings", "running", "opening", "solve", "model", "rule_files"}
ALLOWED = {
    "records": set(),
    "errors": set(),
    "certainty": CERTAINTY,
    "probing": PROBING,
    "places": set(),
    "plain": set(),
    "lookout": LOOKOUT,
    "rules": RULES,
    "rule_files": RULES,
    "reason": REASON,
    "engines": ENGINES,
    "drive": DRIVE,
    "settings": DRIVE,
    "running": set(),
    "opening": DRIVE | {"settings"},
    "solve": DRIVE | {"drive", "settings", "running", "opening"},
    "model": set(),
    "lab": CORE | {"lab", "cgr"},
    "doctor": CORE | {"doctor", "cgr"},
    "server": CORE | {"server", "cgr"},
    "cli": CORE | {"cli", "cgr", "lab", "doctor", "server"},
    "cgr": CORE,
}
SOURCES = sorted(ROOT.rglob("*.py"))
HEAVY = ("xllamacpp", "httpx", "torch", "numpy", "matplotlib", "jinja2", "plotly", "transformers")


def part(path: Path) -> str:
    """The part of the package that a file belongs to: `engines`, `reason`, ...; `cgr` is the package itself."""
    first = path.relative_to(ROOT).parts[0]
    return "cgr" if first == "__init__.py" else first.removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Every part of the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (_part_of(alias.name) for alias in node.names if _ours(alias.name))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            if node.module == "cgr":
                yield from (_part_of(f"cgr.{alias.name}") for alias in node.names)
            elif _ours(node.module or ""):
                yield _part_of(node.module or "")


def _ours(name: str) -> bool:
    return name == "cgr" or name.startswith("cgr.")


def _part_of(name: str) -> str:
    """`cgr.engines.base` is of `engines`; what is no module, as in `from cgr import solve`, is of the package."""
    pieces = name.split(".")
    if len(pieces) == 1:
        return "cgr"
    is_module = (ROOT / pieces[1]).is_dir() or (ROOT / f"{pieces[1]}.py").exists()
    return pieces[1] if is_module else "cgr"


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
IO = {"asyncio", "httpx", "os", "pathlib", "random", "socket", "subprocess", "threading", "time"}


@pytest.mark.parametrize("path", [path for path in SOURCES if part(path) in PURE], ids=lambda path: path.name)
def test_the_loop_does_no_io(path: Path) -> None:
    """Nor do the rules and the maths: no files, no network, no clock, no chance."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in names} & IO
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"open", "print", "input"}
    assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in nodes)
