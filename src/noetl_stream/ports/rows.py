"""Rows: one definition of a table's columns, used by every store."""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

_JSON: Final = "JSON"

Json: TypeAlias = Annotated[bytes, _JSON]
"""A column of JSON text; columns of plain ``bytes`` are stored unchanged."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row that a tick writes. Its fields are the columns, in order; it is built by keyword.

    A new column takes a migration, a field and whatever fills it: the stores read names and types from the fields.

    Attributes:
        written_once: Columns that keep the value of the first row with the same key.
    """

    written_once: ClassVar[frozenset[str]] = frozenset()


def column_types(row_type: type[Any]) -> dict[str, Any]:
    """The type of each column, in order and without ``None``: ``str`` (also for a ``Literal``), ``int``, ``bytes`` or
    :data:`Json`.
    """
    hints = get_type_hints(row_type, include_extras=True)
    return {name: _column_type(hints[name]) for name in columns(row_type)}


@cache
def json_columns(row_type: type[Row]) -> tuple[str, ...]:
    """The columns that hold JSON text."""
    return tuple(name for name, kind in column_types(row_type).items() if kind == Json)


def columns(row_type: type[Any]) -> tuple[str, ...]:
    """The columns of a struct or of a ``NamedTuple``, in order."""
    found: tuple[str, ...] = row_type.__struct_fields__ if issubclass(row_type, msgspec.Struct) else row_type._fields
    return found


def _column_type(hint: Any) -> Any:
    if get_origin(hint) is Literal:
        return str
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    (kind,) = (member for member in get_args(hint) if member is not type(None))
    return _column_type(kind)
