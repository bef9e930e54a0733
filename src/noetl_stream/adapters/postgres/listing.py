"""Lists of executions, newest first. Each condition has an index in that order, so only the listed rows are read.

With several conditions the rarest is looked up, and its rows are checked against the others. That choice is not left to
the planner, which may be wrong about what is rare. ``benchmarks/listing.py`` measures the lists on a million rows.

Within a scope rows are looked up by its paths and checked against the rest, whatever is rare: neither the content of a
list nor its duration depends on executions that its reader may not see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.adapters.postgres.connections.database import DatabasePort, queried
from noetl_stream.adapters.postgres.statements import compile_statement, query_text
from noetl_stream.model.status import STATUSES
from noetl_stream.ports.stores.store import ListedExecution, ListingFilter, Store
from noetl_stream.ports.stores.tallies import ExecutionTally, RecentExecution, TallyKey

SKEW_MS: Final = 10 * 60 * 1000
"""The largest difference between the time in an id and the execution's start: clients make ids by their own clocks."""

COUNTED: Final = 5_000
"""The number of rows of each condition that are counted to find the rarest; any more common one finds rows soon."""

_ABOVE_ALL: Final = "~"
"""A text that sorts after every id."""

# "offset 0" keeps this a lookup per row: the planner could turn it into a join over all rows.
_HAS_TERM: Final = (
    "exists (select from noetl.execution_term o"
    " where o.term = :{name} and o.execution_id = {listed}.execution_id offset 0)"
)


_TALLIED: Final = {
    "edges": "width_bucket(x.execution_id, :edges::text[])::text",
    "label": "x.labels ->> :label::text",
    "path": "x.path",
}
"""The SQL of the key of each kind of tally."""


_LOOKED_UP: Final = {"edges": "", "label": ", x.labels", "path": ", x.path"}
"""The columns of an execution that each kind of tally reads."""

_OF_ROW: Final = "x.position >= 0"
"""A condition true for every row, and in no index: else the index by path is read whole."""

_BY_STATUS: Final = {
    "list": "list_executions_by_status",
    "count": "count_executions_by_status",
    "tally": "tally_executions",
    "tally_between": "tally_executions_between",
}
"""The statements that find executions by status and path."""


class _Range(msgspec.Struct, frozen=True, gc=False):
    """The execution ids from ``lowest`` on and below ``above``."""

    above: str
    lowest: str


class Listing(DatabasePort):
    """The part of :class:`~noetl_stream.ports.stores.store.Store` that lists executions."""

    listed_executions = queried(Store.listed_executions)
    last_executions = queried(Store.last_executions, item=lambda row: RecentExecution(*row[1:]), statuses=STATUSES)

    async def list_executions(self, wanted: ListingFilter, limit: int, before: str | None) -> list[ListedExecution]:
        ids = _range(wanted, before)
        term = await self._leading_term(wanted, ids)
        others = {f"term_{number}": other for number, other in enumerate(wanted.terms) if other != term}
        listed = "x" if term is None else "t"
        text = _fill_conditions(
            _query("list", wanted, term),
            terms=_all_of(_HAS_TERM.format(name=name, listed=listed) for name in others),
            conditions=_all_of(_conditions(wanted, term)),
        )
        values = {**_values(wanted, ids, limit), **others, "term": term}
        rows = await self._database.fetch_statement(compile_statement(text), values)
        return [ListedExecution(*row) for row in rows]

    async def tally_executions(self, wanted: ListingFilter, key: TallyKey, limit: int) -> list[ExecutionTally]:
        ids, edges = _range(wanted, None), list(key.edges)
        if edges:
            ids = _Range(edges[-1], edges[0])
            wanted = replace(wanted, started_from_ms=None, started_before_ms=None)
        if not wanted.terms:
            wanted = replace(wanted, statuses=wanted.statuses or STATUSES)
        term = await self._leading_term(wanted, ids) if wanted.terms else None
        others = {f"term_{number}": other for number, other in enumerate(wanted.terms) if other != term}
        kind = "edges" if edges else "path" if key.label is None else "label"
        text = _fill_conditions(
            _query("tally_between" if edges and not wanted.terms else "tally", wanted, term),
            key=_TALLIED[kind],
            columns="x.status, x.execution_id" + _LOOKED_UP[kind],
            terms=_all_of(_HAS_TERM.format(name=name, listed="x" if term is None else "t") for name in others),
            conditions=_all_of([*_conditions(wanted, term), *([] if edges else [_OF_ROW])]),
        )
        parts = {"edges": edges, "firsts": edges[:-1], "ends": edges[1:], "label": key.label, "term": term}
        values = {**_values(wanted, ids, limit), **others, **parts, "total": limit * len(STATUSES)}
        rows = await self._database.fetch_statement(compile_statement(text), values)
        return [ExecutionTally(*row) for row in rows]

    async def recent_executions(self, path: str, from_ms: int, limit: int) -> list[RecentExecution]:
        values = {"path": path, "from_ms": from_ms, "lowest": _id_from(from_ms - SKEW_MS), "limit": limit}
        rows = await self._database.fetch("recent_executions", statuses=STATUSES, **values)
        return [RecentExecution(*row) for row in rows]

    async def _leading_term(self, wanted: ListingFilter, ids: _Range) -> str | None:
        """Returns the term to look up; ``None`` to look up by status and path, or to read all executions in order."""
        if wanted.scope:
            return None
        by_row = bool(wanted.statuses) or wanted.path is not None
        if len(wanted.terms) + by_row < 2:
            return next(iter(wanted.terms), None)
        values = _values(wanted, ids, COUNTED)
        rows = await self._database.fetch("count_terms", terms=wanted.terms, **values)
        counts = [row[0] for row in rows]
        fewest = min(counts)
        if by_row and fewest:
            count = compile_statement(_query("count", wanted, None))
            if (await self._database.fetch_statement(count, values))[0][0] < fewest:
                return None
        return wanted.terms[counts.index(fewest)]


