"""The YAML tree: plain JSON values with the position of every key and value, also inside texts (LANGUAGE §1)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.playbook.diagnostics import Position
from noetl_stream.template.runtime.attribute_access import kind_of as kind_of_value

Plain = str | int | float | bool | None


class Scalar(msgspec.Struct, frozen=True):
    """A single value. ``start`` and ``end`` are offsets of its spelling in the source text."""

    value: Plain
    mark: Position
    pointer: str
    start: int = 0
    end: int = 0
    style: str = ""

    def plain(self) -> Any:
        return self.value


class Sequence(msgspec.Struct, frozen=True):
    items: list[Node]
    mark: Position
    pointer: str

    def plain(self) -> Any:
        return [item.plain() for item in self.items]


class MappingKey(msgspec.Struct, frozen=True):
    """A mapping key with its position; ``pointer`` is that of its value."""

    name: str
    mark: Position
    pointer: str


class Mapping(msgspec.Struct, frozen=True):
    """A mapping of the tree. ``keys`` and ``values`` have the same names, in file order."""

    mark: Position
    pointer: str
    keys: dict[str, MappingKey] = msgspec.field(default_factory=dict)
    values: dict[str, Node] = msgspec.field(default_factory=dict)

    def plain(self) -> Any:
        return {name: value.plain() for name, value in self.values.items()}

    def get(self, name: str) -> Node | None:
        return self.values.get(name)

    def select_keys(self, names: AbstractSet[str]) -> Mapping:
        """The mapping with these keys only."""
        return self.drop_keys(self.keys.keys() - names)

    def drop_keys(self, names: AbstractSet[str]) -> Mapping:
        """The mapping without these keys."""
        return Mapping(
            self.mark,
            self.pointer,
            {name: key for name, key in self.keys.items() if name not in names},
            {name: value for name, value in self.values.items() if name not in names},
        )

    def move(self, name: str, place: tuple[str, ...]) -> Mapping | None:
        """Moves a key's value to the path ``place``; ``None`` if the path is occupied or blocked."""
        return self.drop_keys({name}).with_value(place, self.keys[name], self.values[name])

    def with_value(self, place: tuple[str, ...], key: MappingKey, value: Node) -> Mapping | None:
        """Adds ``value``, written at ``key``, at the free path ``place``; ``None`` if it is not free."""
        name, *rest = place
        here = self.values.get(name)
        placed: Node | None = value if here is None else None
        if rest:
            scope = Mapping(key.mark, key.pointer) if here is None or here.plain() is None else here
            placed = scope.with_value(tuple(rest), key, value) if isinstance(scope, Mapping) else None
        if placed is None:
            return None
        keys = {**self.keys, name: self.keys.get(name) or MappingKey(name, key.mark, key.pointer)}
        return replace(self, keys=keys, values={**self.values, name: placed})


Node = Scalar | Sequence | Mapping


def kind_of(node: Node) -> str:
    """The type of a value, as messages name it."""
    if isinstance(node, Scalar):
        return kind_of_value(node.value)
    return "a mapping" if isinstance(node, Mapping) else "a list"


def walk(node: Node) -> Iterator[Node]:
    """Yields a value and all values in it, at any depth."""
    yield node
    if not isinstance(node, Scalar):
        for part in node.items if isinstance(node, Sequence) else node.values.values():
            yield from walk(part)


def texts_of(node: Node) -> Iterator[tuple[Scalar, str]]:
    """The texts in a value, at any depth."""
    return ((part, part.value) for part in walk(node) if isinstance(part, Scalar) and isinstance(part.value, str))


def holds_template(node: Node) -> bool:
    """Whether any text in the value holds a template."""
    return any(opening in text for _, text in texts_of(node) for opening in ("{{", "{%", "{#"))


_PLAIN_TEXT: Final = re.compile(r"[A-Za-z_/][\w./-]*\Z")
_WORDS_OF_YAML: Final = frozenset(["true", "false", "null", "yes", "no", "on", "off"])


def written(value: Any) -> str:
    """A plain value as YAML on one line."""
    if isinstance(value, dict):
        return (
            f"{{ {', '.join(f'{written(key)}: {written(part)}' for key, part in value.items())} }}" if value else "{}"
        )
    if isinstance(value, list):
        return f"[ {', '.join(map(written, value))} ]" if value else "[]"
    if isinstance(value, str) and _PLAIN_TEXT.match(value) and value.lower() not in _WORDS_OF_YAML:
        return value
    return json.dumps(value, ensure_ascii=False)


def child(node: Node | None, step: str | int) -> Node | None:
    """The part of ``node`` under a key or index; ``None`` if it has none."""
    if isinstance(node, Mapping):
        return node.values.get(str(step))
    if isinstance(node, Sequence) and isinstance(step, int) and 0 <= step < len(node.items):
        return node.items[step]
    return None


def descend(node: Node, path: tuple[str | int, ...]) -> Node:
    """The part of ``node`` under ``path``, as far as the path exists."""
    for step in path:
        inner = child(node, step)
        if inner is None:
            return node
        node = inner
    return node


def node_at(root: Node, pointer: str) -> Node | None:
    """The part of ``root`` at a JSON pointer (RFC 6901)."""
    node: Node | None = root
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        node = child(node, int(key) if isinstance(node, Sequence) and key.isdecimal() else key)
    return node


def extend_pointer(pointer: str, step: str | int) -> str:
    """Extends a JSON pointer (RFC 6901) by the key or index of a part."""
    return f"{pointer}/{str(step).replace('~', '~0').replace('/', '~1')}"


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
        offset = _walk(self.source, self.scalar, value, offset_of(value, self.line, self.column))
        return self.scalar.mark if offset is None else mark_of(self.source, offset)

    @property
    def pointer(self) -> str:
        return self.scalar.pointer

    @property
    def style(self) -> str:
        """The quotes of the text."""
        return self.scalar.style


def mark_of(source: str, offset: int) -> Position:
    """The line and column of a character offset."""
    line, start = 1, 0
    for found in _BREAK.finditer(source, 0, offset):
        line, start = line + 1, found.end()
    return Position(line, offset - start + 1)


def offset_of(value: str, line: int, column: int) -> int:
    """The offset of a line and column, from 1, in a text."""
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
