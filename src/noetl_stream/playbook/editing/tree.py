"""A tolerant reader of YAML: the tree of a text that may be unfinished, with the offsets of all its parts, and their
lines and characters as editors count them.

:func:`~noetl_stream.playbook.yaml.source.read_source` decides the meaning of a text, and refuses invalid ones. This
reader never refuses and costs a small part of that, so that it can be called for each keystroke. Both read texts that
both accept in the same way; aliases are not followed here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from noetl_stream.playbook.yaml.source import MAX_PLAYBOOK_BYTES, MAX_YAML_DEPTH

Step = str | int
"""A step of a path in the tree: a key of a mapping, or an index of a list."""


class TextScalar(msgspec.Struct, frozen=True):
    """A value or key in the text. ``start`` to ``end`` is its spelling, quotes included; ``style`` is ``'``, ``"``,
    ``|``, ``>``, ``*`` for an alias, or empty. ``value`` is the text between quotes, without escapes resolved.
    """

    start: int
    end: int
    value: str
    style: str = ""

    @property
    def inner(self) -> tuple[int, int]:
        """The start and end of the scalar's text, without quotes."""
        quotes = 1 if self.style in ("'", '"') else 0
        return self.start + quotes, max(self.start + quotes, self.end - quotes)


class TextPair(msgspec.Struct, frozen=True):
    """A key and its value, which may not have been written yet. ``end`` is where the pair's text ends."""

    key: TextScalar
    value: TextPart | None
    end: int


class TextMapping(msgspec.Struct, frozen=True):
    start: int
    end: int
    pairs: list[TextPair]

    def get(self, name: str) -> TextPart | None:
        return next((pair.value for pair in self.pairs if pair.key.value == name), None)

    @property
    def names(self) -> list[str]:
        return [pair.key.value for pair in self.pairs]


class TextList(msgspec.Struct, frozen=True):
    start: int
    end: int
    items: list[TextPart | None]


TextPart = TextScalar | TextMapping | TextList


def read_tree(text: str) -> TextPart | None:
    """Reads the first document of a text; ``None`` if it has no value, or more bytes than a playbook may have."""
    if len(text) > MAX_PLAYBOOK_BYTES:
        return None
    return _Reader(text).document()


def child_of(part: TextPart | None, step: Step) -> TextPart | None:
    if isinstance(part, TextList) and isinstance(step, int):
        return part.items[step] if 0 <= step < len(part.items) else None
    return part.get(step) if isinstance(part, TextMapping) and isinstance(step, str) else None


def find(part: TextPart | None, path: tuple[Step, ...]) -> TextPart | None:
    """The part of a tree at a path."""
    for step in path:
        part = child_of(part, step)
    return part


def text_of(part: TextPart | None) -> str:
    """The text of a scalar; empty for any other part."""
    return part.value if isinstance(part, TextScalar) else ""


def pairs_of(part: TextPart | None) -> list[TextPair]:
    return part.pairs if isinstance(part, TextMapping) else []


def items_of(part: TextPart | None) -> list[TextPart | None]:
    return part.items if isinstance(part, TextList) else []


def names_in(part: TextPart | None) -> list[str]:
    """The keys of a mapping."""
    return part.names if isinstance(part, TextMapping) else []


def path_to(part: TextPart | None, offset: int) -> tuple[tuple[Step, ...], bool]:
    """The path of the part at an offset, and whether that is a key, which then ends the path."""
    path: list[Step] = []
    while isinstance(part, TextMapping | TextList):
        if isinstance(part, TextList):
            inside = (index for index, item in enumerate(part.items) if item and item.start <= offset <= item.end)
            index = next(inside, None)
            if index is None:
                break
            path.append(index)
            part = part.items[index]
            continue
        pair = next((pair for pair in part.pairs if pair.key.start <= offset <= pair.end), None)
        if pair is None:
            break
        path.append(pair.key.value)
        if offset <= pair.key.end:
            return tuple(path), True
        part = pair.value
    return tuple(path), False


def scalars_in(part: TextPart | None) -> Iterator[TextScalar]:
    """The values in a part at any depth, without keys."""
    if isinstance(part, TextScalar):
        yield part
    for pair in pairs_of(part):
        yield from scalars_in(pair.value)
    for item in items_of(part):
        yield from scalars_in(item)


