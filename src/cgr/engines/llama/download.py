"""GGUF files by hub id: `ORG/NAME`, `ORG/NAME:Q8_0` or `ORG/NAME/FILE.gguf`, from the hub or its local cache."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from cgr.errors import ModelNotFound, UsageError

HUB_ID = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*?)(?:/(?P<file>[^:]+\.gguf)|:(?P<quant>[\w.-]+))?")
PREFERRED = (
    "Q8_0",
    "F16",
    "BF16",
    "Q6_K",
    "Q5_K_M",
    "Q4_K_M",
)  # the less a file is quantised, the steadier its certainty


def is_hub_id(name: str) -> bool:
    match = HUB_ID.fullmatch(name)
    return match is not None and not match["repo"].endswith(".gguf")


def download(name: str) -> Path:
    """The local path of a hub model's file, fetched if it is not in the cache."""
    try:
        import huggingface_hub as hub
    except ImportError as error:
        raise UsageError(
            "Models from the hub need one more package.", "pip install 'certainty-guided-reasoning[hub]'"
        ) from error
    match = HUB_ID.fullmatch(name)
    assert match is not None
    repo = match["repo"]
    try:
        return Path(hub.hf_hub_download(repo, match["file"] or choose(name, _files(repo), match["quant"])))
    except failures() as error:
        raise ModelNotFound(
            f"The hub has no model {name!r}, or cannot be reached.", "Check the name, or give a local .gguf file."
        ) from error


def _files(repo: str) -> list[str]:
    """The repository's GGUF files; without a connection, those in the cache."""
    import huggingface_hub as hub

    try:
        return [name for name in hub.HfApi().list_repo_files(repo) if name.endswith(".gguf")]
    except failures():
        folder = Path(hub.snapshot_download(repo, local_files_only=True))
        return [str(path.relative_to(folder)) for path in sorted(folder.rglob("*.gguf"))]


def failures() -> tuple[type[Exception], ...]:
    """What the hub's library raises when it cannot reach or find something; which client it uses depends on its version."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    clients = [importlib.import_module(name) for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]
    return (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, OSError, *(client.HTTPError for client in clients))


def choose(name: str, files: list[str], quant: str | None) -> str:
    """The file of the wanted quantisation, else of the least lossy common one."""
    for wanted in (quant,) if quant else PREFERRED:
        for file in files:
            if wanted.lower() in file.lower():
                return file
    if files and not quant:
        return files[0]
    have = ", ".join(files) or "none"
    raise ModelNotFound(f"{name} has no such GGUF file.", f"Its GGUF files: {have}.")
