"""What a release is: a wheel with everything the program reads, and one version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

import noetl_stream
from noetl_stream.cli.docs import FOLDERS
from wheel_building import ROOT, build_wheel

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_PACKAGED = {"playbooks/demo.py"}


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the wheel by their names."""
    with ZipFile(build_wheel(tmp_path_factory.mktemp("wheel"))) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def sources(folder: str) -> set[Path]:
    found = {path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    return {path for path in found if str(path.relative_to(ROOT)) not in NOT_PACKAGED}


def is_documentation(path: Path) -> bool:
    """Whether it is a page that `noetl-stream docs` lists."""
    folder, *inside = path.relative_to(ROOT / "docs").parts
    return folder in FOLDERS and len(inside) == 1 and path.suffix == ".md"


def test_the_wheel_holds_the_package_the_examples_and_the_pages_and_nothing_else(contents: dict[str, bytes]) -> None:
    expected = {str(path.relative_to(ROOT / "src")): path for path in sources("src/noetl_stream")}
    expected |= {f"noetl_stream/examples/{path.name}": path for path in sources("playbooks")}
    expected |= {f"noetl_stream/{path.relative_to(ROOT)}": path for path in sources("docs") if is_documentation(path)}
    packed = {name for name in contents if ".dist-info/" not in name}
    assert packed == set(expected)
    assert {name for name in packed if contents[name] != expected[name].read_bytes()} == set()
    assert {"noetl_stream/py.typed", "noetl_stream/examples/hello.yaml"} <= packed
    assert [name for name in packed if name.endswith(".sql")]


def test_the_wheel_names_its_version_licence_commands_and_tools(contents: dict[str, bytes]) -> None:
    info = f"noetl_stream-{PROJECT['version']}.dist-info"
    assert f"\nVersion: {PROJECT['version']}\n" in contents[f"{info}/METADATA"].decode()
    assert f"{info}/licenses/LICENSE" in contents
    entry_points = contents[f"{info}/entry_points.txt"].decode()
    assert "noetl-stream = noetl_stream.__main__:program" in entry_points
    assert "[noetl_stream.tools]" in entry_points


def test_the_program_has_the_version_of_the_project() -> None:
    assert noetl_stream.__version__ == PROJECT["version"]
    assert not [path for path in sources("src") if PROJECT["version"].encode() in path.read_bytes()]


def test_the_changelog_begins_with_this_version() -> None:
    headings = re.findall(r"^## (\S+) - (?:unreleased|\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == PROJECT["version"]
    assert headings == sorted(headings, key=lambda version: [*map(int, version.split("."))], reverse=True)
    assert len(re.findall(r"^## ", (ROOT / "CHANGELOG.md").read_text(), re.M)) == len(headings) >= 2
