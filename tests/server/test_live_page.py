"""The live page in a real Chromium, on a real server: it shows what the API says, and a text never becomes markup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cgr.model.problems import FORM
from cgr.server.page import EMBEDDED_EXAMPLES, SCRIPTS, STYLES
from tests.lab.report.browser import Browser
from tests.server.support import Served, metric, served
from tests.server.upstream import FakeUpstream, Trouble

QUESTION = EMBEDDED_EXAMPLES[0]
DONE = 'document.documentElement.dataset.state === "done"'
NONSENSE = re.compile(r"NaN|undefined|Infinity|null|\[object")
HTML = "<img src=x onerror=window.ran=1></script><script>window.ran=1</script><b>bold</b>"
LOWER, HIGHER = 20, 90  # places on the slider: 0.7 and 0.9998


def wait(tab: Browser, condition: str) -> None:
    """The machine may be busy: wait several times as long as for a report."""
    tab.wait_until(f"{condition} || times > 3990")
    tab.wait_until(f"{condition} || times > 3990")
    tab.wait_until(condition)


def ask(tab: Browser, question: str = QUESTION, **fields: object) -> None:
    """Fill in the form, send it, and wait for both replies."""
    start(tab, question, **fields)
    wait(tab, DONE)


def start(tab: Browser, question: str = QUESTION, **fields: object) -> None:
    for name, value in {"question": question, **fields}.items():
        tab.set(f"#{name}", value)
    tab.run('byId("ask-form").requestSubmit()')


def text(tab: Browser, selector: str) -> str:
    return str(tab.run(f"document.querySelector({json.dumps(selector)}).innerText"))


def number(tab: Browser, selector: str) -> float:
    return float(tab.run(f"document.querySelector({json.dumps(selector)}).dataset.value"))


def asked(server: Served, threshold: float, **more: Any) -> dict[str, Any]:
    """The same question to the API."""
    cgr = {"threshold": threshold, **more}
    result: dict[str, Any] = server.chat(QUESTION, seed=1, cgr=cgr).json()["cgr"]
    return result


def key(tab: Browser, name: str, code: int, text: str = "") -> None:
    for kind in ("keyDown", "keyUp"):
        more = {"text": text} if text and kind == "keyDown" else {}
        tab.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **more)


# The files


def test_the_page_has_no_inline_script_or_style(own: Served) -> None:
    html = own.get("/").text
    assert re.findall(r"<script(?![^>]*\ssrc=)", html) == []
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|https?://", html)
    named = re.findall(r'(?:src|href)="(/page/[^"]+)"', html)
    assert sorted(named) == sorted(f"/page/{name}" for name in (*STYLES, *SCRIPTS))
    for path in named:
        reply = own.get(path)
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/css" if path.endswith(".css") else "text/javascript")
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "{{" not in html


@pytest.mark.parametrize("name", ["live.html", "page.py", "..%2fpage.py", "%2e%2e/app.py", "base.css/x"])
def test_nothing_but_the_files_of_the_page_is_sent(own: Served, name: str) -> None:
    assert own.get(f"/page/{name}").status_code == 404


def test_the_examples_are_problems_of_the_embedded_model() -> None:
    assert all(FORM.fullmatch(example) for example in EMBEDDED_EXAMPLES)
    assert len({FORM.fullmatch(example).lastgroup for example in EMBEDDED_EXAMPLES if FORM.fullmatch(example)}) == 3  # type: ignore[union-attr]


# Asking


@pytest.fixture(scope="module")
def watched() -> Iterator[Served]:
    with served("--sessions", "2", "--log", "off", "--threshold", "0.97") as server:
        yield server


def test_the_page_shows_what_the_api_says(tab: Browser, own: Served) -> None:
    tab.visit(own.address + "/")
    assert tab.run('byId("question").value') == QUESTION
    ask(tab)
    result, plain = asked(own, 0.99), own.chat(QUESTION, seed=1, cgr=False).json()["cgr"]
    assert result["stop_cause"] == "certain"
    thinking, whole = result["usage"]["thinking_tokens"], plain["usage"]["thinking_tokens"]
    assert number(tab, '#pane-cgr [data-metric="thinking"]') == thinking
    assert number(tab, '#pane-plain [data-metric="thinking"]') == whole
    decoded = result["usage"]["probe_tokens"]["decoded"]
    assert number(tab, '#headline [data-metric="net"]') == whole - thinking - decoded
    tags = tab.run('[...document.querySelectorAll("#pane-cgr .probe")].map((one) => one.innerText)')
    assert [int(tag.split(" · ")[0]) for tag in tags] == [probe["at"] for probe in result["probes"]]
    assert f"{result['probes'][-1]['certainty']:.4f}"[:6] in tags[-1]
    assert "stopped here" in text(tab, "#pane-cgr .stop-here")
    assert "Stopped: certain enough." in text(tab, "#pane-cgr")
    assert result["answer"] in text(tab, "#headline")
    assert tab.run('document.querySelectorAll("#curve .dot").length') >= len(result["probes"])
    assert not NONSENSE.search(text(tab, "body"))
    assert tab.errors() == []
    assert all(url.startswith((own.address, "data:")) for url in tab.requests())


def test_probes_are_marked_where_they_were_made(tab: Browser, own: Served) -> None:
    """Each token of this model's arithmetic is one character, so a probe at 48 comes after 48 of them. Words come later,
    and have longer tokens."""
    tab.visit(own.address + "/")
    ask(tab)
    before = tab.run("""(() => {
      const box = document.querySelector("#pane-plain .text"), found = [];
      let count = 0;
      for (const node of box.childNodes) {
        if (node.nodeType === Node.TEXT_NODE) count += node.data.length;
        else if (node.classList.contains("probe")) found.push([Number(node.dataset.at), count]);
      }
      return found;
    })()""")
    assert len(before) >= 3
    assert all(at == count for at, count in before[:3])
    assert all(at <= count for at, count in before)


def test_the_slider_agrees_with_real_requests(tab: Browser, own: Served) -> None:
    """The plain run was probed to its end, so every threshold can be decided."""
    tab.visit(own.address + "/")
    ask(tab)
    for place in (5, LOWER, 45, 60, 75, 80, HIGHER):
        tab.set("#theta-slide", place)
        theta = tab.run("page.theta")
        result, said = asked(own, theta), text(tab, "#what-if")
        if result["stop_cause"] == "certain":
            last = result["probes"][-1]
            assert f"stops after {last['at']} tokens" in said, (theta, said)
            assert f"“{last['answer']}”" in said
            assert tab.run('document.querySelector("#pane-plain .stop-here").previousSibling.dataset.at') == str(last["at"])
        else:
            assert "never certain enough" in said, (theta, said)
    assert tab.errors() == []


def test_what_was_not_recorded_is_not_guessed(tab: Browser, own: Served) -> None:
    tab.visit(own.address + "/")
    ask(tab, beside="none")
    assert tab.run('byId("pane-plain").hidden') is True
    probes = asked(own, 0.99)["probes"]
    bound = next(probe for probe in probes if probe["bound"] and probe["certainty"] >= 0.7)
    tab.set("#theta-slide", LOWER)
    said = text(tab, "#what-if")
    assert f"cannot be decided: the probe after {bound['at']} tokens" in said
    assert "It may have stopped there or later." in said
    tab.set("#theta-slide", HIGHER)
    assert "What follows was not recorded" in text(tab, "#what-if")
    assert tab.run('document.querySelector("#curve svg .stop")') is None


def test_two_runs_that_differ_are_not_mixed(tab: Browser, own: Served) -> None:
    """A server may think something else on the same seed; its probes then say nothing about the first run."""
    tab.visit(own.address + "/")
    said = tab.run("""(() => {
      const [first, second] = ["abcd", "abxy"].map((text, number) => {
        const reply = new Reply();
        reply.feed({ choices: [{ delta: { reasoning: text } }] });
        const probe = { at: 4, answer: "5", certainty: number ? 0.9 : 0.3, closed: true, bound: false };
        reply.feed({ choices: [{ delta: { content: "5" } }], cgr: { object: "cgr.probe", ...probe } });
        reply.feed({ cgr: { object: "cgr.result", rule: "cgr", stop_cause: "end_of_thinking", probes: [probe] } });
        reply.state = "done";
        return reply;
      });
      return whatIf(0.8, first, second);
    })()""")
    assert said == "At 0.8 it is never certain enough: the thinking goes on to its end. " + (
        "The two runs thought differently, so only the first counts."
    )


def test_another_rule_is_not_recomputed(tab: Browser) -> None:
    with served("--sessions", "2", "--rule", "sure-twice") as server:
        tab.visit(server.address + "/")
        ask(tab)
        assert "This server stops by the rule sure-twice" in text(tab, "#what-if")
        assert tab.errors() == []


def test_the_threshold_of_the_server_is_the_default(tab: Browser, watched: Served) -> None:
    tab.visit(watched.address + "/")
    assert tab.run('byId("threshold").value') == "0.97"
    ask(tab, beside="plain")
    assert "θ = 0.97" in text(tab, "#curve")
    assert "Not probed, never stopped" in text(tab, "#pane-plain")
    assert tab.run('document.querySelectorAll("#pane-plain .probe").length') == 0


def test_thinking_is_shown_while_it_comes_and_escape_stops_it(tab: Browser, gateway: Served, fake: FakeUpstream) -> None:
    fake.pace, fake.length, fake.sure_at = 0.02, 390, 10_000
    tab.visit(gateway.address + "/")
    before = gateway.metric("cgr_client_disconnects_total")
    start(tab, "Find x. \\boxed{}")
    wait(tab, 'document.querySelectorAll("#pane-cgr .probe").length >= 2')
    assert tab.run("document.documentElement.dataset.state") == "running"
    assert "I think about x." in text(tab, "#pane-cgr .text")
    assert "Thinking…" in text(tab, "#headline")
    assert tab.run('document.querySelectorAll("#curve .dot").length') >= 2
    key(tab, "Escape", 27)
    wait(tab, DONE)
    assert "You stopped this reply." in text(tab, "#pane-cgr")
    gateway.wait_metric(before + 2, "cgr_client_disconnects_total")


def test_text_with_markup_never_runs(tab: Browser, gateway: Served, fake: FakeUpstream) -> None:
    fake.thought, fake.probed, fake.answer = f"{HTML} ", "<img src=x onerror=window.ran=1>", f"The {HTML} \\boxed{{42}}"
    fake.length = 300
    tab.visit(gateway.address + "/")
    ask(tab, f"{HTML} \\boxed{{}}")
    assert "<img src=x" in text(tab, "#pane-cgr .text")
    assert HTML in text(tab, "#pane-cgr .written")
    assert "<img" in text(tab, "#pane-plain .probe")
    assert "<img" in text(tab, "#headline")
    tab.set("#theta-slide", LOWER)
    assert tab.run("window.ran") is None
    assert tab.run('document.querySelectorAll("main img, main script, main b:not(figcaption b)").length') == 0
    assert tab.errors() == []


def test_a_policy_that_is_broken_would_be_seen(tab: Browser, own: Served) -> None:
    """An element that the page never makes: even then, the policy keeps its script from running."""
    tab.visit(own.address + "/")
    tab.run('document.body.insertAdjacentHTML("beforeend", "<img src=x onerror=window.ran=1>")')
    tab.run('document.body.append(Object.assign(document.createElement("script"), { textContent: "window.ran = 1" }))')
    tab.wait_until("document.images[0].complete")
    assert tab.run("window.ran") is None


def test_errors_are_shown(tab: Browser, own: Served, gateway: Served, fake: FakeUpstream) -> None:
    tab.visit(own.address + "/")
    ask(tab, "What is <think> for?")
    assert "think tag" in text(tab, "#pane-cgr .status")
    assert "There is no reply." in text(tab, "#headline")
    fake.pace = 0.01
    fake.troubles = [Trouble("answer", "400")]
    tab.visit(gateway.address + "/")
    ask(tab, "Find x. \\boxed{}", beside="none")
    assert tab.run('document.querySelector("#pane-cgr .status.failed") !== null')
    assert text(tab, "#pane-cgr .status")
    fake.troubles = []
    ask(tab, "Find x. \\boxed{}", beside="none")
    assert tab.run('document.querySelector("#pane-cgr .status.failed")') is None


def test_the_key_is_asked_for_and_not_kept(tab: Browser, tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_text("right-key\n")
    with served("--sessions", "2", "--api-key-file", str(path)) as server:
        tab.visit(server.address + "/")
        wait(tab, '!byId("key-form").hidden')
        for given in ("wrong-key", "right-key"):
            tab.set("#key", given)
            tab.run('byId("key-form").requestSubmit()')
            if given == "wrong-key":
                wait(tab, '!byId("key-error").hidden')
        wait(tab, 'byId("key-form").hidden')
        ask(tab, beside="none")
        assert "Stopped: certain enough." in text(tab, "#pane-cgr")
        kept = tab.run("[localStorage.length, document.cookie, location.href, byId('key').value]")
        assert kept == [0, "", server.address + "/", ""]
        assert tab.run("Object.values(sessionStorage).join()") == "right-key"
        tab.run('location.hash = "#server"')
        wait(tab, "Number(document.documentElement.dataset.polled) >= 1")


# The server's numbers


def test_the_numbers_of_the_server_follow_its_metrics(tab: Browser, watched: Served) -> None:
    tab.visit(watched.address + "/#server")
    watched.chat(QUESTION, seed=1, cgr="shadow")
    watched.chat(QUESTION, seed=1)
    found = watched.get("/metrics").text
    requests = metric(found, "cgr_requests_total")
    wait(tab, f"Number(document.querySelector('[data-metric=\"requests\"]')?.dataset.value) === {requests}")
    spent, decoded = metric(found, "cgr_thinking_tokens_total"), metric(found, "cgr_probe_tokens_total", kind="decoded")
    saved = metric(found, "cgr_baseline_tokens_total") - spent - decoded
    assert number(tab, '[data-metric="saved"]') == pytest.approx(saved)
    assert number(tab, '#spent [data-metric="spent-thinking"]') == spent
    for cause in ("certain", "end_of_thinking"):
        assert number(tab, f'#causes [data-metric="{cause}"]') == metric(found, "cgr_requests_total", stop_cause=cause)
    assert number(tab, '[data-metric="probes"]') == metric(found, "cgr_probes_total")
    assert tab.run('document.querySelectorAll("#certainties .bar").length') > 2
    watched.chat(QUESTION, seed=2)
    wait(tab, f"Number(document.querySelector('[data-metric=\"requests\"]').dataset.value) === {requests + 1}")
    assert not NONSENSE.search(text(tab, "body"))
    assert tab.errors() == []


def test_what_was_not_stopped_saves_nothing(watched: Served) -> None:
    """A plain or shadow request is its own baseline: it adds as much to it as to the thinking."""

    def difference() -> float:
        found = watched.get("/metrics").text
        return metric(found, "cgr_baseline_tokens_total") - metric(found, "cgr_thinking_tokens_total")

    before = difference()
    watched.chat(QUESTION, seed=3, cgr=False)
    watched.chat(QUESTION, seed=4, cgr="shadow")
    assert difference() == pytest.approx(before)


# Keyboard, phone, dark


def test_the_keyboard_is_enough(tab: Browser, own: Served) -> None:
    tab.visit(own.address + "/")
    tab.run('byId("question").focus()')
    key(tab, "Enter", 13, "\r")
    wait(tab, DONE)
    tab.run('byId("theta-slide").focus()')
    before = tab.run("page.theta")
    key(tab, "ArrowLeft", 37)
    wait(tab, f"page.theta < {before} && !page.pending")
    assert tab.run('byId("theta-slide").getAttribute("aria-valuetext")') == str(tab.run("page.theta"))
    tab.run('document.querySelector("#curve svg").focus()')
    key(tab, "ArrowRight", 39)
    assert "48 tokens" in text(tab, "#curve .reading")
    tab.set("#theta-slide", LOWER)
    assert tab.run('document.activeElement === document.querySelector("#curve svg")')
    unnamed = tab.run("""[...document.querySelectorAll("input, select, textarea, button")].filter((one) =>
      !one.labels?.length && !one.innerText.trim() && !one.getAttribute("aria-label")).map((one) => one.id)""")
    assert unnamed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_and_dark(tab: Browser, own: Served, scheme: str) -> None:
    tab.media(scheme=scheme)
    tab.resize(390, 844)
    tab.visit(own.address + "/")
    ask(tab)
    assert tab.run("document.documentElement.scrollWidth") == 390
    back = tab.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back))) < 150) == (scheme == "dark")
    tab.run('byId("theme").click()')
    assert tab.run("getComputedStyle(document.body).backgroundColor") != back
    tab.run('location.hash = "#server"')
    wait(tab, "Number(document.documentElement.dataset.polled) >= 1")
    assert tab.run("document.documentElement.scrollWidth") == 390
    small = tab.run("""[...document.querySelectorAll(".chart text, p, dt, dd, button")].filter((one) =>
      one.getClientRects().length && parseFloat(getComputedStyle(one).fontSize) < 11).length""")
    assert small == 0


def test_reduced_motion(tab: Browser, own: Served) -> None:
    tab.call("Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    tab.visit(own.address + "/")
    moving = """[...document.querySelectorAll("*")].filter((one) => {
      const style = getComputedStyle(one);
      const smooth = style.scrollBehavior === "smooth";
      return smooth || style.animationName !== "none" || parseFloat(style.transitionDuration) > 0;
    }).length"""
    assert tab.run(moving) == 0
