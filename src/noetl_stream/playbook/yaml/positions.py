"""Maps a position in a scalar's text to the file, through quotes, escapes, folding and indentation."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from noetl_stream.playbook.diagnostics import Position
from noetl_stream.playbook.yaml.nodes import Scalar

_BREAK: Final = re.compile("\r\n?|\n")
"""The pattern of line breaks of YAML 1.2."""
_PROPERTIES: Final = re.compile(r"(?:[&!]\S*\s+)+")
_BLOCK_HEADER: Final = re.compile(r"[|>][^\n]*\n")
_ESCAPE: Final = re.compile(r"\\(?:x..|u.{4}|U.{8}|.)", re.DOTALL)
_LINE_JOIN: Final = re.compile(r"\\\r?\n\s*")


class InText(msgspec.Struct, frozen=True):
    """A position in a scalar's text, mapped to the file on first use.

    ``line`` and ``column`` start at 1. ``mark`` is the scalar's own if the position cannot be mapped.
    """

    source: str
    scalar: Scalar
    line: int
    column: int

    @property
    def mark(self) -> Position:
        value = self.scalar.value
        if not isinstance(value, str):
            return self.scalar.mark
        offset = _walk(self.source, self.scalar, value, _offset_of(value, self.line, self.column))
        return self.scalar.mark if offset is None else mark_of(self.source, offset)

    @property
    def pointer(self) -> str:
        return self.scalar.pointer


def mark_of(source: str, offset: int) -> Position:
    """The line and column of a character offset."""
    line, start = 1, 0
    for found in _BREAK.finditer(source, 0, offset):
        line, start = line + 1, found.end()
    return Position(line, offset - start + 1)


def _offset_of(value: str, line: int, column: int) -> int:
    start = 0
    for _ in range(line - 1):
        following = value.find("\n", start) + 1
        if not following:
            break
        start = following
    return min(start + max(column, 1) - 1, max(len(value) - 1, 0))


def _walk(source: str, scalar: Scalar, value: str, wanted: int) -> int | None:
    """The source offset of ``value[wanted]``, found by walking spelling and value side by side."""
    at, end = _content_start(source, scalar), scalar.end
    for index, character in enumerate(value):
        here, at = _match(source, at, end, character, scalar.style)
        if here is None:
            return None
        if index == wanted:
            return here
    return None


def _content_start(source: str, scalar: Scalar) -> int:
    start = scalar.start
    if properties := _PROPERTIES.match(source, start, scalar.end):
        start = properties.end()
    if scalar.style in ("|", ">"):
        header = _BLOCK_HEADER.match(source, start)
        return header.end() if header else start
    return start + 1 if scalar.style in ("'", '"') else start


def _match(source: str, at: int, end: int, character: str, style: str) -> tuple[int | None, int]:
    """The offset at or after ``at`` where ``character`` is spelled, and the end of its spelling."""
    while at < end:
        if style == '"' and source[at] == "\\":
            if join := _LINE_JOIN.match(source, at, end):
                at = join.end()
                continue
            escape = _ESCAPE.match(source, at, end)
            return at, escape.end() if escape else at + 1
        if style == "'" and source.startswith("''", at):
            return at, at + 2
        if source[at] == character or (character.isspace() and source[at].isspace()):
            return at, at + 1
        if not source[at].isspace():
            return None, at
        at += 1
    return None, at
