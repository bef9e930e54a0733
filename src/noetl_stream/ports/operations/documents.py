"""Answers of operations: structs that HTTP carries as JSON, field by field, and the OpenAPI document describes.

A struct is next to the protocol that returns it. The OpenAPI document calls it by its name without ``Document``.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

import msgspec

from noetl_stream.errors import PayloadRefused

Item = TypeVar("Item")
Value = TypeVar("Value")

Next = Annotated[str | None, msgspec.Meta(description="The `cursor` of the page after this one; null at the end.")]


class Document(msgspec.Struct, frozen=True):
    """Base of answers. Times are ISO 8601 in UTC, with milliseconds; ``None`` is ``null``, present in the JSON."""


class OpenDocument(Document, frozen=True):
    """Base of answers that may have more keys."""


class DocumentPage(Document, Generic[Item], frozen=True):
    """Base of pages of lists."""

    items: list[Item]
    next: Next


def document_of(value: Any, kind: type[Value]) -> Value:
    """The answer that these JSON values are. Keys that ``kind`` does not have are ignored: a newer release may
    have more.

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
