from __future__ import annotations

import sys
from pathlib import Path

import pytest

from release import blocks
from release.__main__ import check_docs

PAGE = """
<!-- run first: printf first > made -->
```
cat made          # the reader's file
echo 'two
lines' > both
```

<!-- not run: it needs a server -->
```bash
cgr solve --base-url http://localhost:8000/v1
```

<!-- file: in.json -->
```json
{"a":
 1}
```

```
$ cgr --version
cgr 0.1.0
```

```python
import cgr
```

```
a drawing, no command
```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(blocks, "ROOT", tmp_path)
    for name in ("recipes", "examples"):
        (tmp_path / name).mkdir()
    found = tmp_path / "page.md"
    found.write_text(PAGE.replace("cat made", "python -c 'print(open(\"made\").read())'"))
    return found


def test_commands_are_found_with_their_notes(page: Path) -> None:
    first, second, saved, shown = blocks.blocks(page)
    assert first.before == ("printf first > made",)
    assert len(first.commands) == 2
    assert first.commands[1] == "echo 'two\nlines' > both"
    assert second.skipped == "it needs a server"
    assert saved.commands == ("printf '%s\\n' '{\"a\": 1}' > in.json",)
    assert shown.commands == ("cgr --version",)


def test_a_page_runs_in_its_own_folder(page: Path, tmp_path: Path) -> None:
    assert blocks.run_page(page, tmp_path / "run", Path(sys.executable).parent) == []
    assert (tmp_path / "run/both").read_text() == "two\nlines\n"
    assert (tmp_path / "run/in.json").read_text() == '{"a": 1}\n'


def test_a_failing_command_is_reported_with_its_output(page: Path, tmp_path: Path) -> None:
    page.write_text("```\ncgr report nothing\ncgr --version\n```\n")
    (failure,) = blocks.run_page(page, tmp_path / "run", Path(sys.executable).parent)
    assert failure.command == "cgr report nothing"
    assert "exit code 2" in failure.output
    assert "There is no run" in failure.output


def test_an_apostrophe_in_a_comment_is_no_open_quote() -> None:
    assert len(blocks.commands("cgr rules   # the reader's\ncgr runs\n")) == 2


def test_every_page_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []

    def run_page(page: Path, folder: Path, bin_folder: Path) -> list[blocks.Failure]:
        folders.append(folder)
        return []

    monkeypatch.setattr(blocks, "run_page", run_page)
    check_docs(tmp_path)
    assert len({*folders}) == len(folders) == len(blocks.pages())
