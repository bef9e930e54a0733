"""The conformance table: each normative sentence of the language's sources, its state, and the tests that show it.

The rows stand in ``sentences/``, one file a source. Run this file to make ``docs/conformance.md`` of them anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec
from ruamel.yaml import YAML

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "conformance.md"
SENTENCES: Final = Path(__file__).with_name("sentences")
SOURCES: Final = {
    "language": "The decided language (LANGUAGE)",
    "canonical": "Canonical step specification v10",
    "formal": "Formal specification",
}
"""Files of rows and the titles of their sources, in order of precedence."""

State = Literal["holds", "refused", "decided-otherwise", "not-yet"]
STATES: Final[Sequence[State]] = get_args(State)
LONGEST_SENTENCE: Final = 160

_HEAD: Final = """# Conformance

Each normative sentence of the three sources of the language, what this version does about it, and the tests that show
it. LANGUAGE precedes the canonical step specification v10, which precedes the formal specification; where they
contradict each other, *decided* says which way. `tests/conformance/conformance_table.py` makes this page of the rows
that stand beside it.

- **holds**: it is so.
- **refused**: the source reserves or abandons it; whoever writes it is told so.
- **decided-otherwise**: a source that precedes, or a decision in [adr](adr) (ADR), says something else, and that is so.
- **not-yet**: not there, or not shown by a test yet.
"""


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One normative sentence, paraphrased. ``tests`` are node ids as pytest takes them, from the project's root."""

    id: str
    section: str
    sentence: str
    state: State
    decided: str = ""
    tests: list[str] = []


@cache
def read_rows(source: str) -> Sequence[Row]:
    """The rows of one source, in its order.

    Raises:
        msgspec.ValidationError: a row has an unknown key, a missing one, or an unknown state.
    """
    text = (SENTENCES / f"{source}.yaml").read_text(encoding="utf-8")
    return msgspec.convert(YAML(typ="safe").load(text), list[Row])


def all_rows() -> Iterator[Row]:
    """The rows of every source."""
    for source in SOURCES:
        yield from read_rows(source)


def markdown(tables: Mapping[str, Sequence[Row]]) -> str:
    """The page: a count, what is not yet shown, then a table for each title."""
    parts = [_HEAD, *_counts(tables)]
    for title, rows in tables.items():
        parts += [f"\n## {title}\n\n", _line(["id", "§", "sentence", "state", "decided", "tests"]), "|---" * 6 + "|\n"]
        parts += [_line(_cells(row)) for row in rows]
    return "".join(parts)


def write_table() -> None:
    """Makes ``docs/conformance.md`` of the rows."""
    PAGE.write_text(markdown({title: read_rows(source) for source, title in SOURCES.items()}), encoding="utf-8")


def _counts(tables: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    yield "\n" + _line(["source", "sentences", *STATES]) + "|---" * (2 + len(STATES)) + "|\n"
    for title, rows in tables.items():
        states = Counter(row.state for row in rows)
        yield _line([title, str(len(rows)), *(str(states[state]) for state in STATES)])
    left = ", ".join(row.id for rows in tables.values() for row in rows if row.state == "not-yet")
    yield f"\nNot yet: {left or 'none'}.\n"


def _cells(row: Row) -> list[str]:
    tests = "<br>".join(_link(test) for test in row.tests)
    return [row.id, row.section, row.sentence, row.state, row.decided, tests]


def case_file(test: str) -> Path | None:
    """The file, in a folder beside the test, that the parameter of this node names."""
    file, _, parameter = test.removesuffix("]").partition("[")
    found = sorted((ROOT / file.partition("::")[0]).parent.glob(f"*/{parameter}.yaml")) if parameter else []
    return found[0] if found else None


def _link(test: str) -> str:
    file, _, name = test.removesuffix("]").partition("::")
    case = case_file(test)
    words = case.stem if case else name.rpartition("::")[2].removeprefix("test_").replace("[", ": ")
    target = case.relative_to(ROOT) if case else file
    return f"[{words.replace('_', ' ')}](../{target})"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    write_table()
