"""GGUF files by hub id: `ORG/NAME`, `ORG/NAME:Q8_0` or `ORG/NAME/FILE.gguf`, from the hub or its local cache."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cgr.engines.hub import hub_access, hub_errors, hub_library
from cgr.errors import ModelNotFound

HUB_ID = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*?)(?:/(?P<file>[^:]+\.gguf)|:(?P<quant>[\w.-]+))?")
PREFERRED = ("Q8_0", "F16", "BF16", "Q6_K", "Q5_K_M", "Q4_K_M")  # a file with less quantisation has a steadier certainty


def is_hub_id(name: str) -> bool:
    """Whether a name has the form of a hub id."""
    match = HUB_ID.fullmatch(name)
    return match is not None and not match["repo"].endswith(".gguf")


def download(name: str) -> Path:
    """The local path of a hub model's file, which is downloaded if it is not in the cache."""
    hub = hub_library("Models")
    match = HUB_ID.fullmatch(name)
    assert match is not None
    repo = match["repo"]
    try:
        with hub_access():
            return Path(hub.hf_hub_download(repo, match["file"] or choose(name, _files(hub, repo), match["quant"])))
    except hub_errors() as error:
        raise ModelNotFound(
            f"The hub has no model {name!r}, or cannot be reached.", "Check the name, or give a local .gguf file."
        ) from error


def _files(hub: Any, repo: str) -> list[str]:
    """The repository's GGUF files; without a connection, those in the cache."""
    try:
        return [name for name in hub.HfApi().list_repo_files(repo) if name.endswith(".gguf")]
    except hub_errors():
        folder = Path(hub.snapshot_download(repo, local_files_only=True))
        return [str(path.relative_to(folder)) for path in sorted(folder.rglob("*.gguf"))]


def choose(name: str, files: list[str], quant: str | None) -> str:
    """The file of the given quantisation, else the first of the preferred ones."""
    for wanted in (quant,) if quant else PREFERRED:
        for file in files:
            if wanted.lower() in file.lower():
                return file
    if files and not quant:
        return files[0]
    have = ", ".join(files) or "none"
    raise ModelNotFound(f"{name} has no such GGUF file.", f"Its GGUF files: {have}.")
