"""A completions server that plays a part: strict, poor or peculiar, as servers that cannot run here are."""

from __future__ import annotations

import json
import math
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ["<eos>", "<think>", "</think>", "a", "b", "c", "d", "e"]
PLAIN = {
    "model", "prompt", "max_tokens", "temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs", "seed",
    "logit_bias", "stream",
}  # fmt: skip


@dataclass
class Part:
    """What it can do. Its model says each of its words with a fixed probability."""

    most_logprobs: int = 20
    ids_in: bool = True
    ids_out: bool = True
    extras: bool = True
    seeds: bool = True
    streams: bool = True
    bans: bool = True
    raw: bool = True
    counts_cached: bool = True
    tokenizes: bool = True
    models: tuple[str, ...] = ("played",)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def complete(self, body: dict[str, Any]) -> dict[str, Any] | str:
        self.bodies.append(body)
        ids = isinstance(body["prompt"], list)
        if ids and not self.ids_in:
            return "prompt must be text"
        if (body.get("logprobs") or 0) > self.most_logprobs:
            return "too many logprobs"
        if not self.extras and body.keys() - PLAIN:
            return f"unknown field {sorted(body.keys() - PLAIN)[0]}"
        return self._reply(body, len(body["prompt"]) if ids else len(body["prompt"].split()))

    def _reply(self, body: dict[str, Any], prompt: int) -> dict[str, Any]:
        chance = random.Random(body.get("seed") if self.seeds else None)
        banned = [int(one) for one in body.get("logit_bias", {})] if self.bans else []
        weights = [0.0 if token in banned else 2.0**-token for token in range(3, len(WORDS))]
        greedy = [range(3, len(WORDS))[weights.index(max(weights))]]
        count = body["max_tokens"]
        tokens = greedy * count if not body["temperature"] else [chance.randrange(3, len(WORDS)) for _ in range(count)]
        details = {"prompt_tokens_details": {"cached_tokens": prompt // 32 * 32 if len(self.bodies) > 1 else 0}}
        choice: dict[str, Any] = {"text": "".join(WORDS[token] for token in tokens), "finish_reason": "length"}
        if body.get("logprobs"):
            choice["logprobs"] = self._logprobs(tokens, banned, body)
        if self.ids_out and body.get("return_token_ids"):
            choice["token_ids"] = tokens
        return {"choices": [choice], "usage": {"prompt_tokens": prompt, **(details if self.counts_cached else {})}}

    def _logprobs(self, tokens: list[int], banned: list[int], body: dict[str, Any]) -> dict[str, Any]:
        gone = [] if self.raw else banned
        total = sum(2.0**-token for token in range(3, len(WORDS)) if token not in gone)
        named = bool(body.get("return_tokens_as_token_ids")) and self.ids_out

        def name(token: int) -> str:
            return f"token_id:{token}" if named else WORDS[token]

        values = {token: math.log(2.0**-token / total) if token not in gone else -50.0 for token in range(3, len(WORDS))}
        top = dict(
            sorted(((name(token), value) for token, value in values.items()), key=lambda pair: -pair[1])[: body["logprobs"]]
        )
        return {
            "tokens": [name(token) for token in tokens],
            "token_logprobs": [values[token] for token in tokens],
            "top_logprobs": [top for _ in tokens],
        }


class _Handler(BaseHTTPRequestHandler):
    part: Part

    def log_message(self, format: str, *args: Any) -> None:
        return None

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            models = [{"id": name, "owned_by": "somebody", "max_model_len": 4096} for name in self.part.models]
            self._send({"data": models})
        else:
            self._send({"error": "not found"}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/completions":
            self._complete(body)
        elif self.path in ("/tokenize", "/detokenize") and self.part.tokenizes:
            self._words(body)
        else:
            self._send({"error": "not found"}, 404)

    def _words(self, body: dict[str, Any]) -> None:
        if "messages" in body:
            self._send({"tokens": [3, 4, 1]})
        elif "tokens" in body:
            self._send({"prompt": "".join(WORDS[token] for token in body["tokens"])})
        elif "prompt" in body:
            known = body["prompt"] in WORDS
            self._send({"tokens": [WORDS.index(body["prompt"])] if known else [3 + ord(one) % 5 for one in body["prompt"]]})
        else:
            self._send({"error": "no prompt"}, 400)

    def _complete(self, body: dict[str, Any]) -> None:
        reply = self.part.complete(body)
        if isinstance(reply, str):
            self._send({"error": {"message": reply, "code": 400}}, 400)
        elif body.get("stream") and self.part.streams:
            choice = reply["choices"][0]
            half = len(choice["text"]) // 2
            events = [
                {"choices": [{"text": choice["text"][:half]}]},
                {"choices": [choice | {"text": choice["text"][half:]}]},
            ]
            self._send_raw(b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in events), "text/event-stream")
        else:
            self._send(reply)

    def _send(self, value: dict[str, Any], status: int = 200) -> None:
        self._send_raw(json.dumps(value).encode(), "application/json", status)

    def _send_raw(self, data: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def playing(**part: Any) -> Iterator[tuple[str, Part]]:
    played = Part(**part)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"part": played}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", played
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
