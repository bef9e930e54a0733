"""What is there for kustomize is what the chart renders."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from helm import ROOT, helm, objects

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
    for file, text in rendering.rendered(helm()).items():
        assert file.read_text() == text, file


def test_no_object_is_left_to_helm() -> None:
    for file in ("base/noetl-stream.yaml", "migration/migration.yaml"):
        assert "helm" not in (FOLDER / file).read_text().partition("\n")[2].lower(), file


def test_every_kustomization_names_files_that_exist() -> None:
    for file in FOLDER.glob("*/kustomization.yaml"):
        (found,) = objects(file.read_text())
        for resource in found["resources"]:
            assert Path(file.parent, resource).exists(), f"{file}: {resource}"


def test_the_migration_is_apart_since_it_comes_first() -> None:
    kinds = {one["kind"] for one in objects((FOLDER / "migration" / "migration.yaml").read_text())}
    assert kinds == {"Job", "ServiceAccount", "NetworkPolicy"}
    assert "Job" not in {one["kind"] for one in objects((FOLDER / "base" / "noetl-stream.yaml").read_text())}
