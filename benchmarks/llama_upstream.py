"""llama.cpp's own HTTP server with the embedded model: `python -m benchmarks.llama_upstream`, a process of its own."""

from __future__ import annotations

import signal
from urllib.parse import urlsplit

from cgr.engines.llama.engine import start_server
from cgr.engines.open import find_model

KEY = "benchmark"
SLOTS, CONTEXT = 8, 2048


def main() -> None:
    server = start_server(find_model(None), KEY, SLOTS, CONTEXT, 1)
    print(urlsplit(server.listening_address).port, flush=True)  # noqa: T201 - the parent reads it
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})  # before the server starts its threads
    main()
