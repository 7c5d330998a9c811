"""What a recording keeps: hashes in place of texts, and the thinking of an upstream's reply in every form that it has."""

from __future__ import annotations

import errno
import itertools
import json
import secrets
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr.errors import UsageError
from cgr.lab.decide.columns import agrees
from cgr.lab.store.recorded import HASHED, RecordedTrace
from cgr.records import Message, Probe, Token
from cgr.rules.same_answer import quantity, same_answer
from cgr.server.record.answers import AnswerHashes, without_text
from cgr.server.record.key import KEY_BYTES, KEY_FILE, RecordingKey, prepare_folder, read_key
from cgr.server.record.replies import MAX_BYTES, ReplyCopy, ReplyText, read_reply
from tests.server.support import Served
from tests.support import QUESTION

KEY = RecordingKey(b"0" * 32)
TAGS = ("<think>", "</think>")
ANSWERS = (
    "5", "5.0", "05", "$5$", "\\boxed{5}", "5.", "-5", "+5", "50", "50%", "50\\%", "0.5", "1/2", "\\frac{1}{2}",
    "\\dfrac12", "\\dfrac{1}{2}", "1,000", "1000", "1,22", "1.22", "x+1", "x + 1", "\\left(x+1\\right)", "(x+1)", "A",
    "a", "yes", "YES", "90^\\circ", "90", "", "}", "3 4", "34",
)  # fmt: skip


@pytest.mark.parametrize("final", ANSWERS)
def test_hashes_agree_with_the_final_answer_exactly_where_texts_do(final: str) -> None:
    for probed in ANSWERS:
        hashes = AnswerHashes(KEY, "q", final)
        assert same_answer(hashes.of(probed), hashes.of(final)) is same_answer(probed, final), probed


def test_hashes_of_a_trace_are_equal_where_its_answers_are() -> None:
    for texts in itertools.permutations(("5", "\\boxed{5}", "7", "1/2", "0.5", "x + 1"), 4):
        hashes = AnswerHashes(KEY, "q", texts[0])
        made = [hashes.of(text) for text in texts]
        for (one, a), (other, b) in itertools.combinations(zip(texts, made, strict=True), 2):
            assert (a == b) is same_answer(one, other)


def test_a_hash_is_no_number_and_says_nothing_without_the_key() -> None:
    made = {AnswerHashes(RecordingKey(bytes([number]) * 32), "q", "").of("7") for number in range(200)}
    assert len(made) == 200
    assert all(one.startswith(HASHED) and quantity(one) is None for one in made)
    of_another = AnswerHashes(KEY, "another question", "").of("7")
    assert of_another != AnswerHashes(KEY, "q", "").of("7")
    assert AnswerHashes(KEY, "q", "8").of("7") == AnswerHashes(KEY, "q", "9").of("7.0")


def test_nothing_of_the_text_is_kept() -> None:
    token = Token(9, "secret", -0.1)
    probes = tuple(
        Probe(at, answer, 0.9, closed=True, probabilities=(0.9,), tokens=(token,), options=(("A", 0.9),))
        for at, answer in ((10, "secret 1"), (20, "secret 2"))
    )
    final = Probe(25, "secret 2", 0.99, closed=True, tokens=(token,))
    trace = RecordedTrace(
        "q", 0, None, 25, "end_of_thinking", 100, final, probes, "secret", ids=(9,) * 25, text="secret", written="secret"
    )
    kept = without_text(trace, KEY)
    assert "secret" not in kept.to_json()
    assert kept.ids == ()
    assert [agrees(kept, probe) for probe in kept.probes] == [agrees(trace, probe) for probe in probes] == [False, True]
    assert [replace(probe, answer="") for probe in kept.probes] == [
        replace(probe, answer="", tokens=(), options=()) for probe in probes
    ]


def test_a_prompt_has_one_id_under_one_key() -> None:
    one = [Message("system", "Be brief."), Message("user", "Hi")]
    assert KEY.question_id(one) == KEY.question_id(tuple(one))
    others = ([Message("user", "Hi")], [*reversed(one)], [Message("user", "Be brief."), Message("user", "Hi")])
    assert len({KEY.question_id(other) for other in (one, *others)}) == 4
    assert RecordingKey(b"1" * 32).question_id(one) != KEY.question_id(one)


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "a" / "b")
    path = tmp_path / "a" / "b" / KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = read_key(path.parent)
    prepare_folder(path.parent)
    assert read_key(path.parent) == first
    assert first.secret.hex() not in repr(first)
    path.write_text("12")
    with pytest.raises(UsageError, match="is not a key"):
        prepare_folder(path.parent)


