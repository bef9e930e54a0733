"""The catalog, directly on Postgres: what the gateway serves and the command line does without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec.structs import asdict

from noetl_stream.client.audit import Recorded, unrecorded
from noetl_stream.client.cursors import cursor_of, read_cursor
from noetl_stream.client.executions.prepare import PlaybookChecker
from noetl_stream.client.playbooks.registration import entry_of
from noetl_stream.errors import Conflict, NotFound
from noetl_stream.model.envelope import iso
from noetl_stream.playbook.compile.view import compiled_view
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.catalog import (
    Address,
    Catalog,
    CatalogEntry,
    VersionTaken,
    find_entry,
    find_versions,
    read_address,
)
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.playbooks import (
    ArcDocument,
    CheckedDocument,
    GraphDocument,
    PlaybookDocument,
    PlaybookPage,
    PlaybookWithSourceDocument,
    RegisteredDocument,
)
from noetl_stream.ports.store import Store

MAX_PAGE = 1_000


class PlaybookPorts(NamedTuple):
    store: Store
    catalog: Catalog
    clock: Clock


class DirectPlaybooks:
    """:class:`~noetl_stream.ports.operations.playbooks.Playbooks`.

    Args:
        recorded: What a deletion is done within.
    """

    def __init__(self, ports: PlaybookPorts, checking: PlaybookChecker, recorded: Recorded = unrecorded) -> None:
        self._recorded = recorded
        self._store = ports.store
        self._catalog = ports.catalog
        self._clock = ports.clock
        self._checking = checking

    async def check(self, source: bytes, name: str) -> CheckedDocument:
        checked = await self._checking.check(source, name)
        plan = checked.plan
        return CheckedDocument(
            ok=checked.ok,
            path=plan.path if plan else None,
            version=plan.version if plan else None,
            digest=plan.digest if plan else None,
            diagnostics=list(checked.diagnostics),
        )

    async def register(self, source: bytes, name: str, by: str) -> RegisteredDocument:
        plan = self._checking.plan_of(await self._checking.check(source, name), name)
        text = source.decode()
        wanted = entry_of(text, plan, registered_ms=self._clock.now_ms(), registered_by=by)
        try:
            entry = await self._catalog.register(wanted, text)
        except VersionTaken as error:
            raise Conflict(error.message, hint=error.hint) from None
        is_new = (entry.registered_ms, entry.registered_by) == (wanted.registered_ms, by)
        return RegisteredDocument(**asdict(entry_document(entry)), created=is_new)

    async def page(self, prefix: str, labels: Mapping[str, str], limit: int, cursor: str | None) -> PlaybookPage:
        at_most = max(1, min(limit, MAX_PAGE))
        found = await self._catalog.latest(prefix, labels, at_most + 1, read_cursor(cursor, str))
        more = len(found) > at_most
        shown = [entry_document(entry) for entry in found[:at_most]]
        return PlaybookPage(shown, cursor_of(found[at_most - 1].path) if more else None)

    async def get(self, path: str, version: str | None) -> PlaybookWithSourceDocument:
        entry = await find_entry(self._catalog, _address(path, version))
        return PlaybookWithSourceDocument(**asdict(entry_document(entry)), source=await self._source(entry))

    async def versions(self, path: str) -> list[PlaybookDocument]:
        return [entry_document(entry) for entry in await find_versions(self._catalog, _address(path, None).path)]

    async def plan(self, path: str, version: str | None) -> dict[str, Any]:
        """Raises, beside the port's: PlaybookRefused: it was registered where other tool kinds are installed."""
        return compiled_view(await self._plan(path, version))

    async def graph(self, path: str, version: str | None) -> GraphDocument:
        """Raises: as :meth:`plan`."""
        steps = (await self._plan(path, version)).steps.values()
        arcs = [
            ArcDocument(step.name, arc.step, None if arc.guard is None else arc.guard.source)
            for step in steps
            for arc in step.arcs
        ]
        return GraphDocument([step.name for step in steps], arcs)

    async def delete(self, path: str, version: str | None, by: str) -> None:
        async with self._recorded("deletePlaybook", path, by):
            entry = await find_entry(self._catalog, _address(path, version))
            await self._catalog.delete(entry.path, None if version is None else entry.revision)

    async def _plan(self, path: str, version: str | None) -> Plan:
        entry = await find_entry(self._catalog, _address(path, version))
        return await self._checking.plan(await self._source(entry), f"{entry.path}@{entry.known_as}")

    async def _source(self, entry: CatalogEntry) -> str:
        row = await self._store.playbook(entry.digest)
        assert row is not None  # the entry's foreign key
        return row.source


def entry_document(entry: CatalogEntry) -> PlaybookDocument:
    """What may be shown of an entry."""
    return PlaybookDocument(
        path=entry.path,
        version=entry.version,
        revision=entry.revision,
        digest=entry.digest,
        name=entry.name,
        description=entry.description,
        labels=dict(entry.labels),
        tags=entry.tags,
        registered_by=entry.registered_by,
        registered=iso(entry.registered_ms),
        known_as=entry.known_as,
    )


def _address(path: str, version: str | None) -> Address:
    found = read_address(path if version is None else f"{path}@{version}")
    if found is None or "@" in path:
        raise NotFound(f"{path!r} is no path of the catalog", hint="a path is written as in `examples/airports`")
    return found
