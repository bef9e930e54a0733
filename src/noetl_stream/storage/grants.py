"""The grants in force on a server or gateway: those of the operator's file, else those that admins registered."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from noetl_stream.errors import NoetlError, Unreachable
from noetl_stream.model.rights import GrantsDefault
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.grants import GrantsRevision, GrantsStore
from noetl_stream.settings.grants import DefaultGrants, Grants, GrantsFile, GrantsSource, parse_grants

log = logging.getLogger(__name__)

REFRESH_S: Final = 2.0
"""How often servers and gateways look for a newer revision of the grants."""


def grants_in_force(
    file: Path | None, default: GrantsDefault | None, store: GrantsStore, *, is_open: bool = False
) -> GrantsSource:
    """Returns where a process has the grants from.

    Args:
        file: The operator's; with it, nothing registered counts.
        default: What playbooks may use that no grant covers; ``None``: nothing, or everything without grants.
        is_open: Whether playbooks may use everything without anybody having said so.

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
        if self._seen is not None:  # one that is invalid is told of once
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
        except Unreachable as error:  # who needs the database says so
            log.debug("cannot look for newer grants: %s", error)
        except NoetlError as error:
            log.error("the grants stay as they were: %s", error)
