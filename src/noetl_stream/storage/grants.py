"""The grants in force on a server or gateway: those of the operator's file, or else those registered by admins."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from noetl_stream.errors import NoetlError, Unreachable
from noetl_stream.model.rights import GrantsDefault
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.catalog import GrantsRevision, GrantsStore
from noetl_stream.settings.grants import DefaultGrants, Grants, GrantsFile, GrantsSource, parse_grants

log = logging.getLogger(__name__)

REFRESH_S: Final = 2.0
"""The interval at which servers and gateways look for a newer revision of the grants."""


def grants_in_force(
    file: Path | None, default: GrantsDefault | None, store: GrantsStore, *, is_open: bool = False
) -> GrantsSource:
    """Returns the source of a process's grants.

    Args:
        file: The operator's file; with it, registered grants do not count.
        default: The rights of playbooks without a grant; ``None``: none, or all if there are no grants.
        is_open: Whether playbooks may use everything without anybody having configured so.

    Raises:
        UsageError: the file cannot be read, or is invalid.
    """
    if file is not None:
        return GrantsFile(file, default or "nothing")
    return RegisteredGrants(store, default, is_open=is_open)


class RegisteredGrants:
    """The grants that admins have registered, or the default of the installation as long as there are none.

    No playbook may use anything before they are first read. An invalid revision changes nothing.
    """

    def __init__(self, store: GrantsStore, default: GrantsDefault | None, *, is_open: bool = False) -> None:
        self._store, self._default = store, default
        self._unwritten = DefaultGrants(default, is_open=is_open)
        self._seen: GrantsRevision | None = None
        self._grants: Grants | None = Grants(())

    @property
    def is_chosen(self) -> bool:
        return self._seen is not None or self._unwritten.is_chosen

    def current(self) -> Grants | None:
        return self._grants

    async def refresh(self) -> None:
        found = await self._store.latest(self._seen)
        if found is None:
            if self._seen is None:
                self._grants = self._unwritten.current()
            return
        if self._seen is not None:  # an invalid revision is reported once
            self._seen = found
        name = f"revision {found.revision} of the grants"
        # In a thread: a long text takes a second.
        self._grants = await asyncio.to_thread(parse_grants, found.source.encode(), name, self._default or "nothing")
        self._seen = found


async def keep_fresh(grants: GrantsSource, clock: Clock) -> None:
    """Refreshes grants every :data:`REFRESH_S`; never returns."""
    while True:
        await clock.sleep(REFRESH_S)
        try:
            await grants.refresh()
        except Unreachable as error:  # reported by those who need the database
            log.debug("cannot look for newer grants: %s", error)
        except NoetlError as error:
            log.error("the grants stay as they were: %s", error)
