"""Alerts lead to the runbook, and alerts and dashboards ask for what the program measures."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from helm import CHART, ROOT, Rendered
from manifests import named, of_kind

pytestmark = pytest.mark.xdist_group("helm")


def test_every_alert_has_a_section_of_the_runbook(production: tuple[Rendered, ...]) -> None:
    (rule,) = of_kind(production, "PrometheusRule")
    page = (ROOT / "docs" / "how-to" / "alerts.md").read_text()
    sections = {title.lower() for title in re.findall(r"^## (\w+)$", page, re.M)}
    alerts = rule["spec"]["groups"][0]["rules"]
    for alert in alerts:
        url, _, anchor = alert["annotations"]["runbook_url"].rpartition("#")
        assert url.endswith("/how-to/alerts")
        assert anchor == alert["alert"].lower()
    assert sections == {alert["alert"].lower() for alert in alerts}


def test_the_dashboards_are_those_of_the_folder(production: tuple[Rendered, ...]) -> None:
    shown = named(production, "ConfigMap", "noetl-dashboards")["data"]
    files = {file.name: json.loads(file.read_text()) for file in CHART.glob("files/dashboards/*.json")}
    assert {name: json.loads(text) for name, text in shown.items()} == files != {}


def measured() -> set[str]:
    """The metrics of the page that names every one, as Prometheus shows them."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    kinds = dict(re.findall(r"^\| `(noetl_\w+)` \| (\w+) \|", page, re.M))
    parts = {f"{name}_{part}" for name, kind in kinds.items() if kind == "histogram" for part in ("bucket", "count")}
    return kinds.keys() | parts


def asked(expression: str) -> set[str]:
    return set(re.findall(r"\bnoetl_[a-z_]+", expression))


def test_alerts_ask_for_metrics_that_the_program_has(production: tuple[Rendered, ...]) -> None:
    (rule,) = of_kind(production, "PrometheusRule")
    for alert in rule["spec"]["groups"][0]["rules"]:
        assert asked(alert["expr"]) and asked(alert["expr"]) <= measured(), alert["alert"]
        named = re.findall(r"\bnoetl_[a-z_]+(.{18})", alert["expr"])
        assert set(named) == {'{namespace="noetl"'}, alert["alert"]


def test_alerts_and_dashboards_need_no_label_of_kubernetes() -> None:
    (group,) = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    assert not re.search(r"\b(namespace|pod|component|container)\b", json.dumps(group["rules"]))
    for file in CHART.glob("files/dashboards/*.json"):
        dashboard = json.loads(file.read_text())
        assert not re.search(r"\b(pod|component|container)\b", json.dumps(dashboard["panels"]))
        for variable in dashboard["templating"]["list"][1:]:  # "All" is what has the label, and what has not
            assert (variable["includeAll"], variable["allValue"], variable["current"]["value"]) == (
                True,
                ".*",
                ["$__all"],
            )
        asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        assert all(
            one.count('{namespace=~"$namespace", job=~"$job"') == len(re.findall(r"\bnoetl_", one)) for one in asked
        )


def test_dashboards_ask_for_metrics_that_the_program_has() -> None:
    for file in CHART.glob("files/dashboards/*.json"):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel.get("targets", []):
                assert asked(target["expr"]) and asked(target["expr"]) <= measured(), panel["title"]


def test_panels_of_a_dashboard_lie_beside_each_other(production: tuple[Rendered, ...]) -> None:
    for text in named(production, "ConfigMap", "noetl-dashboards")["data"].values():
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(text)["panels"]:
            place = panel["gridPos"]
            cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
            assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
            taken |= cells
