"""A calibration in the server, and its audits, on a gateway in front of a fake upstream whose answers can change."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.lab.report.browser import Browser
from tests.server.promised import BUDGET, INTERVAL, PASSED, calibration, written
from tests.server.support import LONG, Served, chat_body, served
from tests.server.test_live_page import text, wait
from tests.server.upstream import FakeUpstream, Trouble, fake_upstream, text_of

BOXED = "What is x? Put it into \\boxed{}."
ENOUGH = 3  # losses in a row that break a promise of 5%


@contextmanager
def audited(fake: FakeUpstream, file: Path, *options: str, share: str | None = "1") -> Iterator[Served]:
    audit = ("--audit", share) if share else ()
    with served("--base-url", fake.address, "--calibration", str(file), *audit, "--log", "json", *options) as server:
        yield server


def health(server: Served) -> dict[str, Any]:
    promise: dict[str, Any] = server.get("/health").json()["promise"]
    return promise


def ask(server: Served, **fields: Any) -> dict[str, Any]:
    result: dict[str, Any] = server.chat(BOXED, **fields).json()["cgr"]
    return result


def break_promise(server: Served, fake: FakeUpstream, times: int = ENOUGH) -> None:
    """Ask until so many answers have changed behind the replies."""
    fake.final = "7"
    before = server.metric("cgr_audit_losses_total")
    for number in range(times):
        assert ask(server)["stop_cause"] == "certain"
        server.wait_metric(before + number + 1, "cgr_audit_losses_total")


def state(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.with_suffix(".audit.json").read_text())
    return found


# Which replies are covered


def test_the_defaults_of_requests_come_from_the_calibration(fake: FakeUpstream, tmp_path: Path) -> None:
    file = written(tmp_path, prompt="{question}\nBox it.")
    with audited(fake, file, share=None) as server:
        found = ask(server)
        assert (found["rule"], found["threshold"], found["budget"]) == ("cgr", 0.99, BUDGET)
        assert [probe["at"] for probe in found["probes"]] == list(range(INTERVAL, 101, INTERVAL))
        promise = calibration(prompt="{question}\nBox it.")
        covered = {"hash": promise.digest, "risk": "disagreement", "epsilon": 0.05, "delta": 0.05, "broken": False}
        assert found["calibration"] == covered
        assert "calibration_detail" not in found
        assert "Box it." in text_of(fake.bodies("think")[0]["prompt"])
        assert server.metric("cgr_calibration_info", hash=promise.digest) == 1
        assert "cgr_audit_total" not in server.get("/metrics").text
        assert health(server) == {
            "hash": promise.digest,
            "risk": "disagreement",
            "epsilon": 0.05,
            "delta": 0.05,
            "parameter": 0.99,
            "audited": False,
            "stopping": True,
        }


@pytest.fixture(scope="module")
def covering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with fake_upstream() as fake, audited(fake, written(tmp_path_factory.mktemp("covering")), share="1") as server:
        yield server


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"temperature": 1.0}, "for temperature 0.6, and this is 1.0"),
        ({"top_p": 0.9}, "for top p 1.0, and this is 0.9"),
        ({"top_k": 5}, "without top_k"),
        ({"max_tokens": 100}, "for budget 400, and this is 75"),
        ({"cgr": {"budget": 300}}, "for budget 400, and this is 300"),
        ({"cgr": {"interval": 10}}, "for interval 20, and this is 10"),
        ({"cgr": {"threshold": 0.5}}, "does not cover threshold 0.5"),
        ({"cgr": {"threshold": 0.97}}, "does not cover threshold 0.97"),
        ({"cgr": {"rule": "deer"}}, "for rule 'cgr', and this is 'deer'"),
        ({"cgr": {"instruction": "Be short."}}, "for instruction '', and this is 'Be short.'"),
        ({"cgr": {"prefix": "So it is \\boxed{"}}, "for prefix"),
        ({"cgr": {"aggregate": "mean"}}, "for aggregate 'min', and this is 'mean'"),
        ({"cgr": {"at_budget": "abstain"}}, "for at_budget 'answer'"),
        ({"cgr": "shadow"}, "nothing is stopped in shadow mode"),
    ],
)
def test_a_request_that_changes_what_is_promised_is_served_and_not_covered(
    covering: Served, fields: dict[str, Any], why: str
) -> None:
    before = covering.metric("cgr_audit_total")
    reply = covering.chat(BOXED, **fields)
    assert reply.status_code == 200, reply.text
    found = reply.json()["cgr"]
    assert found["calibration"] is None
    assert why in found["calibration_detail"]
    assert covering.metric("cgr_audit_total") == before


@pytest.mark.parametrize("fields", [{}, {"seed": 5}, {"stop": ["zzz"]}, {"cgr": {"threshold": 0.995}}, {"max_tokens": 900}])
def test_a_request_that_changes_nothing_about_it_is_covered(covering: Served, fields: dict[str, Any]) -> None:
    found = ask(covering, **fields)
    assert found["calibration"] is not None
    assert "calibration_detail" not in found


def test_only_requests_at_the_watched_threshold_are_audited(covering: Served) -> None:
    before = covering.metric("cgr_audit_total")
    ask(covering, cgr={"threshold": 0.995})
    ask(covering)
    covering.wait_metric(before + 1, "cgr_audit_total")
    assert covering.metric("cgr_audit_total") == before + 1


# Audits


def test_an_audit_thinks_on_where_the_stop_was(fake: FakeUpstream, tmp_path: Path) -> None:
    with audited(fake, written(tmp_path)) as server:
        reply = server.chat(BOXED, seed=1).json()
        assert reply["cgr"]["stop_cause"] == "certain"
        server.wait_metric(1, "cgr_audit_total")
        thinking = fake.bodies("think")
        at = reply["cgr"]["probes"][-1]["at"]
        assert len(thinking[-1]["prompt"]) - len(thinking[0]["prompt"]) == at  # the rest, from the stop on
        entry = json.loads(server.wait_line('"message":"audit"'))
        assert (entry["loss"], entry["thinking_tokens"]) == (0, fake.length)
        assert server.metric("cgr_audit_tokens_total") == fake.length - at
        assert server.metric("cgr_audit_losses_total") == 0
        assert health(server)["broken"] is False


def test_what_is_not_stopped_early_counts_as_no_loss_at_no_cost(fake: FakeUpstream, tmp_path: Path) -> None:
    fake.sure_at, fake.final = 1000, "7"
    with audited(fake, written(tmp_path)) as server:
        assert ask(server)["stop_cause"] == "end_of_thinking"
        server.wait_metric(1, "cgr_audit_total")
        assert server.metric("cgr_audit_losses_total") == 0
        assert server.metric("cgr_audit_tokens_total") == 0
        assert len(fake.bodies("think")) == 1


def test_streams_are_audited_too(fake: FakeUpstream, tmp_path: Path) -> None:
    fake.final = "7"
    with audited(fake, written(tmp_path)) as server:
        assert server.stream(BOXED)[-1]["cgr"]["calibration"]["epsilon"] == 0.05
        server.wait_metric(1, "cgr_audit_losses_total")


def test_a_share_is_audited(fake: FakeUpstream, tmp_path: Path) -> None:
    with audited(fake, written(tmp_path), "--audit-sessions", "64", share="0.5") as server:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda seed: ask(server, seed=seed), range(80)))
        until = time.monotonic() + LONG
        while state(tmp_path / "calibration.json")["tickets"] and time.monotonic() < until:
            time.sleep(0.02)
        assert 15 <= server.metric("cgr_audit_total") <= 65  # outside with a chance below 1e-8


def test_without_room_audits_are_dropped_and_clients_are_served(fake: FakeUpstream, tmp_path: Path) -> None:
    fake.length, fake.pace = 390, 0.002
    with audited(fake, written(tmp_path), "--sessions", "8", "--audit-sessions", "1") as server:
        with ThreadPoolExecutor(8) as pool:
            codes = list(pool.map(lambda seed: server.chat(BOXED, seed=seed).status_code, range(8)))
        assert codes == [200] * 8
        fake.wait_idle()
        until = time.monotonic() + LONG
        while server.metric("cgr_audit_total") + server.metric("cgr_audit_dropped_total") < 8:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert server.metric("cgr_audit_dropped_total") >= 1
        assert server.metric("cgr_audit_total") >= 1


def test_an_audit_that_fails_is_counted_and_is_no_loss(fake: FakeUpstream, tmp_path: Path) -> None:
    fake.final = "7"
    with audited(fake, written(tmp_path), "--upstream-tries", "1") as server:
        fake.length, fake.pace = 10_000, 0.001
        assert ask(server)["stop_cause"] == "certain"
        fake.troubles.append(Trouble("probe", "error"))  # the last probe of the audit, at the budget
        server.wait_metric(1, "cgr_audit_failed_total")
        assert server.metric("cgr_audit_total") == 0
        assert state(tmp_path / "calibration.json")["tickets"] == []
        server.wait_line("an audit failed")


def test_a_client_that_leaves_is_not_audited(fake: FakeUpstream, tmp_path: Path) -> None:
    fake.pace = 0.02
    with audited(fake, written(tmp_path)) as server:
        body = chat_body(BOXED, stream=True)
        with httpx.stream("POST", f"{server.address}/v1/chat/completions", json=body, trust_env=False) as reply:
            next(reply.iter_lines())
        server.wait_metric(1, "cgr_client_disconnects_total")
        fake.pace = 0.0
        ask(server)
        server.wait_metric(1, "cgr_audit_total")
        assert state(tmp_path / "calibration.json")["tickets"] == []
        assert server.metric("cgr_audit_total") == 1


def test_a_signal_ends_audits_and_they_count_for_nothing(fake: FakeUpstream, tmp_path: Path) -> None:
    file = written(tmp_path)
    fake.final = "7"
    with audited(fake, file) as server:
        ask(server)
        server.wait_metric(1, "cgr_audit_total")
        fake.length, fake.pace, fake.sure_at = 390, 0.05, 20
        ask(server, max_tokens=900)
        fake.wait_for("think")
    assert len(state(file)["tickets"]) == 1
    fake.reset()
    with audited(fake, file) as server:
        assert state(file)["tickets"] == []
        assert (server.metric("cgr_audit_total"), server.metric("cgr_audit_losses_total")) == (1, 1)
        assert server.metric("cgr_audit_failed_total") == 0


# A broken promise


def test_warn_says_so_and_goes_on_also_after_a_restart(fake: FakeUpstream, tmp_path: Path) -> None:
    file = written(tmp_path)
    with audited(fake, file) as server:
        break_promise(server, fake)
        server.wait_line("the promise is broken: the risk is above 0.05; early stops go on")
        assert server.metric("cgr_promise_broken") == 1
        assert server.metric("cgr_audit_risk_lower") > 0.05
        found = health(server)
        assert (found["broken"], found["stopping"], found["audits"], found["losses"]) == (True, True, ENOUGH, ENOUGH)
        reply = ask(server)
        assert reply["stop_cause"] == "certain"
        assert reply["calibration"]["broken"] is True
        server.wait_metric(ENOUGH + 1, "cgr_audit_total")
    with audited(fake, file) as server:
        assert server.metric("cgr_promise_broken") == 1
        assert server.metric("cgr_audit_total") == ENOUGH + 1
        assert health(server)["broken_at"] == found["broken_at"]
    with audited(fake, file, "--on-broken", "off") as server:
        assert ask(server)["stop_cause"] == "not_probed"
        assert health(server)["stopping"] is False
    with audited(fake, file, "--on-broken", "tighten") as server:
        assert ask(server)["threshold"] == PASSED[1]


def test_off_stops_nothing_any_more_in_any_worker(fake: FakeUpstream, tmp_path: Path) -> None:
    file = written(tmp_path)
    with audited(fake, file, "--workers", "2", "--on-broken", "off", "--audit-sessions", "8") as server:
        fake.final = "7"
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda seed: ask(server, seed=seed), range(8)))
        server.wait_metric(1, "cgr_promise_broken")
        until = time.monotonic() + LONG
        while state(file)["tickets"] and time.monotonic() < until:
            time.sleep(0.02)
        assert server.metric("cgr_audit_total") + server.metric("cgr_audit_dropped_total") <= 8
        assert state(file)["audits"] == server.metric("cgr_audit_total") == server.metric("cgr_audit_losses_total")
        with ThreadPoolExecutor(8) as pool:
            after = list(pool.map(lambda _: ask(server, cgr=True), range(24)))
        assert {one["stop_cause"] for one in after} == {"not_probed"}
        assert "the promise of the calibration is broken" in after[0]["stop_detail"]


def test_counts_of_workers_add_up(fake: FakeUpstream, tmp_path: Path) -> None:
    file = written(tmp_path)
    with audited(fake, file, "--workers", "2", "--audit-sessions", "16") as server:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda seed: ask(server, seed=seed), range(40)))
        server.wait_metric(40, "cgr_audit_total")
        assert [server.metric("cgr_audit_total") for _ in range(6)] == [40] * 6  # whichever worker replies
        assert state(file)["blocks"] == [0]


def test_tighten_goes_up_the_sequence_and_then_stops_nothing(fake: FakeUpstream, tmp_path: Path) -> None:
    file = written(tmp_path, passed=PASSED[1:])
    with audited(fake, file, "--on-broken", "tighten") as server:
        assert ask(server, cgr={"stream_probes": False})["threshold"] == 0.99
        server.wait_metric(1, "cgr_audit_total")
        break_promise(server, fake)
        server.wait_line("threshold is now 0.995")
        reply = ask(server)
        assert (reply["threshold"], reply["stop_cause"]) == (0.995, "certain")
        assert reply["calibration"]["broken"] is True
        assert server.metric("cgr_promise_parameter") == 0.995
        server.wait_metric(ENOUGH + 1, "cgr_audit_losses_total")
        assert health(server)["audits"] == 1  # the watch began anew
        break_promise(server, fake, ENOUGH - 1)
        server.wait_line("nothing is stopped any more")
        assert "strictest threshold" in ask(server)["stop_detail"]
        assert server.metric("cgr_promise_broken") == 1
        assert server.metric("cgr_audit_total") == 1 + 2 * ENOUGH


def test_the_page_shows_it(tab: Browser, fake: FakeUpstream, tmp_path: Path) -> None:
    with audited(fake, written(tmp_path)) as server:
        tab.visit(server.address + "/#server")
        wait(tab, "!document.getElementById('promise').hidden")
        assert "The calibration promises a risk of at most 5.00\u00a0%. 0 audits with 0 losses" in text(tab, "#promise")
        break_promise(server, fake)
        wait(tab, "document.getElementById('promise').classList.contains('broken')")
        assert f"The promise is broken. The calibration promised a risk of at most 5.00\u00a0%. {ENOUGH} audits" in text(
            tab, "#promise"
        )
        assert tab.errors() == []


# The state on disk


def test_the_state_of_another_calibration_is_set_aside(fake: FakeUpstream, tmp_path: Path) -> None:
    with audited(fake, written(tmp_path)) as server:
        break_promise(server, fake)
    file = written(tmp_path, epsilon=0.1)
    with audited(fake, file) as server:
        server.wait_line("are of another calibration: they are now in .*, and the watch begins anew")
        assert server.metric("cgr_promise_broken") == 0
        assert server.metric("cgr_audit_total") == 0
    kept = [one for one in tmp_path.glob("*.json") if one.name not in ("calibration.json", "calibration.audit.json")]
    assert [json.loads(one.read_text())["audits"] for one in kept] == [ENOUGH]


def test_a_state_that_vanishes_or_breaks_disturbs_no_client(fake: FakeUpstream, tmp_path: Path) -> None:
    file = written(tmp_path)
    with audited(fake, file) as server:
        ask(server)
        server.wait_metric(1, "cgr_audit_total")
        file.with_suffix(".audit.json").write_text("{")
        assert ask(server)["calibration"] is not None
        server.wait_line("the state of the audits cannot be kept")
        file.with_suffix(".audit.json").unlink()
        assert ask(server)["calibration"] is not None
        server.wait_metric(2, "cgr_audit_total")


def test_a_worker_that_dies_leaves_no_ticket_behind(fake: FakeUpstream, tmp_path: Path) -> None:
    file = written(tmp_path)
    with audited(fake, file) as server:
        fake.length, fake.pace, fake.sure_at = 390, 0.05, 20
        ask(server)
        fake.wait_for("think")
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(LONG)
        server.told_to_end = True
        assert len(state(file)["tickets"]) == 1
        fake.reset()
        with audited(fake, file) as again:
            ask(again)
            again.wait_metric(1, "cgr_audit_total")
            assert state(file)["tickets"] == []
        server.process.returncode = 0
