"""From traffic to a promise to an alarm, through real servers: `python -m benchmarks.end_to_end [--out FOLDER]`.

1. `cgr serve --shadow` answers the questions of the usual traffic and records them.
2. `cgr calibrate` makes a promise from the recording.
3. `cgr serve --calibration --audit` answers further questions of the usual traffic, and then other, harder ones. Its audits
   see the change, and `--on-broken off` stops the early stops.

It runs on the embedded model, whose problems come in three families. By default the usual traffic is products, on which
early stops hardly ever change an answer, and the harder traffic is greatest common divisors, on which they do at low
thresholds. Nothing here knows what the model finds hard: where the other traffic is no riskier, there is no alarm, and the
result says so.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import click

from cgr.calibration import FILE, percent, sentence
from cgr.calibration import read as read_calibration
from cgr.lab.decide.run import Run
from cgr.lab.output import style, write_json
from cgr.lab.store.merge import merge
from cgr.model.problems import unseen

QUESTIONS, USUAL, HARDER = 600, 100, 300
EPSILON = 0.02
CLIENTS = 4
USUAL_KINDS, HARDER_KINDS = "product:1,2,3,4", "gcd:3,4,6"
FIGURE = "end-to-end"
CAPTION = "Bounds of the risk, from audits behind the replies"


@dataclass(frozen=True)
class Point:
    """After this many requests: the audits so far, their losses, and the bounds of the risk."""

    requests: int
    audits: int
    losses: int
    lower: float
    upper: float
    broken: bool


@dataclass
class Watched:
    """The server with the promise: what its audits said after each request. `shift`: the requests before the harder
    traffic."""

    shift: int = 0
    points: list[Point] = field(default_factory=list)
    thinking: list[int] = field(default_factory=list)
    stopped: list[bool] = field(default_factory=list)

    @property
    def alarm(self) -> Point | None:
        """The first time that the promise was broken."""
        return next((one for one in self.points if one.broken), None)


@dataclass(frozen=True)
class Served:
    """A running `cgr serve`."""

    address: str

    def chat(self, question: str, seed: int) -> Any:
        """The reply to a question."""
        return self._call("/v1/chat/completions", {"messages": [{"role": "user", "content": question}], "seed": seed})

    def promise(self) -> dict[str, Any]:
        """The state of the promise."""
        found: dict[str, Any] = self._call("/health")["promise"]
        return found

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        with urllib.request.urlopen(f"{self.address}/metrics") as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(rf"{name}(?:\{{| )", line))

    def _call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)


@contextmanager
def served(*options: str) -> Iterator[Served]:
    """`cgr serve` on a free port, until the end of the block."""
    call = [sys.executable, "-m", "cgr.cli", "serve", "--port", "0", "--log", "off", *options]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"at (http://\S+)/v1,", process.stdout.readline())
            if not found:
                raise SystemExit("cgr serve did not start.")
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield Served(found[1])
        finally:
            process.terminate()
            process.wait()


def questions(kinds: str, count: int, seed: int = 0) -> list[str]:
    """Distinct problems that the model was not trained on. `kinds`: families and levels, as in `map,gcd:2,3`."""
    families, _, levels = kinds.partition(":")
    wanted = unseen(seed, tuple(families.split(",")), tuple(map(int, levels.split(","))))
    found = [problem.text for problem in islice(wanted, count)]
    if len(found) < count:
        raise SystemExit(f"There are only {len(found)} such problems: ask for fewer.")
    random.Random(seed).shuffle(
        found
    )  # some levels have few problems: the last ones would be of other levels than the first
    return found


def record(folder: Path, texts: Sequence[str]) -> None:
    """Answer the questions in the shadow."""
    options = ("--shadow", "--record", str(folder), "--sessions", str(CLIENTS), "--shutdown-seconds", "600")
    with served(*options) as server, ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(server.chat, texts, range(len(texts))))
        while server.metric("cgr_shadow_recorded_total") + server.metric("cgr_shadow_dropped_total") < len(texts):
            sleep(0.2)


def calibrate(folder: Path, epsilon: float) -> None:
    """Make the promise; a run that allows none ends the program, with its reason."""
    call = [sys.executable, "-m", "cgr.cli", "calibrate", str(folder), "--lose-at-most", str(epsilon)]
    if subprocess.run(call, stdout=subprocess.DEVNULL, check=False).returncode:
        raise SystemExit("Nothing can be promised from this recording.")


def watch(calibration: Path, usual: Sequence[str], harder: Sequence[str]) -> Watched:
    """Serve with the promise and audit every request: first the usual traffic, then the harder one up to the alarm."""
    options = (
        "--calibration",
        str(calibration),
        "--audit",
        "1",
        "--audit-sessions",
        str(4 * CLIENTS),
        "--on-broken",
        "off",
    )
    found = Watched(len(usual))
    with served(*options, "--sessions", str(CLIENTS)) as server:
        for texts in (usual, harder):
            for start in range(0, len(texts), CLIENTS):
                if found.alarm:
                    break
                _ask(server, texts[start : start + CLIENTS], found)
        if found.alarm:  # what the server does afterwards
            _ask(server, harder[-CLIENTS:], found)
    return found


def _ask(server: Served, texts: Sequence[str], found: Watched) -> None:
    """Some requests at once; then wait for their audits, so that a point is about all requests before it."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        replies = list(pool.map(server.chat, texts, range(len(found.thinking), len(found.thinking) + len(texts))))
    found.thinking += [reply["usage"]["reasoning_tokens"] for reply in replies]
    found.stopped += [reply["cgr"]["stop_cause"] == "certain" for reply in replies]
    before = found.points[-1].audits if found.points else 0
    covered = 0 if found.alarm else len(texts)
    until = monotonic() + 60
    while (state := server.promise())["audits"] < before + covered and not state["broken"] and monotonic() < until:
        sleep(0.02)
    bounds = (state["audits"], state["losses"], state["risk_lower"], state["risk_upper"], state["broken"])
    found.points.append(Point(len(found.thinking), *bounds))


