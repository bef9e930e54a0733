"""The commands of docs/how-to/run-in-containers.md, one after the other, as they stand there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from container_engine import BUILT_WITHIN_S, IMAGES, ROOT, Engine, Images, build_options, compose_program
from walkthrough import Walkthrough, free_ports, steps

from rotel_collector import rotel_program

pytestmark = [pytest.mark.xdist_group("containers"), pytest.mark.verify]

PAGE = ROOT / "docs" / "how-to" / "run-in-containers.md"
FILES = (".dockerignore", "LICENSE", "README.md", "nats.conf", "pyproject.toml")
FOLDERS = ("clients", "deploy", "docs", "playbooks", "src")
"""What of the repository the commands use."""

DOCKER = """#!/bin/sh
case $1 in
    compose) shift; exec {compose} "$@";;
    build) shift; exec {docker} build {options} "$@";;
esac
exec {docker} "$@"
"""
"""``docker`` with the plugin for compose. It builds from our bases, on the network of this machine."""


def write_docker(folder: Path, images: Images) -> Path:
    program = folder / "docker"
    docker = shutil.which("docker")
    compose = " ".join([f"{docker} compose"] if compose_program()[0] == "docker" else compose_program())
    program.write_text(DOCKER.format(compose=compose, docker=docker, options=" ".join(build_options(images))))
    program.chmod(0o755)
    return program


@pytest.fixture
def collector_image(engine: Engine, images: Images, tmp_path: Path) -> str:
    folder, tag = tmp_path / "collector", "noetl-test/collector"
    folder.mkdir()
    program = rotel_program()
    shutil.copy(program, folder)
    libraries = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"=> (\S+/libpython\S+)", libraries):
        shutil.copy(library, folder)
    file = IMAGES / "collector.Dockerfile"
    engine.docker("build", "-q", "-t", tag, "--build-arg", f"BASE={images.base}", "-f", file, folder)
    return tag


def test_the_page_does_what_it_says(engine: Engine, images: Images, collector_image: str, tmp_path: Path) -> None:
    (port,), told = free_ports(1), steps(PAGE.read_text())
    assert len(told) > 5
    folder = tmp_path / "repository"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(folder / "deploy" / "compose" / "secrets", ignore_errors=True)
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    given = {
        "HOME": str(tmp_path),
        "PATH": f"{write_docker(tmp_path, images).parent}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "DOCKER_HOST": engine.address,
        "COMPOSE_PROJECT_NAME": "noetl-page",
        "NOETL_IMAGE": f"{images.stream}-page",
        "NATS_IMAGE": images.nats,
        "POSTGRES_IMAGE": images.postgres,
        "NOETL_PORT": port,
        "NOETL_SECCOMP": str(folder / "deploy" / "seccomp" / "worker.json"),
    }
    elsewhere = {
        "noetl-stream:next": f"{images.stream}-page:next",
        "-t noetl-stream ": f"-t {images.stream}-page ",
        "8080": port,
        "otel/opentelemetry-collector": collector_image,
        "noetl-collector": "noetl-page-collector",
        "deploy_": "noetl-page_",
    }
    try:
        with Walkthrough(folder, given, elsewhere, patience_s=BUILT_WITHIN_S) as reader:
            for step in told:
                reader.do(step)
    finally:
        subprocess.run(["docker", "rm", "-f", "noetl-page-collector"], env=given, capture_output=True)
        down = [*compose_program(), "-f", "deploy/compose.yaml", "down", "--volumes", "--timeout", "5"]
        subprocess.run(down, cwd=folder, env=given, check=True)
