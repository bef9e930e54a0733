"""What the documents say is true: every command runs, every playbook in them checks, every link leads somewhere."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from noetl_stream.playbook.compile import check
from noetl_stream.tools.registry import kinds_of, load_tools

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def blocks(path: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(path.read_text()) if kind == language]


def commands(path: Path) -> list[list[str]]:
    lines = [line for text in blocks(path, "sh") for line in text.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def whole_playbooks() -> list[tuple[str, str]]:
    found = [(path.name, path.read_text()) for path in sorted((ROOT / "playbooks").glob("*.yaml"))]
    for path in DOCUMENTS:
        found += [(path.name, text) for text in blocks(path, "yaml") if text.startswith("apiVersion")]
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_to_a_file(path: Path) -> None:
    missing = [target for target in LINK.findall(path.read_text()) if not (path.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize(("name", "text"), whole_playbooks())
def test_every_whole_playbook_checks(name: str, text: str) -> None:
    assert [d.render() for d in check(text, kinds_of(load_tools()), file=name).diagnostics] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_make_target_exists(path: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {words[1] for words in commands(path) if words[0] == "make"} <= targets


@pytest.mark.xdist_group("journeys")
def test_every_command_of_the_documents_runs(start_stack: Callable[[int, int], object], tmp_path: Path) -> None:
    stack = start_stack(1, 1)
    shutil.copytree(ROOT / "playbooks", tmp_path / "playbooks")
    ran = 0
    for path in DOCUMENTS:
        for words in commands(path):
            if words[0] != "noetl-stream":
                assert words[0] == "make", f"{path.name}: {words}"
                continue
            command = [sys.executable, "-m", "noetl_stream.cli.main", *words[1:]]
            environment = {"NOETL_HOME": str(stack.home), "PATH": "/usr/bin:/bin"}  # type: ignore[attr-defined]
            ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
            assert ended.returncode == 0, (words, ended.stderr)
            ran += 1
    assert ran >= 4


@pytest.mark.xdist_group("journeys")
def test_the_demonstration_ends_well_and_leaves_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    import tempfile

    home = Path(tempfile.mkdtemp(prefix="noetl-demo-"))
    command = [sys.executable, str(ROOT / "playbooks" / "demo.py"), str(home)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    assert "3376" in ended.stdout
    assert "429" in ended.stderr
    assert "503" in ended.stderr
    assert "completed" in ended.stderr
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(home) not in listed.replace(str(command), "")
    shutil.rmtree(home)
