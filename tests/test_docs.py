"""The documentation agrees with the code: links, paths, commands, options, Python names, and the output in the README."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import cgr as package
from cgr.cli.main import VERBS, commands
from tests.support import command

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")

# Options of other programs that the docs mention without the program's name.
FOREIGN = {
    "--block-size",
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",
    "--from-step",
    "--logprobs-mode",
    "--model-base-url",
    "--no-enable-chunked-prefill",
    "--parallel",
}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def without_fences(text: str) -> str:
    return FENCE.sub("", text)


def spans(text: str) -> list[str]:
    """The inline code of a page; a span that is broken over two lines is one line here."""
    return [" ".join(span.split()) for span in SPAN.findall(without_fences(text))]


# Links


def anchors(text: str) -> set[str]:
    """The anchors of a page, made from its headings as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_fences(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_relative_links_resolve(page: Path) -> None:
    for link in LINK.findall(without_fences(page.read_text())):
        if re.match(r"\w+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{named(page)} links to {link}"
        assert not anchor or anchor in anchors(target.read_text()), f"{named(page)} links to {link}"


def test_every_page_is_in_the_index() -> None:
    linked = {link.partition("#")[0] for link in LINK.findall((DOCS / "README.md").read_text())}
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= linked


# Paths


def architecture_paths() -> list[str]:
    """Every path in architecture.md, relative to src/cgr or to the repository. In a table row that begins with a folder, a
    bare file name is in that folder."""
    found = set()
    for line in without_fences((DOCS / "architecture.md").read_text()).splitlines():
        row = re.match(r"\| `([\w/]+/)` \|", line)
        for span in SPAN.findall(line):
            if re.fullmatch(r"\w+\.py", span):
                found.add((row[1] if row else "") + span)
            elif re.fullmatch(r"\w+(/\w+)*(/|/\w+\.py)", span):
                found.add(span)
    return sorted(found)


@pytest.mark.parametrize("path", sorted(architecture_paths()))
def test_paths_in_the_architecture_exist(path: str) -> None:
    assert (ROOT / "src" / "cgr" / path).exists() or (ROOT / path).exists()


def test_the_reader_of_paths_finds_them() -> None:
    assert {"lab/store/", "engines/hf/scheduler.py", "reason.py", "tests/test_imports.py"} <= set(architecture_paths())


# Commands and options


@functools.cache
def options_of(verb: str) -> frozenset[str]:
    found = commands.get_command(click.Context(commands), verb) if isinstance(commands, click.Group) else None
    assert found is not None, verb
    given = (name for option in found.params for name in (*option.opts, *option.secondary_opts))
    return frozenset({*given, "--help"})


def command_lines(text: str) -> Iterator[str]:
    """What follows `cgr` wherever a page calls it: in blocks (also as comments of a recipe), and in inline code."""
    blocks = "\n".join(block for _, block in FENCE.findall(text)) if "```" in text else text
    for line in blocks.replace("\\\n", " ").splitlines():
        for part in line.split(" && "):
            if match := re.match(r"[$#]?\s*cgr (.+)", part):
                yield match[1].split("  #")[0]
    yield from (span.removeprefix("cgr ") for span in spans(text) if re.match(r"cgr (?!->)[^.]", span))


RECIPES = sorted((ROOT / "recipes").glob("*.toml"))


@pytest.mark.parametrize("page", [*PAGES, *RECIPES], ids=named)
def test_commands_and_their_options_exist(page: Path) -> None:
    for line in command_lines(page.read_text()):
        verb = line.split()[0]
        if verb.startswith("-"):
            continue
        assert verb in VERBS, f"{named(page)}: cgr {line}"
        assert set(OPTION.findall(line)) <= options_of(verb), f"{named(page)}: cgr {line}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_options_without_a_command_exist(page: Path) -> None:
    known = frozenset().union(*(options_of(verb) for verb in VERBS)) | FOREIGN
    for span in spans(page.read_text()):
        if span.startswith("--"):
            assert set(OPTION.findall(span)) <= known, f"{named(page)}: {span}"


def test_the_reader_of_commands_finds_them() -> None:
    text = "`cgr solve\n--rule x`\n\n```\n$ cgr fit a --out b && cgr rules  # --none\n```\n"
    assert list(command_lines(text)) == ["fit a --out b", "rules", "solve --rule x"]
    assert {"--base-url", "--no-overlap"} <= options_of("solve")
    assert "--seeds" not in options_of("solve")


# Python names

OWNERS = {"cgr": "cgr", "model": "cgr.Model"}  # variables of the examples whose attributes are checked


def python_names() -> dict[str, str]:
    """Dotted names of the package in Python blocks and in inline code, and a page that has each."""
    found = {}
    for page in PAGES:
        text = page.read_text()
        for kind, block in FENCE.findall(text):
            if kind == "python":
                found.update(dict.fromkeys(_names(ast.parse(block)), named(page)))
        dotted = (re.match(r"cgr(\.\w+)+", span) for span in spans(text))
        found.update({match[0]: named(page) for match in dotted if match})
    return found


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cgr":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in OWNERS:
            yield f"{OWNERS[node.value.id]}.{node.attr}"


def resolved(name: str) -> Any:
    """The object of a dotted name: modules are imported as far as there are any."""
    found: Any = package
    path = "cgr"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
    return found


@pytest.mark.parametrize(("name", "page"), sorted(python_names().items()))
def test_python_names_exist(name: str, page: str) -> None:
    assert resolved(name) is not None, page


def test_the_reader_of_names_finds_them() -> None:
    assert {
        "cgr.open_model",
        "cgr.Model.solve",
        "cgr.lab.store.Store",
        "cgr.probing.entropy_bounds",
    } <= python_names().keys()
    with pytest.raises(ModuleNotFoundError):
        resolved("cgr.lab.nothing.there")


# Generated text


@pytest.mark.parametrize("what", ["the wording of `cgr solve`"])
def test_the_first_output_of_the_readme(what: str) -> None:
    """Every line that the README shows is printed, in this order; `...` stands for lines that are left out."""
    block = next(block for _, block in FENCE.findall((ROOT / "README.md").read_text()) if block.startswith("$ cgr solve"))
    first, *shown = block.splitlines()
    done = command(*shlex.split(first)[2:])
    assert done.returncode == 0, done.stderr
    printed = iter(line.rstrip() for line in done.stdout.splitlines())
    for line in shown:
        assert line == "..." or line in printed, line


def test_the_model_card_is_what_its_numbers_give() -> None:
    card, card_text = importlib.import_module("training.card"), importlib.import_module("training.card_text")
    numbers = json.loads((DOCS / "model-card.json").read_text())
    levels = {
        family: {int(level): share for level, share in by.items()} for family, by in numbers["by_family_and_level"].items()
    }
    probes = card.Selective.from_dict(numbers["probes"])
    gains = {float(threshold): card.Gain.from_dict(gain) for threshold, gain in numbers["adaptive"].items()}
    made = card.Card(**{**numbers, "by_family_and_level": levels, "probes": probes, "adaptive": gains})
    assert (DOCS / "model-card.md").read_text() == card_text.write(made)
