"""Lists of executions, newest first. Each condition has an index in that order: as many rows are read as are shown.

Of several conditions the rarest leads, and each of its rows is held against the others. Nothing is left to the
planner's guesses: what it takes for rare or frequent may be neither. ``benchmarks/listing.py`` measures them on a
million rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from noetl_stream.adapters.postgres.database import Database
from noetl_stream.adapters.postgres.statements import statement
from noetl_stream.ports.store import STATUSES, ListedExecution, ListingFilter

SKEW_MS: Final = 10 * 60 * 1000
"""How far the time in an id may be from the execution's start: clients draw ids by their own clocks."""

COUNTED: Final = 5_000
"""Which condition is the rarest is looked at up to here; above, what is wanted is soon found by any."""

_ABOVE_ALL: Final = "~"
"""No id begins with it, or with anything above it."""

# "offset 0" keeps it a question about one row: as a join, it could be answered for all first.
_HAS_TERM: Final = (
    "exists (select from noetl.execution_term o where o.term = {} and o.execution_id = {listed}.execution_id offset 0)"
)


class _Range(NamedTuple):
    """Ids from the lowest on, below another."""

    above: str
    lowest: str


class Listing:
    """The part of :class:`~noetl_stream.ports.store.Store` that finds executions."""

    _database: Database

    async def list_executions(self, wanted: ListingFilter, limit: int, before: str | None) -> list[ListedExecution]:
        """See :meth:`noetl_stream.ports.store.Store.list_executions`."""
        ids = _range(wanted, before)
        term = await self._leading_term(wanted, ids)
        text, looked_up = _query("list", wanted, term)
        arguments = [limit, *ids, *looked_up]

        def asked(condition: str, value: Any) -> str:
            arguments.append(value)
            return condition.format(f"${len(arguments)}")

        has_term = _HAS_TERM.replace("{listed}", "x" if term is None else "t")
        terms = [asked(has_term, other) for other in wanted.terms if other != term]
        conditions = [asked(*condition) for condition in _conditions(wanted, term)]
        text = text.replace("{terms}", " and ".join(terms) or "true")
        text = text.replace("{conditions}", " and ".join(conditions) or "true")
        return [ListedExecution._make(row) for row in await self._database.fetch_text(text, *arguments)]

    async def _leading_term(self, wanted: ListingFilter, ids: _Range) -> str | None:
        """The term to look up by; ``None``: by status and path, or in the order of all."""
        by_row = bool(wanted.statuses) or wanted.path is not None
        if len(wanted.terms) + by_row < 2:
            return next(iter(wanted.terms), None)
        counts = [row[0] for row in await self._database.fetch("count_terms", COUNTED, *ids, list(wanted.terms))]
        fewest = min(counts)
        if by_row and fewest:
            text, looked_up = _query("count", wanted, None)
            if (await self._database.fetch_text(text, COUNTED, *ids, *looked_up))[0][0] < fewest:
                return None
        return wanted.terms[counts.index(fewest)]


def _range(wanted: ListingFilter, before: str | None) -> _Range:
    above, lowest = before or _ABOVE_ALL, ""
    if wanted.started_before_ms is not None:
        above = min(above, _id_from(wanted.started_before_ms + SKEW_MS))
    if wanted.started_from_ms is not None:
        lowest = _id_from(wanted.started_from_ms - SKEW_MS)
    return _Range(above, lowest)


def _query(verb: str, wanted: ListingFilter, term: str | None) -> tuple[str, list[Any]]:
    """The statement that looks up by ``term``, by status and path, or by neither; and the values it does so by."""
    if term is not None:
        return statement(f"{verb}_executions_by_term"), [term]
    if not wanted.statuses and wanted.path is None:
        return statement(f"{verb}_executions"), []
    statuses = list(dict.fromkeys(wanted.statuses or STATUSES))
    text = statement(f"{verb}_executions_by_status")
    if wanted.path is None:
        return _filled(text, paths="", path="", given="", path_desc=""), [statuses]
    paths = f"\ncross join ({statement('paths_below')}) as below"
    text = _filled(text, paths=paths, path="x.path, ", given="below.path, ", path_desc="x.path desc, ")
    return text, [statuses, wanted.path]


def _filled(text: str, **parts: str) -> str:
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text


def _conditions(wanted: ListingFilter, term: str | None) -> Iterator[tuple[str, Any]]:
    """What each row must fulfil besides, terms apart."""
    if term is not None and wanted.statuses:
        yield "x.status = any({}::text[])", list(wanted.statuses)
    if term is not None and wanted.path is not None:
        yield "(x.path = {0} or starts_with(x.path, {0} || '/'))", wanted.path
    if wanted.started_from_ms is not None:
        yield "x.started_ms >= {}", wanted.started_from_ms
    if wanted.started_before_ms is not None:
        yield "x.started_ms < {}", wanted.started_before_ms


def _id_from(at_ms: int) -> str:
    """What every id of that time or later is not below: a version 7 UUID begins with its time."""
    digits = f"{max(at_ms, 0):012x}"
    return f"{digits[:8]}-{digits[8:12]}"
