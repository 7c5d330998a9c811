"""Input and surroundings that nobody should meet: each gives one sentence, a hint and an exit code, never a traceback."""

from __future__ import annotations

import json
import os
import pty
import socket
import sqlite3
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import pytest

from cgr.cli.main import commands, run
from cgr.lab.exchange import import_run, write_jsonl
from cgr.lab.exchange.line import to_line
from cgr.lab.store import Store
from tests.lab.runs import six
from tests.support import CGR, QUESTION, command, environment

SHORT = ("--budget", "32")
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
RAW = ("\x1b", "\x07", "\x9b", "\u202e")  # what must not reach a terminal


@pytest.fixture
def six_run(tmp_path: Path) -> Path:
    """The worked example, imported."""
    write_jsonl(tmp_path / "six.jsonl", map(to_line, six()))
    import_run(tmp_path / "six.jsonl", tmp_path / "run")
    return tmp_path / "run"


def refused(code: int, out: str, errors: str) -> str:
    """The error, after a check of its form."""
    assert code == 2, (code, out, errors)
    first, second = errors.splitlines()
    assert first.startswith("error: ")
    assert second.startswith("hint:  ")
    assert not [one for one in RAW if one in errors]
    return first


# Streams


def call(*arguments: str | bytes, out: str = "", stdin: bytes | None = b"", **env: str) -> tuple[int, str, str]:
    """`cgr` in a process, with this file as standard output; `stdin` None: closed."""
    target = os.open(out, os.O_WRONLY) if out else subprocess.PIPE
    closing = "" if stdin is not None else " <&-"
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", f'exec "$0" "$@"{closing}', CGR, *arguments],
            input=stdin,
            stdout=target,
            stderr=subprocess.PIPE,
            env=environment(env),
            check=False,
        )
    finally:
        if out:
            os.close(target)
    return done.returncode, (done.stdout or b"").decode(), done.stderr.decode()


@FULL
@pytest.mark.parametrize(
    "arguments", [("solve", QUESTION, *SHORT), ("solve", QUESTION, *SHORT, "--json"), ("rules",), ("--help",)], ids=" ".join
)
def test_an_output_that_is_full(arguments: tuple[str, ...]) -> None:
    error = refused(*call(*arguments, out="/dev/full"))
    assert error == "error: Standard output cannot be written: No space left on device."


@FULL
def test_errors_that_cannot_be_written() -> None:
    done = subprocess.run(["/bin/sh", "-c", f"{CGR} rulez 2> /dev/full"], check=False, env=environment({}))
    assert done.returncode == 2


