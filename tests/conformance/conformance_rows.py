"""The rows of the conformance table: each normative sentence of the specifications, its state, the tests that show it.

They stand in ``sentences/``, one file a source; ``sentences/sources.yaml`` has the sources with their sections.
``conformance_table.py`` makes the pages of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec
from ruamel.yaml import YAML

ROOT: Final = Path(__file__).resolve().parents[2]
SENTENCES: Final = Path(__file__).with_name("sentences")

State = Literal["holds", "decided-otherwise", "not-yet"]
STATES: Final[Sequence[State]] = get_args(State)
LONGEST_SENTENCE: Final = 160
LONGEST_QUOTE: Final = 240


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A specification.

    Attributes:
        name: Of its file of rows and of its page.
        letter: What the ids of its rows begin with.
        sections: Titles by number, in its order. ``0`` is what stands before the first.
        markdown: Whether its text is Markdown, so that quotes are shown as they are.
        law: The page of the documentation that says the same in our words, from the project's root; or nothing.
    """

    name: str
    letter: str
    title: str
    about: str
    sections: dict[str, str]
    markdown: bool = False
    law: str = ""


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One normative sentence.

    Attributes:
        quote: The source's own words, in one piece; white space does not count.
        sentence: What is so here, or will be.
        decided: Of ``decided-otherwise``: which source or ADR says otherwise, and what.
        comes_with: Of ``not-yet``: the capability that brings it, a key of :attr:`Table.capabilities`.
        tests: Node ids as pytest takes them, from the project's root.
    """

    id: str
    section: str
    quote: str
    sentence: str
    state: State
    decided: str = ""
    comes_with: str = ""
    note: str = ""
    tests: list[str] = []


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``sources.yaml`` holds: capabilities still to come, and the sources in order of precedence."""

    capabilities: dict[str, str]
    sources: list[Source]


@cache
def read_table() -> Table:
    """The sources and capabilities.

    Raises:
        msgspec.ValidationError: a key is unknown, missing, or of another type.
    """
    return msgspec.convert(_yaml("sources"), Table)


@cache
def read_rows(source: str) -> Sequence[Row]:
    """The rows of the source of this name, in its order.

    Raises:
        msgspec.ValidationError: a row has an unknown key, a missing one, or an unknown state.
    """
    return msgspec.convert(_yaml(source), list[Row])


def all_rows() -> Iterator[Row]:
    """The rows of every source."""
    for source in read_table().sources:
        yield from read_rows(source.name)


def case_file(test: str) -> Path | None:
    """The file, in a folder beside the test, that the parameter of this node names."""
    file, _, parameter = test.removesuffix("]").partition("[")
    found = sorted((ROOT / file.partition("::")[0]).parent.glob(f"*/{parameter}.yaml")) if parameter else []
    return found[0] if found else None


def _yaml(name: str) -> Any:
    return YAML(typ="safe").load((SENTENCES / f"{name}.yaml").read_text(encoding="utf-8"))
