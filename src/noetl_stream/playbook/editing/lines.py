"""Lines and characters of offsets in a text, in the units that an editor counts."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final, Literal

Units = Literal["utf-8", "utf-16", "utf-32"]

_BREAK: Final = re.compile("\r\n?|\n")


class Lines:
    """The lines of a text, as YAML and editors break them.

    Args:
        units: The units that an editor counts within a line.
    """

    def __init__(self, text: str, units: Units = "utf-16") -> None:
        self.text: Final = text
        self._units = units
        found = [*_BREAK.finditer(text)]
        self._starts = [0, *(one.end() for one in found)]
        self._ends = [*(one.start() for one in found), len(text)]

    def offset(self, line: int, character: int) -> int:
        """The offset of a line and character, both from 0; the nearest one, if they do not exist."""
        if line < 0:
            return 0
        if line >= len(self._starts):
            return len(self.text)
        start, end = self._starts[line], self._ends[line]
        if self._units == "utf-32" or self.text[start:end].isascii():
            return min(start + max(character, 0), end)
        at, counted = start, 0
        while at < end and counted < character:
            counted += self._width(self.text[at])
            at += 1
        return at

    def place(self, offset: int) -> tuple[int, int]:
        """The line and character of an offset, both from 0."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self._starts, offset) - 1
        offset = min(offset, self._ends[line])
        before = self.text[self._starts[line] : offset]
        if self._units == "utf-32" or before.isascii():
            return line, len(before)
        return line, sum(map(self._width, before))

    def offset_of_mark(self, line: int, column: int) -> int:
        """The offset of a diagnostic's position, which counts characters, both numbers from 1."""
        index = min(max(line, 1), len(self._starts)) - 1
        return min(self._starts[index] + max(column, 1) - 1, self._ends[index])

    def end_of_line(self, offset: int) -> int:
        return self._ends[bisect_right(self._starts, min(max(offset, 0), len(self.text))) - 1]

    def line_of(self, offset: int) -> str:
        line = bisect_right(self._starts, min(max(offset, 0), len(self.text))) - 1
        return self.text[self._starts[line] : self._ends[line]]

    def _width(self, character: str) -> int:
        if self._units == "utf-16":
            return 2 if character > "\uffff" else 1
        return len(character.encode("utf-8", "surrogatepass"))
