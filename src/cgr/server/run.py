"""Runs the server: one process, or several on one port."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import resource
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

import uvicorn
import uvloop

from cgr.errors import CgrError, EngineError, UsageError
from cgr.server.app import create_app
from cgr.server.config import ServeConfig
from cgr.server.gateway import Gateway
from cgr.server.http_limits import LimitedHttp
from cgr.server.logs import log, set_up
from cgr.server.metrics import FOLDER

BACKLOG = 2048
SEND_BUFFER = 64 << 10  # bytes of a reply that the system keeps for a slow client; by itself it would keep megabytes
END_SECONDS = 5.0  # beyond the time for requests, for everything else
RESTART_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 75  # longer than clients and balancers keep an idle connection, so that they close it
Announce = Callable[[str], None]


def serve(config: ServeConfig, announce: Announce) -> int:
    """Run until a signal. `announce` is called with the address once requests are answered. Returns the exit code."""
    _raise_open_files()
    listening = bind(config.host, config.port)
    address = _address(config.host, listening)
    with listening:
        if config.workers == 1:
            set_up(config.log)
            return uvloop.run(_serve(config, listening, lambda: announce(address)))
        return _Supervisor(config, listening, lambda: announce(address)).run()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; an error in plain words if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise UsageError(f"Cannot listen on {host}:{port}: {error}.", "Choose another --port or --host.") from error
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


def _raise_open_files() -> None:
    """A stream needs up to three connections, and the usual limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else max(soft, 65536), hard))


def _keep_what_was_loaded() -> None:
    """Tell the garbage collector that what exists now stays. Otherwise it collects old objects only once they are a
    quarter of everything, modules included, and garbage of megabytes waits for that."""
    gc.collect()
    gc.freeze()


def _address(host: str, listening: socket.socket) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}"


async def _serve(config: ServeConfig, listening: socket.socket, ready: Callable[[], None]) -> int:
    gateway = Gateway(config)
    try:
        await gateway.connect()
        server = DrainingServer(gateway, ready)
        await server.serve(sockets=[listening])
    finally:
        await gateway.finish_recording()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await gateway.close()
    return 0


class DrainingServer(uvicorn.Server):
    """uvicorn, which ends without an exception after a signal and lets the gateway finish its requests."""

    def __init__(self, gateway: Gateway, ready: Callable[[], None]) -> None:
        limit = gateway.config.shutdown_seconds + END_SECONDS
        super().__init__(
            uvicorn.Config(
                create_app(gateway),
                http=LimitedHttp,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=int(limit) + 1,
                backlog=BACKLOG,
            )
        )
        self.gateway, self.ready = gateway, ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's, it keeps the handlers: a second signal must not break the clean end off."""
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, self.handle_exit)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        _keep_what_was_loaded()
        self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what is running."""
        draining = asyncio.create_task(self.gateway.drain())
        await super().shutdown(sockets)
        draining.cancel()


class _Supervisor:
    """Starts the workers, replaces those that die, and passes signals on."""

    def __init__(self, config: ServeConfig, listening: socket.socket, ready: Callable[[], None]) -> None:
        self.config, self.listening, self.ready = config, listening, ready
        self.stopping = False
        self.workers: dict[BaseProcess, Connection] = {}
        self.numbers: dict[BaseProcess, int] = {}

    def run(self) -> int:
        """Run until a signal; returns the exit code."""
        set_up(self.config.log)
        before = {one: signal.signal(one, self._stop) for one in (signal.SIGINT, signal.SIGTERM)}
        with tempfile.TemporaryDirectory(prefix="cgr-metrics-") as folder:
            os.environ[FOLDER] = folder
            try:
                for number in range(1, self.config.workers + 1):
                    self._start(number)
                self._wait_until_ready()
                if not self.stopping:
                    self.ready()
                    self._watch()
            finally:
                self._end()
                for one, handler in before.items():
                    signal.signal(one, handler)
                del os.environ[FOLDER]
        return 0

    def _start(self, number: int) -> None:
        """Start the worker with this number; one that replaces another continues its recording."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(_for_worker(self.config, number), self.listening, theirs))
        process.start()
        theirs.close()
        self.workers[process], self.numbers[process] = ours, number

    def _wait_until_ready(self) -> None:
        for process, pipe in self.workers.items():
            while not self.stopping:
                heard, alive = pipe.poll(0.1), process.is_alive()
                if self.stopping:  # by a signal, which ends the workers too
                    return
                if heard:
                    self._check_report(pipe)
                    break
                if not alive:
                    raise EngineError("A worker ended before it was ready.", "Try it with --workers 1.")

    @staticmethod
    def _check_report(pipe: Connection) -> None:
        try:
            report: Any = pipe.recv()
        except EOFError:
            raise EngineError("A worker ended before it was ready.", "Try it with --workers 1.") from None
        if isinstance(report, CgrError):
            raise report

    def _watch(self) -> None:
        while not self.stopping:
            wait([process.sentinel for process in self.workers], timeout=0.5)
            for process in [one for one in self.workers if not one.is_alive()]:
                if self.stopping:
                    return
                self.workers.pop(process).close()
                log("a worker ended and is replaced", pid=process.pid, code=process.exitcode)
                time.sleep(RESTART_SECONDS)
                self._start(self.numbers.pop(process))

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping = True
        for process in self.workers:
            if process.is_alive():
                process.terminate()

    def _end(self) -> None:
        self._stop(0, None)
        until = time.monotonic() + self.config.shutdown_seconds + 2 * END_SECONDS
        for process in self.workers:
            process.join(max(until - time.monotonic(), 0.1))
            if process.is_alive():
                process.kill()
                process.join()


def _for_worker(config: ServeConfig, number: int) -> ServeConfig:
    """What one of several workers is told: it writes a run of its own, with its part of the traces."""
    shadow = config.shadow and replace(config.shadow, worker=number, limit=-(-config.shadow.limit // config.workers))
    return replace(config, workers=1, shadow=shadow)


def _work(config: ServeConfig, listening: socket.socket, pipe: Connection) -> None:
    """The main function of a worker. It ends with its parent."""
    set_up(config.log)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C goes to the whole group; the parent decides
    try:
        uvloop.run(_serve(config, listening, lambda: pipe.send("ready")))
    except CgrError as error:
        pipe.send(error)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
