"""The command line of the knocks."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from torture.knocks import Knock, Outcome, tried
from torture.listing import known_knocks
from torture.table import write


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the chosen knocks; exit code 1 if anything was lost."""
    chosen = _parser().parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"
    knocks = _selected(chosen.only)
    if chosen.list:
        for knock in knocks:
            print(f"{knock.name:18} {knock.times:>6} {knock.long:>6}  {knock.what}")
        return 0
    outcomes = [_run(knock, chosen) for knock in knocks]
    if chosen.write:
        write(outcomes)
    lost = sum(len(one.lost) for one in outcomes)
    print(f"{sum(one.tried for one in outcomes)} knocks tried, {lost} lost.")
    return 1 if lost else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m torture", description="Hard knocks for cgr; see docs/reliability.md.")
    parser.add_argument("--only", action="append", metavar="NAME", help="a knock, or the beginning of its name; repeatable")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives other trials (default 1)")
    parser.add_argument("--times", type=int, help="trials of each knock")
    parser.add_argument("--trial", type=int, metavar="NUMBER", help="only the trial with this number")
    parser.add_argument("--long", action="store_true", help="the larger number of trials of each knock")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/reliability.json and .md")
    parser.add_argument("--list", action="store_true", help="list the knocks: trials, trials of a long run, what it is")
    return parser


def _selected(only: Sequence[str] | None) -> list[Knock]:
    knocks = known_knocks()
    names = {one.name for one in knocks}
    chosen = [one for one in knocks if not only or any(_means(name, one.name, names) for name in only)]
    if not chosen:
        sys.exit(f"There is no knock {', '.join(only or ())}. Known: {', '.join(one.name for one in knocks)}.")
    return chosen


def _means(given: str, name: str, names: set[str]) -> bool:
    """Whether a name was given: as a whole, or by its beginning if that is no name itself (`output`, `output-page`)."""
    return given == name if given in names else name.startswith(given)


def _run(knock: Knock, chosen: argparse.Namespace) -> Outcome:
    times = chosen.times or (knock.long if chosen.long else knock.times)
    numbers = range(times) if chosen.trial is None else range(chosen.trial, chosen.trial + 1)
    outcome = tried(knock, chosen.seed, numbers, lambda text: print(text, file=sys.stderr))
    seen = ", ".join(f"{count} {what}" for what, count in sorted(outcome.seen.items()))
    told = f"skipped: {outcome.skipped}" if outcome.skipped else f"{outcome.tried} tried, {len(outcome.lost)} lost ({seen})"
    print(f"{knock.name}: {told}, {outcome.seconds:.0f} s", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
