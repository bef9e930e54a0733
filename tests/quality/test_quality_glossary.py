"""The glossary is true: every term is in the code that it names, and one name is one thing."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "glossary.md"
ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| \[`(\w+)`\]\(([^)]+)\) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))


def names_in(path: Path) -> set[str]:
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def test_a_term_leads_to_its_code() -> None:
    astray = [term for term, name, target in ROWS if name not in names_in((PAGE.parent / target).resolve())]
    assert not astray, astray


def test_every_row_of_the_page_is_a_term() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    headings = sum(line.startswith(("| term ", "| --- ")) for line in rows)
    assert len(ROWS) == len(rows) - headings > 40


def test_terms_stand_in_the_page_once() -> None:
    assert [term for term, count in Counter(row[0] for row in ROWS).items() if count > 1] == []


def test_no_two_public_classes_share_a_name() -> None:
    classes = Counter(
        node.name
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert sorted(name for name, count in classes.items() if count > 1) == []
