"""Grants registered by admins; each change is a revision, and all are kept."""

from __future__ import annotations

from typing import Protocol

import msgspec


class GrantsRevision(msgspec.Struct, frozen=True, gc=False):
    """A revision of the grants, numbered from 1. ``source`` is their text; the latest revision is in force."""

    revision: int
    source: str
    registered_ms: int
    registered_by: str


class GrantsStore(Protocol):
    """The revisions. Any method raises Unreachable when the database is away."""

    async def latest(self, known: GrantsRevision | None = None) -> GrantsRevision | None:
        """The latest revision; ``None`` if there is none, or if it is ``known``."""

    async def get(self, revision: int) -> GrantsRevision | None: ...

    async def add(self, new: GrantsRevision) -> bool:
        """Adds a revision; ``False``, and nothing is stored, unless its number follows that of the latest."""
