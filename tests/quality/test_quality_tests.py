"""What the tests promise about themselves: each asserts something, and none leans on another or on what is private.

Ruff's ``SLF001`` refuses private attributes of other objects, in ``src`` and in ``tests`` alike.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
FILES = sorted(TESTS.rglob("*.py"))
TEST_FILES = sorted(TESTS.rglob("test_*.py"))
SUITES = sorted((TESTS / "testkit").rglob("*.py"))
ASSERTING = ("check_", "assert_", "expect")
"""What a helper's name begins with when it fails if something is wrong."""
MOMENTARY = re.compile(
    r"assert [^\n]*await [^\n]*\.(count|inner_text|input_value|is_visible|is_disabled)\(\)( ==|$)", re.M
)
"""A look at what a browser shows in this moment, which may be the one before it shows it."""


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each imported module, with each name that is taken from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def asserts(node: ast.AST, tested: set[str]) -> bool:
    """Whether it has an ``assert``, a ``pytest.raises`` or a call of a helper that asserts, none of ``tested``."""
    if isinstance(node, ast.Assert):
        return True
    if isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        return name == "raises" or (name.lstrip("_").startswith(ASSERTING) and name not in tested)
    return False


def test_nothing_is_imported_from_a_test_file_and_nothing_private() -> None:
    test_modules = {file.stem for file in TEST_FILES}
    wrong = [
        (path.name, module, name)
        for path in FILES
        for module, name in imports(ast.parse(path.read_text()))
        if module in test_modules or (module.startswith("noetl_stream") and name.startswith("_"))
    ]
    assert wrong == []


def test_every_test_asserts_something() -> None:
    silent = []
    for path in TEST_FILES + SUITES:
        tree = ast.parse(path.read_text())
        tested = {name for module, name in imports(tree) if module.startswith("noetl_stream")}
        for node in ast.walk(tree):
            is_test = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            if is_test and not any(asserts(inner, tested) for inner in ast.walk(node)):
                silent.append((path.name, node.name))
    assert silent == []


def test_tests_of_the_page_wait_for_its_texts() -> None:
    looks = {path.name: found for path in TEST_FILES if (found := MOMENTARY.findall(path.read_text()))}
    assert looks == {}


def test_no_test_compares_times_of_the_processor() -> None:
    """Growth is shown by counted calls (``growth/counted.py``), and speed by ``benchmarks/``."""
    timed = {
        path.name for path in TEST_FILES if re.search(r"\b(process_time|thread_time|perf_counter)\b", path.read_text())
    }
    assert timed - {Path(__file__).name} == set()


def test_no_test_has_a_large_text_for_a_name(request: pytest.FixtureRequest) -> None:
    assert max(len(item.nodeid) for item in request.session.items) < 1_000


def test_a_large_text_is_named_by_its_beginning_and_its_length(request: pytest.FixtureRequest) -> None:
    name = request.config.hook.pytest_make_parametrize_id
    assert name(config=request.config, val="x" * 101, argname="a") == "x" * 100 + "... of 101"
    assert name(config=request.config, val=b"\xff" * 101, argname="a") == "\\xff" * 100 + "... of 101"
    assert name(config=request.config, val="x" * 100, argname="a") is None
