"""The table of modules: which modules a command executes, and the size of a package."""

from __future__ import annotations

from pathlib import Path

from benchmarks.modules import COMMANDS, Size, executed, measure, size_of, table


def test_a_module_counts_if_a_function_of_it_is_executed() -> None:
    found = executed(["rules"])
    assert {"cli/main.py", "cli/rules.py", "rules/base.py"} <= set(found)
    assert "errors.py" not in found  # imported, but none of its functions is called
    assert not [name for name in found if name.startswith(("lab/", "engines/"))]


def test_the_commands_run_in_order_on_one_run() -> None:
    found = measure({name: COMMANDS[name] for name in ("generate", "probe")})
    assert list(found) == ["generate", "probe"]
    assert "cli/generate.py" in found["generate"]
    assert "lab/record/probe.py" in found["probe"]
    assert "cli/generate.py" not in found["probe"]


def test_the_size_of_a_package(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "one.py").write_text(
        "def f():\n    pass\n\n\nclass C:\n    async def g(self):\n        x = 1\n        return x\n"
    )
    (tmp_path / "deep" / "two.py").write_text("def h():\n    x = 1\n    x += 1\n    x += 1\n    return x\n")
    (tmp_path / "deep" / "three.py").write_text("y = 1\n")
    assert size_of(tmp_path) == Size(14, 4, "one.py", 8, 3, "deep", 2)


def test_the_table_has_a_line_for_each_figure() -> None:
    lines = table(Size(1300, 4, "one.py", 8, 3.5, "deep", 2), {"solve": ["a.py", "b.py"]}).splitlines()
    assert lines == [
        "src lines        1,300",
        "modules          4",
        "longest module   8 lines, one.py",
        "median function  3.5 lines",
        "largest folder   2 modules, deep",
        "cgr solve        2 modules",
    ]
