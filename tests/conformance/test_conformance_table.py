"""No sentence without a row, no row without a test: the table is whole, true to the tests there are, and up to date."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from conformance_table import (
    LONGEST_SENTENCE,
    PAGE,
    ROOT,
    SOURCES,
    Row,
    all_rows,
    case_file,
    markdown,
    read_rows,
)

SHARED = sorted((ROOT / "src" / "noetl_stream" / "testing" / "conformance").glob("*.py"))
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
NODE = re.compile(r"(tests/[\w/]+\.py)::(?:(\w+)::)?(test_\w+)(?:\[(.+)\])?\Z")
DECISION = re.compile(r"\bADR (\d+)\b")
LETTERS = {"language": "L", "canonical": "C", "formal": "F"}
SECTIONS = {"language": range(15), "canonical": range(15), "formal": range(14)}
"""Which sections must have rows; 0 is what stands before the first."""


def rows_named(rows: list[Row]) -> str:
    return ", ".join(row.id for row in rows)


@cache
def functions_of(file: Path) -> frozenset[tuple[str, str]]:
    """The tests of a file, by class (empty outside of classes) and name; those of shared base classes included."""
    module = _parsed(file)
    classes = _classes(module)
    known = {name: node for shared in SHARED for name, node in _classes(_parsed(shared)).items()} | classes
    own = {("", node.name) for node in module.body if isinstance(node, FUNCTION)}
    return frozenset(own | {(name, method) for name in classes for method in _methods(name, known)})


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _classes(module: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}


def _methods(name: str, known: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    if name in known:
        yield from (node.name for node in known[name].body if isinstance(node, FUNCTION))
        for base in known[name].bases:
            yield from _methods(base.id, known) if isinstance(base, ast.Name) else ()


def exists(test: str) -> bool:
    """Whether pytest would find this node. Its parameter must be a case's file, or stand in the test file."""
    found = NODE.match(test)
    if found is None:
        return False
    path, owner, name, parameter = found.groups()
    file = ROOT / path
    if not file.is_file() or (owner or "", name) not in functions_of(file):
        return False
    return parameter is None or case_file(test) is not None or parameter in file.read_text(encoding="utf-8")


def test_every_row_names_a_test_that_exists() -> None:
    lost = [f"{row.id}: {test}" for row in all_rows() for test in row.tests if not exists(test)]
    assert lost == [], "rows lost their test: name the one that shows the sentence now"
    bare = [row for row in all_rows() if not row.tests and row.state != "not-yet"]
    assert bare == [], f"rows without a test: {rows_named(bare)}"


def test_a_row_that_is_not_yet_shown_names_no_test() -> None:
    named = [row for row in all_rows() if row.tests and row.state == "not-yet"]
    assert named == [], f"these are shown, give them a state: {rows_named(named)}"


def test_contradictions_say_which_way_they_are_decided() -> None:
    others = [row for row in all_rows() if row.state == "decided-otherwise"]
    silent = [row for row in others if "LANGUAGE §" not in row.decided and not DECISION.findall(row.decided)]
    assert silent == [], f"decided by which rule of LANGUAGE, or by which ADR: {rows_named(silent)}"


def test_every_decision_that_a_row_names_is_there() -> None:
    named = {(row.id, number) for row in all_rows() for number in DECISION.findall(row.decided)}
    assert [name for name, number in named if not list((ROOT / "docs" / "adr").glob(f"{int(number):04}-*.md"))] == []


def test_every_row_has_an_id_of_its_own() -> None:
    assert [name for name, times in Counter(row.id for row in all_rows()).items() if times > 1] == []


@pytest.mark.parametrize("source", SOURCES)
def test_every_section_has_rows_and_ids_name_their_section(source: str) -> None:
    rows = read_rows(source)
    assert {int(row.section.partition(".")[0]) for row in rows} == set(SECTIONS[source])
    strays = [row for row in rows if not re.fullmatch(rf"{LETTERS[source]}-{re.escape(row.section)}-\d+", row.id)]
    assert strays == [], rows_named(strays)


def test_sentences_are_short_and_said_once() -> None:
    assert [row.id for row in all_rows() if not 0 < len(row.sentence) <= LONGEST_SENTENCE] == []
    said = Counter((row.id[0], row.section, row.sentence) for row in all_rows())
    assert [sentence for sentence, times in said.items() if times > 1] == []


def test_the_page_is_what_the_rows_say() -> None:
    page = markdown({title: read_rows(source) for source, title in SOURCES.items()})
    assert PAGE.read_text(encoding="utf-8") == page, "run tests/conformance/conformance_table.py"


def test_what_is_not_yet_shown_is_counted_and_listed() -> None:
    row = Row(
        "L-1-01", "1", "A sentence with a | bar.", "holds", tests=["tests/some/test_some_file.py::test_so_it_is[a]"]
    )
    left = Row("L-1-02", "1", "Another.", "not-yet")
    page = markdown({"The language": [row, left], "Other": [left]})
    assert "| The language | 2 | 1 | 0 | 0 | 1 |\n| Other | 1 | 0 | 0 | 0 | 1 |\n" in page
    assert "Not yet: L-1-02, L-1-02.\n" in page
    link = "[so it is: a](../tests/some/test_some_file.py)"
    assert f"| L-1-01 | 1 | A sentence with a \\| bar. | holds |  | {link} |\n" in page


@pytest.mark.parametrize(
    ("test", "there"),
    [
        ("tests/conformance/test_conformance_table.py::test_every_row_has_an_id_of_its_own", True),
        ("tests/conformance/test_conformance_table.py::test_every_row_has_no_id", False),
        ("tests/conformance/test_conformance_lost.py::test_every_row_has_an_id_of_its_own", False),
        ("tests/store/test_memory_store.py::TestMemoryStore::test_a_new_store_has_every_partition_and_no_owner", True),
        ("tests/store/test_memory_store.py::TestMemoryStore::test_something_else", False),
        ("tests/playbook/test_playbook_broken.py::test_there_are_enough_broken_playbooks[root_vars]", True),
        ("tests/playbook/test_playbook_broken.py::test_there_are_enough_broken_playbooks[no_such_file]", False),
        ("test_every_row_has_an_id_of_its_own", False),
    ],
)
def test_a_lost_test_is_noticed(test: str, there: bool) -> None:
    assert exists(test) is there
