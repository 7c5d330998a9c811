"""How the page looks and is used in a real Chromium: ticks, ids, contents, narrow tables, and what it says is missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cgr.lab.report import page
from cgr.lab.score.accuracy import PENALTIES
from cgr.lab.store.recorded import RecordedTrace
from tests.lab.report.browser import Browser
from tests.lab.report.test_page import THRESHOLDS, always, as_report, text, unprobed, value, written
from tests.lab.runs import SIX_INFO, plausible, six

LABELS = """[...document.querySelectorAll("svg.chart")].flatMap((chart) => [".x-label", ".y-label"].map((kind) => {
  const texts = [...chart.querySelectorAll(kind)].map((one) => one.textContent);
  return { figure: chart.closest("[id]").id, kind, texts };
}))"""
NUMBER = re.compile(r"([+−]?[\d,]*\.?\d+)\u00a0?(%|k|M|)")
UNITS = {"%": 1.0, "k": 1e3, "M": 1e6, "": 1.0}


def number(label: str) -> float | None:
    found = NUMBER.fullmatch(label)
    return float(found[1].replace(",", "").replace("−", "-")) * UNITS[found[2]] if found else None


@pytest.mark.parametrize("theta", [0.6, 0.9, 0.99])
@pytest.mark.parametrize("chance", range(4))
def test_the_ticks_of_every_axis_are_equal_steps(tab: Browser, tmp_path: Path, chance: int, theta: float) -> None:
    budget, interval = ((1280, 32), (4000, 500), (16_000, 1000), (500_000, 20_000))[chance]
    run = plausible(20 + 15 * chance, 3 + chance, budget=budget, interval=interval, chance=chance)
    tab.open(written(tmp_path, run), f"#theta={theta}")
    tab.unfold(".question:first-of-type")
    checked = set()
    for axis in tab.run(LABELS):
        numbers = [found for label in axis["texts"] if (found := number(label)) is not None]
        if len(numbers) < max(3, len(axis["texts"])):
            continue
        steps = [after - before for before, after in pairwise(numbers)]
        assert steps == pytest.approx([steps[0]] * len(steps)), axis
        checked.add(axis["figure"])
    assert {"trade-off", "ranking", "certainty", "cumulative", "histogram"} <= checked


def test_a_step_of_two_and_a_half_is_written_in_full(tab: Browser) -> None:
    labels = "const [a, b] = [ticks(0, 0.075, 3), ticks(0, 4, 8, true)];"
    scripts = "\n".join(page._source(name) for name in ("numbers.js", "elements.js", "chart.js"))
    made = f'(() => {{ {scripts}; {labels} return [exactLabels(100, " %")(a), exactLabels()(b)]; }})()'
    assert tab.run(made) == [["0.0 %", "2.5 %", "5.0 %", "7.5 %"], ["0", "1", "2", "3", "4"]]


SHOWN = """[...document.querySelectorAll(".question")].map((one) => ({
  id: one.dataset.question, saved: one.querySelector(".q-saved").textContent,
  share: Number(one.querySelector(".q-saved").dataset.value) }))"""


def test_most_saved_first_is_the_order_of_the_shown_shares(tab: Browser, tmp_path: Path) -> None:
    """The question with the most saved tokens is not the one with the largest share."""
    tab.open(written(tmp_path, plausible(30, 4, chance=7)), "#theta=0.96")
    found = tab.run(SHOWN)
    shares = [one["share"] for one in found]
    assert shares == sorted(shares, reverse=True)
    assert all(
        one["saved"].startswith(f"{abs(one['share']) * 100:.0f}\u00a0%") for one in found if abs(one["share"]) > 0.01
    )
    ranked = tab.run("[...document.querySelectorAll('#ranking .y-label')].map((one) => one.textContent)")
    assert sorted(ranked) == sorted(one["id"] for one in found)
    assert ranked != [one["id"] for one in found]
    tab.set("#order", "unsaved")
    assert [one["share"] for one in tab.run(SHOWN)] == sorted(shares)


CUT = """(() => {
  const labels = [...document.querySelectorAll("#ranking .y-label, #heat-map .y-label")];
  const left = (one) => one.getBoundingClientRect().left;
  const outside = labels.filter((one) => left(one) < left(one.ownerSVGElement) - 1);
  const ids = [...document.querySelectorAll(".q-id")];
  return { labels: labels.map((one) => one.textContent), outside: outside.length, ids: ids.map((one) => one.textContent),
           hidden: ids.filter((one) => one.scrollWidth > one.clientWidth + 1).length };
})()"""


@pytest.mark.parametrize(("width", "name"), [(1280, "aime-2025-part-2-problem-"), (390, "s0-product-")])
def test_ids_are_not_cut_where_there_is_room(tab: Browser, tmp_path: Path, width: int, name: str) -> None:
    traces, info = plausible(8, 3)
    traces = [replace(one, question_id=name + one.question_id) for one in traces]
    tab.resize(width, 800)
    tab.open(written(tmp_path, (traces, info)), "#theta=0.97")
    found = tab.run(CUT)
    wanted = sorted({one.question_id for one in traces})
    assert sorted(found["labels"]) == sorted(wanted * 2)
    assert sorted(found["ids"]) == wanted
    assert (found["outside"], found["hidden"]) == (0, 0)


def test_ids_that_are_too_long_are_cut_in_figures_and_wrapped_in_the_list(tab: Browser, tmp_path: Path) -> None:
    traces, info = plausible(4, 3)
    traces = [replace(one, question_id=f"{one.question_id}-" + "x" * 150) for one in traces]
    tab.resize(390, 800)
    tab.open(written(tmp_path, (traces, info)), "#theta=0.97")
    found = tab.run(CUT)
    assert all(label.endswith("…") for label in found["labels"])
    assert (found["outside"], found["hidden"]) == (0, 0)
    assert tab.run("document.documentElement.scrollWidth") <= 390


LINKS = """[...document.querySelectorAll(".contents li")].map((one) => {
  const section = document.querySelector(one.firstElementChild.getAttribute("href"));
  return { shown: !one.hidden, exists: !section.hidden, text: one.textContent };
})"""
FOLLOW = """(() => {
  const link = document.querySelector(".contents a[href='#HREF']");
  link.click();
  const bars = [...document.querySelectorAll("#controls, .contents")];
  const sticky = bars.filter((one) => getComputedStyle(one).position === "sticky");
  const covered = Math.max(...sticky.map((one) => one.getBoundingClientRect().bottom));
  const heading = document.querySelector("#HREF h2");
  return { top: heading.getBoundingClientRect().top, covered, focus: document.activeElement === heading };
})()"""


@pytest.mark.parametrize("width", [390, 1280])
def test_the_contents_lead_to_every_section(tab: Browser, tmp_path: Path, width: int) -> None:
    tab.resize(width, 700)
    tab.open(written(tmp_path, plausible(20, 4)), "#theta=0.97&p=1")
    links = tab.run(LINKS)
    assert all(one["shown"] == one["exists"] for one in links)
    assert [one["text"] for one in links if not one["shown"]] == ["All runs", "Rules", "Promise"]
    sections = tab.run("[...document.querySelectorAll('main > section')].filter((one) => !one.hidden).length")
    assert sections == sum(one["shown"] for one in links)
    found = tab.run(FOLLOW.replace("HREF", "questions"))
    assert found["focus"]
    assert found["covered"] - 2 <= found["top"] <= 700
    assert value(tab, "fixed.cost_mean") > 0
    assert "0.97" in text(tab, "#headline")


WIDE = """(() => {
  const place = document.querySelector("#accuracy-table .scroller");
  const hint = document.querySelector("#accuracy-table .scroll-hint");
  const shown = (side) => Number(getComputedStyle(place, side).opacity) > 0;
  return [hint.offsetHeight > 0, shown("::before"), shown("::after")];
})()"""


def test_tables_that_scroll_show_it(tab: Browser, tmp_path: Path) -> None:
    path = written(tmp_path, (six(), SIX_INFO))
    tab.open(path)
    assert tab.run(WIDE) == [False, False, False]
    tab.resize(390, 800)
    tab.open(path)
    assert tab.run(WIDE) == [True, False, True]
    tab.run("document.querySelector('#accuracy-table .scroll').scrollLeft = 10000")
    tab.wait_until("document.querySelector('#accuracy-table .more-left:not(.more-right)') !== null")
    assert tab.run(WIDE) == [True, True, False]
    tab.set("#theta", "0.5")
    assert tab.run("document.querySelector('#accuracy-table .scroll').scrollLeft") > 0


def test_the_figure_of_the_rules_has_the_same_size_of_text(tab: Browser, tmp_path: Path) -> None:
    """A section that is shown only after the widths were measured would be drawn too large."""
    points = {"value": 0.99, "accuracy": 0.9, "net_tokens": 500.0, "diff_points": 0.0, "ci95_diff_points": [-1.0, 1.0],
              "net_share": 0.2, "ci95_net_share": [0.1, 0.3], "gross_share": 0.3}  # fmt: skip
    entry = {"rule": "cgr", "parameter": "threshold", "sweep": [points], "shown": points, "equal": True, "frontier": [0.99],
             "figures": [{"measure": "area", "figure": 0.8}]}  # fmt: skip
    comparison = {"entries": [entry], "baseline": points, "whole": points, "chosen": "", "margin": -1, "verdicts": [],
                  "missing": [], "notes": []}  # fmt: skip
    traces, info = plausible(6, 3)
    tab.open(page.write(tmp_path, [(info, traces, as_report(traces, info))], THRESHOLDS, PENALTIES, [comparison]))
    scale = """((id) => { const chart = document.querySelector(`#${id} svg`);
      return chart.getBoundingClientRect().width / chart.viewBox.baseVal.width; })"""
    assert tab.run(f"{scale}('frontier')") == pytest.approx(1, abs=0.02)
    assert tab.run(f"{scale}('trade-off')") == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("traces", "sentences"),
    [
        pytest.param(
            unprobed(),
            [
                "No probe was recorded in this run, so no threshold can stop its thinking",
                "No probe was recorded, so there is no",
            ],
            id="none probed",
        ),
        pytest.param(
            always("7", None, 0.999),
            ["net of its probes, compared with full thinking", "No question has a known answer, so this section is empty."],
            id="no golds",
        ),
        pytest.param(always("7", "7", 0.999, 1, 1), ["There is only one seed", "There is one seed"], id="one trace"),
        pytest.param(always("7", "8", 0.999, 1, 1), ["an interval needs at least two questions"], id="one wrong trace"),
        pytest.param(always("7", "7", 0.3), ["and the probes cost", "more tokens"], id="never fired"),
    ],
)
def test_what_is_missing_is_said(
    tab: Browser, tmp_path: Path, traces: Sequence[RecordedTrace], sentences: Sequence[str]
) -> None:
    tab.open(written(tmp_path, (traces, SIX_INFO)))
    for sentence in sentences:
        assert sentence in text(tab)
    assert tab.errors() == []


def test_probes_that_cost_more_than_they_save_are_said_to(tab: Browser, tmp_path: Path) -> None:
    traces = [replace(one, probes=tuple(replace(probe, decoded=5000) for probe in one.probes)) for one in six()]
    tab.open(written(tmp_path, (traces, SIX_INFO)))
    assert "more tokens than full thinking, because its probes cost more than it saves" in text(tab, "#headline")
    assert value(tab, "headline.net_share") > 0


MADE = """Object.fromEntries([...document.querySelectorAll("#made-list dt")].map((one) =>
  [one.textContent, one.nextElementSibling.textContent]))"""


def test_how_the_run_was_made_and_what_is_unknown(tab: Browser, tmp_path: Path) -> None:
    tab.open(
        written(tmp_path, (six(), replace(SIX_INFO, temperature=0.6, prefix="Final Answer: \\boxed{", source="aime2025")))
    )
    made = tab.run(MADE)
    assert (made["Temperature"], made["Probe prefix"], made["Questions"]) == ("0.6", "Final Answer: \\boxed{", "aime2025")
    assert made["Probes"] == "probed every 1,000"
    nobody_said: dict[str, Any] = {"temperature": None, "prefix": None, "source": ""}
    tab.open(written(tmp_path, (six(), replace(SIX_INFO, **nobody_said))))
    made = tab.run(MADE)
    assert {made["Temperature"], made["Probe prefix"], made["Questions"]} == {"unknown"}
    irregular = [replace(one, probes=tuple(replace(probe, at=probe.at - 7) for probe in one.probes)) for one in six()]
    tab.open(written(tmp_path, (irregular, SIX_INFO)))
    assert tab.run(MADE)["Probes"] == "probed at irregular positions"
    tab.open(written(tmp_path, (unprobed(), SIX_INFO)))
    assert tab.run(MADE)["Probes"] == "not probed"


def test_rankings_and_heat_maps_can_be_read_with_the_keyboard(tab: Browser, tmp_path: Path) -> None:
    tab.open(written(tmp_path, (six(), SIX_INFO)), "#theta=0.97")

    def read(figure: str, *keys: str) -> str:
        found: str = tab.run(f"""(() => {{
          const chart = document.querySelector("#{figure} svg");
          chart.focus();
          for (const key of {list(keys)}) chart.dispatchEvent(new KeyboardEvent("keydown", {{ key, bubbles: true }}));
          return document.querySelector("#{figure} .reading").textContent;
        }})()""")
        return found

    ranked = tab.run("[...document.querySelectorAll('#ranking .y-label')].map((one) => one.textContent)")
    assert read("ranking", "ArrowDown").startswith(f"{ranked[0]}: ")
    assert read("ranking", "ArrowDown").startswith(f"{ranked[1]}: ")
    assert read("heat-map", "ArrowRight", "ArrowRight").startswith(f"{ranked[0]}, seed 1: ")
    assert read("heat-map", "ArrowRight", "ArrowUp", "ArrowDown").startswith(f"{ranked[1]}, seed 1: ")


def test_nothing_moves_for_readers_who_want_that(tab: Browser, tmp_path: Path) -> None:
    path = written(tmp_path, (six(), SIX_INFO))
    moving = """[...document.querySelectorAll("*")].filter((one) => ["", "::before", "::after"].some((side) => {
      const style = getComputedStyle(one, side);
      return style.transitionDuration !== "0s" || style.animationName !== "none";
    })).length"""
    tab.open(path)
    assert tab.run(moving) > 0
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    tab.open(path)
    assert tab.run(moving) == 0