def test_a_key_that_was_not_written_to_its_end_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = secrets.token_hex

    def interrupted(nbytes: int | None = None) -> str:
        if nbytes == KEY_BYTES:
            raise KeyboardInterrupt
        return real(nbytes)

    monkeypatch.setattr(secrets, "token_hex", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare_folder(tmp_path)
    monkeypatch.setattr(secrets, "token_hex", real)
    assert [*tmp_path.iterdir()] == []
    prepare_folder(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == [KEY_FILE]


@pytest.mark.parametrize("links", [True, False])
def test_of_two_processes_that_start_at_once_the_first_makes_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def no_link(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "no links")

    if not links:  # such a file system has no way to do it, so only one of them starts here
        monkeypatch.setattr(Path, "hardlink_to", no_link)
    prepare_folder(tmp_path)
    first = read_key(tmp_path)
    if links:
        monkeypatch.setattr(Path, "exists", lambda self: False)  # the other one had not seen it yet
    prepare_folder(tmp_path)
    assert read_key(tmp_path) == first
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("below", ["", "worker-1"])
def test_a_recording_without_its_key_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / below).mkdir(exist_ok=True)
    (tmp_path / below / "run.sqlite").touch()
    with pytest.raises(UsageError, match="not its key"):
        prepare_folder(tmp_path)


# Replies


def sse(*bodies: dict[str, Any]) -> bytes:
    return (
        b"".join(b"event: x\r\ndata: " + json.dumps(body).encode() + b"\r\n\r\n" for body in bodies) + b"data: [DONE]\n\n"
    )


def chat(finish: str | None, *parts: dict[str, str]) -> bytes:
    pieces = [{"choices": [{"delta": part, "finish_reason": None}]} for part in parts]
    return sse(*pieces, {"choices": [{"delta": {}, "finish_reason": finish}]}, {"choices": [], "usage": {}})


def whole(finish: str, **message: str) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}]}).encode()


REPLIES = [
    ("vLLM", chat("stop", {"reasoning": "a"}, {"reasoning": "b"}, {"content": "c"}), ("ab", "c", False), True),
    ("SGLang", chat("stop", {"reasoning_content": "a"}, {"content": "c"}), ("a", "c", False), True),
    ("both", chat("stop", {"reasoning": "a", "reasoning_content": "a"}, {"content": "c"}), ("a", "c", False), True),
    ("cut in the thinking", chat("length", {"reasoning": "a"}), ("a", "", True), False),
    ("cut in the answer", chat("length", {"reasoning": "a"}, {"content": "c"}), ("a", "c", True), True),
    ("tags", chat("stop", {"content": "<thi"}, {"content": "nk>a</think>c"}), ("a", "c", False), True),
    ("opened by the template", whole("stop", content="a</think>c"), ("a", "c", False), True),
    ("an open tag", whole("length", content="<think>a"), ("a", "", True), False),
    ("a whole reply", whole("stop", reasoning="a", content="c"), ("a", "c", False), True),
    ("no thinking", whole("stop", content="c"), ("", "c", False), True),
]


@pytest.mark.parametrize(("data", "texts", "ended"), [one[1:] for one in REPLIES], ids=[one[0] for one in REPLIES])
def test_the_thinking_of_a_chat(data: bytes, texts: tuple[str, str, bool], ended: bool) -> None:
    found = read_reply("/v1/chat/completions", data, TAGS)
    assert found == ReplyText(*texts)
    assert found.ended is ended


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b'{"error": {}}', b"<html>", b'{"choices": []}', chat(None, {"reasoning": "a"}), b'{"choices": 1}'],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_what_is_not_a_complete_reply_is_not_read(path: str, data: bytes) -> None:
    assert read_reply(path, data, TAGS) is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": QUESTION}]}),
        ("/v1/responses", {"input": QUESTION}),
        ("/v1/responses", {"input": QUESTION, "reasoning": {"summary": "auto"}}),
        ("/v1/messages", {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 1000}),
    ],
)
def test_the_thinking_of_real_replies(own: Served, path: str, body: dict[str, Any], stream: bool) -> None:
    expected = own.chat(seed=4, cgr=False).json()["choices"][0]["message"]
    reply = own.post(path, **body | {"cgr": False, "stream": stream, "seed": 4})
    assert reply.status_code == 200, reply.text
    found = read_reply(path, reply.content, TAGS)
    assert found == ReplyText(expected["reasoning"], expected["content"], cut=False)


def test_a_reply_that_is_too_long_is_not_kept() -> None:
    copy = ReplyCopy()
    copy.add(b"a")
    assert copy.data == b"a"
    copy.add(b"b" * MAX_BYTES)
    assert copy.data is None
