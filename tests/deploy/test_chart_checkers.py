"""What others' checkers say about the rendered objects: schemas of Kubernetes and of other projects, and Checkov."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from helm import CHART, EXAMPLES, NAMESPACE, Rendered, objects, render, run_helm
from manifests import of_kind
from other_projects import PACKAGES, dashboard_refusal, group, of_other_projects, refusal

pytestmark = [pytest.mark.xdist_group("helm"), pytest.mark.verify]

KUBERNETES = ("1.30", "1.33", "1.37")
"""The oldest version that the chart allows, one between, and the newest that the checker knows."""

EXPLAINED = {
    "CKV_K8S_8": "the pod of `helm test` and the migration end by themselves",
    "CKV_K8S_9": "the pod of `helm test` and the migration end by themselves",
    "CKV_K8S_11": "a CPU limit throttles, and a throttled server loses its leases",
    "CKV_K8S_15": "tags are of releases and never moved; always to pull makes a restart depend on the registry",
    "CKV_K8S_35": "a process removes secrets from its environment when it starts, and nobody can look into it",
    "CKV_K8S_43": "a digest is used where one is given, as in air-gapped.yaml",
}
"""Rules of Checkov that do not hold everywhere, and why."""


def tool(package: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a program of the package index, in an environment of its own."""
    uv = Path(sys.executable).with_name("uv")
    return subprocess.run([uv, "tool", "run", "--quiet", "--from", package, *words], capture_output=True, text=True)


OVERRIDES = Path(__file__).with_name("overrides.yaml")


@pytest.fixture(params=[*EXAMPLES, OVERRIDES], ids=lambda path: path.stem)
def rendered(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file with the objects of an example, or with everything overridden."""
    done = run_helm("template", "noetl", CHART, "--namespace", NAMESPACE, "-f", request.param)
    file = tmp_path / "rendered.yaml"
    file.write_text(done.stdout)
    return file


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_as_kubernetes_defines_it(rendered: Path, version: str) -> None:
    options = ("--strict", "--quiet", "-k", version)
    done = tool("kubernetes-validate==1.37.0", "kubernetes-validate", *options, rendered)
    said = (done.stdout + done.stderr).splitlines()
    unknown = [line for line in said if "Couldn't find schema for kind" in line]
    assert (done.returncode, said) == (0, unknown)
    assert len(unknown) == len(of_other_projects(objects(rendered.read_text())))


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_cron_jobs_beside_the_chart_are_as_kubernetes_defines_them(version: str) -> None:
    options = ("--strict", "--quiet", "-k", version)
    done = tool("kubernetes-validate==1.37.0", "kubernetes-validate", *options, CHART / "examples" / "backup.yaml")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.fixture(scope="module")
def npm() -> None:
    if shutil.which("npm") is None:
        pytest.skip("OBJECTS OF OTHER PROJECTS WERE NOT CHECKED: no npm (Debian: apt-get install npm)")


@pytest.fixture(scope="module")
def of_others(npm: None) -> list[Rendered]:
    """The objects of other projects: those of all examples, and what is made beside the chart."""
    beside = [one for file in CHART.glob("examples/*.yaml") for one in objects(file.read_text()) if "kind" in one]
    return of_other_projects([*(one for example in (*EXAMPLES, OVERRIDES) for one in render(example)), *beside])


def test_every_object_is_as_its_project_defines_it(of_others: list[Rendered]) -> None:
    assert {group(one) for one in of_others} == PACKAGES.keys()
    assert refusal(of_others) == ""


UNKNOWN: dict[str, list[str | int]] = {
    "Bundle": ["spec", "target", "configmap"],
    "Certificate": ["spec", "dnsName"],
    "Cluster": ["spec", "instance"],
    "ExternalSecret": ["spec", "data", 0, "secretkey"],
    "HTTPRoute": ["spec", "rules", 0, "match"],
    "PrometheusRule": ["spec", "groups", 0, "rules", 0, "annotation"],
    "ScaledObject": ["spec", "pollInterval"],
    "ServiceMonitor": ["spec", "endpoints", 0, "periods"],
}


def changed(found: list[Rendered], kind: str, path: list[str | int], value: Any) -> Rendered:
    """A copy of the first object of a kind, with a value at a path."""
    copy = deepcopy(of_kind(found, kind)[0])
    part: Any = copy
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return copy


def test_a_field_that_a_project_does_not_define_is_refused(of_others: list[Rendered]) -> None:
    said = refusal([changed(of_others, kind, path, "x") for kind, path in UNKNOWN.items()])
    assert re.findall(r"""and '"(\w+)"' does not exist in type""", said) == [path[-1] for path in UNKNOWN.values()]


def test_a_value_that_a_project_does_not_take_is_refused(of_others: list[Rendered]) -> None:
    assert "data/spec/instances must be >= 1" in refusal([changed(of_others, "Cluster", ["spec", "instances"], 0)])


def test_the_dashboards_are_as_grafana_defines_them(npm: None) -> None:
    for file in CHART.glob("files/dashboards/*.json"):
        dashboard = file.read_text()
        assert dashboard_refusal(dashboard) == ""
        assert "'\"gridpos\"' does not exist" in dashboard_refusal(dashboard.replace("gridPos", "gridpos"))


@pytest.mark.parametrize("rendered", EXAMPLES, ids=lambda path: path.stem, indirect=True)
def test_checkov_finds_nothing_that_is_not_explained(rendered: Path) -> None:
    options = ("--framework", "kubernetes", "--skip-download", "--output", "json", "--soft-fail")
    done = tool("checkov==3.3.30", "checkov", "-f", rendered, *options)
    report: dict[str, Any] = json.loads(done.stdout)
    failed = {check["check_id"]: check["resource"] for check in report["results"]["failed_checks"]}
    assert report["summary"]["passed"] > 50
    assert {rule: resource for rule, resource in failed.items() if rule not in EXPLAINED} == {}
