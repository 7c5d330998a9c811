"""The files in deploy/: they parse, they fit together, and every metric that they name exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

from cgr.cli.serve import command
from cgr.server.audit.collector import PromiseCollector
from cgr.server.audit.options import AuditOptions, PromiseOptions
from cgr.server.audit.promise import Promise
from cgr.server.metrics import Metrics
from cgr.settings import Settings
from tests.server.promised import calibration

DEPLOY = Path(__file__).parents[2] / "deploy"
METRIC = re.compile(r"\bcgr_\w+")
SELECTOR = re.compile(r"\b(cgr_\w+)\{([^}]*)\}")
BY = re.compile(r"sum by \(([^)]*)\) \((?:rate|increase)\((cgr_\w+)")


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/cgr.json").read_text(encoding="utf-8"))
    return found


def expressions() -> list[str]:
    panels = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    return panels + [rule["expr"] for group in read("rules.yml")["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of each metric, by the names of its series as Prometheus reads them from /metrics."""
    metrics = Metrics()
    options = PromiseOptions(calibration(), 0.99, AuditOptions(0.1, 1, "warn", tmp_path_factory.mktemp("known") / "x.json"))
    promise = PromiseCollector(Promise(options, Settings()))
    metrics.add(promise)
    found: dict[str, set[str]] = {}
    for one in vars(metrics).values():
        names = set(getattr(one, "_labelnames", ()))
        if not hasattr(one, "_type"):
            continue
        if names:
            one.labels(*names)
        base = one._name
        series = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(one._type, [""])
        found |= {base + end: names | ({"le"} if end == "_bucket" else set()) for end in series}
    for family in promise.collect():
        found |= {sample.name: set(sample.labels) for sample in family.samples}
    shown = {sample.name for family in text_string_to_metric_families(metrics.text().decode()) for sample in family.samples}
    assert found.keys() <= shown
    return found


def test_every_metric_exists(known: dict[str, set[str]]) -> None:
    named = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert named <= known.keys()
    assert len(named) > 20


def test_every_label_exists(known: dict[str, set[str]]) -> None:
    for expression in expressions():
        for name, labels in SELECTOR.findall(expression):
            assert {one.split("=")[0].strip("!~ ") for one in labels.split(",") if one} <= known[name], expression
        for labels, name in BY.findall(expression):
            assert set(labels.split(", ")) <= known[name], expression


def test_every_metric_of_the_server_is_shown_but_the_version(known: dict[str, set[str]]) -> None:
    named = {name for expression in expressions() for name in METRIC.findall(expression)}
    bases = {re.sub("_(bucket|sum|count)$", "", name) for name in known}
    assert bases - {re.sub("_bucket$", "", name) for name in named} == {"cgr_build_info"}


def test_parentheses_and_braces_are_closed() -> None:
    for expression in expressions():
        for left, right in ("()", "[]", "{}"):
            assert expression.count(left) == expression.count(right), expression


def test_the_dashboard_uses_the_data_source_that_is_set_up() -> None:
    sources = {source["uid"] for source in read("grafana/provisioning/datasources/prometheus.yaml")["datasources"]}
    assert {panel["datasource"]["uid"] for panel in dashboard()["panels"]} == sources
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(ids) == len(set(ids))


def test_compose_names_files_services_and_options_that_exist() -> None:
    found = read("compose.yaml")
    services = found["services"]
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in found["volumes"] if source[0] != "." else (DEPLOY / source).exists()
        assert set(service.get("secrets", ())) <= found["secrets"].keys()
        assert set(service.get("depends_on", ())) <= services.keys()
    options = {one for parameter in command.params for one in parameter.opts}
    given = [word.split("=")[0] for word in services["cgr"]["command"] if word.startswith("--")]
    assert set(given) <= options
    targets = [config["targets"][0] for job in read("prometheus.yml")["scrape_configs"] for config in job["static_configs"]]
    assert {target.split(":")[0] for target in targets} <= services.keys()


def test_only_this_machine_can_reach_it() -> None:
    ports = [port for service in read("compose.yaml")["services"].values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
