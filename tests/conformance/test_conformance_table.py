"""The table is whole, true to the tests there are, and honest about what precedes what; its pages are up to date."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from conformance_rows import (
    LONGEST_QUOTE,
    LONGEST_SENTENCE,
    ROOT,
    Row,
    Source,
    all_rows,
    case_file,
    read_rows,
    read_table,
)
from conformance_table import FOLDER, pages

SHARED = sorted((ROOT / "tests/testkit/noetl_testkit/conformance").glob("*.py"))
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
NODE = re.compile(r"(tests/[\w/]+\.py)::(?:(\w+)::)?(test_\w+)(?:\[(.+)\])?\Z")
ADR = re.compile(r"\bADR (\d+)\b")
CITED = re.compile(r"\b(LANGUAGE|v10|formal specification|PROTOCOL) §")
SOURCES = read_table().sources
PRECEDING: Mapping[str, frozenset[str]] = {
    "language": frozenset({"PROTOCOL"}),
    "v10": frozenset({"LANGUAGE", "PROTOCOL"}),
    "formal": frozenset({"LANGUAGE", "v10", "PROTOCOL"}),
    "protocol": frozenset({"LANGUAGE"}),
}
"""Which sources a sentence of each may yield to; of the others, to any."""
ANY = frozenset({"LANGUAGE", "v10", "formal specification", "PROTOCOL"})
ROWLESS = {"legacy-architecture-case": {"0", "1", "1.1", "1.2", "2", "2.1", "2.2", "2.3", "2.4", "3", "4"}}
"""Sections that show the words of a dialect alone, which is refused as a whole."""
MUST = re.compile(r"\bMUST\b")


def rows_named(rows: list[Row]) -> str:
    return ", ".join(row.id for row in rows)


def source_of(row: Row) -> Source:
    return next(source for source in SOURCES if row.id.startswith(f"{source.letter}-"))


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


def test_a_row_in_state_not_yet_names_its_capability_and_no_test() -> None:
    left = [row for row in all_rows() if row.state == "not-yet"]
    assert [row.id for row in left if row.tests] == [], "these have tests: give them another state"
    assert {row.comes_with for row in left} == set(read_table().capabilities)
    assert [row.id for row in all_rows() if row.comes_with and row.state != "not-yet"] == []


def test_contradictions_say_where_they_are_decided() -> None:
    others = [row for row in all_rows() if row.state == "decided-otherwise"]
    silent = [row for row in others if not CITED.search(row.decided) and not ADR.search(row.decided)]
    assert silent == [], f"decided by which section of a source, or by which ADR: {rows_named(silent)}"
    assert [row.id for row in all_rows() if row.decided and row.state != "decided-otherwise"] == []


def test_a_source_yields_only_to_one_that_precedes_it() -> None:
    wrong = [
        f"{row.id}: {cited}"
        for row in all_rows()
        for cited in CITED.findall(row.decided)
        if cited not in PRECEDING.get(source_of(row).name, ANY)
    ]
    assert wrong == []


def test_a_must_yields_to_a_preceding_source_and_to_no_adr_alone() -> None:
    musts = [row for row in all_rows() if MUST.search(row.quote) and source_of(row).name != "protocol"]
    assert len(musts) > 15
    overruled = [row for row in musts if row.state == "decided-otherwise" and not CITED.search(row.decided)]
    assert overruled == [], f"an ADR does not overrule a MUST: {rows_named(overruled)}"


def test_every_decision_that_a_row_names_is_there() -> None:
    named = {(row.id, number) for row in all_rows() for number in ADR.findall(f"{row.decided} {row.note}")}
    known = {path.name[:4] for path in (ROOT / "docs").rglob("adr/*.md")}
    assert [name for name, number in named if f"{int(number):04}" not in known] == []


def test_every_row_has_an_id_of_its_own() -> None:
    assert [name for name, times in Counter(row.id for row in all_rows()).items() if times > 1] == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_every_row_stands_under_its_section_in_the_order_of_the_source(source: Source) -> None:
    rows, order = read_rows(source.name), list(source.sections)
    assert {row.section for row in rows} <= set(order)
    strays = [row for row in rows if not re.fullmatch(rf"{source.letter}-{re.escape(row.section)}-\d+", row.id)]
    assert strays == [], rows_named(strays)
    places = [order.index(row.section) for row in rows]
    assert places == sorted(places)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_every_section_has_rows_of_its_own_or_in_its_parts(source: Source) -> None:
    covered = {row.section for row in read_rows(source.name)}
    bare = {number for number in source.sections if not any(f"{one}.".startswith(f"{number}.") for one in covered)}
    assert bare == ROWLESS.get(source.name, set())


def test_sentences_and_quotes_are_short_and_unique() -> None:
    assert [row.id for row in all_rows() if not 0 < len(row.sentence) <= LONGEST_SENTENCE] == []
    assert [row.id for row in all_rows() if not 0 < len(row.quote) <= LONGEST_QUOTE] == []
    covered = Counter((source_of(row).name, row.section, row.sentence) for row in all_rows())
    assert [sentence for sentence, times in covered.items() if times > 1] == []


def test_quotes_of_a_source_in_markdown_can_be_shown_as_they_are() -> None:
    quotes = {row.id: re.sub(r"`[^`]*`", "", row.quote) for row in all_rows() if source_of(row).markdown}
    assert [name for name, quote in quotes.items() if "`" in quote or quote.count("**") % 2] == []


def test_of_the_pages_only_the_beginning_of_the_index_is_kept() -> None:
    written = pages(read_table(), {source.name: read_rows(source.name) for source in SOURCES})
    assert [path.name for path in FOLDER.iterdir()] == ["index.md"]
    assert written["index.md"].startswith((FOLDER / "index.md").read_text())
    assert {name for name, text in written.items() if not text.startswith("# Conformance")} == set()


def test_pages_have_a_heading_a_section_and_show_each_row_with_its_state() -> None:
    source = Source("one", "O", "The one", "About it.", {"1": "First", "2.1": "Without rows"})
    holds = Row("O-1-1", "1", "a | <b>", "It is.", "holds", tests=["tests/a/test_b.py::test_so_it_is[c]"])
    otherwise = Row("O-1-2", "1", "a", "It differs.", "decided-otherwise", decided="ADR 6: so", note="and more")
    left = Row("O-1-3", "1", "a", "It comes.", "not-yet", comes_with="later")
    table = type(read_table())({"later": "The Rest"}, [source])
    made = pages(table, {"one": [holds, otherwise, left]})
    page = made["one.md"]
    assert [line for line in page.splitlines() if line.startswith("## ")] == [
        f"## §{number} {title}" for number, title in source.sections.items()
    ]
    link = "[so it is: c](../../../tests/a/test_b.py)"
    assert f'| <a id="o-1-1"></a>O-1-1 | “a \\| \\<b\\>” | It is. | holds |  | {link} |\n' in page
    assert re.search(r"\| It differs\. \| decided otherwise \| \[ADR 6\]\(\S+0006-\S+\.md\): so; and more \|", page)
    assert "| It comes. | not yet | comes with: the rest |" in page
    assert "| [The one](one.md) | 3 | 1 | 1 | 1 |\n" in made["index.md"]
    assert "### The Rest\n\n- [O-1-3](one.md#o-1-3) It comes.\n" in made["index.md"]


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
