"""The catalog: playbooks by path and version, each pinned to the digest of its text (LANGUAGE §9, §12 *playbook*)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from noetl_stream.errors import UsageError
from noetl_stream.playbook.diagnostics import listed

_REVISION: Final = re.compile(r"#?([1-9][0-9]{0,8})")


class VersionTaken(UsageError):
    """Another text is registered under this ``metadata.version``: a version never changes."""


class VersionAmbiguous(UsageError):
    """What stands after the ``@`` is the version of one entry and the revision of another."""


class CatalogEntry(NamedTuple):
    """A registered playbook.

    Attributes:
        path: Its place, without a leading slash.
        version: The author's ``metadata.version``, if there is one.
        revision: Counts what was registered under the path: 1, 2, 3 …
        digest: SHA-256 of the text, in hex; executions are pinned to it.
        labels: ``metadata.labels``; values are scalars.
        registered_ms: When, ms since 1970.
        registered_by: Who, as the system calls them.
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
        """What people write after the ``@``: the version, or the revision where the author gave none."""
        return self.version if self.version is not None else str(self.revision)


class Catalog(Protocol):
    """Registered playbooks. An entry never changes; the latest of a path is the one registered last.

    Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away.
    """

    async def register(self, entry: CatalogEntry, source: str) -> CatalogEntry:
        """The entry as it stands now; ``entry.revision`` is not read. Safe to call twice, also at the same time.

        The same text under the same version, or without a version and the same as the latest, gives the entry that is
        there already. ``source`` is kept by its digest, where executions find it.

        Raises:
            VersionTaken: the version is registered with another text.
        """
        ...

    async def resolve(self, path: str, version: str | None) -> CatalogEntry | None:
        """The latest entry of ``path``, or the one that ``version`` names (:func:`chosen`).

        Raises:
            VersionAmbiguous: it names two.
        """
        ...

    async def versions(self, path: str) -> list[CatalogEntry]:
        """All entries of a path, newest first."""
        ...

    async def latest(self, prefix: str, labels: Mapping[str, str], limit: int, after: str | None) -> list[CatalogEntry]:
        """The latest entry of each path, by path.

        Args:
            prefix: What the path begins with.
            labels: Labels the entry must have, values as their text: ``{"tier": "1"}`` finds ``tier: 1``.
            limit: How many at most.
            after: A path to go on from.
        """
        ...

    async def delete(self, path: str, revision: int | None) -> int:
        """Takes an entry, or all of the path with ``None``, out of the catalog; how many there were.

        Texts stay where executions find them. A revision is not given a second time; a version may be.
        """
        ...


def settled(wanted: CatalogEntry, standing: Sequence[CatalogEntry], deleted: int = 0) -> CatalogEntry:
    """What registering ``wanted`` comes to: an entry of ``standing``, or ``wanted`` with the next revision.

    Args:
        standing: Of the same path, at least the latest entry and the one with the wanted version, newest first.
        deleted: The highest revision of the path that was deleted.

    Raises:
        VersionTaken: the version is registered with another text.
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
            f"{wanted.path}@{wanted.version} is registered with another text ({same.digest[:12]})",
            hint="a version never changes: give the new text another metadata.version",
        )
    return same


def revision_in(version: str) -> int | None:
    """The revision that ``3`` or ``#3`` names; ``None`` for a text that cannot be one."""
    found = _REVISION.fullmatch(version)
    return int(found[1]) if found else None


def chosen(version: str, entries: Sequence[CatalogEntry]) -> CatalogEntry | None:
    """The one entry of a path that ``version`` names: by its own version, or by its revision; ``#3`` is revision 3.

    Raises:
        VersionAmbiguous: it is the version of one entry and the revision of another.
    """
    revision = revision_in(version)
    found = [entry for entry in entries if version == entry.version or revision == entry.revision]
    if len(found) > 1:
        spellings = listed(f"{entry.path}@#{entry.revision}" for entry in found)
        raise VersionAmbiguous(
            f"{found[0].path}@{version} is a version and, of another text, a revision",
            hint=f"say which revision is meant: {spellings}",
        )
    return found[0] if found else None
