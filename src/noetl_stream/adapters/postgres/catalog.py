"""The catalog in the table ``noetl.catalog``, its sources in ``noetl.playbook``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetl_stream.adapters.postgres.database import Database
from noetl_stream.model import codec
from noetl_stream.ports.catalog import CatalogEntry, chosen, revision_in, settled


class PostgresCatalog:
    """A :class:`~noetl_stream.ports.catalog.Catalog`. ``database`` stays its owner's to close."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, entry: CatalogEntry, source: str) -> CatalogEntry:
        """See :meth:`noetl_stream.ports.catalog.Catalog.register`.

        Raises:
            PayloadRefused: Postgres does not take a value, such as text with a NUL.
        """
        while True:
            standing = await self._entries("catalog_standing", path=entry.path, version=entry.version)
            deleted = await self._database.fetch("catalog_deleted", path=entry.path)
            kept = settled(entry, standing, deleted[0][0] if deleted else 0)
            if kept in standing or await self._database.fetch("catalog_register", entry=_columns(kept), source=source):
                return kept
            # Somebody else registered here in between: look again.

    async def resolve(self, path: str, version: str | None) -> CatalogEntry | None:
        """See :meth:`noetl_stream.ports.catalog.Catalog.resolve`."""
        revision = None if version is None else revision_in(version)
        entries = await self._entries("catalog_resolve", path=path, version=version, revision=revision)
        return next(iter(entries), None) if version is None else chosen(version, entries)

    async def delete(self, path: str, revision: int | None) -> int:
        """See :meth:`noetl_stream.ports.catalog.Catalog.delete`."""
        found: int = (await self._database.fetch("catalog_delete", path=path, revision=revision))[0][0]
        return found

    async def versions(self, path: str) -> list[CatalogEntry]:
        """See :meth:`noetl_stream.ports.catalog.Catalog.versions`."""
        return await self._entries("catalog_versions", path=path)

    async def latest(self, prefix: str, labels: Mapping[str, str], limit: int, after: str | None) -> list[CatalogEntry]:
        """See :meth:`noetl_stream.ports.catalog.Catalog.latest`."""
        names, values = list(labels), list(labels.values())
        return await self._entries(
            "catalog_latest", prefix=prefix, names=names, values=values, after=after or "", limit=limit
        )

    async def _entries(self, query: str, **values: Any) -> list[CatalogEntry]:
        rows = [CatalogEntry._make(row) for row in await self._database.fetch(query, **values)]
        return [
            row._replace(labels=codec.decode_json(row.labels), tags=codec.decode_json(row.tags))  # type: ignore[arg-type]
            for row in rows
        ]


def _columns(entry: CatalogEntry) -> CatalogEntry:
    return entry._replace(labels=codec.encode(entry.labels), tags=codec.encode(entry.tags))  # type: ignore[arg-type]
