"""Images of others are named by digest: `scripts/pin_images.py` writes them, and refuses a tag without one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "deploy/Dockerfile",
    "deploy/compose.yaml",
    ".github/workflows/release.yml",
    ".github/workflows/ci.yml",
    ".github/workflows/nightly.yml",
    ".devcontainer/devcontainer.json",
)
BUILDERS = ("moby/buildkit:buildx-stable-1", "docker/buildkit-syft-scanner:stable-1")
DIGEST = "sha256:" + "0f" * 32
TAGGED = re.compile(r"[\w.-]+:[\w.-]+@sha256:[0-9a-f]{64}")
NAMED = re.compile(
    r"""^(?:ARG\ \w*BASE=|FROM\ |.*\buses:\ docker://|\s*-?\ *"?(?:image|\w+_IMAGE)"?:\s+)["']?(?:\$\{\w+:-)?"""
    r"""(?P<image>[\w./-]+[\w.@:/-]*)""",
    re.MULTILINE,
)
"""What a Dockerfile, Compose, a workflow or a development container names as an image, but for a variable."""
OURS = re.compile(r"noetl-stream$|build$")
"""The image that is built here, and the stage of its build."""
NAMING = re.compile(r"Dockerfile|compose[^/]*\.ya?ml$|^deploy/compose/|^\.github/|^\.devcontainer/|^\.ci/")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that name images, without digests, with the script."""
    for name in (*FILES, "scripts/pin_images.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in FILES:
        file = tmp_path / name
        file.write_text(re.sub("@sha256:[0-9a-f]{64}", "", file.read_text()))
    return tmp_path


def pin(checkout: Path, *arguments: str, says: str = DIGEST) -> subprocess.CompletedProcess[str]:
    docker = checkout / "docker"
    docker.write_text(f"#!/bin/sh\necho '{says}'\n")
    docker.chmod(0o755)
    path = f"{checkout}:{os.environ['PATH']}"
    command = [sys.executable, checkout / "scripts/pin_images.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path})


def test_every_image_of_others_in_the_repository_is_named_by_digest() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    named = {
        (name, found["image"])
        for name in tracked.stdout.splitlines()
        if NAMING.search(name)
        for found in NAMED.finditer((ROOT / name).read_text())
        if not OURS.match(found["image"])
    }
    assert {name for name, _ in named} >= set(FILES)
    assert not {f"{name}: {image}" for name, image in named if not TAGGED.search(image)}


@pytest.mark.parametrize(
    "line",
    [
        "FROM debian:13",
        "ARG OTHER_BASE=debian:13",
        "    image: ${OTHER_IMAGE:-debian:13}",
        "      OTHER_IMAGE: debian:13",
        '  "image": "debian:13",',
        "      - uses: docker://debian:13",
    ],
)
def test_a_line_that_names_an_image_is_known_as_such(line: str) -> None:
    named = NAMED.search(line)
    assert named and named["image"] == "debian:13"


def test_a_release_is_refused_while_an_image_is_named_by_its_tag_alone(checkout: Path) -> None:
    refused = pin(checkout, "--check")
    assert refused.returncode == 1
    for image in (
        "python:3.11-slim",
        "python:3.11-bookworm",
        "nats:2.15-alpine",
        "postgres:18",
        *BUILDERS,
    ):
        assert re.search(rf": {image}$", refused.stderr, re.MULTILINE), image
    assert "make pin-images" in refused.stderr and "noetl-stream" not in refused.stderr.replace(str(checkout), "")


def test_digests_are_written_behind_the_tags_and_again_when_the_tags_have_moved(checkout: Path) -> None:
    for digest in (DIGEST, DIGEST.replace("0f", "1e")):
        assert pin(checkout, says=digest).returncode == 0
        assert pin(checkout, "--check").returncode == 0
        found = [image for name in FILES for image in TAGGED.findall((checkout / name).read_text())]
        assert len(found) == 10 and all(image.endswith(f"@{digest}") for image in found)
    services = YAML(typ="safe").load(checkout / FILES[1])["services"]
    assert services["nats"]["image"] == f"${{NATS_IMAGE:-nats:2.15-alpine@{digest}}}"


def test_nothing_is_written_where_a_registry_gives_no_digest(checkout: Path) -> None:
    before = [(checkout / name).read_text() for name in FILES]
    failed = pin(checkout, says="not found")
    assert failed.returncode == 1 and "no digest of python:3.11-slim: not found" in failed.stderr
    assert [(checkout / name).read_text() for name in FILES] == before


def test_the_workflow_of_a_release_checks_it_before_it_builds() -> None:
    steps = YAML(typ="safe").load(ROOT / FILES[2])["jobs"]["build"]["steps"]
    runs = [step["run"] for step in steps if "run" in step]
    assert runs.index("python3 scripts/pin_images.py --check") < runs.index("make clean wheel sbom")
