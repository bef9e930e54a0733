"""The catalog, directly on Postgres."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from noetl_stream.errors import BlobMissing, Conflict, Forbidden, NotFound, UsageError
from noetl_stream.model.aggregates import SCHEDULE, TRIGGER, TriggerTerms
from noetl_stream.model.bundles import files_of, named_bundle
from noetl_stream.model.json import codec
from noetl_stream.model.rights import covers
from noetl_stream.operations.bundles import read_bundle
from noetl_stream.operations.executions.prepare import PlaybookChecker, refusal_of
from noetl_stream.operations.executions.submit import delete_by_server
from noetl_stream.operations.paging import page_of, page_size, read_cursor
from noetl_stream.operations.statistics import PlaybookStatistics
from noetl_stream.playbook.diagnostics import Diagnostic, Problems
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations import playbooks as documents
from noetl_stream.ports.operations.reading.graphs import GraphDocument
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores.catalog import (
    PLAYBOOK,
    SCHEMA,
    Address,
    Catalog,
    CatalogEntry,
    KindTaken,
    VersionAmbiguous,
    VersionTaken,
    find_entry,
    find_versions,
    is_path,
    is_version,
    read_address,
    words_in,
)
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.stores.tallies import RecentExecution
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.protocol.subjects import bundle_key

if TYPE_CHECKING:
    from noetl_stream.playbook.check.calls import PlaybookCall
    from noetl_stream.playbook.compile.compiler import CatalogDocument, CheckResult
    from noetl_stream.playbook.plan import Plan
    from noetl_stream.playbook.trigger.trigger_document import TriggerDocument

PART_HINT = "up to 256 printable characters except white space and `@`"
STATISTICS_MS = 7 * 24 * 3_600_000
MAX_CALLS_LOOKED_UP = 100
"""The most calls of other playbooks that a check looks up in the catalog."""

MAX_TRIGGERS_LOOKED_AT = 1_000
"""The registered triggers among which a check looks for a circle."""


class PlaybookPorts(NamedTuple):
    store: Store
    catalog: Catalog
    clock: Clock
    blobs: Blobs
    bus: Bus


class DirectPlaybooks:
    """:class:`~noetl_stream.ports.operations.playbooks.Playbooks`, where each method is described.

    Args:
        begin: Called with each registered entry, which may be a schedule or a trigger, and its author.
    """

    def __init__(
        self,
        ports: PlaybookPorts,
        checking: PlaybookChecker,
        begin: Callable[[CatalogEntry, CheckResult, str], Awaitable[None]] | None = None,
    ) -> None:
        self._begin = begin
        self._store = ports.store
        self._catalog = ports.catalog
        self._clock = ports.clock
        self._blobs = ports.blobs
        self._bus = ports.bus
        self._checking = checking
        self._statistics = PlaybookStatistics(ports.store)

    async def check(
        self, source: bytes, name: str, paths: Sequence[str] = (), *, graph: bool = False
    ) -> documents.CheckedDocument:
        checked = await self._checking.check_document(source, name, proves=True)
        if checked.plan is not None and checked.plan.named_schemas:
            schemas = await self._schemas(checked.plan.named_schemas, paths)
            checked = await self._checking.check_document(source, name, schemas, proves=True)
        document = checked.document
        unknown = await self._unregistered(checked.calls, name)
        unknown += await self._circle(checked.trigger, name, paths)
        return documents.CheckedDocument(
            ok=checked.ok,
            path=document.path if document else None,
            version=document.version if document else None,
            digest=document.digest if document else None,
            diagnostics=sorted([*checked.diagnostics, *unknown]),
            graph=await _drawn(checked.draft) if graph and checked.draft is not None else None,
        )

    async def _schemas(self, addresses: Iterable[str], paths: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The registered ones, by address."""
        found: dict[str, dict[str, Any]] = {}
        for text in addresses:
            address = read_address(text)
            if address is None or not covers(paths, address.path):
                continue
            with suppress(NotFound, UsageError):
                entry = await find_entry(self._catalog, address, SCHEMA)
                checked = await self._checking.check_document((await self._source(entry)).encode(), text)
                if checked.schema is not None:
                    found[text] = checked.schema.content
        return found

    async def register(self, source: bytes, name: str, by: str) -> documents.RegisteredDocument:
        checked = await self._checking.check_document(source, name)
        circle = [replace(one, severity="error") for one in await self._circle(checked.trigger, name)]
        if checked.document is None or circle:
            raise refusal_of(replace(checked, diagnostics=(*circle, *checked.diagnostics)), name)
        bundle = checked.plan.bundle if checked.plan is not None else ""
        if bundle and not (await self._wants(bundle) and await read_bundle(self._blobs, bundle) is not None):
            raise UsageError(f"the bundle {bundle} is not stored", hint="`noetl-stream deploy` stores it")
        if checked.plan is not None:
            await self._checking.require_locks(self._blobs, checked.plan, name)
        text = source.decode()
        now_ms = self._clock.now_ms()
        wanted = await asyncio.to_thread(  # it reads the text again
            entry_of, text, checked.document, registered_ms=now_ms, registered_by=by
        )
        try:
            entry = await self._catalog.register(wanted, text)
        except (VersionTaken, KindTaken) as error:
            raise Conflict(error.message, hint=error.hint) from None
        is_new = (entry.registered_ms, entry.registered_by) == (wanted.registered_ms, by)
        try:
            if self._begin is not None:
                await self._begin(entry, checked, by)
        except (UsageError, Conflict, Forbidden):
            if is_new:
                await self._catalog.delete(entry.path, entry.revision)
            raise
        return document_from(documents.RegisteredDocument, entry, created=is_new)

    async def put_bundle(self, path: str, source: bytes, by: str) -> documents.BundleDocument:
        files = await asyncio.to_thread(files_of, source)
        name = str(named_bundle(_address(path, None).path, source))
        if not await self._wants(name):
            hint = "repeat the command in a moment"
            raise Conflict(f"the bundle {name} is being deleted, since nothing named it", hint=hint)
        if await read_bundle(self._blobs, name) is None and not await self._stores(name, source):
            await delete_by_server(self._bus, [bundle_key(name)])
            if not await self._stores(name, source):
                hint = "repeat the command; if that does not help, look at the object store with `noetl-stream doctor`"
                raise Conflict(f"the bundle {name} is damaged in the object store", hint=hint)
        return documents.BundleDocument(name, len(files), len(source))

    async def get_bundle(self, path: str, digest: str) -> documents.StoredBundleDocument:
        name = f"{_address(path, None).path}@{digest}"
        if (data := await read_bundle(self._blobs, name)) is None:
            raise NotFound(f"no bundle {name} is stored, or it is damaged", hint="`noetl-stream deploy` stores it")
        return documents.StoredBundleDocument(name, len(files_of(data)), len(data), b64encode(data).decode())

    async def _wants(self, name: str) -> bool:
        return await self._catalog.want_bundle(name, self._clock.now_ms())

    async def _stores(self, name: str, source: bytes) -> bool:
        """Stores a bundle. Returns whether it is stored intact: a damaged one is never overwritten."""
        with suppress(BlobMissing):
            await self._blobs.put(bundle_key(name), source)
        return await read_bundle(self._blobs, name) is not None

    async def page(
        self,
        prefix: str,
        labels: Mapping[str, str],
        limit: int,
        cursor: str | None,
        *,
        words: str = "",
        kinds: Collection[documents.CatalogKind] = (),
        last: bool = False,
        scope: Sequence[str] = (),
    ) -> documents.PlaybookPage:
        size, after = page_size(limit), read_cursor(cursor, str)
        found = await self._catalog.latest(
            prefix, labels, size + 1, after, words=words_in(words), kinds=list(kinds), scope=scope
        )
        entries, following = page_of(found, size, lambda entry: entry.path)
        newest = await self._store.last_executions([entry.path for entry in entries]) if last else {}
        return documents.PlaybookPage([_listed(entry, newest.get(entry.path)) for entry in entries], following)

    async def get(self, path: str, version: str | None) -> documents.PlaybookWithSourceDocument:
        entry = await find_entry(self._catalog, _address(path, version))
        return await self._with_source(entry)

    async def versions(self, path: str) -> list[documents.PlaybookDocument]:
        entries = await find_versions(self._catalog, _address(path, None).path)
        return [document_from(documents.PlaybookDocument, entry) for entry in entries]

    async def plan(self, path: str, version: str | None) -> dict[str, Any]:
        """
        Raises, in addition to the errors of the port:
            PlaybookRefused: it was registered where other tool kinds are installed.
        """
        from noetl_stream.playbook.compile.view import compiled_view

        return compiled_view(await self._plan(path, version))

    async def graph(self, path: str, version: str | None, digest: str | None = None) -> GraphDocument:
        """Raises: as :meth:`plan`."""
        from noetl_stream.operations.graphs import graph_document

        return graph_document(
            await (self._plan(path, version) if digest is None else self._text(path, version, digest))
        )

    async def diff(self, path: str, before: str | None, after: str | None) -> documents.PlaybookDiffDocument:
        second = await find_entry(self._catalog, _address(path, after))
        first = await (self._earlier(second) if before is None else find_entry(self._catalog, _address(path, before)))
        return await self._diff(first, await self._source(second), second)

    async def diff_text(
        self, path: str, before: str | None, source: bytes, name: str
    ) -> documents.PlaybookDiffDocument:
        try:
            text = source.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{name} is not UTF-8 text") from None
        return await self._diff(await find_entry(self._catalog, _address(path, before)), text, None, name)

    async def _earlier(self, entry: CatalogEntry) -> CatalogEntry | None:
        """The entry that was registered before this one, if any."""
        entries = await self._catalog.versions(entry.path)
        return next((one for one in entries if one.revision < entry.revision), None)

    async def _diff(
        self, first: CatalogEntry | None, text: str, second: CatalogEntry | None, name: str = ""
    ) -> documents.PlaybookDiffDocument:
        from noetl_stream.operations.differences import playbook_diff

        before = None if first is None else await self._with_source(first)
        after = None if second is None else document_from(documents.PlaybookDocument, second)
        # In a thread: it may take long.
        return await asyncio.to_thread(playbook_diff, before, after, text, name)

    async def statistics(self, path: str, since_ms: int | None = None) -> documents.PlaybookStatisticsDocument:
        now_ms = self._clock.now_ms()
        path = _address(path, None).path
        found = await self._statistics.of(path, now_ms - STATISTICS_MS if since_ms is None else since_ms, now_ms)
        if not found.executions:
            await find_versions(self._catalog, path)
        return found

    async def schema(self, kind: documents.SchemaKind = "Playbook") -> dict[str, Any]:
        return await self._checking.schema(kind)

    async def delete(self, path: str, version: str | None, by: str) -> None:
        entry = await find_entry(self._catalog, _address(path, version))
        if entry.kind in (SCHEDULE, TRIGGER):
            noun = entry.kind.lower()
            hint = f"`noetl-stream {noun} delete {entry.path}` deletes it with all versions"
            raise Conflict(f"{entry.path} is a {noun}: deleting its document would not stop it", hint=hint)
        await self._catalog.delete(entry.path, None if version is None else entry.revision)

    async def _unregistered(self, calls: Sequence[PlaybookCall], file: str) -> list[Diagnostic]:
        """A warning for each call of a playbook that the catalog does not have."""
        found: list[Diagnostic] = []
        known: dict[tuple[str, str | None], bool] = {}
        for call in calls[:MAX_CALLS_LOOKED_UP]:
            address = (call.path, call.version)
            if address not in known:
                known[address] = await self._is_registered(*address)
            if not known[address]:
                found.append(call.missing_warning(file))
        return found

    async def _circle(
        self, trigger: TriggerDocument | None, file: str, paths: Sequence[str] | None = None
    ) -> list[Diagnostic]:
        """A warning if the trigger may start itself again, with those that are registered, and does not allow it.

        Args:
            paths: The paths that the caller may see, empty for all; ``None``: unknown, so that other triggers are not
                named.
        """
        if trigger is None or trigger.terms.watched is None or trigger.allows_circle:
            return []
        from noetl_stream.engine.aggregates.triggers import TriggerState  # most checks are of playbooks
        from noetl_stream.playbook.trigger.matching import circle_of, warning_of

        rows = await self._store.list_aggregates(TRIGGER, "", MAX_TRIGGERS_LOOKED_AT, None)
        states = [codec.decode_as(TriggerState, row.state) for row in rows]
        triggers = {one.path: one.terms for one in states} | {trigger.path: trigger.terms}
        circle = circle_of(trigger.path, triggers, await self._emitted(triggers))
        if not circle or trigger.call is None:
            return []
        seen = [trigger.path] if paths is None else paths
        return [warning_of(circle, trigger.call, file, seen)]

    async def _emitted(self, triggers: Mapping[str, TriggerTerms]) -> dict[str, frozenset[str]]:
        """The names, by the path of a trigger, of events that its executions can emit and some trigger waits for."""
        names = {terms.event.name for terms in triggers.values() if terms.event is not None}
        known: dict[tuple[str, str | None], frozenset[str]] = {}
        for terms in triggers.values() if names else ():
            address = (terms.playbook, terms.version)
            if address not in known:
                known[address] = await self._emitted_by(*address, names)
        return {path: known[terms.playbook, terms.version] for path, terms in triggers.items() if known}

    async def _emitted_by(self, path: str, version: str | None, names: Collection[str]) -> frozenset[str]:
        with suppress(NotFound, UsageError):
            source = await self._source(await find_entry(self._catalog, _address(path, version), PLAYBOOK))
            if any(name in source for name in names):  # most playbooks need not be compiled
                plan = await self._checking.plan(source, path)
                return frozenset(one.event for step in plan.steps.values() for one in step.emits).intersection(names)
        return frozenset()

    async def _is_registered(self, path: str, version: str | None) -> bool:
        try:
            entry = await self._catalog.resolve(path, version)
            return entry is not None and entry.kind == PLAYBOOK
        except VersionAmbiguous:
            return True

    async def _plan(self, path: str, version: str | None) -> Plan:
        entry = await find_entry(self._catalog, _address(path, version), PLAYBOOK)
        return await self._checking.plan(await self._source(entry), f"{entry.path}@{entry.known_as}")

    async def _text(self, path: str, version: str | None, digest: str) -> Plan:
        if version is not None:
            raise UsageError("give a version or a digest, not both")
        row = await self._store.playbook(digest)
        if row is None or row.path != _address(path, None).path:
            raise NotFound(f"no text of {path} has the digest {digest}")
        return await self._checking.plan(row.source, path)

    async def _with_source(self, entry: CatalogEntry) -> documents.PlaybookWithSourceDocument:
        return document_from(documents.PlaybookWithSourceDocument, entry, source=await self._source(entry))

    async def _source(self, entry: CatalogEntry) -> str:
        row = await self._store.playbook(entry.digest)
        assert row is not None  # the entry's foreign key
        return row.source


