"""No two modules import each other, directly or through others, wherever in their text the imports stand."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib.util import resolve_name
from pathlib import Path

import pytest

import noetl_stream


def imports_of(root: Path) -> dict[str, set[str]]:
    """The modules of the package in this folder that each of them names, also for types or in a function alone."""
    files = {module_of(file, root): file for file in root.rglob("*.py")}
    imports = {}
    for module, file in files.items():
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        names = set(imported(ast.parse(file.read_bytes()), package))
        found = {name if name in files else name.rpartition(".")[0] for name in names} - {module}
        imports[module] = found & files.keys()
    return imports


def module_of(file: Path, root: Path) -> str:
    return ".".join(file.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")


def imported(block: ast.AST, package: str) -> Iterator[str]:
    """What the statements of a block import: ``package.module`` or ``package.module.name``."""
    for statement in ast.iter_child_nodes(block):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            base = resolve_name("." * statement.level + (statement.module or ""), package)
            yield from (f"{base}.{alias.name}" for alias in statement.names)
        elif not isinstance(statement, ast.expr):
            yield from imported(statement, package)


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules each of which leads to all others of its group."""
    left = set(imports)
    while leaves := {module for module in left if not imports[module] & left}:
        left -= leaves
    reached = {module: reached_from(module, imports) for module in left}
    groups = {frozenset(other for other in left & reached[one] if one in reached[other]) for one in left}
    return sorted(sorted(group) for group in groups if group)


def reached_from(module: str, imports: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        fresh = imports[waiting.pop()] - found
        found |= fresh
        waiting += fresh
    return found


def test_no_modules_import_each_other() -> None:
    assert circles(imports_of(Path(noetl_stream.__path__[0]))) == []


@pytest.mark.parametrize(
    "second",
    [
        "from box.first import Name",
        "from box import first",
        "from .first import Name",
        "import box.first as other",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from box.first import Name",
        "def late():\n    try:\n        from box.first import Name\n    finally:\n        pass",
    ],
)
def test_a_circle_is_found_where_its_imports_are_hidden(second: str, tmp_path: Path) -> None:
    box = tmp_path / "box"
    box.mkdir()
    texts = {"__init__": "", "first": "import box.between", "between": "import box.second", "second": second}
    texts |= {"leaf": "import os", "user": "from box import first, leaf"}
    for name, text in texts.items():
        (box / f"{name}.py").write_text(text)
    assert circles(imports_of(box)) == [["box.between", "box.first", "box.second"]]
