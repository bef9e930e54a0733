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
        self._bundles: dict[str, int] = {}

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

    async def want_bundle(self, name: str, now_ms: int) -> bool:
        known_ms = self._bundles.get(name, now_ms)
        if known_ms:
            self._bundles[name] = max(known_ms, now_ms)
        return bool(known_ms)

    async def unwanted_bundles(self, now_ms: int, before_ms: int) -> list[str]:
        listed = [entry for entries in self._entries.values() for entry in entries]
        named = {entry.digest for entry in listed if entry.version or entry is self._entries[entry.path][0]}
        named |= {row.digest for row in self._store.tables.executions.values()}
        texts = [row.source for digest, row in self._store.tables.playbooks.items() if digest in named]
        for name, wanted_ms in self._bundles.items():
            if wanted_ms and any(name[-65:] in text for text in texts):
                self._bundles[name] = now_ms
            elif wanted_ms < before_ms:
                self._bundles[name] = 0
        return [name for name, wanted_ms in self._bundles.items() if not wanted_ms]

    async def forget_bundle(self, name: str) -> None:
        if not self._bundles.get(name, 1):
            del self._bundles[name]


def _searched_text(entry: CatalogEntry) -> str:
    labels = " ".join(f"{name}={_label_text(value)}" for name, value in entry.labels.items() if value is not None)
    parts = [part[:SEARCHED_CHARACTERS] for part in (entry.description or "", labels, " ".join(entry.tags))]
    return ascii_lower(" ".join([entry.path, entry.name, *parts]))


def _label_text(value: object) -> str | None:
    """Returns a label as text, like Postgres' ``->>``."""
    return value if value is None or isinstance(value, str) else codec.encode(value).decode()
