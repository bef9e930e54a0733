"""Rows: one definition of a table's columns, used by every store."""

from __future__ import annotations

import types
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec.structs import replace

_RowType = TypeVar("_RowType")

_JSON: Final = "JSON"

Json: TypeAlias = Annotated[bytes, _JSON]
"""A column of JSON text; columns of plain ``bytes`` are stored unchanged."""

NOTHING: Final = b"{}"


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row that a tick writes. Its fields are the columns, in order; it is built by keyword.

    A new column takes a migration, a field, and the code that fills it: the stores read names and types from the
    fields.

    Attributes:
        written_once: Columns that keep the value of the first row with the same key.
        filled_later: Columns of JSON that keep a value when ``{}`` is written over it.
    """

    written_once: ClassVar[frozenset[str]] = frozenset()
    filled_later: ClassVar[frozenset[str]] = frozenset()

    def over(self, before: Self) -> Self:
        """The row as it is stored when it is written over ``before``."""
        kept = self.written_once | {name for name in self.filled_later if getattr(self, name) == NOTHING}
        return replace(self, **{name: getattr(before, name) for name in kept})


def column_types(row_type: type[Any]) -> dict[str, Any]:
    """The type of each column, in order, without ``None``: ``str`` (even a ``Literal``), ``int``, ``bytes``,
    :data:`Json`.
    """
    hints = get_type_hints(row_type, include_extras=True)
    return {name: _column_type(hints[name]) for name in columns(row_type)}


def columns_of(row_type: type[_RowType], row: object, **others: object) -> _RowType:
    """Some columns of ``row``, and ``others``."""
    names = (name for name in columns(row_type) if name not in others)
    return row_type(**{name: getattr(row, name) for name in names}, **others)


@cache
def json_columns(row_type: type[Row]) -> tuple[str, ...]:
    """The columns that hold JSON text."""
    return tuple(name for name, kind in column_types(row_type).items() if kind == Json)


def columns(row_type: type[Any]) -> tuple[str, ...]:
    """The columns of a struct, in order."""
    found: tuple[str, ...] = row_type.__struct_fields__
    return found


def _column_type(hint: Any) -> Any:
    if get_origin(hint) is Literal:
        return str
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    (kind,) = (member for member in get_args(hint) if member is not type(None))
    return _column_type(kind)
