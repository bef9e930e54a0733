"""What Prometheus' own promtool says about the metrics, the alerts and the expressions of dashboards."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from helm import CHART, ROOT

from metrics_of_code import metrics
from noetl_stream.telemetry.measures import long_durations
from noetl_stream.telemetry.status_server import exposition

ALERTS = CHART / "files" / "alerts.yaml"
VARIABLES = {"$__rate_interval": "5m", "$namespace": ".*", "$job": ".*", "$path": ".*"}


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("ALERTS AND DASHBOARDS WERE NOT CHECKED: no promtool (Debian: apt-get install prometheus)")
    return found


def said(promtool: str, *words: str | Path, given: bytes | None = None) -> tuple[int, str]:
    done = subprocess.run([promtool, *words], input=given, capture_output=True)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_the_metrics_keep_the_conventions(promtool: str) -> None:
    readings = [
        metric.read(long_durations() if metric.kind == "histogram" else 1.0, *("x" for _ in metric.labels))
        for metric in metrics().values()
    ]
    assert said(promtool, "check", "metrics", given=exposition(readings, "")[0]) == (0, "")


def test_the_alerts_are_rules(promtool: str) -> None:
    code, text = said(promtool, "check", "rules", ALERTS)
    assert (code, f"{len(yaml.safe_load(ALERTS.read_text())['groups'][0]['rules'])} rules found" in text) == (0, True)


def test_alerts_fire_as_long_as_their_cause_lasts_without_labels_of_kubernetes(promtool: str, tmp_path: Path) -> None:
    shutil.copy(ALERTS, tmp_path)
    cases = tmp_path / "alerts.test.yaml"
    shutil.copy(ROOT / "tests" / "deploy" / cases.name, cases)
    code, text = said(promtool, "test", "rules", cases)
    assert code == 0, text


def test_the_expressions_of_dashboards_can_be_evaluated(promtool: str, tmp_path: Path) -> None:
    asked: list[str] = []
    for file in CHART.glob("files/dashboards/*.json"):
        panels = json.loads(file.read_text())["panels"]
        asked += [target["expr"] for panel in panels for target in panel.get("targets", [])]
    for variable, value in VARIABLES.items():
        asked = [one.replace(variable, value) for one in asked]
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(asked)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    code, text = said(promtool, "check", "rules", file)
    assert (code, "$" in " ".join(asked), f"{len(asked)} rules found" in text) == (0, False, True), text
