"""What a release is: a wheel with everything the program reads, and one version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

import noetl_stream
from noetl_stream.cli.docs import FOLDERS
from wheel_building import CLI, ROOT, build_wheels

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
NOT_PACKAGED = {"playbooks/demo.py"}


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of both wheels by their names."""
    folder = tmp_path_factory.mktemp("wheel")
    found: dict[str, bytes] = {}
    for path in build_wheels(folder):
        with ZipFile(path) as wheel:
            assert not found.keys() & set(wheel.namelist()), "one wheel has each file"
            found |= {name: wheel.read(name) for name in wheel.namelist()}
    return found


def sources(folder: str) -> set[Path]:
    found = {path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    return {path for path in found if str(path.relative_to(ROOT)) not in NOT_PACKAGED}


def is_documentation(path: Path) -> bool:
    """Whether it is a page that `noetl-stream docs` lists."""
    folder, *inside = path.relative_to(ROOT / "docs").parts
    return folder in FOLDERS and len(inside) == 1 and path.suffix == ".md"


def test_the_wheels_hold_only_the_package_the_examples_and_the_pages(contents: dict[str, bytes]) -> None:
    expected = {str(path.relative_to(ROOT / "src")): path for path in sources("src/noetl_stream")}
    expected |= {f"noetl_stream/examples/{path.relative_to(ROOT / 'playbooks')}": path for path in sources("playbooks")}
    expected |= {f"noetl_stream/{path.relative_to(ROOT)}": path for path in sources("docs") if is_documentation(path)}
    packed = {name for name in contents if ".dist-info/" not in name}
    assert packed == set(expected)
    assert {name for name in packed if contents[name] != expected[name].read_bytes()} == set()
    assert {"noetl_stream/py.typed", "noetl_stream/examples/hello.yaml"} <= packed
    assert [name for name in packed if name.endswith(".sql")]


def test_the_wheels_name_their_version_licence_addresses_commands_and_tools(contents: dict[str, bytes]) -> None:
    for name in ("noetl_stream", "noetl_stream_cli"):
        info = f"{name}-{PROJECT['version']}.dist-info"
        metadata = contents[f"{info}/METADATA"].decode()
        assert f"\nVersion: {PROJECT['version']}\n" in metadata
        assert re.findall(r"^Project-URL: (\w+), https://", metadata, re.M) == [*PROJECT["urls"]]
        assert f"{info}/licenses/LICENSE" in contents
    entry_points = contents[f"{info}/entry_points.txt"].decode()
    assert "noetl-stream = noetl_stream.__main__:program" in entry_points
    assert "[noetl_stream.tools]" in entry_points


def test_the_program_needs_the_command_line_of_its_version_and_names_nothing_twice() -> None:
    ours = tomllib.loads((CLI / "pyproject.toml").read_text())["project"]
    assert f"noetl-stream-cli=={PROJECT['version']}" in PROJECT["dependencies"]
    assert ours["urls"] == PROJECT["urls"]
    assert not set(ours["dependencies"]) & set(PROJECT["dependencies"])


def test_the_program_has_the_version_of_the_project() -> None:
    assert noetl_stream.__version__ == PROJECT["version"]
    assert not [path for path in sources("src") if PROJECT["version"].encode() in path.read_bytes()]


def test_the_changelog_begins_with_this_version() -> None:
    headings = re.findall(r"^## \[(\S+)\] - (?:unreleased|\d{4}-\d\d-\d\d)$", CHANGELOG, re.M)
    assert headings[0] == PROJECT["version"]
    assert headings == sorted(headings, key=lambda version: [*map(int, version.split("."))], reverse=True)
    assert len(re.findall(r"^## ", CHANGELOG, re.M)) == len(headings) >= 2


def test_each_release_of_the_changelog_links_to_its_tag() -> None:
    repository = PROJECT["urls"]["Changelog"].split("/blob/")[0]
    headings = re.findall(r"^## \[(\S+)\] - (\S+)$", CHANGELOG, re.M)
    expected = {version: f"{repository}/releases/tag/v{version}" for version, day in headings if day != "unreleased"}
    if headings[0][1] == "unreleased":
        expected[headings[0][0]] = f"{repository}/compare/v{headings[1][0]}...main"
    assert dict(re.findall(r"^\[(\S+)\]: (\S+)$", CHANGELOG, re.M)) == expected


def test_each_bullet_of_the_changelog_is_one_sentence() -> None:
    bullets = [" ".join(bullet.split()) for bullet in re.findall(r"^- (.+(?:\n  .+)*)", CHANGELOG, re.M)]
    texts = {bullet: re.sub(r"`[^`]*`", "code", bullet) for bullet in bullets}
    assert not [bullet for bullet, text in texts.items() if not text.endswith(".") or re.search(r"[.!?;] ", text)]
    assert len(texts) == len(bullets)
