"""Answers of operations: structs that HTTP transfers as JSON, field by field, and that the OpenAPI document describes.

A struct is next to the protocol that returns it. Its name in the OpenAPI document lacks ``Document``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.envelope import iso

Item = TypeVar("Item")
Value = TypeVar("Value")
Shown = Callable[[Any], Any]

Next = Annotated[str | None, msgspec.Meta(description="The `cursor` of the page after this one; null at the end.")]


class Document(msgspec.Struct, frozen=True):
    """Base of answers. Times are ISO 8601 in UTC, with milliseconds; ``None`` is ``null``, present in the JSON."""


class OpenDocument(Document, frozen=True):
    """Base of answers that may have further keys."""


class DocumentPage(Document, Generic[Item], frozen=True):
    """Base of pages of lists."""

    items: list[Item]
    next: Next


def list_of(name: str, item: type[Document], says: str | None = None) -> type[Document]:
    """The document of a whole list, named ``name`` in the OpenAPI document."""
    fields = [("items", GenericAlias(list, item))]
    namespace = {"__doc__": says, "__module__": item.__module__}
    made: Any = msgspec.defstruct(f"{name}Document", fields, bases=(Document,), namespace=namespace, frozen=True)
    found: type[Document] = made
    return found


def document_from(kind: Callable[..., Value], *rows: object, **others: Any) -> Value:
    """The document with ``others``; each further field is that of the first row that has it, by name. Rows have times
    as ms since the epoch, in fields that end in ``_ms``, tuples for lists, and structs for documents within it.
    """
    for name, place, source, shown in _sources(kind, *map(type, rows)):
        if name not in others:
            value = getattr(rows[place], source)
            others[name] = value if value is None or shown is None else shown(value)
    return kind(**others)


@cache
def _sources(kind: Any, *rows: type[Any]) -> list[tuple[str, int, str, Shown | None]]:
    """The sources of a document's fields: for each name, the index of the row, the field there, and its conversion."""
    found: dict[str, tuple[str, int, str, Shown | None]] = {}
    hints = get_type_hints(kind)
    for name in kind.__struct_fields__:
        for place, row in enumerate(rows):
            for source in (name, f"{name}_ms"):
                if hasattr(row, source):
                    found.setdefault(name, (name, place, source, _shown_as(hints[name]) if source == name else iso))
    return list(found.values())


def _shown_as(hint: Any) -> Shown | None:
    """The conversion of a value in a row to this type in a document; ``None`` if it stays as it is."""
    if get_origin(hint) is UnionType:
        hint = next((one for one in get_args(hint) if one is not NoneType), hint)
    kind, args = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Document):
        return lambda value: value if isinstance(value, hint) else document_from(hint, value)
    inner = _shown_as(args[-1]) if kind in (list, dict) else None
    if kind is list:
        return list if inner is None else lambda values: list(map(inner, values))
    if kind is dict:
        return dict if inner is None else lambda values: {key: inner(value) for key, value in values.items()}
    return None


def document_of(value: Any, kind: type[Value]) -> Value:
    """The answer in these JSON values. Keys that ``kind`` does not have are ignored: a newer release may have more.

    Raises:
        PayloadRefused: they are something else.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise PayloadRefused(str(error)) from None


def plain(document: object) -> Any:
    """A document, or a list of them, as JSON values."""
    return msgspec.to_builtins(document)
