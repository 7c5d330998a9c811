"""Plain calls from threads, from a running event loop, and after a fork."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cgr
from cgr import Event, Model, sync
from cgr.errors import UsageError
from tests.engines.completions.upstream import KEY, address
from tests.support import OTHERS, QUESTION, gist, python


def test_eight_threads_on_one_model(loaded: Model) -> None:
    """The model has two sessions: the others wait for their turn."""
    questions = [QUESTION, *OTHERS] * 2
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda question: gist(loaded.solve(question, budget=48)), questions))
    assert found == [gist(loaded.solve(question, budget=48)) for question in questions]


@pytest.mark.parametrize("number", [1, 2], ids=["your own server", "python"])
async def test_the_python_examples_of_the_readme_in_a_notebook(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook has a running event loop."""
    monkeypatch.setenv("CGR_API_KEY", KEY)
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    example = readme.split("```python\n")[number].split("```")[0]
    assert "import cgr\n" in example
    exec(example.replace("http://localhost:8000/v1", address()).replace("some.gguf", "embedded"), {})


def test_events_are_delivered_in_the_thread_that_asked(loaded: Model) -> None:
    threads: set[threading.Thread] = set()
    loaded.solve(QUESTION, budget=48, interval=16, on_event=lambda event: threads.add(threading.current_thread()))
    assert threads == {threading.current_thread()}


def test_what_on_event_raises_ends_the_work(loaded: Model) -> None:
    events: list[Event] = []

    def stop(event: Event) -> None:
        events.append(event)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loaded.solve(QUESTION, budget=1024, rule="fixed-budget", on_event=stop)
    assert len(events) == 1
    assert loaded.solve(QUESTION, rule="no-thinking").thinking_tokens == 0  # its session is free again


def test_on_event_may_ask_another_question(loaded: Model) -> None:
    answers: list[str | None] = []

    def ask(event: Event) -> None:
        if not answers:
            answers.append(loaded.solve(OTHERS[0], budget=32).answer)

    loaded.solve(QUESTION, budget=48, on_event=ask)
    assert len(answers) == 1


def test_cancelled_work_cleans_up_first() -> None:
    """As after Ctrl-C: the exception is raised once the work has ended."""
    steps: list[str] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def work() -> None:
        try:
            await call.in_caller(interrupt)
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    call: sync.Call[None] = sync.Call(work)
    with pytest.raises(KeyboardInterrupt):
        call.result()
    assert steps == ["cleaned up"]


def test_work_cannot_wait_for_other_work() -> None:
    async def work() -> None:
        sync.run(asyncio.Event().wait)

    with pytest.raises(UsageError, match="runs inside a model's work"):
        sync.run(work)


def test_a_model_that_nobody_closed_ends_with_the_process() -> None:
    done = python(f"import cgr; model = cgr.open_model(); print(model.solve({QUESTION!r}, budget=32).budget)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "32\n", "")


FORK = """
import os, sys, cgr
question, address, key = sys.argv[1:]
model = cgr.open_model() if not address else cgr.open_model(base_url=address, api_key=key)
print(model.solve(question, budget=32).budget, flush=True)
child = os.fork()
if not child:
    try:
        print("child", model.solve(question, budget=32).budget, flush=True)
        if not address:
            print("not refused")
    except cgr.CgrError as error:
        print(error.message, flush=True)
        try:
            cgr.solve(question, budget=32)
        except cgr.CgrError as error:
            print(error.message, flush=True)
    model.close()
    sys.exit(7)
_, status = os.waitpid(child, 0)
print("status", os.waitstatus_to_exitcode(status), model.solve(question, budget=32).budget)
"""


def test_after_a_fork_a_model_of_this_process_says_so() -> None:
    """The child ends as it wants to, and the parent's model still works."""
    done = python(FORK, QUESTION, "", "")
    assert done.returncode == 0, done.stderr
    first, refused, also, last = done.stdout.splitlines()
    assert (first, last) == ("32", "status 7 32")
    assert refused == "This model was loaded before the process was forked, so it cannot compute here."
    assert also == "llama.cpp was used before the process was forked, so it cannot be used here."


def test_after_a_fork_a_model_at_a_server_works() -> None:
    done = python(FORK, QUESTION, address(), KEY)
    assert done.stdout.splitlines() == ["32", "child 32", "status 7 32"], done.stderr
    assert done.returncode == 0


def test_a_model_loaded_in_the_child_only() -> None:
    code = (
        "import os, sys, cgr\n"
        "child = os.fork()\n"
        "if not child:\n    print(cgr.solve(sys.argv[1], budget=32).budget, flush=True)\n    sys.exit(0)\n"
        "print(os.waitpid(child, 0)[1])"
    )
    assert python(code, QUESTION).stdout.split() == ["32", "0"]


def test_no_loop_is_left_in_the_thread_that_asks() -> None:
    cgr.solve(QUESTION, rule="no-thinking")
    assert not sync.in_event_loop()
