"""The pages of the conformance table, made of its rows: ``conformance_table.py FOLDER``, as the site's build does."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from conformance_rows import ROOT, STATES, Row, Source, State, Table, case_file, read_rows, read_table

FOLDER: Final = ROOT / "docs" / "reference" / "conformance"
"""Where links of the pages begin. Of the pages only the beginning of the index is kept there."""

Rows = Mapping[str, Sequence[Row]]
"""By the name of their source."""

_SHOWN: Final[Mapping[State, str]] = {
    "holds": "holds",
    "decided-otherwise": "decided otherwise",
    "not-yet": "not yet",
}
_COLUMNS: Final = ("row", "source", "this version", "state", "notes", "tests")
_ADR: Final = re.compile(r"\bADR (\d+)\b")


def pages(table: Table, rows: Rows) -> dict[str, str]:
    """The text of each page by its file name."""
    texts = {f"{source.name}.md": "".join(_page(table, source, rows[source.name])) for source in table.sources}
    return {"index.md": "".join(_index(table, rows)), **texts}


def write_pages(folder: Path) -> None:
    """Writes the pages into a folder, which is there."""
    table = read_table()
    written = pages(table, {source.name: read_rows(source.name) for source in table.sources})
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")


def _index(table: Table, rows: Rows) -> Iterator[str]:
    yield (FOLDER / "index.md").read_text(encoding="utf-8")
    yield "\n" + _line(["source", "rows", *(_SHOWN[state] for state in STATES)]) + "|---" * (2 + len(STATES)) + "|\n"
    for source in table.sources:
        found = rows[source.name]
        states = Counter(row.state for row in found)
        counts = [str(states[state]) for state in STATES]
        yield _line([f"[{source.title}]({source.name}.md)", str(len(found)), *counts])
    yield "\n## Not yet\n" if table.capabilities else ""
    for capability, title in table.capabilities.items():
        missing = [(s.name, row) for s in table.sources for row in rows[s.name] if row.comes_with == capability]
        yield f"\n### {title}\n\n" if missing else ""
        yield from (f"- [{row.id}]({name}.md#{row.id.lower()}) {row.sentence}\n" for name, row in missing)


def _page(table: Table, source: Source, rows: Sequence[Row]) -> Iterator[str]:
    yield f"# Conformance: {source.title}\n\n{source.about} [What the states mean](index.md).\n"
    for number, title in source.sections.items():
        yield f"\n## §{number} {title}\n"
        if law := _law(source, number):
            yield f"\nSee also [§{number}]({law}).\n"
        found = [row for row in rows if row.section == number]
        if found:
            yield "\n" + _line(_COLUMNS) + "|---" * len(_COLUMNS) + "|\n"
            yield from (_line(_cells(table, source, row)) for row in found)


def _law(source: Source, number: str) -> str | None:
    """The address of this section in the page that says the same in our words, once there is one."""
    page = ROOT / source.law
    if not source.law or not page.is_file():
        return None
    heading = re.search(rf"^#+ (§?{re.escape(number)}\.? .+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return f"{_relative(page)}#{slug(heading[1])}" if heading else None


def slug(heading: str) -> str:
    """The anchor that a heading has on a page."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _cells(table: Table, source: Source, row: Row) -> list[str]:
    quote = row.quote if source.markdown else re.sub(r"([\\`*_{}\[\]<>#])", r"\\\1", row.quote)
    brought = f"comes with: {table.capabilities[row.comes_with].lower()}" if row.comes_with else ""
    why = "; ".join(filter(None, [row.decided, brought, row.note]))
    tests = "<br>".join(_link(test) for test in row.tests)
    return [f'<a id="{row.id.lower()}"></a>{row.id}', f"“{quote}”", row.sentence, _SHOWN[row.state], _cited(why), tests]


def _cited(text: str) -> str:
    """The text, with a link to each decision that it names."""

    def link(found: re.Match[str]) -> str:
        files = sorted((ROOT / "docs").rglob(f"adr/{int(found[1]):04}-*.md"))
        return f"[{found[0]}]({_relative(files[0])})" if files else found[0]

    return _ADR.sub(link, text)


def _link(test: str) -> str:
    file, _, name = test.removesuffix("]").partition("::")
    case = case_file(test)
    words = case.stem if case else name.rpartition("::")[2].removeprefix("test_").replace("[", ": ")
    return f"[{words.replace('_', ' ')}]({_relative(case or ROOT / file)})"


def _relative(path: Path) -> str:
    return Path(os.path.relpath(path, FOLDER)).as_posix()


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
