"""The key of a recording: which requests are recorded, and what stands for their texts.

Everything that identifies a text is an HMAC under this key, so nobody without it can test a guess of a prompt or an answer.
The workers of a server share one key: a prompt has one id in all their runs.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cgr.errors import UsageError, refused_by_system
from cgr.files import make_folder
from cgr.lab.store.schema import FILE
from cgr.records import Message

KEY_FILE = "shadow.key"
KEY_BYTES = 32
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # of a file system without hard links
HASH_DIGITS = 16
ID_DIGITS = 12  # of 100,000 prompts, two have the same id in one recording of 50,000


@dataclass(frozen=True, slots=True, repr=False)
class RecordingKey:
    """A secret, and what it is used for."""

    secret: bytes

    def question_id(self, messages: Sequence[Message]) -> str:
        """The id of a prompt: equal for equal messages."""
        return f"q{self.hash('question', _canonical(messages))[:ID_DIGITS]}"

    def chooses(self, messages: Sequence[Message], share: float) -> bool:
        """Whether a prompt is among this share of all prompts. It does not depend on when it comes, nor on who sends it."""
        digest = hmac.digest(self.secret, b"share\0" + _canonical(messages).encode("utf-8", "replace"), "sha256")
        return int.from_bytes(digest[:8]) < share * 2**64

    def hash(self, kind: str, text: str) -> str:
        """What stands for a text of this kind."""
        message = f"{kind}\0{text}".encode("utf-8", "replace")
        return hmac.digest(self.secret, message, "sha256").hex()[:HASH_DIGITS]


def _canonical(messages: Sequence[Message]) -> str:
    return json.dumps([[one.role, one.content] for one in messages])


def prepare_folder(folder: Path) -> None:
    """Create the folder of a recording and its key, unless they exist. An error says that it cannot be written."""
    make_folder(folder)
    path = folder / KEY_FILE
    if not path.exists():
        if any(folder.glob(f"**/{FILE}")):
            raise UsageError(
                f"{folder} has a recording, but not its key {KEY_FILE}.",
                "Put the key back, or choose another folder with --record.",
            )
        _create(path)
    read_key(folder)


def _create(path: Path) -> None:
    """Write a new key under another name and then give it its own: a process that is killed leaves no half key, and of two
    processes that start at once, both use the key of the first."""
    draft = path.with_name(f".cgr-{secrets.token_hex(6)}")
    try:
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
            file.flush()
            os.fsync(descriptor)
        _give_name(draft, path)
    except OSError as error:
        raise refused_by_system(error, f"{path} cannot be written") from error
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def _give_name(draft: Path, path: Path) -> None:
    try:
        path.hardlink_to(draft)  # unlike a new name, this never replaces a key
    except FileExistsError:
        pass  # of another process that started at the same time
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        draft.rename(path)


def read_key(folder: Path) -> RecordingKey:
    """The key in this folder."""
    path = folder / KEY_FILE
    try:
        secret = bytes.fromhex(path.read_text().strip())
    except OSError as error:
        raise refused_by_system(error, f"{path} cannot be read") from error
    except ValueError:
        secret = b""
    if len(secret) != KEY_BYTES:
        raise UsageError(f"{path} is not a key.", "Put the key back, or choose another folder with --record.")
    return RecordingKey(secret)
