"""The SQL files of ``queries/``. They name parameters as psql does; here these are numbered for Postgres.

``:owner`` is one value. A dotted name stands for columns of a row type in :data:`SINGLE_ROWS` or :func:`sequences`, so
that a column is named only there:

=======================  ===============================================================================
``:entries.columns``     ``execution_id, position, …``
``:entries.rows``        a sequence of rows, ``unnest($8::text::text[], $9::text::bigint[], …)``: an array each. A
                         column whose values are all the default of its field is sent as null, and read as the default
``:entries.position``    one of these arrays
``:token.values``        a parameter per column, ``$1, $2, …``, of a single row
``:token.id``            one of these parameters
``:executions.updates``  ``status = excluded.status, …`` for all columns except those written once
=======================  ===============================================================================

The statement of a tick is made of the parts of ``commit.sql`` that it has rows for, and a sequence of one row is
written as ``(values ($8::text, $9::bigint, …))``: Postgres spends more on the nodes of a plan than on a few rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_args, get_type_hints

import asyncpg
import msgspec
from msgspec.structs import astuple

from noetl_stream.ports.stores.catalog import CatalogEntry, GrantsRevision
from noetl_stream.ports.stores.credentials import NewCredential
from noetl_stream.ports.stores.dead_letters import DeadLetterRow
from noetl_stream.ports.stores.identities import AuditedAnswer, AuditedCall, StoredCode, StoredSession, StoredToken
from noetl_stream.ports.stores.store import InboxItem, ListedExecution, PartitionLease, StoredEntry, Tick
from noetl_stream.ports.stores.tallies import RecentExecution
from noetl_stream.protocol.rows import Json, Row, column_types, columns

SINGLE_ROWS: Final[Mapping[str, type[Any]]] = {
    "answer": AuditedAnswer,
    "attempt": AuditedCall,
    "code": StoredCode,
    "entry": CatalogEntry,
    "grants": GrantsRevision,
    "inbox_item": InboxItem,
    "lease": PartitionLease,
    "listed": ListedExecution,
    "new": NewCredential,
    "recent": RecentExecution,
    "row": DeadLetterRow,
    "session": StoredSession,
    "stored_entry": StoredEntry,
    "token": StoredToken,
}

NO_VALUES: Final[Mapping[str, Any]] = MappingProxyType({})

MAX_COMPILED: Final = 512
"""The most compiled statements that are cached; those of execution lists are built from conditions."""

_PART: Final = re.compile(r"^-- part (\w+)(?:: (one|several))?\n", re.MULTILINE)
_SIZES: Final = {None: None, "one": 1, "several": 2}
_CHANGES: Final = re.compile(r"\b(?:insert|update|delete)\b|\bnoetl\.\w+\(|\bpg_terminate", re.IGNORECASE)
_NAME: Final = re.compile(r"(?<![:\w]):([a-z][a-z0-9_]*)(?:\.([a-z_]+))?")
_SQL_TYPES: Final = {str: "text", int: "bigint", Json: "json", bytes: "bytea"}
"""The types of columns in a sequence. Inserting converts ``bigint`` to the ``integer`` of some columns."""

_ARRAY_TYPES: Final = {str: "text::text[]", int: "text::bigint[]", Json: "json[]", bytes: "bytea[]"}
"""The types of their arrays. Texts and numbers are sent as one text each: of an array, the driver would examine each
element for being an array itself.
"""

_ESCAPED: Final = re.compile(r'["\\]')
_ESCAPE: Final = r"\\\g<0>"

_Row = TypeVar("_Row", bound=Row)
Spread = Callable[[Any], Iterable[Any]]


class Statement(msgspec.Struct, frozen=True, gc=False):
    """An SQL text for Postgres, with the values of its parameters."""

    text: str
    spreads: tuple[tuple[str, Spread], ...]

    @property
    def only_reads(self) -> bool:
        """Whether the statement certainly changes no data, so that it can be repeated."""
        return _CHANGES.search(self.text) is None

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """Returns the parameters in order; ``values`` may contain others.

        Raises:
            KeyError: a value is missing.
        """
        found: list[Any] = []
        for name, spread in self.spreads:
            found += spread(values[name])
        return found


@cache
def statement(name: str) -> Statement:
    """Returns ``queries/<name>.sql``, compiled."""
    return compile_statement(query_text(name))


async def fetch_on(
    connection: asyncpg.Connection[asyncpg.Record],
    query: str,
    values: Mapping[str, Any] = NO_VALUES,
    timeout_s: float | None = None,
) -> list[asyncpg.Record]:
    """Returns the rows of a named query on a connection. ``values`` are its parameters, by name."""
    wanted = statement(query)
    return await connection.fetch(wanted.text, *wanted.arguments(values), timeout=timeout_s)


@cache
def sequences() -> Mapping[str, type[Any]]:
    """Returns the row types of a tick, by its fields: the source of ``rows``."""
    kinds = {name: get_args(hint) for name, hint in get_type_hints(Tick).items()}
    return {name: kind[0] for name, kind in kinds.items() if kind and issubclass(kind[0], Row)}


_QUERIES: Final = Path(__file__).with_name("queries")


@cache
def query_text(name: str) -> str:
    """Returns the text of ``queries/<name>.sql``."""
    return (_QUERIES / f"{name}.sql").read_text(encoding="utf-8")


def read_queries() -> None:
    """Reads all queries, for a long-lived process, which may later have no descriptor left for reading one."""
    for file in _QUERIES.glob("*.sql"):
        query_text(file.stem)


@lru_cache(maxsize=MAX_COMPILED)
def compile_statement(text: str) -> Statement:
    """Compiles ``text``: its parameters are numbered by their first mention.

    Raises:
        ValueError: a dotted name is unknown.
    """
    return _Compilation().statement(text)


class _Part(msgspec.Struct, frozen=True, gc=False):
    """A part of ``commit.sql``: for one row (1) or several (2) of this field of a tick, or for both (``None``)."""

    rows: str
    size: int | None
    text: str


def commit_statement(tick: Tick) -> Statement:
    """Returns the statement that commits ``tick``; its arguments are the fields of the tick."""
    return _commit_of(tuple([min(len(getattr(tick, name)), 2) for name in _part_names()]))


@lru_cache(maxsize=MAX_COMPILED)
def _commit_of(sizes: tuple[int, ...]) -> Statement:
    """Returns the statement of ticks with no row (0), one, or several (2) of each of :func:`_part_names`."""
    size_of = dict(zip(_part_names(), sizes, strict=True))
    wanted = [part.text for part in _commit_parts() if size_of[part.rows] and part.size in (None, size_of[part.rows])]
    text = "with " + ",\n".join(wanted) + "\nselect ok from passed"
    return _Compilation(frozenset(name for name, size in size_of.items() if size == 1)).statement(text)


@cache
def _commit_parts() -> list[_Part]:
    _, *pieces = _PART.split(query_text("commit"))
    return [
        _Part(rows, _SIZES[size], text.strip())
        for rows, size, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    ]


@cache
def _part_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.rows for part in _commit_parts()))


class _Compilation:
    """Compiles a statement. ``single`` are the sequences that have one row."""

    def __init__(self, single: frozenset[str] = frozenset()) -> None:
        self._single = single
        self._first_numbers: dict[str, int] = {}
        self._spreads: list[tuple[str, Spread]] = []
        self._count = 0

    def statement(self, text: str) -> Statement:
        return Statement(_NAME.sub(self._replacement, text), tuple(self._spreads))

    def _replacement(self, match: re.Match[str]) -> str:
        name, part = match.groups()
        if part is None:
            return f"${self._first_number(name, 1, lambda value: (value,))}"
        row_type = SINGLE_ROWS.get(name) or sequences().get(name)
        if row_type is None:
            raise ValueError(f"unknown row type {name}: {match[0]}")
        names = columns(row_type)
        if part == "columns":
            return ", ".join(names)
        if part == "updates":
            return _updates(row_type)
        parameters = self._parameters(name, row_type)
        if part == "values" and name in SINGLE_ROWS:
            return ", ".join(parameters)
        if part == "rows" and name not in SINGLE_ROWS:
            return f"(values ({', '.join(parameters)}))" if name in self._single else _unnested(row_type, parameters)
        if part not in names:
            raise ValueError(f"{name} has no column {part}: {match[0]}")
        return parameters[names.index(part)]

    def _parameters(self, name: str, row_type: type[Any]) -> list[str]:
        names = columns(row_type)
        if name not in SINGLE_ROWS:
            is_single = name in self._single
            kinds = tuple(column_types(row_type).values())
            defaults = tuple(map(_defaults(row_type).get, names))
            spread: Spread = (lambda rows: astuple(rows[0])) if is_single else partial(_arrays, kinds, defaults)
            first = self._first_number(name, len(names), spread)
            types = _SQL_TYPES if is_single else _ARRAY_TYPES
            return [f"${first + place}::{types[kind]}" for place, kind in enumerate(kinds)]
        first = self._first_number(name, len(names), attrgetter(*names))
        return [f"${first + place}" for place in range(len(names))]

    def _first_number(self, name: str, width: int, spread: Spread) -> int:
        if name not in self._first_numbers:
            self._first_numbers[name] = self._count + 1
            self._count += width
            self._spreads.append((name, spread))
        return self._first_numbers[name]


def row_of(row_type: type[_Row], record: asyncpg.Record) -> _Row:
    """Makes a row from a record's columns; the record may have others."""
    return row_type(**{name: record[name] for name in columns(row_type)})


