"""`cgr serve --shadow`: nothing changes for a client, and what is recorded is an ordinary run."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from cgr import Model
from cgr.lab.decide.run import Run
from cgr.lab.questions.arithmetic import make
from cgr.lab.store import Store
from cgr.lab.store.merge import merge
from cgr.lab.store.recorded import HASHED, SHADOW
from tests.server.promised import BUDGET, INTERVAL, written
from tests.server.support import LONG, Served, chat_body, metric, served
from tests.server.upstream import FakeUpstream, fake_upstream
from tests.support import OTHERS, QUESTION, command

RECORDED, DROPPED = "cgr_shadow_recorded_total", "cgr_shadow_dropped_total"
BOXED = "What is x? Put it into \\boxed{}."
# what differs from one reply to the next, and why nothing was probed
CHANGING = re.compile(
    rb'"(?:id|created|item_id|vs_mean|stop_detail|created_at|completed_at)":(?:"[^"]*"|[0-9.]+|-[0-9]+|null)'
)
GATEWAY = ("--when", "always", "--interval", "20", "--budget", "400")
APIS = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": QUESTION}]}),
    ("/v1/responses", {"input": QUESTION}),
    ("/v1/messages", {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 1000}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shadow") / "recording"


@pytest.fixture(scope="module")
def shadow(folder: Path) -> Iterator[Served]:
    """The embedded model in the shadow."""
    with served("--shadow", "--record", str(folder), "--sessions", "2") as server:
        yield server


def recorded(server: Served) -> float:
    return server.metric(RECORDED)


def steady(data: bytes) -> bytes:
    """A reply without what differs from one reply to the next."""
    return CHANGING.sub(b"", data)


# Nothing changes for clients


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), APIS)
def test_a_reply_is_that_of_the_plain_model_byte_for_byte(
    own: Served, shadow: Served, path: str, body: dict[str, Any], stream: bool
) -> None:
    for seed in (0, 3):
        request = body | {"stream": stream, "seed": seed}
        plain, shadowed = own.post(path, **request, cgr=False), shadow.post(path, **request)
        assert shadowed.status_code == 200
        assert len(plain.content) > 500
        assert steady(shadowed.content) == steady(plain.content)
        assert b"nothing is stopped on this server" in shadowed.content
        assert shadowed.headers.keys() == plain.headers.keys()


@pytest.mark.parametrize("stream", [False, True])
def test_behind_a_gateway_a_reply_has_the_bytes_of_the_upstream(fake: FakeUpstream, tmp_path: Path, stream: bool) -> None:
    with served("--base-url", fake.address, "--shadow", "--record", str(tmp_path), *GATEWAY) as server:
        fake.chat_thinks = True
        for question, more in ((QUESTION, {}), ("Hello", {"tools": []}), ("Hello", {"max_tokens": 50})):
            body = chat_body(question, stream=stream, model="fake-model", **more)
            direct = httpx.post(fake.address + "/v1/chat/completions", json=body, timeout=LONG, trust_env=False)
            through = server.post(**body)
            assert through.content == direct.content
            assert fake.bodies("chat")[-1] == body
        assert server.chat(QUESTION, cgr=False).content == server.chat(QUESTION).content
        server.wait_metric(2, RECORDED)
        assert server.metric(DROPPED, reason="cut_short") == 1
        assert server.metric(DROPPED) == 1


def test_probes_are_made_behind_the_reply(fake: FakeUpstream, tmp_path: Path) -> None:
    """The upstream never answers a probe; the client has its whole reply."""
    with served(
        "--base-url", fake.address, "--shadow", "--record", str(tmp_path), "--shutdown-seconds", "1", *GATEWAY
    ) as server:
        fake.chat_thinks, fake.probe_seconds = True, 3600.0
        assert "\\boxed{42}" in server.chat(BOXED).json()["choices"][0]["message"]["content"]
        fake.wait_for("probe")
        assert server.chat(BOXED).status_code == 200
    assert any("2 replies were not yet probed" in line for line in server.lines)


def test_the_other_prompts_look_the_same_and_are_not_recorded(fake: FakeUpstream, tmp_path: Path) -> None:
    options = ("--base-url", fake.address, "--shadow-share", ".4", "--record", str(tmp_path), *GATEWAY)
    questions = [f"What is {number} + 1?" for number in range(40)]
    with served(*options) as server:
        fake.chat_thinks = True
        replies = {server.chat(question).content for question in questions * 2}
        assert len(replies) == 1
        server.wait_metric(2, RECORDED)
        assert server.chat("What is 1 + 1?", cgr=True).json()["cgr"]["stop_cause"] == "certain"
    with Store.open(tmp_path) as store:
        assert 4 <= len(store.questions()) <= 30
        assert {seed for _, seed in store.made()} == {0, 1}
        first = set(store.questions())
    with served(*options) as server:
        fake.chat_thinks = True
        assert all(server.chat(question).status_code == 200 for question in questions)
        server.wait_metric(len(first), RECORDED)
    with Store.open(tmp_path) as store:
        assert set(store.questions()) == first
        assert len(store.made()) == 3 * len(first)


# The recording


def test_a_recording_has_the_probes_that_the_model_gives_while_it_thinks(
    shadow: Served, folder: Path, loaded: Model
) -> None:
    before = recorded(shadow)
    live = shadow.chat(OTHERS[1], seed=5, cgr={"shadow": True, "full": True}).json()["cgr"]
    assert shadow.chat(OTHERS[1], seed=5).json()["cgr"]["probes"] == []
    shadow.wait_metric(before + 1, RECORDED)
    traces = [one for one in Run.open(folder).traces() if one.thinking_tokens == live["usage"]["thinking_tokens"]]
    found = next(one for one in traces if len(one.probes) == len(live["probes"]))
    assert [probe.at for probe in found.probes] == [probe["at"] for probe in live["probes"]]
    certainties = [probe["certainty"] for probe in live["probes"]]
    assert [probe.certainty for probe in found.probes] == pytest.approx(certainties, abs=1e-4)
    assert found.final.certainty == pytest.approx(live["certainty"], abs=1e-4)
    same = [probe["answer"] == live["answer"] for probe in live["probes"]]
    assert [probe.answer == found.final.answer for probe in found.probes] == same
    assert True in same
    assert False in same


def test_without_text_the_file_holds_none(tmp_path: Path) -> None:
    questions = make(6, 2)
    with served("--shadow", "--record", str(tmp_path / "a")) as server:
        thinking = [server.chat(one.text).json()["choices"][0]["message"]["reasoning"] for one in questions]
        server.wait_metric(6, RECORDED)
        during = b"".join(file.read_bytes() for file in (tmp_path / "a").iterdir())
    data = during + b"".join(file.read_bytes() for file in (tmp_path / "a").iterdir())
    for text in (*(one.text for one in questions), *thinking):
        assert text[:30].encode() not in data
    with Store.open(tmp_path / "a") as store:
        assert store.config.source == SHADOW
        for trace in store.recorded(whole=True):
            assert (trace.question, trace.text, trace.ids) == ("", "", ())
            assert trace.final.answer.startswith(HASHED)
            assert trace.probes[0].answer.startswith(HASHED)
            assert not trace.probes[0].tokens
            assert store.prompt_ids((trace.question_id, trace.seed)) == ()
    done = command("probe", str(tmp_path / "a"), "--for", "deer")
    assert done.returncode == 1
    assert "--record-text" in done.stderr


def test_with_text_a_recording_can_be_probed_again(tmp_path: Path) -> None:
    with served("--shadow", "--record", str(tmp_path), "--record-text") as server:
        said = server.chat(QUESTION).json()["choices"][0]["message"]["reasoning"]
        server.post(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}])
        server.wait_metric(2, RECORDED)
    with Store.open(tmp_path) as store:
        first, second = store.recorded(whole=True)
        assert (first.question, first.text) == (QUESTION, said)
        assert second.question == f"system: Be brief.\n\nuser: {QUESTION}"
        assert first.final.answer.isdigit()
        assert store.prompt_ids((first.question_id, 0))
    done = command("probe", str(tmp_path), "--for", "deer")
    assert done.returncode == 0, done.stderr


def test_hashes_promise_what_texts_promise(tmp_path: Path) -> None:
    """The same replies, recorded without and with text: the same decisions at every threshold, the same calibration."""
    questions = [one.text for one in make(60, 2) if one.id[-1] in "123"]
    for name, more in (("hashed", ()), ("text", ("--record-text",))):
        with served("--shadow", "--record", str(tmp_path / name), *more) as server:
            assert {server.chat(text, seed=1).status_code for text in questions} == {200}
            server.wait_metric(len(questions), RECORDED)
    results = []
    for name in ("hashed", "text"):
        goal = ("--lose-at-most", ".2", "--json")
        done = command("calibrate", str(tmp_path / name), *goal)
        assert done.returncode in (0, 1), done.stderr
        found = json.loads(done.stdout)
        results.append([found[part] for part in ("sequence", "parameter", "losses", "headroom", "false_sure")])
        assert command("report", str(tmp_path / name)).returncode == 0
        assert command("runs", str(tmp_path)).returncode == 0
    assert results[0] == results[1]


def test_the_page_shows_no_hash_as_an_answer(tmp_path: Path, shadow: Served, folder: Path, tab: object) -> None:
    shadow.chat(QUESTION)
    shadow.wait_metric(1, RECORDED)
    merge([folder], tmp_path / "copy")  # the server still writes the other
    done = command("report", str(tmp_path / "copy"))
    assert done.returncode == 0, done.stderr
    assert "The run was recorded without texts" in done.stdout
    assert "No question has a known answer" in done.stdout
    tab.open(tmp_path / "copy" / "report" / "index.html")  # type: ignore[attr-defined]
    tab.unfold("details")  # type: ignore[attr-defined]
    shown = tab.run("document.body.innerText")  # type: ignore[attr-defined]
    assert "recorded without texts" in shown
    assert "#1" in shown
    assert HASHED not in shown
    assert tab.errors() == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["deer", "eat", "dynasor"])
def test_rules_that_need_other_probes_are_refused_by_name(shadow: Served, folder: Path, tmp_path: Path, name: str) -> None:
    shadow.chat(QUESTION)
    shadow.wait_metric(1, RECORDED)
    merge([folder], tmp_path / "copy")
    done = command("report", str(tmp_path / "copy"), "--rule", name)
    assert done.returncode == 1
    assert f"The rule '{name}' needs probes" in done.stderr
    assert "--record-text" in done.stderr
    refused = command("serve", "--port", "0", "--shadow", "--record", str(tmp_path / "new"), "--rule", name)
    assert refused.returncode == 2, (name, refused.stderr)
    assert f"'{name}' needs other probes" in refused.stderr


# One writer a process


def test_several_workers_write_runs_that_can_be_joined(tmp_path: Path) -> None:
    options = ("--shadow", "--record", str(tmp_path / "all"), "--workers", "2", *GATEWAY)
    questions = [f"What is {number} + 1?" for number in range(20)]
    with fake_upstream() as fake, served("--base-url", fake.address, *options) as server:
        fake.chat_thinks = True
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(lambda text: server.chat(text).status_code, questions * 4)) == {200}
        server.wait_metric(80, RECORDED)
        assert server.metric(RECORDED) == 80
    runs = sorted(path.parent for path in (tmp_path / "all").glob("*/run.sqlite"))
    assert [run.name for run in runs] == ["worker-1", "worker-2"]
    done = command("report", str(tmp_path / "all"))
    assert done.returncode == 2
    assert "cgr merge" in done.stderr
    joined = merge(runs, tmp_path / "joined")
    assert joined.questions == 20
    # the upstream thinks the same text each time, so that most traces are equal and count once
    assert joined.traces + joined.repeated == 80
    again = merge([tmp_path / "joined", *runs], tmp_path / "again")
    assert (again.questions, again.traces) == (joined.questions, joined.traces)


def test_a_killed_server_loses_only_what_was_not_finished(tmp_path: Path) -> None:
    options = ("--shadow", "--record", str(tmp_path))
    with served(*options, code=-signal.SIGKILL) as server:
        for seed in range(3):
            server.chat(QUESTION, seed=seed)
        server.wait_metric(3, RECORDED)
        os.killpg(server.process.pid, signal.SIGKILL)
    assert len(Run.open(tmp_path).traces()) == 3
    with served(*options) as server:  # continues
        server.chat(QUESTION)
        server.wait_metric(1, RECORDED)
    found = Run.open(tmp_path)
    assert found.questions == (found.traces()[0].question_id,)
    assert [trace.seed for trace in found.traces()] == [0, 1, 2, 3]


def test_sigterm_finishes_what_is_there(tmp_path: Path) -> None:
    with served("--shadow", "--record", str(tmp_path)) as server, ThreadPoolExecutor(6) as pool:
        assert set(pool.map(lambda seed: server.chat(OTHERS[2], seed=seed).status_code, range(12))) == {200}
    assert len(Run.open(tmp_path).traces()) == 12
    assert not (tmp_path / "run.sqlite-wal").exists()


def test_a_client_that_leaves_is_counted_and_not_recorded(fake: FakeUpstream, tmp_path: Path) -> None:
    with served("--base-url", fake.address, "--shadow", "--record", str(tmp_path), *GATEWAY) as server:
        fake.chat_thinks, fake.pace = True, 0.05
        with httpx.stream(
            "POST", server.address + "/v1/chat/completions", json=chat_body(stream=True), timeout=LONG, trust_env=False
        ) as reply:
            next(reply.iter_raw())
        server.wait_metric(1, DROPPED, reason="client_left")
    assert Store.open(tmp_path).made() == ()


# What goes wrong


def test_a_full_disk_is_reported_once_and_serving_goes_on(tmp_path: Path) -> None:
    with served("--shadow", "--record", str(tmp_path)) as server:
        server.chat(OTHERS[2], seed=0)
        server.wait_metric(1, RECORDED)
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (8192, limits[1]))
        for seed in range(3):
            assert server.chat(OTHERS[2], seed=seed).status_code == 200
        server.wait_metric(3, DROPPED, reason="write_failed")
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limits)
        server.chat(OTHERS[2], seed=9)
        server.wait_metric(2, RECORDED)
        assert sum("traces cannot be recorded" in line for line in server.lines) == 1
    assert len(Run.open(tmp_path).traces()) == 2


def test_no_more_than_the_limit_is_recorded(tmp_path: Path) -> None:
    with served("--shadow", "--record", str(tmp_path), "--record-limit", "2") as server:
        for seed in range(5):
            server.chat(OTHERS[2], seed=seed)
        server.wait_metric(3, DROPPED, reason="limit")
        assert recorded(server) == 2
    assert len(Run.open(tmp_path).traces()) == 2


def start(*arguments: str) -> str:
    done = command("serve", "--port", "0", *arguments)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error:") == 1
    return done.stderr


def test_what_cannot_be_recorded_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "there is a file" in start("--shadow", "--record", str(tmp_path / "file"))
    assert "/proc/nothing" in start("--shadow", "--record", "/proc/nothing")
    assert "--record-text needs --shadow" in start("--record-text")
    assert "--record needs --shadow" in start("--record", str(tmp_path))
    assert "--record-limit needs --shadow" in start("--record-limit", "3")
    (tmp_path / "damaged").mkdir()
    shutil.copy(__file__, tmp_path / "damaged" / "run.sqlite")
    (tmp_path / "damaged" / "shadow.key").write_text("0" * 64)
    assert "is not a run" in start("--shadow", "--record", str(tmp_path / "damaged"))


def test_another_configuration_is_refused_with_a_hint(tmp_path: Path, shadow: Served, folder: Path) -> None:
    with served("--shadow", "--record", str(tmp_path)) as server:
        server.chat(QUESTION)
    for more, words in (
        (("--interval", "16"), "interval is "),
        (("--record-text",), "source"),
        (("--budget", "500"), "budget"),
    ):
        error = start("--shadow", "--record", str(tmp_path), *more)
        assert words in error
        assert "--record" in error
    assert "Another process is writing" in start("--shadow", "--record", str(folder))


def test_a_run_that_is_being_written_promises_nothing(shadow: Served, folder: Path) -> None:
    done = command("calibrate", str(folder))
    assert done.returncode == 2
    assert "a promise needs a finished recording" in done.stderr
    assert "running" in command("runs", str(folder)).stdout


def test_metrics_exist_before_anything_was_recorded(own: Served) -> None:
    assert metric(own.get("/metrics").text, RECORDED) == 0


def test_beside_a_promise_a_share_is_only_recorded(fake: FakeUpstream, tmp_path: Path) -> None:
    """With a calibration, prompts that are not chosen are stopped, and those that are chosen are recorded in full."""
    promise = ("--calibration", str(written(tmp_path)), "--shadow-share", ".5", "--record", str(tmp_path / "run"))
    questions = [f"What is {number} + 1?" for number in range(24)]
    with served("--base-url", fake.address, "--when", "always", *promise) as server:
        fake.chat_thinks = True
        found = [server.chat(question).json() for question in questions]
        stopped = [reply["cgr"]["stop_cause"] == "certain" for reply in found]
        assert {True, False} == {*stopped}
        details = {reply["cgr"]["stop_detail"] for reply, over in zip(found, stopped, strict=True) if not over}
        assert details == {"the reply to this request is only recorded"}
        server.wait_metric(stopped.count(False), RECORDED)
        assert recorded(server) == stopped.count(False)
    with Store.open(tmp_path / "run") as store:
        assert (store.config.interval, store.config.budget) == (INTERVAL, BUDGET)
    error = start("--base-url", fake.address, "--calibration", str(tmp_path / "calibration.json"), "--shadow")
    assert "--shadow stops nothing" in error
