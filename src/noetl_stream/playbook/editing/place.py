"""The place of a word that is being written in a text."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from noetl_stream.playbook.editing.tree import Step, TextPart, path_to, read_tree

_PLACEHOLDER: Final = "zz"
_WRITTEN: Final = re.compile(r"(?:\w[\w./-]*)?\Z")
_BEGINNING: Final = re.compile(r"\s*(?:- +)*\Z")
_KEY_FOLLOWS: Final = re.compile(r"[\w-]*\s*:")
_NOTHING_FOLLOWS: Final = re.compile(r"\s*(?:[},\]#]|\Z)")


class WrittenPlace(msgspec.Struct, frozen=True):
    """The place of a word that is being written.

    Attributes:
        path: The path from the root of the document; it ends with the key that is being written, if ``is_key``.
        is_key: Whether a key is being written, else a value.
        start: The start of the word that is being written.
        root: The document with a placeholder for the word.
        has_colon: Whether the key has its colon.
    """

    path: tuple[Step, ...]
    is_key: bool
    start: int
    root: TextPart | None
    has_colon: bool


def place_at(text: str, offset: int) -> WrittenPlace:
    """The place at an offset. A key or value that has not been written yet is read as if it had."""
    line_start = text.rfind("\n", 0, offset) + 1
    line_end = text.find("\n", offset)
    after = text[offset : len(text) if line_end < 0 else line_end].rstrip("\r")
    found = _WRITTEN.search(text, line_start, offset)
    start = found.start() if found else offset
    filled = _complete_line(text[line_start:start], after)
    read = text if filled is None else f"{text[:start]}{filled}{text[offset:]}"
    root = read_tree(read)
    path, is_key = path_to(root, start)
    return WrittenPlace(path, is_key, start, root, _KEY_FOLLOWS.match(after) is not None)


def _complete_line(lead: str, after: str) -> str | None:
    """Completes a line whose key or value has not been written yet, so that it can be read; ``None`` if it has been."""
    if _BEGINNING.match(lead):
        rest = " #" if after.strip() else ""
        return _PLACEHOLDER if _KEY_FOLLOWS.match(after) else f"{_PLACEHOLDER}: 0{rest}"
    opened = lead.rfind("{")
    if lead.rstrip().endswith(("{", ",")) and opened > max(lead.rfind("}"), lead.rfind("[")):
        end = "" if "}" in after else "}"
        return _PLACEHOLDER if _KEY_FOLLOWS.match(after) else f"{_PLACEHOLDER}: 0{end}"
    return _PLACEHOLDER if _NOTHING_FOLLOWS.match(after) else None
