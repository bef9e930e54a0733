"""What others' checkers say about the rendered objects: the schemas of Kubernetes, and the rules of Checkov."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helm import CHART, EXAMPLES, NAMESPACE, run_helm

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


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem)
def rendered(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file with the objects of an example."""
    done = run_helm("template", "noetl", CHART, "--namespace", NAMESPACE, "-f", request.param)
    file = tmp_path / "rendered.yaml"
    file.write_text(done.stdout)
    return file


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_as_kubernetes_defines_it(rendered: Path, version: str) -> None:
    """Objects of other projects (KEDA, Prometheus, Gateway API) have no schema there."""
    options = ("--strict", "--quiet", "-k", version)
    done = tool("kubernetes-validate==1.37.0", "kubernetes-validate", *options, rendered)
    unknown = "Couldn't find schema for kind"
    said = [line for line in (done.stdout + done.stderr).splitlines() if unknown not in line]
    assert (done.returncode, said) == (0, [])


def test_checkov_finds_nothing_that_is_not_explained(rendered: Path) -> None:
    options = ("--framework", "kubernetes", "--skip-download", "--output", "json", "--soft-fail")
    done = tool("checkov==3.3.30", "checkov", "-f", rendered, *options)
    report: dict[str, Any] = json.loads(done.stdout)
    failed = {check["check_id"]: check["resource"] for check in report["results"]["failed_checks"]}
    assert report["summary"]["passed"] > 50
    assert {rule: resource for rule, resource in failed.items() if rule not in EXPLAINED} == {}
