from __future__ import annotations

from release import help_page


def test_the_help_texts_in_the_docs_are_current() -> None:
    assert help_page.words(help_page.PAGE.read_text(encoding="utf-8")) == help_page.words(help_page.page()), (
        "run: make help-page"
    )


def test_every_command_is_on_the_page() -> None:
    names = [name for name, _ in help_page.help_texts()]
    assert {"", "solve", "serve", "calibrate"} <= set(names)