async def _drawn(draft: Plan) -> GraphDocument | None:
    from noetl_stream.operations.graphs import draft_document

    return await asyncio.to_thread(draft_document, draft)


def _listed(entry: CatalogEntry, last: RecentExecution | None) -> documents.ListedPlaybookDocument:
    newest = last and document_from(documents.LastExecutionDocument, last)
    return document_from(documents.ListedPlaybookDocument, entry, last=newest)


def _address(path: str, version: str | None) -> Address:
    found = read_address(path if version is None else f"{path}@{version}")
    if found is None or "@" in path:
        raise NotFound(f"{path!r} is not a path in the catalog", hint="a path looks like `examples/airports`")
    return found


def entry_of(source: str, document: CatalogDocument, *, registered_ms: int, registered_by: str) -> CatalogEntry:
    """The catalog entry of a text that was read as ``document``: its address, and its ``metadata`` (LANGUAGE §1).

    Raises:
        UsageError: its path or version contains characters with another meaning in addresses.
    """
    from noetl_stream.playbook.model.document import kind_in  # lists start faster
    from noetl_stream.playbook.yaml.source import read_source

    if not is_path(document.path):
        raise UsageError(f"{document.path!r} is not a valid path", hint=f"use names separated by `/`, {PART_HINT}")
    if document.version is not None and not is_version(document.version):
        hint = f"use {PART_HINT}, not beginning with `#`"
        raise UsageError(f"{document.version!r} is not a valid version", hint=hint)
    read = read_source(source, Problems(document.path))
    assert read is not None  # it compiled
    metadata = read.root.plain()["metadata"]
    return CatalogEntry(
        path=document.path,
        version=document.version,
        revision=0,
        digest=document.digest,
        name=document.name,
        description=metadata.get("description"),
        labels=metadata.get("labels") or {},
        tags=metadata.get("tags") or [],
        registered_ms=registered_ms,
        registered_by=registered_by,
        kind=kind_in(read.root),
    )
