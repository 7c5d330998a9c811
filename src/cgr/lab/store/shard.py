"""Parts of a run for several machines: which question and seed belongs to which part.

The seeds of a question are dealt to the shards in turn, beginning at one that the id of the question determines. So a trace
stays in its shard whatever `--limit`, `--seeds` and the order of the questions are, and each shard has about the same
number of traces of each question.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cgr.errors import UsageError

MAX_SHARDS = 100_000
_WRITTEN = re.compile(r"([0-9]{1,9})/([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Part `number` of `count`, counted from 1; as text `3/16`."""

    count: int
    number: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard that a text such as `3/16` names."""
        written = _WRITTEN.fullmatch(text.strip())
        number, count = map(int, written.groups()) if written else (0, 0)
        if not 1 <= number <= count <= MAX_SHARDS:
            raise UsageError(
                f"{text!r:.60} is not a shard.", f"Write it as 3/16: the third of 16, of at most {MAX_SHARDS:,} shards."
            )
        return cls(count, number)

    def holds(self, question: str, seed: int) -> bool:
        """Whether the trace of this question and seed belongs to this shard."""
        return Shard.of(question, seed, self.count) == self

    @classmethod
    def of(cls, question: str, seed: int, count: int) -> Shard:
        """The shard of `count` that the trace of this question and seed belongs to."""
        digest = hashlib.blake2b(question.encode("utf-8", errors="surrogatepass"), digest_size=8).digest()
        return cls(count, (int.from_bytes(digest, "little") + seed) % count + 1)


def missing_shards(present: Iterable[Shard], count: int) -> Sequence[Shard]:
    """The shards of `count` that are not among these."""
    found = {shard.number for shard in present}
    return [Shard(count, number) for number in range(1, count + 1) if number not in found]
