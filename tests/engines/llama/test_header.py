"""The head of a GGUF file, and files that have none."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cgr.engines.llama.header import GgufHead, read_head
from cgr.errors import ModelNotFound, NotAModel
from cgr.solve import find_model


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def strings(*values: str) -> bytes:
    return struct.pack("<IQ", 8, len(values)) + b"".join(map(text, values))


def integers(*values: int) -> bytes:
    return struct.pack(f"<IQ{len(values)}i", 5, len(values), *values)


ENTRIES = (
    entry("general.architecture", 8, text("llama")),
    entry("general.name", 8, text("Tiny é")),
    entry("llama.context_length", 4, struct.pack("<I", 512)),
    entry("tokenizer.chat_template", 8, text("{{ messages }}")),
    entry("tokenizer.ggml.tokens", 9, strings("<s>", "a", "<think>", "</think>")),
    entry("tokenizer.ggml.token_type", 9, integers(3, 1, 4, 3)),
    entry("tokenizer.ggml.bos_token_id", 4, struct.pack("<I", 0)),
    entry("some.flag", 7, b"\x01"),
    entry("some.number", 12, struct.pack("<d", 0.5)),
    entry("some.nest", 9, struct.pack("<IQ", 9, 2) + integers(1) + integers(2)),
    entry("cgr.interval", 4, struct.pack("<I", 16)),
)
WHOLE = b"GGUF" + struct.pack("<IQQ", 3, 0, len(ENTRIES)) + b"".join(ENTRIES)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_every_kind_of_value(tmp_path: Path) -> None:
    assert read_head(written(tmp_path / "tiny.gguf", WHOLE)) == GgufHead(
        name="Tiny é",
        context=512,
        chat_template="{{ messages }}",
        tokens=("<s>", "a", "<think>", "</think>"),
        token_types=(3, 1, 4, 3),
        begin_id=0,
        end_id=None,
        interval=16,
    )


def test_control_tokens(tmp_path: Path) -> None:
    head = read_head(written(tmp_path / "tiny.gguf", WHOLE))
    assert head.control_ids == {"<s>": 0, "<think>": 2, "</think>": 3}


def test_the_embedded_model() -> None:
    head = read_head(find_model(None))
    assert {"<think>", "</think>"} <= head.control_ids.keys()
    assert len(head.tokens) == len(head.token_types)
    assert head.interval is not None
    assert head.budget is not None
    assert head.interval < head.budget < head.context
    assert head.max_answer_tokens == 4
    assert "messages" in head.chat_template


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(4, len(WHOLE) - 1))
def test_a_file_that_ends_too_soon(tmp_path: Path, size: int) -> None:
    with pytest.raises(NotAModel, match="is incomplete or damaged"):
        read_head(written(tmp_path / "cut.gguf", WHOLE[:size]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(8, len(WHOLE) - 1), st.integers(0, 255))
def test_a_damaged_file_is_read_or_refused_never_worse(tmp_path: Path, place: int, byte: int) -> None:
    path = written(tmp_path / "bad.gguf", WHOLE[:place] + bytes([byte]) + WHOLE[place + 1 :])
    with suppress(NotAModel):
        assert read_head(path).tokens is not None


@pytest.mark.parametrize("data", [b"", b"GG", b"hello, world", b"PK\x03\x04", b"GGUF" + struct.pack("<IQQ", 1, 0, 0)])
def test_a_file_that_is_no_gguf(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(NotAModel, match="is not a GGUF file") as caught:
        read_head(written(tmp_path / "some.gguf", data))
    assert caught.value.hint


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(NotAModel, match="cannot be read"):
        read_head(tmp_path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="There is no file"):
        read_head(tmp_path / "none.gguf")


@pytest.mark.parametrize(("kind", "wanted"), [(0, False), (1, False), (32, False), (2, True), (7, True), (15, True)])
def test_quantised(tmp_path: Path, kind: int, wanted: bool) -> None:
    """By llama.cpp's numbers: F32, F16, BF16; Q4_0, Q8_0, Q4_K_M."""
    entries = (*ENTRIES, entry("general.file_type", 4, struct.pack("<I", kind)))
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))
    assert read_head(path).quantised is wanted


def of_entries(*entries: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)


def test_a_vocabulary_without_kinds_has_no_control_tokens(tmp_path: Path) -> None:
    plain = of_entries(*(one for one in ENTRIES if b"token_type" not in one))
    assert read_head(written(tmp_path / "x.gguf", plain)).control_ids == {}


@pytest.mark.parametrize(
    ("heads", "shared", "passes"), [(6, 3, True), (6, 6, True), (6, 0, True), (6, 4, False), (6, 1 << 20, False)]
)
def test_attention_heads_that_cannot_be_are_refused(tmp_path: Path, heads: int, shared: int, passes: bool) -> None:
    counts = [
        entry(f"llama.attention.{name}", 4, struct.pack("<I", value))
        for name, value in (("head_count", heads), ("head_count_kv", shared))
    ]
    path = written(tmp_path / "x.gguf", of_entries(*ENTRIES, *counts))
    if passes:
        assert read_head(path).context == 512
    else:
        with pytest.raises(NotAModel, match=f"{heads} attention heads cannot share {shared} keys"):
            read_head(path)
