"""The catalog: playbooks by path and version, each pinned to the digest of its text (LANGUAGE §9, §12 *playbook*)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from noetl_stream.errors import UsageError
from noetl_stream.playbook.diagnostics import listed

_REVISION: Final = re.compile(r"#?([1-9][0-9]{0,8})")


class VersionTaken(UsageError):
    """This ``metadata.version`` is registered with a different text: a version never changes."""


class VersionAmbiguous(UsageError):
    """The text after the ``@`` is the version of one entry and the revision of another."""


class CatalogEntry(NamedTuple):
    """A registered playbook.

    Attributes:
        path: Its path, without a leading slash.
        version: The author's ``metadata.version``, if any.
        revision: Counts registrations under the path: 1, 2, 3 …
        digest: SHA-256 of the text, in hex; executions are pinned to it.
        labels: ``metadata.labels``; values are scalars.
        registered_ms: When, in ms since the epoch.
        registered_by: The principal who registered it.
    """

    path: str
    version: str | None
    revision: int
    digest: str
    name: str
    description: str | None
    labels: Mapping[str, Any]
    tags: list[str]
    registered_ms: int
    registered_by: str

    @property
    def known_as(self) -> str:
        """What people write after the ``@``: the version, or the revision without one."""
        return self.version if self.version is not None else str(self.revision)


class Catalog(Protocol):
    """Registered playbooks. Entries never change; the latest of a path is the one registered last.

    Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away.
    """

    async def register(self, entry: CatalogEntry, source: str) -> CatalogEntry:
        """Registers a playbook, returns its entry; ``entry.revision`` is ignored. Idempotent, also concurrently.

        The same text under the same version, or without a version and equal to the latest, returns the existing entry.
        ``source`` is stored by its digest, where executions find it.

        Raises:
            VersionTaken: the version is registered with a different text.
        """
        ...

    async def resolve(self, path: str, version: str | None) -> CatalogEntry | None:
        """The latest entry of ``path``, or the one ``version`` names (:func:`chosen`).

        Raises:
            VersionAmbiguous: it names two.
        """
        ...

    async def versions(self, path: str) -> list[CatalogEntry]:
        """All entries of a path, newest first."""
        ...

    async def latest(self, prefix: str, labels: Mapping[str, str], limit: int, after: str | None) -> list[CatalogEntry]:
        """The latest entry of each path, ordered by path.

        Args:
            prefix: The start of the paths.
            labels: Labels the entry must have, values as text: ``{"tier": "1"}`` matches ``tier: 1``.
            limit: How many at most.
            after: The path to continue after.
        """
        ...

    async def delete(self, path: str, revision: int | None) -> int:
        """Deletes an entry, or all of the path with ``None``; returns how many there were.

        Texts stay where executions find them. A revision is never reused; a version may be.
        """
        ...


def settled(wanted: CatalogEntry, standing: Sequence[CatalogEntry], deleted: int = 0) -> CatalogEntry:
    """The entry that registering ``wanted`` yields: one of ``standing``, or ``wanted`` with the next revision.

    Args:
        standing: Existing entries of the path, newest first: at least the latest and the one with the wanted version.
        deleted: The highest deleted revision of the path.

    Raises:
        VersionTaken: the version is registered with a different text.
    """
    latest = standing[0] if standing else None
    if wanted.version is None:
        same = latest if latest is not None and latest.digest == wanted.digest else None
    else:
        same = next((entry for entry in standing if entry.version == wanted.version), None)
    if same is None:
        return wanted._replace(revision=max(latest.revision if latest else 0, deleted) + 1)
    if same.digest != wanted.digest:
        raise VersionTaken(
            f"{wanted.path}@{wanted.version} is registered with a different text ({same.digest[:12]})",
            hint="a version never changes: give the new text another metadata.version",
        )
    return same


def revision_in(version: str) -> int | None:
    """The revision named by ``3`` or ``#3``; ``None`` if the text is not one."""
    found = _REVISION.fullmatch(version)
    return int(found[1]) if found else None


def chosen(version: str, entries: Sequence[CatalogEntry]) -> CatalogEntry | None:
    """The entry of a path that ``version`` names, by version or by revision; ``#3`` is revision 3.

    Raises:
        VersionAmbiguous: it is the version of one entry and the revision of another.
    """
    revision = revision_in(version)
    found = [entry for entry in entries if version == entry.version or revision == entry.revision]
    if len(found) > 1:
        spellings = listed(f"{entry.path}@#{entry.revision}" for entry in found)
        raise VersionAmbiguous(
            f"{found[0].path}@{version} is both a version and, of a different text, a revision",
            hint=f"name the revision: {spellings}",
        )
    return found[0] if found else None
