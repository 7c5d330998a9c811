"""llama.cpp's server as a program, for the tests: the flags of `llama-server` that cgr gives, and the server itself."""

from __future__ import annotations

import argparse
import os
import threading


def main() -> None:
    import xllamacpp

    parser = argparse.ArgumentParser()
    for name in ("--model", "--host"):
        parser.add_argument(name)
    for name in ("--port", "--parallel", "--ctx-size", "--threads"):
        parser.add_argument(name, type=int)
    given = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path, params.port = given.model, given.port
    params.api_keys = [os.environ["LLAMA_API_KEY"]]
    params.n_parallel, params.n_ctx = given.parallel, given.ctx_size
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given.threads or 1
    server = xllamacpp.Server(params)
    assert server.listening_address
    threading.Event().wait()


main()