def _updates(row_type: type[Row]) -> str:
    """Returns ``status = excluded.status, …`` for the columns of a row; ``stored`` is the existing row."""
    values = {name: f"excluded.{name}" for name in columns(row_type) if name not in row_type.written_once}
    for name in row_type.filled_later:
        values[name] = f"case when excluded.{name}::text = '{{}}' then stored.{name} else excluded.{name} end"
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _unnested(row_type: type[Any], parameters: Sequence[str]) -> str:
    """Returns the rows of a sequence; the columns that may be sent as null are read as the default of their field."""
    defaults = {name: _literal(default) for name, default in _defaults(row_type).items()}
    arrays = f"unnest({', '.join(parameters)})"
    if not defaults:
        return arrays
    names = columns(row_type)
    read = [f"coalesce({name}, {defaults[name]}) as {name}" if name in defaults else name for name in names]
    return f"(select {', '.join(read)} from {arrays} as r ({', '.join(names)}))"  # noqa: S608  names of fields


def _defaults(row_type: type[Any]) -> Mapping[str, Any]:
    """Returns the defaults of a row's columns that are never null."""
    return {
        field.name: field.default
        for field in msgspec.structs.fields(row_type)
        if field.default not in (None, msgspec.NODEFAULT) and type(None) not in get_args(field.type)
    }


