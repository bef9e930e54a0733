"""The catalog in memory; its sources are in the accompanying :class:`MemoryStore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.model.json import codec
from noetl_stream.model.rights import covers
from noetl_stream.ports.stores.catalog import (
    SEARCHED_CHARACTERS,
    CatalogEntry,
    ascii_lower,
    entry_named,
    registered_entry,
)
from noetl_stream.ports.stores.store import PlaybookRow


class MemoryCatalog:
    """:class:`~noetl_stream.ports.stores.catalog.Catalog` in memory; the port documents each method."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._entries: dict[str, list[CatalogEntry]] = {}
        self._deleted: dict[str, int] = {}

    async def register(self, entry: CatalogEntry, source: str) -> CatalogEntry:
        existing = self._entries.setdefault(entry.path, [])
        kept = registered_entry(entry, existing, self._deleted.get(entry.path, 0))
        if kept not in existing:
            self._store.keep_playbook(
                PlaybookRow(digest=entry.digest, path=entry.path, version=entry.version, source=source)
            )
            existing.insert(0, kept)
        return kept

    async def resolve(self, path: str, version: str | None) -> CatalogEntry | None:
        entries = await self.versions(path)
        return next(iter(entries), None) if version is None else entry_named(version, entries)

    async def delete(self, path: str, revision: int | None) -> int:
        entries = self._entries.get(path, [])
        gone = [entry for entry in entries if revision in (None, entry.revision)]
        if gone:
            self._entries[path] = [entry for entry in entries if entry not in gone]
            self._deleted[path] = max(self._deleted.get(path, 0), *(entry.revision for entry in gone))
        return len(gone)

    async def versions(self, path: str) -> list[CatalogEntry]:
        return list(self._entries.get(path, ()))

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
        found = [entries[0] for path, entries in sorted(self._entries.items()) if path.startswith(prefix) and entries]
        return [
            entry
            for entry in found
            if (after is None or entry.path > after)
            and covers(scope, entry.path)
            and (not kinds or entry.kind in kinds)
            and all(_label_text(entry.labels.get(name)) == value for name, value in labels.items())
            and all(word in _searched_text(entry) for word in words)
        ][:limit]


def _searched_text(entry: CatalogEntry) -> str:
    labels = " ".join(f"{name}={_label_text(value)}" for name, value in entry.labels.items() if value is not None)
    parts = [part[:SEARCHED_CHARACTERS] for part in (entry.description or "", labels, " ".join(entry.tags))]
    return ascii_lower(" ".join([entry.path, entry.name, *parts]))


def _label_text(value: object) -> str | None:
    """Returns a label as text, like Postgres' ``->>``."""
    return value if value is None or isinstance(value, str) else codec.encode(value).decode()
