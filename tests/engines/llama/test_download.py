"""Hub ids, and real downloads from a hub cache that was built here: no network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cgr.engines.llama.download import choose, is_hub_id
from cgr.errors import ModelNotFound
from cgr.solve import find_model
from tests.support import command, python

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ASK = """
import sys
from cgr.engines.llama.download import download
from cgr.errors import CgrError
try:
    print(download(sys.argv[1]))
except CgrError as error:
    print(type(error).__name__, error.message, error.hint, sep="|")
"""


@pytest.mark.parametrize(
    "name", ["org/name", "org/name:Q8_0", "org/name/file.gguf", "org/name/sub/file.gguf", "o-r.g/n_a.me"]
)
def test_hub_ids(name: str) -> None:
    assert is_hub_id(name)


@pytest.mark.parametrize(
    "name", ["name", "", "/org/name", "folder/file.gguf", "org/name:", "a b/c", "../up", "org/name/file.bin"]
)
def test_no_hub_ids(name: str) -> None:
    assert not is_hub_id(name)


FILES = ["m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-f16.gguf"]


@pytest.mark.parametrize(
    ("files", "quant", "expected"),
    [
        (FILES, None, "m-Q8_0.gguf"),
        (FILES, "F16", "m-f16.gguf"),
        (FILES, "q4_k_m", "m-Q4_K_M.gguf"),
        (["m-IQ2.gguf"], None, "m-IQ2.gguf"),
    ],
)
def test_the_least_lossy_common_file_is_chosen(files: list[str], quant: str | None, expected: str) -> None:
    assert choose("org/name", files, quant) == expected


@pytest.mark.parametrize(
    ("files", "quant", "have"), [(FILES, "Q2_K", "m-Q4_K_M.gguf"), ([], None, "none"), ([], "Q8_0", "none")]
)
def test_no_such_file(files: list[str], quant: str | None, have: str) -> None:
    with pytest.raises(ModelNotFound, match="has no such GGUF file") as caught:
        choose("org/name", files, quant)
    assert have in caught.value.hint


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    """A hub cache that holds the embedded model as `some-org/some-name`, under two names."""
    repo = tmp_path / "models--some-org--some-name"
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    for name in ("tiny-F16.gguf", "tiny-Q4_K_M.gguf"):
        (snapshot / name).symlink_to(find_model(None))
    return {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("some-org/some-name", "tiny-F16.gguf"),
        ("some-org/some-name:q4_k_m", "tiny-Q4_K_M.gguf"),
        ("some-org/some-name/tiny-Q4_K_M.gguf", "tiny-Q4_K_M.gguf"),
    ],
)
def test_a_cached_model(cache: dict[str, str], name: str, file: str) -> None:
    done = python(ASK, name, env=cache)
    assert Path(done.stdout.strip()).name == file, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    "name", ["some-org/another", "some-org/some-name/none.gguf", "some-org/some-name:Q2_K", "some-org/not--allowed"]
)
def test_a_model_that_is_not_there(cache: dict[str, str], name: str) -> None:
    done = python(ASK, name, env=cache)
    kind, message, hint = done.stdout.strip().split("|")
    assert kind == "ModelNotFound", done.stderr
    assert name in message
    assert hint


def test_a_hub_model_from_end_to_end(cache: dict[str, str]) -> None:
    done = command(
        "solve",
        "Find x, the last three digits of 317*29.",
        "--model",
        "some-org/some-name",
        "--budget",
        "32",
        "--json",
        env=cache,
    )
    solution = json.loads(done.stdout)
    assert (solution["model"], solution["engine"], done.returncode) == ("some-org/some-name", "llama.cpp", 0)
    assert done.stderr == ""
