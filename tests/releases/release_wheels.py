"""Releases to upgrade from: each is a wheel, made from its commit, in an environment of its own."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from wheel_building import ROOT, build_wheels

RELEASED = "348e32a9"
"""The commit of 0.3.0, for a clone without tags."""

OLDEST = (0, 3, 0)
"""The first release that runs beside this one."""

REF_VARIABLE = "NOETL_TEST_UPGRADE_FROM"
"""A tag or commit to upgrade from, instead of the previous release."""


def previous_release() -> str:
    """The tag or commit to upgrade from."""
    if named := os.environ.get(REF_VARIABLE):
        return named
    present = _numbers(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    tags = [tag for tag in _git("tag", "--list", "v*").decode().split() if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
    older = [tag for tag in tags if OLDEST <= _numbers(tag[1:]) < present]
    return max(older, key=lambda tag: _numbers(tag[1:]), default=RELEASED)


def program_of(ref: str, folder: Path) -> tuple[str, ...]:
    """Makes and installs the wheel of a tag or commit. Returns its ``noetl-stream``.

    Skips the test where there is no such commit.
    """
    source = folder / "source"
    with tarfile.open(fileobj=io.BytesIO(_git("archive", ref))) as archive:
        archive.extractall(source, filter="data")
    return _installed(_wheels(source, folder), folder)


def this_program(folder: Path) -> tuple[str, ...]:
    """Makes and installs the wheel of this source tree. Returns its ``noetl-stream``."""
    return _installed(build_wheels(folder), folder)


def _wheels(source: Path, folder: Path) -> Sequence[Path]:
    """One of an older release, two of others."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    for project in (source, *source.glob("clients/cli")):
        subprocess.run(command, cwd=project, capture_output=True, check=True, timeout=120)
    return [*folder.glob("noetl_stream*.whl")]


def _installed(wheels: Sequence[Path], folder: Path) -> tuple[str, ...]:
    """Installs them into an environment that has its dependencies from this one."""
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    paths = {"base": str(environment), "platbase": str(environment)}
    packages = Path(sysconfig.get_path("purelib", scheme="venv", vars=paths))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*install, "--python", str(python), *map(str, wheels)], check=True, timeout=120)
    return (str(environment / "bin" / "noetl-stream"),)


def _git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no upgrade is tried: git {' '.join(arguments)} fails: {error}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))
