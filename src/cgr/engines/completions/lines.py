"""Lines of a stream, wherever the network cuts it."""

from __future__ import annotations


class Lines:
    """Joins what arrives to whole lines. `size`: bytes of the line that has not ended yet."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk, without their line breaks."""
        self._parts.append(chunk)
        if b"\n" not in chunk:  # not joined each time, which takes long if a line comes in many parts
            self.size += len(chunk)
            return []
        *lines, rest = b"".join(self._parts).split(b"\n")
        self._parts, self.size = [rest], len(rest)
        return lines
