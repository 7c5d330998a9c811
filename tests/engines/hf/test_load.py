"""Loading models: GGUF files, fingerprints, devices and dtypes, and errors in one sentence."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from cgr import Settings
from cgr.engines.hf.engine import TransformersEngine
from cgr.errors import ModelNotFound, NotAModel, UsageError
from tests.engines.hf.models import GGUF, GREEDY, HF, opened, random_model, thought
from tests.support import QUESTION

pytestmark = pytest.mark.heavy


async def test_a_gguf_file_is_the_same_model(hf: TransformersEngine) -> None:
    """The embedded model from its other file: the same tokens, thinking and defaults."""
    from cgr.engines.llama.engine import fingerprint

    engine = await opened(GGUF, threads=1)
    info = engine.info
    assert (info.interval, info.budget, info.max_answer_tokens) == (48, 2048, 4)
    assert info.fingerprint == fingerprint(GGUF)
    prompt = await engine.prompt(Settings().prompt(QUESTION))
    assert prompt == await hf.prompt(Settings().prompt(QUESTION))
    assert await thought(engine, QUESTION, GREEDY, 48) == await thought(hf, QUESTION, GREEDY, 48)


async def test_the_fingerprint_identifies_weights(tmp_path: Path, hf: TransformersEngine) -> None:
    other = await opened(random_model(tmp_path, "Llama"), threads=1)
    assert other.info.fingerprint != hf.info.fingerprint
    assert (await opened(HF, threads=1)).info.fingerprint == hf.info.fingerprint


async def test_layers_that_cannot_be_rewound_are_refused(tmp_path: Path) -> None:
    random_model(tmp_path, "Mamba", state_size=8, head_dim=None)
    with pytest.raises(UsageError, match="cannot be rewound"):
        await opened(tmp_path)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"device": "gpu"}, UsageError, "no device called 'gpu'"),
        ({"device": "cuda:99"}, UsageError, "no device 'cuda:99'"),
        ({"dtype": "float31"}, UsageError, "no dtype called 'float31'"),
        ({"threads": 0}, UsageError, "0 threads"),
        ({"name": "nobody/nothing-here"}, ModelNotFound, "The hub has no model"),
        ({"name": "EMPTY"}, NotAModel, "it has no config.json"),
        ({"name": "BROKEN"}, NotAModel, "cannot"),
    ],
)
async def test_errors_are_one_sentence(
    options: dict[str, Any], error: type[UsageError], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    name = str(options.pop("name", HF))
    if name == "EMPTY":
        name = str(tmp_path)
    if name == "BROKEN":
        (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
        name = str(tmp_path)
    with pytest.raises(error, match=message):
        await opened(name, **options)


@pytest.mark.parametrize(
    "damage", [b"\xff\xfe", b"{}", b"{", b'{"decoder": 5}'], ids=["no-text", "empty", "cut", "strange"]
)
async def test_a_damaged_tokenizer_is_one_sentence(damage: bytes, tmp_path: Path) -> None:
    """The library raises a plain `Exception` for some of these."""
    folder = Path(shutil.copytree(HF, tmp_path / "model"))
    (folder / "tokenizer.json").write_bytes(damage)
    with pytest.raises(NotAModel):
        await opened(folder)


async def test_device_and_dtype_can_be_chosen() -> None:
    engine = await opened(dtype="float64", device="cpu", threads=1)
    assert str(engine.loaded.model.dtype) == "torch.float64"
    assert len(await thought(engine, QUESTION, GREEDY, 12)) == 12


def test_only_the_loading_thread_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    from cgr.engines.hf.load import quiet

    with quiet():
        sys.stderr.write("dropped")
        other = threading.Thread(target=lambda: sys.stderr.write("kept"))
        other.start()
        other.join()
    sys.stderr.write(" after")
    assert capsys.readouterr().err == "kept after"
