"""What starts executions by itself begins when its document is registered: schedules and triggers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from noetl_stream.ports.stores.catalog import CatalogEntry

if TYPE_CHECKING:  # lists of the catalog need none of it
    from noetl_stream.operations.starters.schedules import DirectSchedules
    from noetl_stream.operations.starters.triggers import DirectTriggers
    from noetl_stream.playbook.compile.compiler import CheckResult


class RegisteredStarters:
    """Args: each called when there is one to begin."""

    def __init__(self, schedules: Callable[[], DirectSchedules], triggers: Callable[[], DirectTriggers]) -> None:
        self._schedules = schedules
        self._triggers = triggers

    async def begin(self, entry: CatalogEntry, checked: CheckResult, by: str) -> None:
        """Has servers start executions by what was registered as ``entry``, if it is a schedule or a trigger.

        Raises:
            UsageError: its playbook, or that version of it, is not registered.
            Forbidden: ``by`` may not start it.
            Conflict: a server of an older version runs.
        """
        if checked.schedule is not None:
            await self._schedules().register(entry, checked.schedule, by)
        elif checked.trigger is not None:
            await self._triggers().register(entry, checked.trigger, by)
