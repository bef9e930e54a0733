"""The catalog in the table ``noetl.catalog``, its sources in ``noetl.playbook``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from noetl_stream.adapters.postgres.connections.database import DatabasePort
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.catalog import (
    SEARCHED_CHARACTERS,
    CatalogEntry,
    entry_named,
    registered_entry,
    revision_in,
)


class PostgresCatalog(DatabasePort):
    """:class:`~noetl_stream.ports.stores.catalog.Catalog`; the port documents each method."""

    async def register(self, entry: CatalogEntry, source: str) -> CatalogEntry:
        """Registers a playbook or schema. See :meth:`noetl_stream.ports.stores.catalog.Catalog.register`.

        Raises:
            PayloadRefused: Postgres rejects a value, such as text with a NUL.
        """
        while True:
            existing = await self._entries("catalog_existing", path=entry.path, version=entry.version)
            deleted = await self._database.fetch("catalog_deleted", path=entry.path)
            found = registered_entry(entry, existing, deleted[0][0] if deleted else 0)
            row = replace(found, labels=codec.encode(found.labels), tags=codec.encode(found.tags))
            if found in existing or await self._database.fetch("catalog_register", entry=row, source=source):
                return found
            # Another call registered this path in between: retry.

    async def resolve(self, path: str, version: str | None) -> CatalogEntry | None:
        revision = None if version is None else revision_in(version)
        entries = await self._entries("catalog_resolve", path=path, version=version, revision=revision)
        return next(iter(entries), None) if version is None else entry_named(version, entries)

    async def delete(self, path: str, revision: int | None) -> int:
        return int(await self._value("catalog_delete", path=path, revision=revision))

    async def versions(self, path: str) -> list[CatalogEntry]:
        return await self._entries("catalog_versions", path=path)

    async def latest(
        self,
        prefix: str,
        labels: Mapping[str, str],
        limit: int,
        after: str | None,
        *,
        words: Sequence[str] = (),
        kinds: Sequence[str] = (),
        scope: Sequence[str] = (),
    ) -> list[CatalogEntry]:
        values = {"names": list(labels), "values": list(labels.values()), "after": after or "", "limit": limit}
        searched = {"words": list(words), "searched": SEARCHED_CHARACTERS, "kinds": list(kinds)}
        return await self._entries("catalog_latest", prefix=prefix, scope=list(scope), **values, **searched)

    async def want_bundle(self, name: str, now_ms: int) -> bool:
        return bool(await self._database.fetch("want_bundle", name=name, now_ms=now_ms))

    async def unwanted_bundles(self, now_ms: int, before_ms: int) -> list[str]:
        return await self._column("unwanted_bundles", now_ms=now_ms, before_ms=before_ms)

    async def forget_bundle(self, name: str) -> None:
        await self._database.fetch("forget_bundle", name=name)

    async def _entries(self, query: str, **values: Any) -> list[CatalogEntry]:
        return [_entry(row) for row in await self._database.fetch(query, **values)]


def _entry(row: Any) -> CatalogEntry:
    columns = dict(row)
    return CatalogEntry(**columns | {name: codec.decode_json(columns[name]) for name in ("labels", "tags")})
