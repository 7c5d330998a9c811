"""What the audits found, in a file: it survives restarts, and all workers share it.

The file is small JSON. It is replaced as a whole under a lock, so that it can be read at any time without one. It holds no
prompts and no answers.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cgr.errors import UsageError, refused_by_system
from cgr.files import make_folder, write_text
from cgr.lab.score.sequential import BLOCK, Interval, evidence_above, risk_bounds, with_draw
from cgr.records import Record

SCHEMA = 1
AUDIT_SECONDS = 3600.0  # an audit that takes longer has failed
AWAY = "Move it away to begin anew, or name another file with --audit-state."


@dataclass(frozen=True, slots=True)
class Ticket(Record):
    """A request that was chosen and whose loss is not known yet, or not counted yet because an earlier one is open."""

    number: int
    process: int
    since: float
    loss: bool | None = None


@dataclass(frozen=True, slots=True)
class Broken(Record):
    """When the promise broke, at which value of the parameter, and after how many audits and losses."""

    at: str
    parameter: float
    audits: int
    losses: int


@dataclass(frozen=True, slots=True)
class AuditState(Record):
    """`calibration`: its digest; `start`: the parameter at first; `parameter`: the one in use, None if there is no stricter
    one left. `audits` and `blocks` (losses in each block of them) are those of this parameter; `former_audits` and
    `former_losses` those of the values before. `alarmed`: the bound passed epsilon at this parameter. `broken`: when it
    first did, at any. `tickets`: in the order in which requests were chosen."""

    calibration: str
    start: float
    parameter: float | None
    audits: int = 0
    blocks: tuple[int, ...] = ()
    former_audits: int = 0
    former_losses: int = 0
    dropped: int = 0
    failed: int = 0
    alarmed: bool = False
    broken: Broken | None = None
    tickets: tuple[Ticket, ...] = ()
    next_ticket: int = 0
    schema: int = SCHEMA

    @property
    def losses(self) -> int:
        """Losses at this parameter."""
        return sum(self.blocks)

    def bounds(self, delta: float) -> Interval:
        """Of the risk at this parameter."""
        return risk_bounds(self.blocks, self.audits, delta)

    def chosen(self, process: int) -> AuditState:
        """One more request was chosen: it has the last ticket."""
        ticket = Ticket(self.next_ticket, process, time.time())
        return replace(self, tickets=(*self.tickets, ticket), next_ticket=self.next_ticket + 1)

    def settled(self, number: int, loss: bool) -> AuditState:
        """The loss of a chosen request is known."""
        tickets = tuple(replace(one, loss=loss) if one.number == number else one for one in self.tickets)
        return replace(self, tickets=tickets)

    def withdrawn(self, number: int) -> AuditState:
        """The loss of a chosen request will not be known."""
        return replace(self, tickets=tuple(one for one in self.tickets if one.number != number))

    def failed_one(self, number: int) -> AuditState:
        """An audit ended with an error."""
        return replace(self.withdrawn(number), failed=self.failed + 1)

    def dropped_one(self) -> AuditState:
        """A request was not audited because there was no room."""
        return replace(self, dropped=self.dropped + 1)

    def counted(self, epsilon: float, delta: float) -> AuditState:
        """With every loss counted that no open ticket precedes, in the order in which the requests were chosen: which loss
        is counted next must not depend on how long the audits take."""
        state = replace(self, tickets=tuple(filter(_is_alive, self.tickets)))
        while state.tickets and state.tickets[0].loss is not None:
            loss = state.tickets[0].loss
            blocks = with_draw(state.blocks, state.audits, loss)
            state = replace(state, tickets=state.tickets[1:], audits=state.audits + 1, blocks=blocks)
            if not state.alarmed and loss and evidence_above(blocks, state.audits, epsilon) >= 1 / delta:
                state = state._alarm()
        return state

    def _alarm(self) -> AuditState:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        parameter = self.start if self.parameter is None else self.parameter
        first = self.broken or Broken(now, parameter, self.audits, self.losses)
        return replace(self, alarmed=True, broken=first)

    def at(self, parameter: float | None) -> AuditState:
        """The watch begins anew at another value of the parameter. Open tickets belong to the old one."""
        return replace(
            self,
            parameter=parameter,
            audits=0,
            blocks=(),
            former_audits=self.former_audits + self.audits,
            former_losses=self.former_losses + self.losses,
            alarmed=False,
            tickets=(),
        )


def _is_alive(ticket: Ticket) -> bool:
    """Whether the process of an open ticket can still settle it."""
    if ticket.loss is not None:
        return True
    if time.time() - ticket.since > AUDIT_SECONDS + 60:
        return False
    try:
        os.kill(ticket.process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class StateFile:
    """The state of the audits of one calibration, at one starting value of its parameter."""

    def __init__(self, path: Path, calibration: str, start: float) -> None:
        self.path, self.calibration, self.start = path, calibration, start
        self._seen: tuple[int, int, int] | None = None
        self._state = AuditState(calibration, start, start)

    def prepare(self) -> str:
        """Create the file, unless it is there. One of another calibration is set aside; returns a sentence about that."""
        with self._locked():
            told = self._set_aside()
            if not self.path.exists():
                self._write(AuditState(self.calibration, self.start, self.start))
            self.read()
        return told

    def _set_aside(self) -> str:
        if not self.path.exists():
            return ""
        found = self._load()
        if (found.calibration, found.start) == (self.calibration, self.start):
            return ""
        place = self.path.with_suffix(f".{found.calibration[:8]}-{int(time.time())}.json")
        self.path.rename(place)
        what = "another calibration" if found.calibration != self.calibration else f"the threshold {found.start:g}"
        return f"The audits in {self.path} are of {what}: they are now in {place}, and the watch begins anew."

    def read(self) -> AuditState:
        """The state as it is now; the file is only read if it changed. If it cannot be read, requests go on as before."""
        with suppress(OSError, UsageError):
            found = os.stat(self.path)
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen != self._seen:
                self._state, self._seen = self._load(), seen
        return self._state

    def change(self, change: Callable[[AuditState], AuditState]) -> tuple[AuditState, AuditState]:
        """Change the state, with no other process in between; the state before and after."""
        with self._locked():
            before = self._load() if self.path.exists() else self._state
            after = change(before)
            if after != before:
                self._write(after)
            return before, after

    def _load(self) -> AuditState:
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            if isinstance(data, dict) and isinstance(data.get("schema"), int) and data["schema"] > SCHEMA:
                raise UsageError(f"{str(self.path)!r} was written by a newer version of cgr.", "Update cgr.")
            state = AuditState.from_dict(data)
            if len(state.blocks) != math.ceil(state.audits / BLOCK):
                raise ValueError("the blocks are not those of the audits")
        except OSError as error:
            raise refused_by_system(error, f"The audits in {self.path} cannot be read") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"{str(self.path)!r} is not a complete state of audits.", AWAY) from error
        return state

    def _write(self, state: AuditState) -> None:
        write_text(self.path, json.dumps(state.to_dict()) + "\n")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        make_folder(self.path.parent)
        try:
            descriptor = os.open(self.path.with_name(f".{self.path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise refused_by_system(error, f"The audits cannot be kept in {self.path}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