_FIRST: Final = r"(?:[^\s\-?:,\[\]{}#&*!|>'\"%@`]|[-?:](?=[^\s,\[\]{}]))"
_KEY: Final = re.compile(
    rf"(?:(?P<plain>{_FIRST}(?:[^\s:#]|:(?=\S)|(?<=\S)\#|[ \t]++(?=[^\s:#]|:\S))*+)"
    r"|\"(?P<double>(?:\\.|[^\"\\\n])*+)\"|'(?P<single>(?:''|[^'\n])*+)')[ \t]*+:(?=\s|\Z)"
)
_FLOW_KEY_END: Final = re.compile(r"[ \t]*:")
_PROPERTIES: Final = re.compile(r"(?:[&!][^\s,\[\]{}]*+[ \t]*+)++")
_PLAIN: Final = re.compile(r"(?:[^\n\r:#]|:(?=\S)|(?<=\S)#)+")
_FLOW_PLAIN: Final = re.compile(r"(?:[^\n\r:#,\[\]{}]|:(?=[^\s,\[\]{}])|(?<=\S)#)+")
_ALIAS: Final = re.compile(r"\*[^\s,\[\]{}]+")
_DOUBLE: Final = re.compile(r'"(?:\\[^\n\r]|[^"\\\n\r]|\\(?=[\n\r]))*"?')
_SINGLE: Final = re.compile(r"'(?:''|[^'\n\r])*+'?")
_HEADER: Final = re.compile(r"[|>][-+0-9]*[ \t]*(?:#[^\n]*)?(?=\r?\n|\Z)")
_BLANK: Final = re.compile(r"[ \t]*+(?:\r?\n|\r|\#)")
_SPACES: Final = re.compile(r"[ \t]*")
_MARKER: Final = re.compile(r"(?:---|\.\.\.)(?=\s|\Z)")