def _range(wanted: ListingFilter, before: str | None) -> _Range:
    above, lowest = before or _ABOVE_ALL, ""
    if wanted.started_before_ms is not None:
        above = min(above, _id_from(wanted.started_before_ms + SKEW_MS))
    if wanted.started_from_ms is not None:
        lowest = _id_from(wanted.started_from_ms - SKEW_MS)
    return _Range(above, lowest)


def _values(wanted: ListingFilter, ids: _Range, limit: int) -> dict[str, Any]:
    """Returns the parameters of all statements, whatever their conditions."""
    return {
        "limit": limit,
        "above": ids.above,
        "lowest": ids.lowest,
        "statuses": list(dict.fromkeys(wanted.statuses or STATUSES)),
        "path": wanted.path,
        "paths": _paths(wanted),
        "started_from_ms": wanted.started_from_ms,
        "started_before_ms": wanted.started_before_ms,
        "longer_than_ms": wanted.longer_than_ms,
        **dict(zip(("due_first", "due_last"), wanted.due or ("", ""), strict=True)),
    }


def _query(verb: str, wanted: ListingFilter, term: str | None) -> str:
    """Returns the statement that looks up by ``term``, by status and path, or by neither."""
    if term is not None:
        return query_text(f"{verb}_executions_by_term")
    paths = _paths(wanted)
    if not wanted.statuses and not paths:
        return query_text(f"{verb}_executions")
    text = query_text(_BY_STATUS[verb])
    if not paths:
        return _fill_conditions(text, paths="", path="", given="", path_desc="")
    below = f"\ncross join ({query_text('paths_below')}) as below"
    return _fill_conditions(text, paths=below, path="x.path, ", given="below.path, ", path_desc="x.path desc, ")


def _paths(wanted: ListingFilter) -> list[str]:
    """Returns the paths to look up below; none to look up by something else."""
    return list(wanted.scope) or ([] if wanted.path is None else [wanted.path])


def _fill_conditions(text: str, **parts: str) -> str:
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text


def _all_of(conditions: Iterable[str]) -> str:
    return " and ".join(conditions) or "true"


def _conditions(wanted: ListingFilter, term: str | None) -> Iterator[str]:
    """Yields the SQL conditions that the lookup does not cover, except terms."""
    if term is not None and wanted.statuses:
        yield "x.status = any(:statuses::text[])"
    if term is not None and wanted.path is not None:
        yield "(x.path = :path or starts_with(x.path, :path || '/'))"
    if wanted.started_from_ms is not None:
        yield "x.started_ms >= :started_from_ms"
    if wanted.started_before_ms is not None:
        yield "x.started_ms < :started_before_ms"
    if wanted.longer_than_ms is not None:
        yield "x.finished_ms - x.started_ms >= :longer_than_ms"
    if wanted.due is not None:
        yield "x.due <> '' and left(x.due, length(:due_first)) >= :due_first"
        yield "left(x.due, length(:due_last)) <= :due_last"


def _id_from(at_ms: int) -> str:
    """Returns the lowest execution id of a time: a version 7 UUID begins with its time."""
    digits = f"{max(at_ms, 0):012x}"
    return f"{digits[:8]}-{digits[8:12]}"
