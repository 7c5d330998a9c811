"""Reads the metadata at the head of a GGUF file, before the model is loaded."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from cgr.errors import ModelNotFound, NotAModel

MAGIC = b"GGUF"
NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
FLOATS = (0, 1, 32)  # values of general.file_type whose weights are 32-bit, 16-bit and bfloat16 numbers


@dataclass(frozen=True, slots=True)
class GgufHead:
    """Metadata of a model: name, context, chat template, vocabulary, and its own defaults for cgr, if it has any.
    `quantised`: its weights are not floating-point numbers."""

    name: str
    context: int
    chat_template: str
    tokens: tuple[str, ...]
    token_types: tuple[int, ...]
    begin_id: int | None
    end_id: int | None
    interval: int | None = None
    budget: int | None = None
    max_answer_tokens: int | None = None
    quantised: bool = False

    @property
    def control_ids(self) -> dict[str, int]:
        """Token ids of everything in the vocabulary that is not plain text (control and user-defined tokens)."""
        kinds = self.token_types or (1,) * len(self.tokens)  # a file without kinds has plain tokens only
        return {token: i for i, (token, kind) in enumerate(zip(self.tokens, kinds, strict=True)) if kind in (3, 4)}

    @property
    def defaults(self) -> dict[str, int]:
        """The model's own interval, budget and answer length, as far as it names them."""
        names = ("interval", "budget", "max_answer_tokens")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def read_head(path: Path) -> GgufHead:
    """The metadata of a GGUF file."""
    if not path.exists():
        raise ModelNotFound(f"There is no file {path}.", "Give a .gguf file, a hub id, or leave --model out.")
    try:
        with path.open("rb") as file:
            values = _read(file)
    except (struct.error, UnicodeDecodeError, EOFError, OverflowError, MemoryError, KeyError, RecursionError) as error:
        raise NotAModel(f"{path} is incomplete or damaged: its metadata cannot be read.", "Download it again.") from error
    except OSError as error:
        raise NotAModel(f"{path} cannot be read: {error.strerror}.", "Give the path of a .gguf file.") from error
    if values is None:
        raise NotAModel(f"{path} is not a GGUF file.", "Convert it with llama.cpp, or give a file that ends in .gguf.")
    try:
        return _checked(_head(values, path.stem))
    except ValueError as error:
        raise NotAModel(f"{path} is damaged: {error}.", "Download it again.") from error


def _head(values: dict[str, Any], name: str) -> GgufHead:
    def value(key: str, kind: type, default: Any = None) -> Any:
        found = values.get(key, default)
        if found is not default and type(found) is not kind:
            raise ValueError(f"{key} is {found!r:.40}")
        return found

    architecture = value("general.architecture", str, "")
    _check_heads(values, architecture)
    return GgufHead(
        name=value("general.name", str, name),
        context=value(f"{architecture}.context_length", int, 0),
        chat_template=value("tokenizer.chat_template", str, ""),
        tokens=tuple(value("tokenizer.ggml.tokens", list, [])),
        token_types=value("tokenizer.ggml.token_type", tuple, ()),
        begin_id=value("tokenizer.ggml.bos_token_id", int),
        end_id=value("tokenizer.ggml.eos_token_id", int),
        interval=value("cgr.interval", int),
        budget=value("cgr.budget", int),
        max_answer_tokens=value("cgr.max_answer_tokens", int),
        quantised=value("general.file_type", int, FLOATS[0]) not in FLOATS,
    )


def _check_heads(values: dict[str, Any], architecture: str) -> None:
    """ValueError if the numbers of attention heads cannot be: llama.cpp would end the process. Some models have a list."""
    heads, shared = (values.get(f"{architecture}.attention.{name}") for name in ("head_count", "head_count_kv"))
    if not isinstance(heads, int) or not isinstance(shared, int):
        return
    if heads < 0 or shared < 0 or shared > heads or (shared and heads % shared):
        raise ValueError(f"{heads} attention heads cannot share {shared} keys")


def _checked(head: GgufHead) -> GgufHead:
    """The head; ValueError if llama.cpp, which ends the process then, or cgr could not use it."""
    tokens = head.tokens
    if not all(isinstance(one, str) for one in tokens) or not all(isinstance(one, int) for one in head.token_types):
        raise ValueError("its vocabulary is not a list of texts and their kinds")
    plain = [one for one in tokens if "\ufffd" not in one]  # what is not UTF-8 cannot be told apart here
    if len(set(plain)) != len(plain) or len(head.token_types) not in (0, len(tokens)):
        raise ValueError("its vocabulary has a token twice, or a token without a kind")
    for what, number in (("begin", head.begin_id), ("end", head.end_id)):
        if number is not None and not 0 <= number < max(len(tokens), 1):
            raise ValueError(f"the {what} of a text is token {number}, but it has {len(tokens)} tokens")
    if head.context < 0 or any(number is not None and number < 1 for number in head.defaults.values()):
        raise ValueError("a number in its metadata is negative")
    return head


def _read(file: BinaryIO) -> dict[str, Any] | None:
    if file.read(4) != MAGIC:
        return None
    version, _tensors, count = struct.unpack("<IQQ", file.read(20))
    if version < 2:
        return None
    return {_string(file): _value(file, *struct.unpack("<I", file.read(4))) for _ in range(count)}


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == STRING:
        return _string(file)
    if kind == ARRAY:
        inner, length = struct.unpack("<IQ", file.read(12))
        if inner in NUMBERS:
            size = struct.calcsize(NUMBERS[inner])
            return struct.unpack(f"<{length}{NUMBERS[inner][1]}", _exactly(file, size * length))
        read: Callable[[], Any] = (lambda: _string(file)) if inner == STRING else (lambda: _value(file, inner))
        return [read() for _ in range(length)]
    form = NUMBERS[kind]
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]


def _string(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    return _exactly(file, length).decode("utf-8", errors="replace")


def _exactly(file: BinaryIO, size: int) -> bytes:
    if size > os.fstat(file.fileno()).st_size:  # or memory would be reserved for it
        raise EOFError
    data = file.read(size)
    if len(data) != size:
        raise EOFError
    return data
