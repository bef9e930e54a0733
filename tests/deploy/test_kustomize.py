"""What is there for kustomize is what the chart renders."""

from __future__ import annotations

import importlib.util
import subprocess
from types import ModuleType

import pytest
from helm import ROOT, Rendered, objects, program
from manifests import name_of, of_kind, pods

pytestmark = pytest.mark.xdist_group("helm")

FOLDER = ROOT / "deploy" / "kustomize"


@pytest.fixture(scope="module")
def rendering() -> ModuleType:
    """The program that renders."""
    spec = importlib.util.spec_from_file_location("render_kustomize", FOLDER / "render.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_are_rendered_from_the_chart(rendering: ModuleType) -> None:
    """`python deploy/kustomize/render.py` writes them again."""
    for file, text in rendering.rendered(program("helm")).items():
        assert file.read_text() == text, file


def test_the_names_by_which_the_chart_tells_unknown_values_are_those_of_its_schema(rendering: ModuleType) -> None:
    """`python deploy/kustomize/render.py` writes them again."""
    file, text = rendering.names_file()
    assert file.read_text() == text


def test_no_object_is_left_to_helm() -> None:
    for file in ("base/noetl-stream.yaml", "migration/migration.yaml"):
        assert "helm" not in (FOLDER / file).read_text().partition("\n")[2].lower(), file


def built(folder: str) -> list[Rendered]:
    """What ``kubectl apply -k`` would send."""
    words = [program("kubectl"), "kustomize", FOLDER / folder]
    return list(objects(subprocess.run(words, check=True, capture_output=True, text=True).stdout))


def test_the_example_has_one_image_and_leaves_nothing_out() -> None:
    for example, base in (("example", "base"), ("example/migration", "migration")):
        found = built(example)
        assert {name_of(one) for one in found} == {name_of(one) for one in built(base)}
        images = {container["image"] for pod in pods(found) for container in pod.containers}
        assert {image.partition(":")[0] for image in images} == {"registry.example.com/noetl-stream"}


def test_the_example_changes_what_it_says() -> None:
    replicas = {one["metadata"]["name"]: one["spec"]["replicas"] for one in of_kind(built("example"), "Deployment")}
    assert replicas == {"noetl-server": 5, "noetl-gateway": 2, "noetl-worker-default": 1}


def test_the_migration_is_apart_since_it_comes_first() -> None:
    kinds = {one["kind"] for one in objects((FOLDER / "migration" / "migration.yaml").read_text())}
    assert kinds == {"Job", "ServiceAccount", "NetworkPolicy", "Role", "RoleBinding"}
    assert "Job" not in {one["kind"] for one in objects((FOLDER / "base" / "noetl-stream.yaml").read_text())}
