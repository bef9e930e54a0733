"""Grants registered by admins, directly on Postgres."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from noetl_stream.errors import Conflict, NotFound, UsageError, VersionMismatch
from noetl_stream.model.rights import has_valid_segments, namespace_of
from noetl_stream.operations.cluster import server_uses
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.access import GrantsDocument, PlaybookGrantsDocument
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores.catalog import GrantsRevision, GrantsStore
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.settings.grants import EVERYTHING, SORTS, Grants, GrantsFile, GrantsSource, parse_grants

_NONE: Final = GrantsDocument("none", 0, "")


class GrantsPorts(NamedTuple):
    """The ports for grants. ``in_force`` is the source of this process's grants."""

    store: GrantsStore
    in_force: GrantsSource
    bus: Bus
    clock: Clock


class DirectGrants:
    """:class:`~noetl_stream.ports.operations.access.GrantsRegistry`, where each method is described."""

    def __init__(self, ports: GrantsPorts) -> None:
        self._store, self._in_force, self._bus, self._clock = ports

    async def get(self, revision: int | None = None) -> GrantsDocument:
        if revision is not None:
            found = await self._store.get(revision)
            if found is None:
                raise NotFound(f"the grants have no revision {revision}")
            return _document(found)
        if isinstance(self._in_force, GrantsFile):
            return GrantsDocument("file", 0, self._in_force.current().text)
        latest = await self._store.latest()
        return _NONE if latest is None else _document(latest)

    async def put(self, revision: int, source: bytes, by: str, reason: str = "") -> GrantsDocument:
        text = (await asyncio.to_thread(parse_grants, source, "grants")).text
        await self._require_no_file()
        new = GrantsRevision(revision, text, self._clock.now_ms(), by)
        if await self._store.add(new):
            return _document(new)
        stored, latest = await self._store.get(revision), await self._store.latest()
        if stored is not None and (stored.source, stored.registered_by) == (text, by):
            return _document(stored)  # by an earlier attempt of this call
        number, by_whom = (0, "") if latest is None else (latest.revision, f", registered by {latest.registered_by}")
        message = f"the grants have revision {number}{by_whom}: the next is {number + 1}, not {revision}"
        raise VersionMismatch(message, hint="read the grants again: `noetl-stream grant get`")

    async def usable(self, path: str) -> PlaybookGrantsDocument:
        await self._in_force.refresh()
        return usable_in(self._in_force.current(), path)

    async def _require_no_file(self) -> None:
        """Raises :class:`~noetl_stream.errors.Conflict` if this process, or a server, has a file of grants."""
        with_file = [use.process for use in await server_uses(self._bus) if use.grants == "file"]
        if isinstance(self._in_force, GrantsFile) or with_file:
            who = f"the server {with_file[0]}" if with_file else "this process"
            hint = "change that file; what is registered would not count"
            raise Conflict(f"a file of the operator says what playbooks may use: NOETL_GRANTS of {who}", hint=hint)


def usable_in(grants: Grants | None, path: str) -> PlaybookGrantsDocument:
    """Returns the grants of the playbook at a path; ``None``: it may use everything.

    Raises:
        UsageError: it is not a path.
    """
    path = path.strip("/")
    if not has_valid_segments(path):
        raise UsageError(f"{path!r} is not a path", hint="a path looks like `team/report`")
    namespace = namespace_of(path) if grants is None else grants.namespace_of(path)
    names = {sort: [EVERYTHING] if grants is None else list(grants.names_for(path, sort)) for sort in SORTS}
    return PlaybookGrantsDocument(path, namespace, **names)


def _document(found: GrantsRevision) -> GrantsDocument:
    return document_from(GrantsDocument, found, origin="registered")