def _literal(value: str | int | bytes) -> str:
    return str(value) if isinstance(value, int) else f"'{value if isinstance(value, str) else value.decode()}'"


def _arrays(kinds: Sequence[Any], defaults: Sequence[Any], rows: Sequence[Row]) -> Sequence[Sequence[Any] | None]:
    columns_of_rows = zip(*map(astuple, rows), strict=True) if rows else [()] * len(kinds)
    return [_array(*column) for column in zip(kinds, defaults, columns_of_rows, strict=True)]


def _array(kind: Any, default: Any, values: Sequence[Any]) -> Sequence[Any] | None:
    """The values of a column; ``None`` if all are null or the default: the driver and Postgres have less to read."""
    if values and values.count(default) == len(values):
        return None
    nulls = values.count(None)
    if kind is int:
        texts: Iterable[str] = map(str, values)
        if nulls:
            texts = [str(one) if one is not None else "NULL" for one in values]
        return f"{{{','.join(texts)}}}"
    return _texts(values, bool(nulls)) if kind is str else values


def _texts(values: Sequence[Any], has_nulls: bool) -> str:
    """An array of texts as Postgres reads it."""
    if has_nulls or not values:
        text = ",".join([f'"{one}"' if one is not None else "NULL" for one in values])
    else:
        text = '"' + '","'.join(values) + '"'
    if "\\" in text or text.count('"') > 2 * len(values):  # rare
        text = ",".join([f'"{_ESCAPED.sub(_ESCAPE, one)}"' if one is not None else "NULL" for one in values])
    return f"{{{text}}}"
