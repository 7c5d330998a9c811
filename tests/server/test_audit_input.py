"""Calibrations and options that the server refuses at its start: exit code 2, one sentence and a hint."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from cgr.errors import UsageError
from cgr.server.audit.options import AUDIT, AuditOptions, PromiseOptions, with_promise
from cgr.server.audit.serving import ServedPromise
from cgr.server.audit.state import StateFile
from cgr.server.config import ServeConfig
from cgr.server.metrics import Metrics
from tests.server.promised import calibration, written
from tests.server.upstream import FakeUpstream
from tests.support import command


def refused(*options: str) -> str:
    done = command("serve", "--port", "0", *options)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error:") == 1
    return done.stderr


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"audit": 0.02, "calibration": None}, "--audit needs --calibration.", "cgr calibrate"),
        ({"on_broken": "off", "calibration": None}, "--on-broken needs --audit.", "--audit 0.02"),
        ({"on_broken": "warn"}, "--on-broken needs --audit.", "--audit 0.02"),
        ({"audit_sessions": 2}, "--audit-sessions needs --audit.", "--audit 0.02"),
        ({"audit_state": Path("x.json")}, "--audit-state needs --audit.", "--audit 0.02"),
        ({"audit": 0.0}, "The share of audits cannot be 0.", "above 0 and at most 1"),
        ({"audit": 2.0}, "The share of audits cannot be 2.", "above 0 and at most 1"),
        ({"audit": -0.1}, "The share of audits cannot be -0.1.", "above 0 and at most 1"),
        ({"audit": math.nan}, "The share of audits cannot be nan.", "above 0 and at most 1"),
        ({"audit": math.inf}, "The share of audits cannot be inf.", "above 0 and at most 1"),
        ({"threshold": 0.5}, "does not cover threshold 0.5.", "0.9999, 0.995, 0.99"),
        ({"threshold": 0.98}, "does not cover threshold 0.98.", "0.9999, 0.995, 0.99"),
        ({"interval": 30}, "for interval 20, and this is 30", "Leave --interval out"),
        ({"rule": "deer"}, "for rule 'cgr', and this is 'deer'", "Leave --rule out"),
        ({"temperature": 1.0}, "for temperature 0.6", "Leave --temperature out"),
    ],
)
def test_options(tmp_path: Path, options: dict[str, Any], message: str, hint: str) -> None:
    chosen = {"calibration": written(tmp_path)} | {name: one for name, one in options.items() if name not in AUDIT}
    with pytest.raises(UsageError) as caught:
        with_promise(chosen, {name: options.get(name) for name in AUDIT}, 8)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_more_cautious_threshold_of_the_sequence(tmp_path: Path) -> None:
    given = dict.fromkeys(AUDIT) | {"audit": 0.02}
    settings, promise = with_promise({"calibration": written(tmp_path), "threshold": 0.995}, given, 256)
    assert promise is not None
    assert promise.audit is not None
    assert (settings.threshold, promise.parameter, settings.calibration) == (0.995, 0.995, None)
    assert promise.audit.state == tmp_path / "calibration.audit.json"
    assert (promise.audit.sessions, promise.audit.on_broken) == (11, "warn")


def test_the_command_line(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert "--audit needs --calibration." in refused("--audit", "0.02")
    assert "The share of audits cannot be nan." in refused("--calibration", str(file), "--audit", "nan")
    assert "'panic' is not one of" in refused("--calibration", str(file), "--audit", "1", "--on-broken", "panic")
    assert "cannot be read" in refused("--calibration", str(tmp_path / "nowhere.json"))
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    assert "is not a complete JSON file" in refused("--calibration", str(file), "--audit", "0.1")


def test_a_file_that_is_not_as_it_was_written(tmp_path: Path) -> None:
    file = written(tmp_path)
    data = json.loads(file.read_text())
    for text, message in (
        ("[1]", "is not a calibration"),
        (json.dumps(data | {"epsilon": 0.2}), "was changed after"),
        (json.dumps(data | {"parameter": 0.5}), "was changed after"),
        (json.dumps(data | {"schema": 2, "version": "99.0"}), "was made by cgr 99.0, which is newer"),
        (json.dumps({name: data[name] for name in data if name != "model"}), "is not a complete calibration"),
        (json.dumps(calibration(parameter=0.42).to_dict()), "promises nothing"),
        (json.dumps(calibration(parameter=None).to_dict()), "promises nothing"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=message):
            with_promise({"calibration": file}, dict.fromkeys(AUDIT), 8)


def test_another_model(fake: FakeUpstream, tmp_path: Path) -> None:
    other = written(tmp_path, model="another")
    told = refused("--base-url", fake.address, "--calibration", str(other))
    assert "The calibration is for the model 'another'; this is 'fake-model'." in told
    assert "is for the model 'another'" in refused("--calibration", str(other))
    prober = written(tmp_path, probe_model="a small one")
    assert "was made with probes of a small one" in refused("--base-url", fake.address, "--calibration", str(prober))


def test_a_risk_that_audits_cannot_see(tmp_path: Path) -> None:
    given = dict.fromkeys(AUDIT) | {"audit": 0.1}
    with pytest.raises(UsageError, match="'lost', which needs known answers") as caught:
        with_promise({"calibration": written(tmp_path, risk="lost")}, given, 8)
    assert "--risk disagreement" in caught.value.hint
    _, promise = with_promise({"calibration": written(tmp_path, risk="lost")}, dict.fromkeys(AUDIT), 8)
    assert promise is not None  # it can be served, only not audited


def test_a_state_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    incomplete = '{"calibration": "a", "start": 1, "parameter": 1, "audits": 9}'
    for text in ("", "{", "[]", "\x00", '{"calibration": 1}', incomplete):
        path.write_text(text)
        with pytest.raises(UsageError, match="is not a complete state of audits") as caught:
            StateFile(path, "a", 0.99).prepare()
        assert "--audit-state" in caught.value.hint
    path.write_text('{"schema": 99}')
    with pytest.raises(UsageError, match="was written by a newer version of cgr"):
        StateFile(path, "a", 0.99).prepare()
    with pytest.raises(UsageError, match="there is a file"):
        StateFile(path / "state.json", "a", 0.99).prepare()
    with pytest.raises(UsageError, match="cannot be read"):
        StateFile(tmp_path, "a", 0.99).prepare()


def test_a_state_that_cannot_be_used_ends_the_server(fake: FakeUpstream, tmp_path: Path) -> None:
    file = written(tmp_path)
    file.with_suffix(".audit.json").write_text("{")
    told = refused("--base-url", fake.address, "--calibration", str(file), "--audit", "0.1", "--workers", "2")
    assert "is not a complete state of audits" in told


@pytest.mark.parametrize(
    ("sessions", "wanted", "clients", "audits"),
    [(None, 8, 8, 3), (11, 8, 8, 3), (12, 8, 9, 3), (4, 256, 2, 2), (2, 256, 1, 1), (10, 256, 7, 3)],
)
def test_places_of_clients_and_audits(tmp_path: Path, sessions: int | None, wanted: int, clients: int, audits: int) -> None:
    audit = AuditOptions(0.1, 3, "warn", tmp_path / "state.json")
    served = ServedPromise(ServeConfig(promise=PromiseOptions(calibration(), 0.99, audit)), Metrics())
    assert (served.for_clients(sessions, wanted), served.places) == (clients, audits)


def test_an_upstream_without_a_place_for_audits(tmp_path: Path) -> None:
    audit = AuditOptions(0.1, 3, "warn", tmp_path / "state.json")
    served = ServedPromise(ServeConfig(promise=PromiseOptions(calibration(), 0.99, audit)), Metrics())
    with pytest.raises(UsageError, match="leaves no place for audits"):
        served.for_clients(1, 256)
    assert ServedPromise(ServeConfig(), Metrics()).for_clients(1, 256) == 1