def draw(found: Watched, epsilon: float) -> Any:
    """The bounds against requests, with the change of the traffic and the alarm."""
    figure, axes = style.paper()
    at = [one.requests for one in found.points]
    upper, lower = style.shades(2)
    axes.plot(at, [100 * one.upper for one in found.points], color=upper)
    axes.plot(at, [100 * one.lower for one in found.points], color=lower)
    axes.axhline(100 * epsilon, color="0.4", linestyle=":")
    axes.axvline(found.shift, color="0.7", linewidth=0.8)
    top = max(10 * epsilon, *(one.lower for one in found.points))
    axes.set_ylim(0, 100 * top)
    axes.text(found.shift, 97 * top, " harder traffic", va="top", color="0.4")
    axes.text(0, 100 * epsilon, "promised", va="bottom", color="0.4")
    if found.alarm:
        axes.plot([found.alarm.requests], [100 * found.alarm.lower], "o", color=lower)
        axes.text(found.alarm.requests, 100 * found.alarm.lower, "alarm ", ha="right", va="bottom", color=lower)
    style.end_labels(
        axes,
        [
            (at[-1], 100 * found.points[-1].upper, "upper", upper),
            (at[-1], 100 * found.points[-1].lower, "lower", lower),
        ],
    )
    axes.set_xlabel("requests")
    axes.set_ylabel("risk, %")
    style.title(axes, CAPTION)
    return figure


def summary(found: Watched, run: Path) -> dict[str, Any]:
    """What happened, as numbers."""
    promise, alarm = read_calibration(run / FILE), found.alarm
    usual = next((one for one in found.points if one.requests >= found.shift), found.points[-1])
    return {
        "promise": sentence(promise),
        "threshold": promise.parameter,
        "questions": promise.questions,
        "losses": promise.losses,
        "bound": promise.bound,
        "mean_thinking_tokens": _mean([trace.thinking_tokens for trace in Run.open(run).traces()]),
        "usual": asdict(usual) | {"mean_thinking_tokens": _mean(found.thinking[: found.shift])},
        "alarm": asdict(alarm) if alarm else None,
        "requests_to_alarm": alarm.requests - found.shift if alarm else None,
        "losses_to_alarm": alarm.losses - usual.losses if alarm else None,
        "stopped_after_alarm": sum(found.stopped[alarm.requests :]) if alarm else None,
        "points": [asdict(one) for one in found.points],
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def told(numbers: dict[str, Any]) -> str:
    """The result in words."""
    usual, epsilon = numbers["usual"], numbers["epsilon"]
    lines = [
        f"Recorded {numbers['questions']} questions: {numbers['mean_thinking_tokens']:.0f} thinking tokens each.",
        f"{numbers['promise']} The threshold is {numbers['threshold']:g}.",
        f"Usual traffic: {usual['audits']} audits, {usual['losses']} losses; the risk is between {percent(usual['lower'])} "
        f"and {percent(usual['upper'])}. {usual['mean_thinking_tokens']:.0f} thinking tokens each.",
    ]
    if numbers["alarm"] is None:
        lines.append(f"Harder traffic: no alarm. Its risk is not shown to be above {percent(epsilon)}.")
    elif numbers["requests_to_alarm"] <= 0:
        lines.append("There was an alarm in the usual traffic, which should be rare.")
    else:
        lines.append(
            f"Harder traffic: {numbers['losses_to_alarm']} losses in {numbers['requests_to_alarm']} requests, then the "
            f"alarm; early stops after it: {numbers['stopped_after_alarm']}."
        )
    return "\n".join([*lines, f"It took {numbers['seconds'] / 60:.1f} minutes."])


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/end-to-end"), help="a new folder")
    parser.add_argument("--recording", type=Path, metavar="RUN", help="a recording of the usual traffic, if there is one")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="to record")
    parser.add_argument("--usual", type=int, default=USUAL, help="requests of the usual traffic with the promise")
    parser.add_argument("--harder", type=int, default=HARDER, help="harder requests at most")
    parser.add_argument("--usual-kinds", default=USUAL_KINDS, help=f"families and levels, as in {USUAL_KINDS}")
    parser.add_argument("--harder-kinds", default=HARDER_KINDS)
    parser.add_argument("--lose-at-most", type=float, default=EPSILON)
    parser.add_argument("--figure", type=Path, help="where to draw the figure, besides the folder")
    given = parser.parse_args()
    if given.out.exists():
        raise SystemExit(f"There is already something in {given.out}.")
    began, run = monotonic(), given.out / "shadow"
    usual = questions(given.usual_kinds, given.questions + given.usual)
    if given.recording:
        merge([given.recording], run)
    else:
        record(run, usual[: given.questions])
    calibrate(run, given.lose_at_most)
    found = watch(run / FILE, usual[given.questions :], questions(given.harder_kinds, given.harder))
    numbers = summary(found, run) | {"epsilon": given.lose_at_most, "seconds": monotonic() - began}
    write_json(given.out / f"{FIGURE}.json", numbers)
    style.write(FIGURE, CAPTION, lambda: draw(found, given.lose_at_most), given.out)
    if given.figure:
        given.figure.write_bytes((given.out / f"{FIGURE}.png").read_bytes())
    click.echo(told(numbers))


if __name__ == "__main__":
    main()
