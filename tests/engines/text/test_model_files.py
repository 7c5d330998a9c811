"""The defaults that a model folder names for itself."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from cgr.engines.text.model_files import model_defaults
from cgr.errors import NotAModel


def test_the_embedded_model_names_its_defaults() -> None:
    folder = Path(str(files("cgr.model"))) / "hf"
    assert model_defaults(folder) == {"interval": 48, "budget": 2048, "max_answer_tokens": 4}


@pytest.mark.parametrize(
    ("config", "defaults"),
    [
        (None, {}),
        ("[]", {}),
        ('{"model_type": "llama"}', {}),
        ('{"cgr": null}', {}),
        ('{"cgr": {"interval": 16, "budget": null, "other": 3}}', {"interval": 16}),
    ],
)
def test_what_a_folder_names(config: str | None, defaults: dict[str, int], tmp_path: Path) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert model_defaults(tmp_path) == defaults


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "is not JSON"),
        ('{"cgr": {"budget": "many"}}', "gives 'many' for cgr.budget"),
        ('{"cgr": {"budget": -1}}', "-1"),
    ],
)
def test_what_is_not_a_number_is_refused(config: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(NotAModel, match=message):
        model_defaults(tmp_path)
