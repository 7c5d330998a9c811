"""Checks the list of tensors at the head of a safetensors file before torch loads it: a file that is cut short, as after an
interrupted download, is refused in a sentence."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

from cgr.errors import NotAModel

LENGTH_BYTES = 8  # of the number at the beginning, which says how long the list of tensors is
MAX_LIST_BYTES = 100_000_000  # the limit of the safetensors library
BITS = {"BOOL": 8, "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8}
BITS |= {f"{kind}{bits}": bits for kind in "IU" for bits in (8, 16, 32, 64)}


def check_weights(folder: Path) -> None:
    """Raise `NotAModel` if a safetensors file of the folder is cut short or damaged at its head."""
    for path in sorted(folder.glob("*.safetensors")):
        check_file(path)


def check_file(path: Path) -> None:
    """The same for one file."""
    size = path.stat().st_size
    tensors, start = _tensors(path, size)
    spans = sorted(_span(path, name, tensor) for name, tensor in tensors.items())
    end = 0
    for first, last in spans:
        if first != end:
            raise _damaged(path, "its tensors do not follow each other")
        end = last
    if size < start + end:
        raise _damaged(path, f"it has {size:,} of {start + end:,} bytes", "Get the file again: it is not complete.")
    if size > start + end:
        raise _damaged(path, f"{size - start - end:,} bytes at its end belong to no tensor")


def _tensors(path: Path, size: int) -> tuple[dict[str, Any], int]:
    """The list of tensors, and the position at which their values begin."""
    with path.open("rb") as file:
        head = file.read(LENGTH_BYTES)
        (count,) = struct.unpack("<Q", head) if len(head) == LENGTH_BYTES else (-1,)
        if not 2 <= count <= min(MAX_LIST_BYTES, size - LENGTH_BYTES):
            raise _damaged(path, "the list of tensors at its beginning is not complete")
        raw = file.read(count)
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _damaged(path, "there is no list of tensors at its beginning")
    return {name: one for name, one in found.items() if name != "__metadata__"}, LENGTH_BYTES + count


def _span(path: Path, name: str, tensor: Any) -> tuple[int, int]:
    """The first byte of a tensor and the byte after its last, counted from the beginning of the values."""
    try:
        shape, bits, (first, last) = tensor["shape"], BITS.get(tensor["dtype"]), tensor["data_offsets"]
        whole = all(type(number) is int and number >= 0 for number in (*shape, first, last))
        fits = whole and first <= last and (bits is None or math.prod(shape) * bits == 8 * (last - first))
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise _damaged(path, f"the tensor {name[:100]!r} has a shape, a type or a place that cannot be")
    return first, last


def _damaged(path: Path, why: str, hint: str = "Get the file again.") -> NotAModel:
    return NotAModel(f"{path} is not a whole safetensors file: {why}.", hint)
