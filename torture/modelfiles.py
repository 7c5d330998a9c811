"""Model files that lie: GGUF and safetensors cut short, and with flipped bits."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import cgr
from cgr.engines.hf.weights import check_file
from cgr.engines.llama import header
from cgr.engines.llama.header import read_head
from cgr.errors import CgrError
from tests.support import QUESTION
from torture.knocks import Skipped, Trial, Try, knock_of
from torture.processes import Child, limit_memory, preload, refused

MODEL = Path(cgr.__file__).parent / "model"
SMALL = MODEL / "prober.gguf"
SOLVE = ("solve", QUESTION, "--budget", "8", "--interval", "8", "--model")


def _metadata_end() -> int:
    with SMALL.open("rb") as file:
        header._read(file)
        return file.tell()


@knock_of(
    "gguf-prefix",
    "the first bytes of a GGUF file's metadata, of a different number in each trial; the long run has every number",
    "the check of the header refuses it in a sentence",
    times=500,
    long=9607,
)
@contextmanager
def gguf_prefix(folder: Path) -> Iterator[Try]:
    """Lengths in steps, so that all trials together cover the metadata; the long run has a trial for each length."""
    whole, end = SMALL.read_bytes(), _metadata_end()

    def one(trial: Trial) -> str:
        file = trial.folder / "x.gguf"
        file.write_bytes(whole[: trial.number * 7919 % end])
        try:
            read_head(file)
        except CgrError as error:
            assert error.hint
            return "refused"
        raise AssertionError("a part of the metadata was taken for all of it")

    yield one


@knock_of(
    "gguf-flip",
    "1 to 8 random bits flipped in a GGUF file: in its metadata, its list of tensors or its weights; some cut short too",
    "the process never crashes: it answers, or refuses in a sentence",
    times=60,
    long=2000,
    mended=(
        "a token twice in the vocabulary made llama.cpp abort the process; the header check refuses it.",
        "metadata of the wrong kind (a text for a number) ended in an exception.",
        "an array that claims to be huge made cgr reserve memory for it.",
        "numbers of attention heads that cannot be made llama.cpp abort the process; the header check refuses them.",
        "a vocabulary without kinds of tokens ended in an exception.",
    ),
)
@contextmanager
def gguf_flip(folder: Path) -> Iterator[Try]:
    """`cgr solve` in a child for each."""
    preload()
    whole, end = SMALL.read_bytes(), _metadata_end()

    def one(trial: Trial) -> str:
        file = trial.folder / "x.gguf"
        file.write_bytes(_spoilt(whole, end, trial.chance))
        done = Child((*SOLVE, str(file)), trial.folder, limit_memory).wait()
        file.unlink()
        return "refused" if refused(done) else "answered"

    yield one


def _spoilt(whole: bytes, end: int, chance: random.Random) -> bytes:
    data = bytearray(whole)
    first, last = chance.choice(((0, end), (end, min(end + 2500, len(data))), (0, len(data))))
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.randrange(first, last)] ^= 1 << chance.randrange(8)
    return bytes(data[: chance.randrange(len(data))] if chance.random() < 0.05 else data)


def _small_weights() -> bytes:
    """The list of tensors of the embedded model with tensors of few values, so that every length can be tried."""
    whole = (MODEL / "hf" / "model.safetensors").read_bytes()
    (count,) = struct.unpack("<Q", whole[:8])
    tensors, end = json.loads(whole[8 : 8 + count]), 0
    for name in [one for one in tensors if one != "__metadata__"]:
        tensors[name] = {"dtype": "F16", "shape": [2], "data_offsets": [end, end := end + 4]}
    listed = json.dumps(tensors).encode()
    return struct.pack("<Q", len(listed)) + listed + bytes(end)


@knock_of(
    "safetensors-prefix",
    "the first bytes of a safetensors file, of a different number in each trial; the long run has every number",
    "the check before loading refuses it in a sentence",
    times=500,
    long=5866,
)
@contextmanager
def safetensors_prefix(folder: Path) -> Iterator[Try]:
    """Lengths in steps, as for GGUF. The whole file passes."""
    whole, file = _small_weights(), folder / "model.safetensors"
    file.write_bytes(whole)
    check_file(file)

    def one(trial: Trial) -> str:
        file.write_bytes(whole[: trial.number * 7919 % len(whole)])
        try:
            check_file(file)
        except CgrError as error:
            assert error.hint
            return "refused"
        raise AssertionError("a part of a file was taken for all of it")

    yield one


@knock_of(
    "safetensors-flip",
    "a folder with a model for transformers whose files have flipped bits or are cut short",
    "the process never crashes: it answers, or refuses in a sentence",
    times=20,
    long=300,
    mended=("a damaged tokenizer.json ended in an exception, because its library raises a plain `Exception`.",),
)
@contextmanager
def safetensors_flip(folder: Path) -> Iterator[Try]:
    """Any file of the folder: weights, tokenizer, configuration, template."""
    if not find_spec("torch") or not find_spec("transformers"):
        raise Skipped("torch and transformers are not installed")
    preload()
    names = sorted(one.name for one in (MODEL / "hf").iterdir())

    def one(trial: Trial) -> str:
        place = trial.folder / "hf"
        shutil.copytree(MODEL / "hf", place)
        file = place / names[trial.number % len(names)]
        data = file.read_bytes()
        file.write_bytes(_spoilt(data, min(len(data) // 2, 4000), trial.chance))
        done = Child((*SOLVE, f"hf:{place}"), trial.folder).wait()
        shutil.rmtree(place)
        return f"{file.name} {'refused' if refused(done) else 'answered'}"

    yield one
