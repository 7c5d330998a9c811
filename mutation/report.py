"""What was noticed, module by module; the changes that no test notices, and which of them are explained."""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant

ROOT = Path(__file__).resolve().parents[1]
EXPLAINED = Path(__file__).with_name("explained.toml")
PAGE = ROOT / "docs" / "reliability.md"
START, END = "<!-- mutation: written by python -m mutation --write -->", "<!-- end of mutation -->"
NOT_NOTICED = (0, 33)  # all tests passed, or there are none


def show(names: Sequence[str], data: Mapping[Path, SourceFileMutationData], *, write: bool, all_diffs: bool) -> int:
    """Print the table and the survivors; exit code 1 if one of them is not explained."""
    wanted, counts = {*names}, defaultdict[str, Counter[str]](Counter)
    unexplained = []
    reasons = _reasons()
    for path, one in data.items():
        for name, code in one.exit_code_by_key.items():
            if name not in wanted:
                continue
            count = counts[str(path.relative_to("src/cgr")).removesuffix(".py")]
            count["changes"] += 1
            count["tried"] += code is not None
            count["noticed"] += code not in (*NOT_NOTICED, None)
            if code in NOT_NOTICED:
                diff = get_diff_for_mutant(name, path=path)
                reason = explanation(name, diff, reasons)
                count["explained"] += reason is not None
                if reason is None:
                    unexplained.append(name)
                if all_diffs or reason is None:
                    print(f"\n{name}{f' ({reason})' if reason else ''}\n{changed_lines(diff)}")
    table = _table(counts)
    print("\n" + table)
    print(f"{len(unexplained)} changes are neither noticed nor explained.")
    if write:
        before, rest = PAGE.read_text(encoding="utf-8").split(START)
        PAGE.write_text(f"{before}{START}\n{table}{END}{rest.split(END)[1]}", encoding="utf-8")
    return 1 if unexplained else 0


def changed_lines(diff: str) -> str:
    """The lines of a diff that differ."""
    return "\n".join(line for line in diff.splitlines() if line[:1] in "+-" and not line.startswith(("---", "+++")))


def explanation(name: str, diff: str, reasons: Mapping[str, Sequence[tuple[str, str]]]) -> str | None:
    """Why a change need not be noticed: the first reason with a matching pattern for its function, or for all (`*`)."""
    function, lines = name.partition("__mutmut_")[0], changed_lines(diff)
    for key in (function, "*"):
        for pattern, reason in reasons.get(key, ()):
            if re.search(pattern, lines):
                return reason
    return None


def _reasons() -> dict[str, list[tuple[str, str]]]:
    """The file `explained.toml`: for a function (or `*`), patterns of changed lines and what explains them."""
    if not EXPLAINED.exists():
        return {}
    found = defaultdict[str, list[tuple[str, str]]](list)
    for one in tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))["change"]:
        found[one["function"]].append((one["pattern"], one["reason"]))
    return found


def _table(counts: Mapping[str, Counter[str]]) -> str:
    rows = ["| module | changes | tried | noticed | share | explained |", "|---|---:|---:|---:|---:|---:|"]
    total = Counter[str]()
    for module, count in sorted(counts.items()):
        total += count
        rows.append(_row(f"`{module}`", count))
    return "\n".join([*rows, _row("all", total)]) + "\n"


def _row(name: str, count: Counter[str]) -> str:
    share = f"{count['noticed'] / count['tried']:.1%}" if count["tried"] else ""
    return (
        f"| {name} | {count['changes']:,} | {count['tried']:,} | {count['noticed']:,} | {share} | {count['explained']:,} |"
    )