class _Reader:
    """A reader of one text. ``floor`` is the column of the mapping or list around; its values begin further right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line_start = 0
        self._ends = False

    def document(self) -> TextPart | None:
        self._at = self._line_start = 1 if self._text.startswith("\ufeff") else 0
        while self._text.startswith("%", self._at) or _BLANK.match(self._text, self._at):
            self._skip_line()
        if _MARKER.match(self._text, self._at):
            self._at += 3
        return self._block(-1, 0)

    # Lines

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end + 1
        self._line_start = self._at

    def _seek(self) -> int:
        """Goes to the next text, over spaces and comments; returns its column, or -2 at the end of the document."""
        text, length = self._text, len(self._text)
        while self._at < length:
            self._at = _SPACES.match(text, self._at).end()  # type: ignore[union-attr]
            here = text[self._at : self._at + 1]
            if here == "#" and (self._at == self._line_start or text[self._at - 1] in " \t\n"):
                self._skip_line()
            elif here == "\n":
                self._at += 1
                self._line_start = self._at
            elif here == "\r":
                self._at += 1
                if text[self._at : self._at + 1] != "\n":
                    self._line_start = self._at
            elif here:
                if self._at == self._line_start and _MARKER.match(text, self._at):
                    self._ends = True
                return -2 if self._ends else self._at - self._line_start
        return -2

    def _is_line_over(self) -> bool:
        """Whether only spaces and a comment follow in this line."""
        self._at = _SPACES.match(self._text, self._at).end()  # type: ignore[union-attr]
        here = self._text[self._at : self._at + 1]
        return here in ("", "\n", "\r") or (here == "#" and self._text[self._at - 1] in " \t\n")

    # Blocks

    def _block(self, floor: int, depth: int, least: int | None = None) -> TextPart | None:
        """Reads the value that follows here, further right than ``floor``, or at ``least`` if that is a list."""
        column = self._seek()
        if column == -2 or depth > MAX_YAML_DEPTH:
            return None
        if column <= floor and not (column == least and self._is_item()):
            return None
        return self._value_at(column, floor, depth)

    def _value_at(self, column: int, floor: int, depth: int) -> TextPart | None:
        if self._is_item():
            return self._list(column, depth)
        properties = _PROPERTIES.match(self._text, self._at)
        if properties:
            before = self._at
            self._at = properties.end()
            if self._is_line_over():
                return self._block(floor, depth)
            if _KEY.match(self._text, self._at):
                return self._mapping(column, depth, before)
        if self._key() is not None:
            return self._mapping(column, depth, self._at)
        return self._scalar(floor, depth)

    def _is_item(self) -> bool:
        text, at = self._text, self._at
        return text.startswith("-", at) and text[at + 1 : at + 2] in ("", " ", "\n", "\r", "\t")

    def _key(self) -> re.Match[str] | None:
        here = self._text[self._at : self._at + 1]
        return None if here in ("{", "[", "|", ">", "*") else _KEY.match(self._text, self._at)

    def _list(self, column: int, depth: int) -> TextList:
        start = end = self._at
        items: list[TextPart | None] = []
        while True:
            here = self._seek()
            if here > column or (here == column and not self._is_item() and self._key() is None):
                self._skip_line()  # what does not belong here
                continue
            if here != column or not self._is_item():
                break
            self._at += 1
            end = self._at
            if self._is_line_over():
                item = self._block(column, depth + 1)
            else:
                inner = self._at - self._line_start
                item = self._value_at(inner, column, depth + 1) if depth < MAX_YAML_DEPTH else None
                if depth >= MAX_YAML_DEPTH:
                    self._skip_line()
            items.append(item)
            end = item.end if item is not None else end
        return TextList(start, end, items)

    def _mapping(self, column: int, depth: int, start: int) -> TextMapping:
        end = start
        pairs: list[TextPair] = []
        is_first = True
        while True:
            here = column if is_first else self._seek()
            is_first = False
            if here > column:
                self._skip_line()  # what does not belong here
                continue
            if here != column or self._is_item():
                break
            properties = _PROPERTIES.match(self._text, self._at)
            self._at = properties.end() if properties else self._at
            found = self._key()
            if found is None:
                self._skip_line()  # a key that is being written
                continue
            key = _key_of(found)
            self._at = found.end()
            value = self._value(column, depth)
            end = value.end if value is not None else found.end()
            pairs.append(TextPair(key, value, end))
        return TextMapping(start, end, pairs)

    def _value(self, column: int, depth: int) -> TextPart | None:
        """Reads the value after the colon of a key at ``column``."""
        if self._is_line_over():
            return self._block(column, depth + 1, least=column)
        properties = _PROPERTIES.match(self._text, self._at)
        if properties:
            self._at = properties.end()
            if self._is_line_over():
                return self._block(column, depth + 1, least=column)
        return self._scalar(column, depth + 1)

    # Scalars and what is written in brackets

    def _scalar(self, floor: int, depth: int) -> TextPart | None:
        text, start = self._text, self._at
        here = text[start : start + 1]
        if here in ("{", "["):
            part = self._flow(floor, depth)
            self._end_line()
            return part
        if here in ("'", '"'):
            quoted = self._quoted_text(floor)
            self._end_line()
            return quoted
        if here in ("|", ">") and (header := _HEADER.match(text, start)):
            return self._block_scalar(floor, header.end())
        if alias := _ALIAS.match(text, start):
            self._at = alias.end()
            self._end_line()
            return TextScalar(start, alias.end(), alias[0][1:], "*")
        return self._plain(floor)

    def _end_line(self) -> None:
        """Skips the rest of a line behind a value: a comment or a mistake."""
        if not self._is_line_over():
            self._skip_line()

    def _plain(self, floor: int) -> TextScalar | None:
        text, start = self._text, self._at
        words: list[str] = []
        end = start
        while True:
            found = _PLAIN.match(text, self._at)
            if found is None or not found[0].strip():
                break
            words.append(found[0].strip())
            end = self._at = found.start() + len(found[0].rstrip())
            if not self._is_line_over() or text[self._at : self._at + 1] == "#":
                break
            before, line = self._at, self._line_start
            column = self._seek_in_text()
            if column <= floor or _KEY.match(text, self._at):
                self._at, self._line_start = before, line
                break
        if not words:
            self._skip_line()
            return None
        self._end_line()
        return TextScalar(start, end, " ".join(words))

    def _seek_in_text(self) -> int:
        """Goes to the next text like :meth:`_seek`; a comment ends a text."""
        before = self._at
        column = self._seek()
        if column != -2 and "#" in self._text[before : self._at]:
            return -2
        return column

    def _quoted_text(self, floor: int) -> TextScalar:
        """Reads a quoted text. One that is not closed ends with its line."""
        text, start = self._text, self._at
        quote = text[start]
        at, line = start + 1, self._line_start
        while at < len(text):
            character = text[at]
            if character == "\\" and quote == '"':
                at += 2 if text[at + 1 : at + 2] not in ("\n", "\r") else 1
                continue
            if character == quote:
                if quote == "'" and text.startswith("''", at):
                    at += 2
                    continue
                self._at, self._line_start = at + 1, line
                return TextScalar(start, at + 1, text[start + 1 : at], quote)
            if character == "\n":
                line = at + 1
                inner = _SPACES.match(text, line).end()  # type: ignore[union-attr]
                if text[inner : inner + 1] not in ("\n", "\r") and inner - line <= floor:
                    break
            at += 1
        whole = (_DOUBLE if quote == '"' else _SINGLE).match(text, start)
        end = whole.end() if whole else start + 1
        self._at = end
        return TextScalar(start, end, text[start + 1 : end], quote)

    def _block_scalar(self, floor: int, header_end: int) -> TextScalar:
        text, start = self._text, self._at
        self._at = header_end
        self._skip_line()
        end, indent = header_end, None
        while self._at < len(text):
            line = self._at
            inner = _SPACES.match(text, line).end()  # type: ignore[union-attr]
            if text[inner : inner + 1] in ("\n", "\r", ""):
                self._skip_line()
                continue
            column = inner - line
            if column <= floor or (indent is not None and column < indent):
                break
            indent = column if indent is None else indent
            if column == 0 and _MARKER.match(text, line):
                break
            self._skip_line()
            end = line + len(text[line : self._at].rstrip("\r\n"))
        return TextScalar(start, end, text[start:end], text[start])

    def _flow(self, floor: int, depth: int) -> TextPart | None:
        """Reads a mapping or list in brackets. An unclosed one ends at a line that is not right of ``floor``."""
        text, start = self._text, self._at
        is_mapping = text[start] == "{"
        closing = "}" if is_mapping else "]"
        self._at += 1
        pairs: list[TextPair] = []
        items: list[TextPart | None] = []
        while self._seek_in_flow(floor):
            here = text[self._at]
            if here in "}]":
                self._at += 1 if here == closing else 0
                break
            if here == ",":
                self._at += 1
                continue
            before = self._at
            part = self._flow_part(floor, depth + 1)
            colon = _FLOW_KEY_END.match(text, self._at) if isinstance(part, TextScalar) else None
            if isinstance(part, TextScalar) and colon:
                self._at = colon.end()
                value = None
                if self._seek_in_flow(floor) and text[self._at] not in ",}]":
                    value = self._flow_part(floor, depth + 1)
                pair = TextPair(part, value, value.end if value is not None else colon.end())
                if is_mapping:
                    pairs.append(pair)
                else:
                    items.append(TextMapping(part.start, pair.end, [pair]))
            elif is_mapping and isinstance(part, TextScalar):
                pairs.append(TextPair(part, None, part.end))
            elif not is_mapping:
                items.append(part)
            if self._at == before:
                self._at += 1
        return TextMapping(start, self._at, pairs) if is_mapping else TextList(start, self._at, items)

    def _flow_part(self, floor: int, depth: int) -> TextPart | None:
        text = self._text
        properties = _PROPERTIES.match(text, self._at)
        if properties:
            self._at = properties.end()
        start = self._at
        here = text[start : start + 1]
        if here in ("{", "[") and depth <= MAX_YAML_DEPTH:
            return self._flow(floor, depth)
        if here in ("'", '"'):
            return self._quoted_text(floor)
        if alias := _ALIAS.match(text, start):
            self._at = alias.end()
            return TextScalar(start, alias.end(), alias[0][1:], "*")
        words: list[str] = []
        end = start
        while found := _FLOW_PLAIN.match(text, self._at):
            if not found[0].strip():
                break
            words.append(found[0].strip())
            self._at = end = found.start() + len(found[0].rstrip())
            if not self._is_line_over() or text[self._at : self._at + 1] == "#":
                break
            before, line = self._at, self._line_start
            if not self._seek_in_flow(floor):
                self._at, self._line_start = before, line
                break
        self._at = max(self._at, end)
        return TextScalar(start, end, " ".join(words)) if words else None

    def _seek_in_flow(self, floor: int) -> bool:
        """Goes to the next text in brackets; returns whether it can belong to them."""
        before, line = self._at, self._line_start
        column = self._seek()
        is_there = column != -2 and (self._line_start == line or column > floor or self._text[self._at] in "}]")
        if not is_there:
            self._at, self._line_start, self._ends = before, line, False
        return is_there


def _key_of(found: re.Match[str]) -> TextScalar:
    for group, style in (("plain", ""), ("double", '"'), ("single", "'")):
        if (word := found[group]) is not None:
            start = found.start(group)
            quotes = 1 if style else 0
            stripped = word.rstrip() if not style else word
            return TextScalar(start - quotes, start + len(stripped) + quotes, stripped, style)
    raise AssertionError("a key has a spelling")


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
