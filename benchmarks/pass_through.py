"""What any gateway in Python costs: aiohttp reads from the upstream, uvicorn writes to the client, nothing is looked at.

`python -m benchmarks.pass_through http://127.0.0.1:8000`, a process of its own.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import uvicorn

Message = dict[str, Any]
EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]


class PassThrough:
    """The application. `upstream`: where requests go."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.client: aiohttp.ClientSession | None = None

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        if self.client is None:
            self.client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout())
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        async with self.client.request(
            scope["method"], self.upstream + scope["path"], data=body or None, headers={"content-type": "application/json"}
        ) as response:
            await send({"type": "http.response.start", "status": response.status, "headers": EVENTS})
            while data := await response.content.readany():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def main() -> None:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(1024)
    print(listening.getsockname()[1], flush=True)  # noqa: T201 - the parent reads it
    config = uvicorn.Config(
        PassThrough(sys.argv[1]), loop="uvloop", http="httptools", lifespan="off", log_config=None, access_log=False
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
