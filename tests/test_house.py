"""House rules for the source: short modules, short functions, one class for each name, docstrings."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from benchmarks.modules import PACKAGE, size_of

SOURCES = sorted(PACKAGE.rglob("*.py"))
IDS = [str(path.relative_to(PACKAGE)) for path in SOURCES]
MAX_MODULE_LINES, MAX_MEDIAN_FUNCTION = 300, 8


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", SOURCES, ids=IDS)
def test_a_module_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_MODULE_LINES


def test_functions_are_short() -> None:
    assert size_of().median_function <= MAX_MEDIAN_FUNCTION


def test_no_class_name_is_defined_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, name in zip(SOURCES, IDS, strict=True):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_every_public_function_and_class_has_a_docstring() -> None:
    missing = [
        f"{name}: {node.name}"
        for path, name in zip(SOURCES, IDS, strict=True)
        for node in _tree(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    assert missing == []
