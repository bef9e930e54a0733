"""The checks every change must pass: lint, types, arrows, sizes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_FOLDER_FILES = 15
MAX_FILES_OF_A_NAME = 3
MAX_COMMON_NAMES = 10
"""Names that more files than that may have: a port and its adapters, one thing in each role."""
MAX_POSITIONAL_ARGUMENTS = 6
ALIKE = ("columns_of",)
"""Functions of any number of arguments that are all alike."""


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"], ["lint-imports"]],
    ids=" ".join,
)
def test_the_tree_passes(command: list[str]) -> None:
    program = Path(sys.executable).parent / command[0]
    ended = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_files_and_functions_stay_small() -> None:
    texts = {path.relative_to(ROOT): path.read_text() for path in SOURCES}
    found = [f"{path}: {lines} lines" for path, text in texts.items() if (lines := text.count("\n")) > MAX_FILE_LINES]
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno >= MAX_FUNCTION_LINES:
                    found.append(f"{path}:{node.lineno}: {node.name}")
    assert not found, "\n".join(found)


def test_a_folder_has_few_files_and_a_name_belongs_to_few_of_them() -> None:
    files = [path for path in SOURCES if path.name != "__init__.py"]
    folders, names = Counter(path.parent for path in files), Counter(path.name for path in files)
    assert {folder for folder, count in folders.items() if count > MAX_FOLDER_FILES} == set()
    common = {name for name, count in names.items() if count > MAX_FILES_OF_A_NAME}
    assert len(common) <= MAX_COMMON_NAMES, common


def test_many_arguments_are_given_by_keyword() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and len(node.args) > MAX_POSITIONAL_ARGUMENTS
        and (name := ast.unparse(node.func)) not in ALIKE
    ]
    assert found == []


def test_only_the_settings_read_the_environment() -> None:
    readers = [path.name for path in SOURCES if "os.environ" in path.read_text() or "getenv" in path.read_text()]
    assert readers == [
        "environment.py",
        "process_environment.py",
        "zygote.py",
        "child.py",
    ]  # the last two make the environment of children
