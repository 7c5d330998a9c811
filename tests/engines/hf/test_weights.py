"""The check of a safetensors file before it is loaded. It needs no torch."""

from __future__ import annotations

import json
import struct
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from cgr.engines.hf.weights import check_file, check_weights
from cgr.errors import NotAModel

TWO = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [], "data_offsets": [24, 26]},
}


def saved(path: Path, tensors: Any, values: int = 26) -> Path:
    listed = json.dumps(tensors).encode()
    path.write_bytes(struct.pack("<Q", len(listed)) + listed + bytes(values))
    return path


def test_a_whole_file_passes(tmp_path: Path) -> None:
    check_file(saved(tmp_path / "a.safetensors", TWO))
    check_weights(Path(str(files("cgr.model") / "hf")))


def test_every_part_of_a_file_is_refused(tmp_path: Path) -> None:
    whole = saved(tmp_path / "a.safetensors", TWO).read_bytes()
    for length in range(len(whole)):
        (tmp_path / "a.safetensors").write_bytes(whole[:length])
        with pytest.raises(NotAModel):
            check_weights(tmp_path)


def test_a_file_that_is_cut_short_says_how_much_is_there(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.safetensors", TWO)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(NotAModel, match=f"it has {size - 5} of {size} bytes") as caught:
        check_file(path)
    assert "not complete" in caught.value.hint


@pytest.mark.parametrize(
    ("tensors", "values"),
    [
        ([], 0),
        ("text", 0),
        ({"a": 1}, 0),
        ({"a": {"dtype": "F32", "shape": [1]}}, 4),
        ({"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}}, 4),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, 4),
        ({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, 4),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}, 8),
        ({"a": {"dtype": "F32", "shape": [0], "data_offsets": [4, 0]}}, 4),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, 8),
        ({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, 4),
        ({"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}, 4),
        (TWO, 27),
    ],
)
def test_lists_that_cannot_be(tensors: Any, values: int, tmp_path: Path) -> None:
    with pytest.raises(NotAModel):
        check_file(saved(tmp_path / "a.safetensors", tensors, values))


def test_an_unknown_type_is_left_to_the_library(tmp_path: Path) -> None:
    check_file(saved(tmp_path / "a.safetensors", {"a": {"dtype": "NEW4", "shape": [9], "data_offsets": [0, 5]}}, 5))


def test_a_list_that_claims_to_be_huge_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"{}")
    with pytest.raises(NotAModel, match="not complete"):
        check_file(tmp_path / "a.safetensors")
