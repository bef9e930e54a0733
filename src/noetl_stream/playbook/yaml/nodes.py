"""The YAML tree: plain JSON values with the position of every key and value (LANGUAGE §1)."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

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
        """Moves a key's value to the path ``place``; ``None`` if something is there or in the way."""
        return self.drop_keys({name}).with_value(place, self.keys[name], self.values[name])

    def with_value(self, place: tuple[str, ...], key: MappingKey, value: Node) -> Mapping | None:
        """Adds ``value``, which is written at ``key``, at the free path ``place``; ``None`` if it is not free."""
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
