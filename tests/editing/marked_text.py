"""Texts with marks, as an editor's cursor: ``‸`` or, where there are several, ``‸`` and one letter or digit each."""

from __future__ import annotations

import re
from functools import cache

from noetl_stream.playbook.editing.completion import Language, SchemaWords, complete
from noetl_stream.playbook.editing.hover import hover
from noetl_stream.playbook.editing.names import TextNames
from noetl_stream.playbook.editing.tree import Lines, read_tree
from noetl_stream.playbook.schema import playbook_schema
from noetl_stream.tools.registry import kinds_of, load_tools

KINDS = kinds_of(load_tools())


@cache
def language() -> Language:
    helpers = {name: kind.helper for name, kind in KINDS.items() if kind.helper}
    return Language(SchemaWords(playbook_schema(KINDS)), helpers)


def at_mark(text: str, mark: str = "") -> tuple[str, int]:
    """The text without marks, and the offset of one."""
    kept = re.sub(r"‸\w", lambda found: "‸" if found[0] == f"‸{mark}" else "", text) if mark else text
    return kept.replace("‸", ""), kept.index("‸")


def names_of(text: str) -> TextNames:
    return TextNames(text, read_tree(text))


def offered(text: str, mark: str = "") -> list[str]:
    """What may be written at a mark."""
    return [one.label for one in complete(*at_mark(text, mark), language(), ["team/called"]).offers]


def told(text: str, mark: str = "") -> str:
    """What is said about what stands at a mark."""
    plain, offset = at_mark(text, mark)
    found = hover(names_of(plain), Lines(plain), offset, language())
    return found.text if found else ""