def test_closed_streams() -> None:
    assert refused(*call("solve", "-", stdin=None)) == "error: Standard input is closed."
    for closed in (">&-", "2>&-"):
        done = subprocess.run(["/bin/sh", "-c", f"{CGR} rules {closed}"], check=False, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")


def test_bytes_that_are_not_utf_8() -> None:
    assert refused(*call("solve", b"\xff\xfe")) == "error: The question is not text in UTF-8."
    assert " is not text in UTF-8." in refused(*call("solve", "-", stdin=b"\xff\xfe"))
    assert refused(*call("solve", QUESTION, "--prefix", b"\xff{")) == "error: The prefix is not text in UTF-8."
    assert refused(*call("report", b"/no/\xff")) == "error: There is no run '/no/\\udcff'."


def test_a_terminal_that_knows_only_ascii() -> None:
    code, out, errors = call("solve", QUESTION, "--budget", "48", "--interval", "16", PYTHONIOENCODING="ascii")
    assert (code, errors) == (0, "")
    assert "\\u25" in out  # the chart, as escapes


def test_a_server_that_is_waited_for_on_a_terminal() -> None:
    """Standard error is a terminal: it says at once what is waited for, then what went wrong."""
    ours, theirs = pty.openpty()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = environment({"CGR_CONNECT_TIMEOUT": "2.5"})
        with subprocess.Popen(
            [CGR, "solve", QUESTION, "--base-url", address], stdout=subprocess.PIPE, stderr=theirs, env=env
        ) as waiting:
            os.close(theirs)
            seen = b""
            while b"hint:" not in seen:
                seen += os.read(ours, 4096)
    os.close(ours)
    assert waiting.returncode == 2
    assert f"waiting for {address} (1 s)".encode() in seen
    assert f"error: The server at {address} did not answer within 2.5 seconds.".encode() in seen


# Writing


@pytest.mark.parametrize("verb", ["report", "compare", "ablate"])
@pytest.mark.parametrize("out", ["x" * 300, "six.jsonl", "six.jsonl/deeper", "/dev/null", "/proc/none/x"])
def test_folders_that_cannot_be_made(six_run: Path, verb: str, out: str, capfd: pytest.CaptureFixture[str]) -> None:
    code = run([verb, str(six_run), "--out", str(six_run.parent / out)])
    assert " cannot be created: " in refused(code, *capfd.readouterr())


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("x" * 300 + ".json", "cannot be written: File name too long"),
        ("folder.json", "cannot be written: it is a folder"),
        ("six.jsonl/rule.json", "cannot be created: there is a file"),
    ],
)
def test_a_rule_that_cannot_be_written(six_run: Path, out: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    (six_run.parent / "folder.json").mkdir()
    code = run(["fit", str(six_run), "--rule", "cgr", "--out", str(six_run.parent / out)])
    assert message in refused(code, *capfd.readouterr())
    assert {one.name for one in six_run.parent.iterdir()} == {"six.jsonl", "run", "folder.json"}


@FULL
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_export_to_a_full_device(six_run: Path, form: str, capfd: pytest.CaptureFixture[str]) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    code = run(["export", str(six_run), "/dev/full", "--format", form])
    assert "/dev/full cannot be written: " in refused(code, *capfd.readouterr())
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


@pytest.mark.parametrize("kind", ["fifo", "link", "-"])
def test_an_export_to_what_is_not_a_file(six_run: Path, kind: str) -> None:
    """A FIFO stays one, a link keeps its target, and `-` is standard output."""
    target = six_run.parent / "target.jsonl"
    assert command("export", str(six_run), str(target)).returncode == 0
    wanted, place = target.read_text(), six_run.parent / kind
    if kind == "-":
        done = command("export", str(six_run), "-")
        assert (done.stdout, done.stderr) == (wanted, f"6 traces of {six_run} are in the output.\n")
    elif kind == "link":
        place.symlink_to("target.jsonl")
        target.write_text("old")
        assert command("export", str(six_run), str(place)).returncode == 0
        assert (place.is_symlink(), target.read_text()) == (True, wanted)
    else:
        os.mkfifo(place)
        with subprocess.Popen(["cat", place], stdout=subprocess.PIPE, text=True) as reader:
            assert command("export", str(six_run), str(place)).returncode == 0
            assert reader.communicate(timeout=60)[0] == wanted
        assert stat.S_ISFIFO(place.stat().st_mode)


def test_a_parquet_export_to_standard_output(six_run: Path) -> None:
    pytest.importorskip("pyarrow")
    done = subprocess.run(
        [CGR, "export", str(six_run), "-", "--format", "parquet"], capture_output=True, check=True, env=environment({})
    )
    assert done.stdout.startswith(b"PAR1")
    (six_run.parent / "again.parquet").write_bytes(done.stdout)
    assert import_run(six_run.parent / "again.parquet", six_run.parent / "again").traces == 6


def test_an_ablation_whose_recordings_are_missing(six_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    error = refused(run(["ablate", str(six_run), "--only", "forcing"]), *capfd.readouterr())
    assert error.startswith("error: No forced run was given.")
    assert not (six_run / "ablations").exists()


# Text from elsewhere


@pytest.mark.parametrize("question", ["\x1b[31mred", "\u202ebackwards", "\x9b31m", "[/x]", "[bold]x"])
def test_a_question_with_escapes_or_markup(question: str) -> None:
    done = command("solve", question, *SHORT)
    assert done.returncode == 0, done.stderr
    assert not [one for one in RAW if one in done.stdout + done.stderr]
    assert json.loads(command("solve", question, *SHORT, "--json").stdout)["question"] == question


def hostile(folder: Path) -> Path:
    """A run whose ids, questions, answers and name carry escapes and markup."""
    lines = []
    for trace in six():
        line = json.loads(to_line(trace).model_dump_json(exclude_defaults=True))
        line |= {
            "question_id": f"\x1b]0;{trace.question_id}\x07[/x]$",
            "question": "\x1b[2J\u202e",
            "final_answer": "[/x]\x9b",
        }
        line |= {"text": "\x1b[31m", "final_certainty": 0.9}
        lines.append(json.dumps(line))
    (folder / "in.jsonl").write_text("\n".join(lines))
    import_run(folder / "in.jsonl", folder / "\x1b[31m[/x]")
    return folder / "\x1b[31m[/x]"


@pytest.mark.parametrize("verb", ["report", "compare", "ablate", "fit", "export", "probe"])
def test_a_run_with_escapes_and_markup(tmp_path: Path, verb: str) -> None:
    folder = hostile(tmp_path)
    more = {"fit": ["--rule", "cgr"], "export": [str(tmp_path / "\x1b[31mout.jsonl")]}.get(verb, [])
    done = command(verb, str(folder), *more)
    assert done.returncode == (2 if verb == "probe" else 0), done.stderr
    assert "Warning" not in done.stderr
    assert done.stdout + done.stderr
    assert not [one for one in RAW if one in done.stdout + done.stderr]


# Damaged runs

DAMAGE = {
    "config": "UPDATE run SET config = '{'",
    "config of another kind": "UPDATE run SET config = '[]'",
    "budget": """UPDATE run SET config = '{"budget": "x"}'""",
    "no run": "DELETE FROM run",
    "final": "UPDATE traces SET final = '{}'",
    "final is no JSON": "UPDATE traces SET final = 'x'",
    "final certainty": "UPDATE traces SET final = json_set(final, '$.certainty', 'x')",
    "certainty is infinite": "UPDATE probes SET certainty = 9e999",
    "certainty is text": "UPDATE probes SET certainty = 'x'",
    "probabilities": "UPDATE probes SET probabilities = '[2]'",
    "decoded": "UPDATE probes SET decoded = 'x'",
    "position": "UPDATE probes SET at = at + 100000",
    "tokens": "UPDATE traces SET tokens = -5",
    "too many tokens": "UPDATE traces SET tokens = 9223372036854775807",
    "ended": "UPDATE traces SET ended = 'x'",
    "ids": "UPDATE traces SET ids = x'010203'",
    "text": "UPDATE traces SET text = x'ff'",
    "gold": "UPDATE questions SET gold = x'ff'",
    "format": "UPDATE questions SET format = 'x'",
    "probe set": "UPDATE probe_sets SET spec = 'x'",
    "forced": "UPDATE traces SET forced = '[[1]]'",
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_values_in_a_run(six_run: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(six_run / "run.sqlite") as db:
        db.execute(DAMAGE[name])
    db.close()
    verb = ["export", str(six_run), str(six_run.parent / "out.jsonl")] if name == "ids" else ["report", str(six_run)]
    error = refused(run(verb), *capfd.readouterr())
    assert f"{six_run / 'run.sqlite'} is damaged: " in error


def test_a_question_that_is_gone(six_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    db = sqlite3.connect(six_run / "run.sqlite")
    db.executescript("PRAGMA foreign_keys = OFF; DELETE FROM questions;")
    db.close()
    assert "is damaged" in refused(run(["report", str(six_run)]), *capfd.readouterr())


def test_a_run_in_which_no_answer_is_closed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    open_ones = [
        replace(one, probes=tuple(replace(probe, closed=False, certainty=0.0) for probe in one.probes)) for one in six()
    ]
    write_jsonl(tmp_path / "six.jsonl", map(to_line, open_ones))
    assert run(["import", str(tmp_path / "six.jsonl"), str(tmp_path / "run")]) == 0
    assert run(["report", str(tmp_path / "run")]) == 0, capfd.readouterr().err
    assert "No probe has a closed answer." in (tmp_path / "run" / "report" / "figures" / "figures.md").read_text()


@pytest.mark.parametrize("seed", ["1e30", "99999999999999999999", '"x"', "null", "1.5"])
def test_seeds_that_are_none(tmp_path: Path, seed: str, capfd: pytest.CaptureFixture[str]) -> None:
    line = to_line(six()[0]).model_dump_json(exclude_defaults=True).replace('"seed":0', f'"seed":{seed}')
    (tmp_path / "in.jsonl").write_text(line)
    error = refused(run(["import", str(tmp_path / "in.jsonl"), str(tmp_path / "run")]), *capfd.readouterr())
    assert "line 1: seed must be" in error
    assert not (tmp_path / "run").exists()


# The boundary


def test_the_traceback_on_request() -> None:
    plain = command("solve", "", env={"CGR_DEBUG": ""})
    shown = command("solve", "", env={"CGR_DEBUG": "1"})
    assert "Traceback" not in plain.stderr
    assert "Traceback" in shown.stderr
    assert shown.stderr.endswith(plain.stderr)
    assert (plain.returncode, shown.returncode) == (2, 2)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyError("x"), 70, "error: cgr failed, which is a bug: KeyError: 'x'."),
        (MemoryError(), 2, "error: There is not enough memory."),
        (OSError(24, "Too many open files", "a"), 2, "error: a cannot be used: Too many open files."),
        (ExceptionGroup("group", [RecursionError()]), 2, "error: The input is nested too deeply."),
        (EOFError(), 70, "error: cgr failed, which is a bug: EOFError: ."),
        (ValueError("two\nlines \x1b[31m"), 70, "error: cgr failed, which is a bug: ValueError: two lines \\x1b[31m."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_that_no_command_expects(
    error: Exception, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def failing() -> None:
        raise error

    monkeypatch.setattr(commands, "get_command", lambda context, name: click.Command(name, callback=failing))
    assert run(["rules"]) == code
    assert capfd.readouterr().err.splitlines()[0] == message


# Many more, each in a word or two; `RUN` is the worked example, `OUT` a new place beside it

SOLVE: dict[str, Sequence[str]] = {
    "--threshold": ("inf", "1e309", "", "0,5", "0.5.5"),
    "--interval": ("1e3", "1.5", "", "0x10"),
    "--budget": ("-1", "1e9", "99999999999999999999999", "2147483648"),
    "--max-answer-tokens": ("-1", "99999999999", "1.0"),
    "--temperature": ("inf", "1e400", "x"),
    "--top-p": ("nan", "1.1", "-0.1"),
    "--seed": ("1.5", "", "x"),
    "--aggregate": ("", "MIN", "min ", "[/x]"),
    "--prefix": ("", "}", "x"),
    "--close-think": ("", "Always"),
    "--rule": ("", "cgr ", "/etc/passwd.json", "nope.json", ".json", "CGR", "cgr,deer", "[/x]", "\x1b[31m"),
    "--set": ("", "=", "agree", "=5", "agree=", "threshold=2", "threshold=nan", "x=1", "interval=0", "interval=1e3"),
    "--model": ("", "-", "/", "/dev/null", "/etc/passwd", "a/b/c/d", "a:b:c", "ORG/NAME:", "\x1b[31m", "[/x]", "~", "."),
    "--threads": ("-1", "100000", "513", "1e2"),
    "--think-tags": (",", "a,b,c", " , "),
    "--device": ("cpu",),
    "--dtype": ("float64",),
    "--tokenizer": ("x",),
    "--dialect": ("stream=no", "="),
    "--chunk": ("-1", "5"),
    "--probe-model": ("", "nothing", "embedded@http", "embedded@httpx://x"),
    "--base-url": (
        "http://",
        "http://:80",
        "http://x:99999",
        "http://x:abc",
        "ftp://x",
        "//x",
        "http://a b",
        "http://\x1b[31m",
    ),
}
OTHERS: list[tuple[str, ...]] = [
    *(
        (verb, place)
        for verb in ("report", "compare", "probe", "ablate", "fit")
        for place in ("nothing", "/", "/dev/null", "~x")
    ),
    *((verb, "\x1b[31m[/x]\n") for verb in ("report", "compare", "probe", "ablate", "fit")),
    *(("export", place, "OUT") for place in ("nothing", "/", "/dev/null", "\x1b[31m")),
    *(("import", place, "OUT") for place in ("nothing", "/", "/dev/null", "RUN")),
    *(("report", "RUN", "--thresholds", value) for value in ("", "x", "nan", "inf", "2", "-1", "0.5;0.6")),
    *(("report", "RUN", "--penalties", value) for value in ("x", "nan", "-1", "inf", "1e308")),
    *(("report", "RUN", "--rule", value) for value in ("", "nope", "cgr.json", "[/x]")),
    *(("compare", "RUN", "--rules", value) for value in ("", "nope", "nope.json", ",", "[/x]")),
    *(("compare", "RUN", "--tune-on", value) for value in ("nan", "-1", "2", "1", "x", "inf")),
    *(("fit", "RUN", "--rule", value) for value in ("", "nope", "fixed-budget", "[/x]")),
    *(("fit", "RUN", "--rule", "cgr", "--set", value) for value in ("x=1", "threshold=7", "=", "interval=0")),
    *(("fit", "RUN", "--rule", "cgr", "--share", value) for value in ("nan", "-1", "0", "2", "inf")),
    ("fit", "RUN", "--rule", "cgr", "--probes", "nope"),
    ("fit", "RUN", "--rule", "cgr", "--out", "OUT"),
    *(("ablate", "RUN", "--only", value) for value in ("", "nope", ",")),
    *(("ablate", "RUN", "--threshold", value) for value in ("nan", "2", "-1", "inf", "x")),
    *(("ablate", "RUN", "--forced", value) for value in ("nothing", "/dev/null")),
    *(("probe", "RUN", "--for", value) for value in ("", ",")),
    *(("probe", "RUN", "--interval", value) for value in ("0", "-1", "x")),
    *(("generate", "--out", "OUT", "--questions", value) for value in ("", "nope", "/dev/null", "/", "RUN")),
    *(
        ("generate", "--out", "OUT", "--questions", "arithmetic", "--limit", value)
        for value in ("0", "-1", "99999999999999999999")
    ),
    *(
        ("generate", "--out", "OUT", "--questions", "arithmetic", "--seeds", value)
        for value in ("0", "-1", "99999999999999999999")
    ),
    *(
        ("generate", "--out", "OUT", "--questions", "arithmetic", "--field", value)
        for value in ("", "x", "=", "a=", "gold=x")
    ),
    *(
        ("generate", "--out", "OUT", "--questions", "arithmetic", "--sessions", value)
        for value in ("0", "-5", "3000", "100000")
    ),
    ("generate", "--out", "OUT", "--questions", "arithmetic", "--threads", "100000"),
    *(("run", value) for value in ("nope.toml", "/", "/dev/null", "RUN")),
    *(("doctor", "--tokens", value) for value in ("0", "-1", "x")),
    *(("doctor", "--threshold", value) for value in ("nan", "2")),
    ("doctor", "--share", "nan"),
    ("demo", "--out", "OUT", "--questions", "0"),
    ("demo", "--out", "OUT", "--seeds", "-3"),
    ("rules", "--nope"),
    ("--nope",),
    ("",),
    ("\x1b[31m",),
]
MANY = [*(("solve", QUESTION, *SHORT, option, value) for option, values in SOLVE.items() for value in values), *OTHERS]


def test_there_are_many() -> None:
    assert len(MANY) >= 150


@pytest.mark.parametrize(
    "arguments", MANY, ids=[" ".join(one).replace(QUESTION, "Q")[:60].encode("unicode_escape").decode() for one in MANY]
)
def test_many_more(
    arguments: tuple[str, ...], six_run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    places = {"RUN": str(six_run), "OUT": str(six_run.parent / "out")}
    code = run([places.get(one, one) for one in arguments])
    assert refused(code, *capfd.readouterr())
    assert not (six_run.parent / "out").exists()
    with Store.open(six_run) as store:
        assert list(store.probe_sets()) == ["default"]
